/* What a check came to: the student's run beside the reference's, with the same seed. */
#ifndef LABS_COURSE_GRADE_VERDICT_H
#define LABS_COURSE_GRADE_VERDICT_H

#include "labs/course/grade/attempt.h"
#include "labs/course/grade/phrases.h"
#include "labs/course/grade/words.h"

typedef enum verdict {
    VERDICT_HELD,
    VERDICT_BROKEN,      /* another observation, a crash, an early end */
    VERDICT_HUNG,        /* past the deadline */
    VERDICT_FORBIDDEN,   /* it tried what is closed to it */
    VERDICT_NOT_WRITTEN, /* a stub */
    VERDICT_NOT_RUN,     /* nothing could be said */
} verdict;

const char *verdict_name(verdict v, words_language language);

/* `why`: the smallest failing case in words, in Chinese by those rules; "" where it held. */
verdict verdict_of(told *why, const attempt *student, const attempt *reference, const phrases *rules);

/* A run under AddressSanitizer: held unless it reports something, does not end, or has seen nothing at all, as where
 * AddressSanitizer itself cannot start. */
verdict verdict_of_memory(told *why, const attempt *student);

#endif
