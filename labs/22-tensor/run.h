/* Ranks that share one layer, a loss or a whole network, as a student's functions make them do it, and a record of what each has. */
#ifndef LABS_22_TENSOR_RUN_H
#define LABS_22_TENSOR_RUN_H

#include "common/nn/layer.h"
#include "labs/course/probe/probe.h"

enum { MOST_RANKS = 4, MOST_STEPS = 4, FORWARD = 0, BACKWARD = 1 };

float *floats_new(probe *p, size_t count);
/* -1 .. 1. */
float *floats_drawn(probe *p, size_t count);
/* Whole numbers of -8 .. 8, whose sums are exact in any order. */
float *wholes_drawn(probe *p, size_t count);

/* Values that may differ by rounding: some 2e-6 of the largest. */
void see_close(probe *p, const char *what, const float *values, size_t count);

/* --- one layer ---------------------------------------------------------------------------------------------------------- */

struct one_rank {
    ls_layer layer;
    float *x, *y, *dy, *dx; /* what y and dx have become is kept in them */
    size_t in_count, out_count;
    float *parameters[LS_LAYER_MAX_TENSORS], *gradients[LS_LAYER_MAX_TENSORS];
    void *saved, *workspace;
    uint64_t operations[2], sent_bytes[2]; /* of the forward and of the backward pass */
};

struct one_layer {
    ls_layer layer; /* its description, and the shape that goes in */
    int ranks;
    size_t batch;
    bool adds;        /* gradients are added to what is there */
    bool is_rounded;  /* inputs are no whole numbers */
    bool same_dy;     /* all ranks have the same gradient of the output */
    bool wants_no_dx; /* backward gets no room for it */
    struct one_rank rank[MOST_RANKS];
};

/* One pass forward and one back. What fails ends the probe. */
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
    uint64_t hashes[MOST_RANKS][MOST_STEPS]; /* of what is not cut */
    float *trained;                          /* rank 0's, whole tensors, concatenated */
    size_t trained_count;
};

void training_run(probe *p, struct training *t);
void training_release(struct training *t);

/* The classes that rank `rank` of `ranks` has of so many. */
struct ls_class_part classes_run(probe *p, size_t classes, int rank, int ranks);

#endif
