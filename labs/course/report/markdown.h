/* A student's answers, in Markdown, as HTML: headings, paragraphs, lists, quotes, code, tables, emphasis. There are no
 * links, no pictures and no HTML: a link's address stands behind its words, and HTML is shown as it was typed. */
#ifndef LABS_COURSE_REPORT_MARKDOWN_H
#define LABS_COURSE_REPORT_MARKDOWN_H

#include <stddef.h>
#include <stdio.h>

/* Quotes that begin with a number are a sheet's questions, and what stands between them their answers. A line
 * <div class="question"> begins each question, and a line <p class="missing"></p> stands below one that nothing follows,
 * or only headings. Headings begin at <h4>. Changes the text. */
void markdown_put(FILE *page, char *text, size_t nbytes);

#endif
