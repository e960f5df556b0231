/* A dataset, with indices or a stream, whose sample i is the number i, and which can be slow, fail, or hang on
 * purpose. */
#ifndef TESTS_DATA_NUMBERS_H
#define TESTS_DATA_NUMBERS_H

#include <stdatomic.h>

#include "common/data/dataset_internal.h"

#define NUMBERS_INPUT_COUNT 2 /* of a sample: i and i + 0.5; its label is i mod 10 */
#define NUMBERS_MAX_COUNT 1024
#define NUMBERS_NONE INT64_MAX

typedef struct numbers {
    struct ls_dataset base;
    int id;               /* unique */
    int64_t stream_count; /* samples of a stream, which does not report it */
    /* may be changed at any time */
    _Atomic int64_t bad_from;  /* this sample and all after it cannot be read; NUMBERS_NONE */
    _Atomic bool speechless;   /* ... without an error message */
    _Atomic int64_t stuck;     /* reading this sample blocks until this changes; NUMBERS_NONE */
    _Atomic unsigned delay_us; /* reading a sample takes a random time up to this */
    /* counters */
    _Atomic int64_t reads;                        /* samples */
    _Atomic int threads;                          /* that have read */
    _Atomic int reader_of[NUMBERS_MAX_COUNT];     /* the last thread that read sample i, counted from 1 */
    _Atomic int times_read_of[NUMBERS_MAX_COUNT]; /* a stream: as a sample of its own share */
} numbers;

void numbers_init(numbers *n, size_t count);        /* with indices */
void numbers_init_stream(numbers *n, size_t count); /* a stream */

/* Whether the input and label are those of sample i. */
bool numbers_is(int64_t i, const float *input, int64_t label);

#endif
