/* Pictures that gnuplot drew, made part of a page: shapes and words, and nothing that could run or fetch. */
#ifndef LABS_COURSE_REPORT_SVG_H
#define LABS_COURSE_REPORT_SVG_H

#include <stddef.h>
#include <stdio.h>

enum { SVG_MOST_BYTES = 4 << 20, SVG_TEXT_CAPACITY = 16384, SVG_WHY_CAPACITY = 160 };

typedef struct svg_said {
    char words[SVG_TEXT_CAPACITY]; /* what is written in the picture and in its description, cut at the end */
    char why[SVG_WHY_CAPACITY];    /* "": it was written; otherwise why not */
    int left_out; /* elements that are not among those that are let through, each with all that is in it */
} svg_said;

/* Writes the picture as an <svg> element whose names begin with `prefix` (letters, digits and hyphens), so that several
 * pictures of a page do not share them; `label` is what is read out in its place. Written is only what stands in the lists of
 * elements, attributes and forms of values. Where the text is no picture, why says so and nothing may be used of what was
 * written: give it a text of its own. */
void svg_put(FILE *page, svg_said *said, const char *text, size_t nbytes, const char *prefix, const char *label);

#endif
