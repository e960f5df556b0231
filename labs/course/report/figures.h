/* The pictures of a folder, as part of a page. */
#ifndef LABS_COURSE_REPORT_FIGURES_H
#define LABS_COURSE_REPORT_FIGURES_H

#include <stdio.h>

#include "labs/course/report/words.h"

enum { FIGURES_MOST = 24 };

/* How many FOLDER/NAME.svg there are; 0 also where there is no folder. */
int figures_count(const char *folder);

/* Writes them in the order of their names, at most FIGURES_MOST, each with what it says of itself: measured, virtual or
 * replayed. One that cannot be shown is named, with the reason. `prefix`: begins the names within the pictures. */
void figures_put(FILE *page, language l, const char *folder, const char *prefix);

#endif
