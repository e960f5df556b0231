/* Ranks that train with a student's shards, and a record of each rank's state, enqueued operations and sent bytes. */
#ifndef LABS_18_ZERO_RUN_H
#define LABS_18_ZERO_RUN_H

#include "common/base/dtype.h"
#include "common/optim/optimizer.h"
#include "labs/course/probe/crew.h"
#include "labs/course/probe/probe.h"

enum { MOST_RANKS = 8, MOST_STEPS = 4, MOST_ROWS = 4, MOST_PARAMETERS = 40, MOST_BUCKETS = 16, MOST_FLOATS = 1 << 12 };

/* Parameters whose sizes no tested number of ranks divides: 660, 33, 429, 13, 91 and 7 elements. */
#define SMALL "mlp:20,33,13,7"

/* An optimizer after its creation: its ranges, and which ranks sum up the norm. */
struct created {
    struct owned {
        char name[48]; /* of the parameter */
        const float *data;
        size_t elements; /* of the whole parameter */
        size_t first, count;
    } range[MOST_PARAMETERS];
    size_t ranges;
    bool elsewhere; /* a range's values or gradient are outside its tensor */
    const char *norm;
};

/* The record of one step. */
struct step {
    char order[40]; /* "sum update gather": kinds of operations, in the order they are enqueued */
    char phase_of_sum[16], phase_of_update[16], phase_of_gather[16],
        phase_of_end[16];                      /* the host's phase at the last operation of each kind */
    char stream[8];                            /* that carries the sums */
    float sums[MOST_FLOATS];                   /* the rank's slice of each bucket, concatenated */
    size_t slices[MOST_BUCKETS], bucket_count; /* floats of each */
    float *parameters;                         /* all of them, without padding */
    size_t parameter_count;
    uint64_t sent_bytes;                    /* by this rank */
    uint64_t reduced_bytes, gathered_bytes; /* as counted in phases */
    float norm;                             /* of all gradients, as the optimizer has it */
    ls_status status;                       /* of the update */
};

struct rank {
    const struct job *job;
    /* drawn before the ranks start */
    size_t rows[MOST_STEPS];
    float *x[MOST_STEPS], *y[MOST_STEPS];
    int64_t labels[MOST_STEPS][MOST_ROWS];
    float update[MOST_STEPS][MOST_FLOATS]; /* all parameters' values in place of an update */
    ls_comm *comm, *shards;
    int now;
    struct step step[MOST_STEPS];
    struct created created;
    float losses[MOST_STEPS];
};

struct job {
    const char *model;
    double bucket_cap_mb;
    int ranks, steps, micro_batches;
    bool find_unused, compares;
    ls_dtype precision, compress;
    ls_optimizer_options optimizer;
    const char *streams; /* as in LS_CPU_STREAMS; NULL: inline */
    /* false: there is no optimizer, whatever its ranges would be; the probe writes new values in its place */
    bool trains;
    bool looks;          /* reads results between the halves of each step, and waits there */
    bool gradients_only; /* no step has an update */
    int fails_at;        /* the step whose update fails, on all ranks; -1: none */
    struct rank *rank;
};

/* Runs all steps on each rank. A failure ends the probe, except for an update that is expected to fail. */
void run_all(probe *p, struct job *job);
void run_release(struct job *job);

/* Creates a rank of ZeRO-1 on a meta device: nothing is computed. */
void run_created(probe *p, const char *model, double bucket_cap_mb, int ranks, int rank, struct created *created);

#endif
