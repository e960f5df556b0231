/* A small DataParallel for tests: devices, a model, and batches of random samples. */
#ifndef LABS_04_DATAPARALLEL_SETUP_H
#define LABS_04_DATAPARALLEL_SETUP_H

#include "common/base/random.h"
#include "dp_threads/dp.h"
#include "labs/course/probe/probe.h"

enum { MOST_DEVICES = 9, MOST_ROWS = 16, INPUTS = 20, OUTPUTS = 5 };
#define MODEL "mlp:20,16,5"
#define LARGE_MODEL "mlp:20,3000,5" /* of more parameters than 16 bits count */

typedef struct setup {
    int devices, output_device;
    ls_dtype precision;
    const char *streams; /* a value of LS_CPU_STREAMS */
    const char *model;   /* NULL: MODEL */
    size_t most_rows;    /* of a batch; 0: MOST_ROWS */
    uint64_t seed;       /* of weights and batches; 0: a random one */
    /* filled by setup_open */
    ls_device *device[MOST_DEVICES];
    ls_model *module;
    struct dp *dp;
    ls_parallel *parallel;  /* the same */
    ls_generator generator; /* of batches */
    /* filled by setup_draw */
    ls_batch batch;
    float *values; /* most_rows x INPUTS, each of them */
    void *inputs;
    int64_t *labels; /* most_rows */
} setup;

/* Opens devices, model and mode as the first members specify. A failure ends the probe. */
void setup_open(probe *p, setup *s);
void setup_close(setup *s);

/* Draws a new batch of at most `most_rows` samples over the one before it. */
void setup_draw(setup *s, size_t rows);

/* Waits for all devices. A failure ends the probe. */
void setup_rest(probe *p, const setup *s);

#endif
