/* A lab's verdicts, as `make grade` wrote them down (build/labs/NN/grade.json). */
#ifndef LABS_COURSE_REPORT_POINTS_H
#define LABS_COURSE_REPORT_POINTS_H

#include <stdio.h>

#include "common/base/json.h"
#include "common/base/status.h"
#include "labs/course/report/facts.h"
#include "labs/course/report/words.h"

enum { POINTS_MOST_CHECKS = 64 };

typedef struct check_points {
    const char *name, *verdict, *invariant, *why;
    int points, of;
} check_points;

typedef struct points {
    ls_json *json; /* owns all strings */
    int points, of, check_count;
    double seed;
    check_points checks[POINTS_MOST_CHECKS];
} points;

/* LS_ERR_INVALID: the file is not what the grader writes. Close also after a failure. */
ls_status points_open(points *out, const char *path);
void points_close(points *p);

/* The table of all checks, in the words of the lab's facts, below the first failing case. */
void points_put(FILE *page, language l, const points *p, const facts *f);

#endif
