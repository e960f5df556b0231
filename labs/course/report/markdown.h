/* Converts a student's answers from Markdown to HTML: headings, paragraphs, lists, quotes, code, tables, emphasis. No
 * links, pictures or HTML: a link's address is put after its text, and HTML is shown as it was typed. */
#ifndef LABS_COURSE_REPORT_MARKDOWN_H
#define LABS_COURSE_REPORT_MARKDOWN_H

#include <stddef.h>
#include <stdio.h>

/* Quotes that begin with a number are a sheet's questions, and the text between them their answers. A line <div
 * class="question"> begins each question, and a line <p class="missing"></p> follows a question without an answer, or
 * with only headings. Headings begin at <h4>. Changes the text. */
void markdown_put(FILE *page, char *text, size_t nbytes);

#endif
