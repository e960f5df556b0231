/* Ranks that share one layer, a loss or a whole network by a student's functions, and a record of each rank's
 * results. */
#ifndef LABS_22_TENSOR_RUN_H
#define LABS_22_TENSOR_RUN_H

#include "common/nn/layer.h"
#include "labs/course/probe/probe.h"

enum { MOST_RANKS = 4, MOST_STEPS = 4, FORWARD = 0, BACKWARD = 1 };

float *floats_new(probe *p, size_t count);
/* -1 .. 1. */
float *floats_drawn(probe *p, size_t count);
/* Integers of -8 .. 8, whose sums are exact in any order. */
float *wholes_drawn(probe *p, size_t count);

/* Checks values with a tolerance for rounding: about 2e-6 of the largest. */
void see_close(probe *p, const char *what, const float *values, size_t count);

/* --- one layer ---------------------------------------------------------------------------------------------------------- */

struct one_rank {
    ls_layer layer;
    float *x, *y, *dy, *dx; /* y and dx are results */
    size_t in_count, out_count;
    float *parameters[LS_LAYER_MAX_TENSORS], *gradients[LS_LAYER_MAX_TENSORS];
    void *saved, *workspace;
    uint64_t operations[2], sent_bytes[2]; /* of the forward and of the backward pass */
};

struct one_layer {
    ls_layer layer; /* its description, and its input shape */
    int ranks;
    size_t batch;
    bool adds;        /* gradients are added to the existing ones */
    bool is_rounded;  /* inputs are not integers */
    bool same_dy;     /* all ranks have the same gradient of the output */
    bool wants_no_dx; /* backward is called with dx = NULL */
    struct one_rank rank[MOST_RANKS];
};

/* Runs one forward and one backward pass. A failure ends the probe. */
void one_layer_run(probe *p, struct one_layer *job);
void one_layer_release(struct one_layer *job);

/* --- a loss ---------------------------------------------------------------------------------------------------------------- */

struct one_loss {
    int ranks;
    size_t classes, rows;
    float size;    /* of the logits */
    float *logits; /* whole */
    int64_t *labels;
    size_t room;
    float loss[MOST_RANKS], *y[MOST_RANKS], *dy[MOST_RANKS];
    uint64_t operations, sent_bytes; /* rank 0's */
};

void one_loss_run(probe *p, struct one_loss *job);
void one_loss_release(struct one_loss *job);

/* --- a network ----------------------------------------------------------------------------------------------------------- */

struct training {
    const char *model;
    int ranks, steps, micro_batches;
    bool sequence;
    size_t batch; /* of a micro-batch */
    void *x[MOST_STEPS];
    int64_t *labels[MOST_STEPS];
    float losses[MOST_RANKS][MOST_STEPS];
    uint64_t hashes[MOST_RANKS][MOST_STEPS]; /* of the parameters that are not cut */
    float *trained;                          /* rank 0's, whole tensors, concatenated */
    size_t trained_count;
};

void training_run(probe *p, struct training *t);
void training_release(struct training *t);

/* The part of `classes` classes that rank `rank` of `ranks` has. */
struct ls_class_part classes_run(probe *p, size_t classes, int rank, int ranks);

#endif
