/* A small DataParallel to look at: devices, a model, and batches of random samples. */
#ifndef LABS_04_DATAPARALLEL_SETUP_H
#define LABS_04_DATAPARALLEL_SETUP_H

#include "dp_threads/dp.h"
#include "labs/course/probe/probe.h"

enum { MOST_DEVICES = 4, MOST_ROWS = 16, INPUTS = 20, OUTPUTS = 5, MOST_INPUT_NBYTES = INPUTS * 4 };
#define MODEL "mlp:20,16,5"

typedef struct setup {
    int devices, output_device;
    ls_dtype precision;
    const char *streams; /* as in LS_CPU_STREAMS */
    /* filled by setup_open */
    ls_device *device[MOST_DEVICES];
    ls_model *module;
    struct dp *dp;
    ls_parallel *parallel; /* the same */
    /* filled by setup_draw */
    ls_batch batch;
    float values[MOST_ROWS * INPUTS];
    char inputs[MOST_ROWS * MOST_INPUT_NBYTES];
    int64_t labels[MOST_ROWS];
} setup;

/* Opens what the first four members say, with weights from the seed. What fails ends the probe. */
void setup_open(probe *p, setup *s);
void setup_close(setup *s);

/* A new batch, at most MOST_ROWS samples; the one before it is no longer needed. */
void setup_draw(probe *p, setup *s, size_t rows);

/* Waits for all devices. What failed ends the probe. */
void setup_rest(probe *p, const setup *s);

#endif
