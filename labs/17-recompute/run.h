/* Models in segments, on one device or on several ranks, and a record of their passes. */
#ifndef LABS_17_RECOMPUTE_RUN_H
#define LABS_17_RECOMPUTE_RUN_H

#include "common/base/dtype.h"
#include "common/nn/network.h"
#include "labs/course/probe/probe.h"

enum { MOST_RANKS = 3, MOST_STEPS = 4, MOST_SEGMENTS = 8, MOST_READY = 32, MOST_NORMS = 4 };

/* Networks of a few values each: linear layers of different sizes; and convolutions with batch norm, a pool and a sum. */
enum net { NET_LINEAR, NET_NORMS, NETS };
const char *net_name(enum net net);
int net_blocks(enum net net);
/* Allocates memory; ends the probe if there is none. */
ls_network *net_create(probe *p, enum net net);

/* The input of one segment, read after the forward. */
struct kept {
    float *values; /* fp16 converted to float */
    size_t count;
};

/* A rank's inputs, and its record of each step. */
struct seen {
    void *x[MOST_STEPS]; /* in the model's precision */
    float *dy[MOST_STEPS];
    const char *output[MOST_STEPS]; /* "values", or "nothing": NULL */
    float *y[MOST_STEPS], *gradients[MOST_STEPS];
    float *before[MOST_STEPS], *buffers[MOST_STEPS]; /* batch norm's, after forward and after backward */
    int64_t tracked_before[MOST_STEPS][MOST_NORMS], tracked[MOST_STEPS][MOST_NORMS];
    struct kept kept[MOST_STEPS][MOST_SEGMENTS];
    int kept_count[MOST_STEPS];
    char order[MOST_STEPS][256];
    int64_t ready[MOST_STEPS][MOST_READY];
    size_t ready_count[MOST_STEPS];
    uint64_t collectives[MOST_STEPS]; /* so far */
    size_t gradient_count, buffer_count, norm_count, output_count;
    ls_status status;
};

struct run {
    enum net net;
    int every, ranks, steps;
    size_t max_batch;
    size_t rows[MOST_STEPS][MOST_RANKS];
    ls_dtype precision;
    const char *streams;          /* as in LS_CPU_STREAMS; NULL: inline */
    bool accumulates[MOST_STEPS]; /* that step's gradients are added to the earlier ones */
    bool evaluates[MOST_STEPS];   /* forward only, for evaluation */
    bool forward_only;
    bool listens; /* records each block that is entered */
    bool syncs;   /* batch norm over all ranks */
    bool keeps;   /* records kept inputs; one rank only */
    struct seen rank[MOST_RANKS];
};

/* Draws inputs and runs the steps on each rank. A failure is in the rank's status; a failed setup ends the probe.
 * run_release frees inputs and records. */
void run_all(probe *p, struct run *run);
void run_release(struct run *run);

#endif
