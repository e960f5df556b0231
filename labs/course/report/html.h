/* Puts untrusted text into an HTML page: whatever it contains, a browser shows it as text. */
#ifndef LABS_COURSE_REPORT_HTML_H
#define LABS_COURSE_REPORT_HTML_H

#include <stddef.h>
#include <stdio.h>

/* Writes `nbytes` of text so that nothing in it is markup, within an element or within an attribute's double quotes.
 * Invalid UTF-8, control characters (except line feeds and tabs) and characters that change the direction of writing
 * are shown as U+FFFD, the replacement character. */
void html_put(FILE *page, const char *text, size_t nbytes);

/* The same for a null-terminated text. */
void html_put_text(FILE *page, const char *text);

#endif
