/* Runs passes of a model whose parameters are in units, on several ranks, and records each rank's gathers and waits. */
#ifndef LABS_19_FSDP_RUN_H
#define LABS_19_FSDP_RUN_H

#include "common/base/dtype.h"
#include "common/nn/network.h"
#include "labs/course/probe/probe.h"

enum { MOST_RANKS = 8, MOST_PASSES = 6, MOST_VERSIONS = 3, MOST_VISITS = 24, MOST_ROWS = 3, MOST_FLOATS = 4096 };
enum { MOST_INPUTS = 32, MOST_OUTPUTS = 3 };

/* Networks of a few values each: linear layers; and convolutions, with a block that has no parameters. */
enum net { NET_LINEAR, NET_POOL, NETS };
const char *net_name(enum net net);
int net_blocks(enum net net);
/* Allocates memory; ends the probe if there is none. */
ls_network *net_create(probe *p, enum net net);

/* A micro-batch's forward and backward, or a forward for evaluation; an update may come before it. */
enum pass { PASS_STEP, PASS_EVALUATION };

/* The values of the parameters that a pass finds at one of its visits. */
struct found {
    float *values;
    size_t count;
    int block;
};

/* A rank's record of a pass. */
struct seen_pass {
    char order[400]; /* (2) gathers unit 2; 2 and 2' enter the block, forward and backward */
    char waits[1200], overlap[1200];
    uint64_t nbytes; /* of gathers, as the clock counts them */
    float y[MOST_ROWS * MOST_OUTPUTS];
    float *gradients;
    struct found found[MOST_VISITS];
    int found_count;
};

struct seen {
    struct seen_pass passes[MOST_PASSES];
    size_t gradient_count;
    ls_status status;
};

struct run {
    enum net net;
    int ranks, prefetch, every, pass_count;
    enum pass passes[MOST_PASSES];
    bool updates[MOST_PASSES]; /* the slices change before that pass */
    ls_dtype precision;
    const char *streams; /* as in LS_CPU_STREAMS; NULL: inline */
    bool looks;          /* reads the parameters at each visit, which waits for the device */
    /* drawn */
    float values[MOST_VERSIONS][MOST_FLOATS]; /* of all units */
    float x[MOST_PASSES][MOST_ROWS * MOST_INPUTS], dy[MOST_PASSES][MOST_RANKS][MOST_ROWS * MOST_OUTPUTS];
    struct seen rank[MOST_RANKS];
};

/* Draws values and inputs and runs the passes on each rank. A failure is in the rank's status; a failed setup ends the probe.
 * run_release frees the records. */
void run_all(probe *p, struct run *run);
void run_release(struct run *run);

#endif
