/* Ranks whose gradients are given, under a student's top-k, and a record of what each of them sends, keeps and gets. */
#ifndef LABS_23_COMPRESSION_RUN_H
#define LABS_23_COMPRESSION_RUN_H

#include "common/base/dtype.h"
#include "common/optim/optimizer.h"
#include "labs/course/probe/crew.h"
#include "labs/course/probe/probe.h"

enum { MOST_RANKS = 8, MOST_STEPS = 5, MOST_ROWS = 4, MOST_FLOATS = 1 << 12, MOST_PARAMETERS = 16 };

/* Six parameters, of 660, 33, 429, 13, 91 and 7 elements. */
#define SMALL "mlp:20,33,13,7"

/* What the gradients of a job are like. */
typedef enum gradients {
    RANDOM,  /* all different */
    TIED,    /* a few sizes, of both signs: many equals */
    SPECIAL, /* NaN, infinities and zeros among random ones */
    STEADY,  /* large elements that change their sign, small ones that do not */
} gradients;

/* What is seen of one step. Of each parameter in turn, without padding. */
struct step {
    float *sums, *errors; /* the gradients behind the reduction; what has not been sent (none without feedback) */
    int64_t *indices;     /* all ranks' lists, rank after rank: of one bucket only */
    float *values;
    size_t entries, floats;
    uint64_t sent_bytes, operations; /* by this rank, in the gradients' group */
    uint64_t gathered_bytes;         /* as counted in phase gather */
    char phase[16], stream[8];       /* the host's at the last all-gather; that carries it */
};

struct rank {
    struct job *job;
    /* drawn before the ranks start */
    float *given[MOST_STEPS];
    size_t rows[MOST_STEPS];
    float *x[MOST_STEPS];
    int64_t labels[MOST_STEPS][MOST_ROWS];
    ls_comm *comm;
    int now;
    struct step step[MOST_STEPS];
    float losses[MOST_STEPS], scales[MOST_STEPS];
    float *weights[MOST_STEPS];
};

struct job {
    const char *model;
    double fraction, bucket_cap_mb;
    bool forgets; /* without feedback */
    int ranks, steps;
    gradients kind;
    bool no_overlap;
    const char *streams; /* as in LS_CPU_STREAMS; NULL: inline */
    bool looks;          /* at each step, and waits there; otherwise at the last only */
    /* true: whole steps, with the optimizer */
    bool trains;
    int micro_batches;
    ls_dtype precision;
    ls_optimizer_options optimizer;
    struct rank *rank;
};

/* Runs all steps on each rank. What fails ends the probe. */
void run_all(probe *p, struct job *job);
void run_release(struct job *job);

/* The names of the model's parameters, and how many elements each has; returns how many there are. */
size_t run_parameters(probe *p, const char *model, size_t counts[MOST_PARAMETERS]);

#endif
