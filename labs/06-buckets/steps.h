/* A reducer under test: ranks as threads, a small model that is not computed, and gradients that become ready in an
 * order that the probe chooses. */
#ifndef LABS_06_BUCKETS_STEPS_H
#define LABS_06_BUCKETS_STEPS_H

#include "common/base/dtype.h"
#include "labs/06-buckets/order.h"
#include "labs/course/probe/crew.h"
#include "labs/course/probe/probe.h"

enum { RANKS = 4, STEPS = 4, PARAMETERS = 10, FLOATS = 512 };

#define STEPS_MODEL "mlp:9,7,6,5,4,3"

/* A kind of steps, as in the probe's table. */
struct kind {
    int ranks;
    int most; /* gradients in a bucket; the numbers are random */
    enum { BACKWARDS, AT_RANDOM } arrival;
    bool no_overlap, find_unused;
    bool local; /* steps 0 and 2 are not reduced (no_sync) */
    ls_dtype compress;
};

/* One rank's inputs, drawn before the ranks start, and its results, read when they have ended. */
struct rank {
    size_t arrival[STEPS][PARAMETERS];
    int reported[STEPS]; /* the number that become ready; find_unused: the others are unused */
    float drawn[STEPS][FLOATS];
    /* seen */
    float got[STEPS][FLOATS]; /* the gradients after each step, in the order of the parameters */
    size_t got_count;
    const char *phase_of_backward; /* the host's phase after reporting gradients; the first different one, if any */
    const char *phase_of_end;      /* the same after the reducer's end, which is called in phase OTHER */
    struct order order;
};

struct steps {
    struct kind kind;
    size_t parts[PARAMETERS]; /* gradients of each bucket, drawn, the same on all ranks */
    struct rank rank[RANKS];
};

/* Draws and runs all steps of the kind; begins the case. The caller frees the result. A failure ends the probe. */
struct steps *steps_run(probe *p, const struct kind *kind, const char *streams);

/* Runs the same draws again, on other streams. */
struct steps *steps_again(probe *p, const struct steps *drawn, const char *streams);

static inline bool steps_reduces(const struct kind *kind, int step) { return !kind->local || step % 2 == 1; }

#endif
