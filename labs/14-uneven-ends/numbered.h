/* A stream of numbers: sample i has the inputs i and i + 1/2, and the answer i. It counts the requests of its
 * readers. */
#ifndef LABS_UNEVEN_ENDS_NUMBERED_H
#define LABS_UNEVEN_ENDS_NUMBERED_H

#include <stdatomic.h>

#include "common/data/dataset_internal.h"

enum { NUMBERED_INPUTS = 2 };

typedef struct numbered {
    ls_dataset base;
    int64_t count, bad;                   /* samples; the unreadable one, on any rank (-1: none) */
    ls_status bad_status, open_status;    /* results of reading that sample, and of opening a cursor */
    atomic_int converted, asked_too_late; /* samples that were read in full; requests after the end or a failure */
} numbered;

/* Answers are labels, or, if `targets`, a vector of one float. */
void numbered_init(numbered *n, int64_t count, bool targets);

#endif
