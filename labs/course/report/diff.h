/* What `diff -u` printed, as lines of a page. */
#ifndef LABS_COURSE_REPORT_DIFF_H
#define LABS_COURSE_REPORT_DIFF_H

#include <stddef.h>
#include <stdio.h>

#include "labs/course/report/words.h"

/* A heading for each file, and below it its lines; after the first DIFF_MOST_LINES the number of those that are left
 * out. */
enum { DIFF_MOST_LINES = 3000 };
void diff_put(FILE *page, language l, const char *text, size_t nbytes);

#endif
