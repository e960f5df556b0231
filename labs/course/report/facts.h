/* What labs/course/report.sh found out about a lab: lines of a key and fields, with tabs between them.
 *
 *     number 03 | folder labs/03-allreduce | title WORDS | graded same, other or never
 *     predict NAME QUESTION, and behind it predicted TEXT and result SIGN KIND VALUE, where there are any
 *     check NAME WORDS: what must hold, in the page's language
 *     remark TEXT: a line of predict.txt that is no prediction */
#ifndef LABS_COURSE_REPORT_FACTS_H
#define LABS_COURSE_REPORT_FACTS_H

#include <stdbool.h>

#include "common/base/status.h"

enum { FACTS_MOST_PREDICTIONS = 32, FACTS_MOST_REMARKS = 200, FACTS_MOST_CHECKS = 32 };

typedef struct prediction {
    const char *name, *question;
    const char *predicted;     /* NULL: nothing */
    const char *kind, *result; /* NULL: `make lab` has not run */
    bool came_true;
} prediction;

typedef struct facts {
    char *text; /* owns all strings */
    const char *number, *folder, *title;
    bool graded, graded_other; /* build/labs/NN/grade.json is there; but it is of other code */
    prediction predictions[FACTS_MOST_PREDICTIONS];
    int prediction_count, came_true;
    struct {
        const char *name, *words;
    } checks[FACTS_MOST_CHECKS];
    int check_count;
    const char *remarks[FACTS_MOST_REMARKS];
    int remark_count;
} facts;

/* LS_ERR_INVALID names the line. Close also after a failure. */
ls_status facts_open(facts *out, const char *path);
void facts_close(facts *f);

/* What the check is about in the page's language; `otherwise` where the facts do not say. */
const char *facts_words_of_check(const facts *f, const char *name, const char *otherwise);

#endif
