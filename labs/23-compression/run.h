/* Ranks with given gradients that use a student's top-k, and a record of what each of them sends, keeps and
 * receives. */
#ifndef LABS_23_COMPRESSION_RUN_H
#define LABS_23_COMPRESSION_RUN_H

#include "common/base/dtype.h"
#include "common/optim/optimizer.h"
#include "labs/course/probe/crew.h"
#include "labs/course/probe/probe.h"

enum { MOST_RANKS = 8, MOST_STEPS = 5, MOST_ROWS = 4, MOST_FLOATS = 1 << 12, MOST_PARAMETERS = 16 };

/* Six parameters, of 660, 33, 429, 13, 91 and 7 elements. */
#define SMALL "mlp:20,33,13,7"

/* The kind of a job's gradients. */
typedef enum gradients {
    RANDOM,  /* all different */
    TIED,    /* a few magnitudes, both signs: many ties */
    SPECIAL, /* NaN, infinities and zeros among random ones */
    STEADY,  /* large elements that change their sign, small ones that do not */
} gradients;

/* The record of one step, for each parameter in order, without padding. */
struct step {
    float *sums, *errors; /* the gradients after the reduction; the part not sent (none without feedback) */
    int64_t *indices;     /* all ranks' lists, rank after rank: of one bucket only */
    float *values;
    size_t entries, floats;
    uint64_t sent_bytes, operations; /* by this rank, in the gradients' group */
    uint64_t gathered_bytes;         /* as counted in phase gather */
    char phase[16], stream[8];       /* the host's phase at the last all-gather; the stream that carries it */
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
    bool looks;          /* reads results at each step, and waits there; otherwise at the last only */
    /* true: whole steps, with the optimizer */
    bool trains;
    int micro_batches;
    ls_dtype precision;
    ls_optimizer_options optimizer;
    struct rank *rank;
};

/* Runs all steps on each rank. A failure ends the probe. */
void run_all(probe *p, struct job *job);
void run_release(struct job *job);

/* Sets the names of the model's parameters and their numbers of elements; returns their number. */
size_t run_parameters(probe *p, const char *model, size_t counts[MOST_PARAMETERS]);

#endif
