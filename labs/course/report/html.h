/* Text of others in an HTML page: whatever it holds, a reader sees it as text. */
#ifndef LABS_COURSE_REPORT_HTML_H
#define LABS_COURSE_REPORT_HTML_H

#include <stddef.h>
#include <stdio.h>

/* Writes `nbytes` of text so that nothing in it is markup, within an element or within an attribute's double quotes.
 * What is no UTF-8, a control character (except for line feeds and tabs) or one that turns the direction of writing is
 * shown as U+FFFD, the sign for "not a character". */
void html_put(FILE *page, const char *text, size_t nbytes);

/* The same for a text that ends with a zero byte. */
void html_put_text(FILE *page, const char *text);

#endif
