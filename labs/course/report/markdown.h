/* What a student wrote, in a small part of Markdown, as HTML: headings, paragraphs, lists, quotes, code, emphasis.
 * Everything else is shown as it was typed; there are no links, no pictures and no HTML. */
#ifndef LABS_COURSE_REPORT_MARKDOWN_H
#define LABS_COURSE_REPORT_MARKDOWN_H

#include <stddef.h>
#include <stdio.h>

/* Quoted blocks that begin with a number are a sheet's questions, and what stands between them their answers. */
typedef struct markdown_said {
    int questions, answered;
    int other_blocks; /* that stand before the first question */
} markdown_said;

/* Headings begin at <h4>. `unanswered` is written below a question that nothing follows, or only a heading. page NULL:
 * only counts. */
markdown_said markdown_put(FILE *page, const char *text, size_t nbytes, const char *unanswered);

/* One line of it: code and emphasis. */
void markdown_put_line(FILE *page, const char *text, size_t nbytes);

#endif
