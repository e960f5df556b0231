/* Pictures that gnuplot drew, made part of a page: shapes and words, and nothing that could run or fetch. */
#ifndef LABS_COURSE_REPORT_SVG_H
#define LABS_COURSE_REPORT_SVG_H

#include <stddef.h>
#include <stdio.h>

enum { SVG_MOST_BYTES = 4 << 20, SVG_WHY_CAPACITY = 160 };

/* Writes the picture as an <svg> element whose names begin with `prefix` (letters, digits and hyphens), so that several
 * pictures of a page do not share them; `label` is what is read out in its place. A picture with anything that the lists of
 * elements, attributes and forms of values do not have is refused as a whole: `why` says it in a line, "" otherwise, and
 * nothing may be used of what was written: give it a text of its own. */
void svg_put(FILE *page, char why[SVG_WHY_CAPACITY], const char *text, size_t nbytes, const char *prefix,
             const char *label);

#endif
