/* Embeds gnuplot's pictures in a page: shapes and words, nothing that could run or fetch. */
#ifndef LABS_COURSE_REPORT_SVG_H
#define LABS_COURSE_REPORT_SVG_H

#include <stddef.h>
#include <stdio.h>

enum { SVG_MOST_BYTES = 4 << 20, SVG_WHY_CAPACITY = 160 };

/* Writes the picture as an <svg> element whose names begin with `prefix` (letters, digits and hyphens), so that several
 * pictures of a page do not share them; `label` is the text for screen readers. A picture with content outside the
 * lists of elements, attributes and forms of values is refused as a whole: `why` is the reason in a line, "" otherwise,
 * and the output must be discarded: write to a buffer. */
void svg_put(FILE *page, char why[SVG_WHY_CAPACITY], const char *text, size_t nbytes, const char *prefix,
             const char *label);

#endif
