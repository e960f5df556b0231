/* The verdict of a check: compares the student's run with the reference's, with the same seed. */
#ifndef LABS_COURSE_GRADE_VERDICT_H
#define LABS_COURSE_GRADE_VERDICT_H

#include "labs/course/grade/attempt.h"
#include "labs/course/grade/phrases.h"
#include "labs/course/grade/words.h"

typedef enum verdict {
    VERDICT_HELD,
    VERDICT_BROKEN,      /* a different observation, a crash, an early end */
    VERDICT_HUNG,        /* past the deadline */
    VERDICT_FORBIDDEN,   /* it tried a forbidden call */
    VERDICT_NOT_WRITTEN, /* a stub */
    VERDICT_NOT_RUN,     /* no verdict */
} verdict;

const char *verdict_name(verdict v, words_language language);

/* `why`: the smallest failing case in words, in Chinese by those rules; "" if the check held. */
verdict verdict_of(told *why, const attempt *student, const attempt *reference, const phrases *rules);

/* A run under AddressSanitizer: held unless it reports an error, does not end, or has no observation, as when
 * AddressSanitizer itself cannot start. */
verdict verdict_of_memory(told *why, const attempt *student);

#endif
