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
    int id;               /* no other has had it */
    int64_t stream_count; /* samples of a stream, which it does not reveal */
    /* may be changed at any time */
    _Atomic int64_t bad_from;  /* this sample and those behind it cannot be read; NUMBERS_NONE */
    _Atomic bool speechless;   /* ... and no line says so */
    _Atomic int64_t stuck;     /* reading this sample lasts until it is another one; NUMBERS_NONE */
    _Atomic unsigned delay_us; /* reading a sample takes up to that long, by chance */
    /* what has been read */
    _Atomic int64_t reads;                        /* samples */
    _Atomic int threads;                          /* that ever read */
    _Atomic int reader_of[NUMBERS_MAX_COUNT];     /* the last thread that read sample i, counted from 1 */
    _Atomic int times_read_of[NUMBERS_MAX_COUNT]; /* a stream: as a sample of its own share */
} numbers;

void numbers_init(numbers *n, size_t count);        /* with indices */
void numbers_init_stream(numbers *n, size_t count); /* a stream */

/* Whether that is sample i. */
bool numbers_is(int64_t i, const float *input, int64_t label);

#endif
