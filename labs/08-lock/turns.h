/* Threads that ask for the host lock, one running at a time: which one goes on is drawn, at every call by which one of
 * them could let another in. So what is seen does not depend on luck, nor on how many cores there are. */
#ifndef LABS_08_LOCK_TURNS_H
#define LABS_08_LOCK_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/device/device.h"

enum { TURNS_THREADS = 6, TURNS_MOST = 64 };

/* One launch's wish for a turn, and what came of it. */
struct turns_ask {
    int thread;
    ls_status status;
    int waits; /* calls of ls_flag_wait */
    int busy;  /* whole turns in which a core was kept busy */
};

struct turns {
    /* what is asked for */
    int threads, asks_of_each;
    int turns_before; /* of one thread alone, before the others begin */
    double us;
    int lost;      /* the wait of this ask, counted over all threads, misses its deadline; -1: none */
    uint64_t seed; /* of the order in which threads go on */
    /* what was seen */
    struct turns_ask asks[TURNS_MOST]; /* in the order in which they came */
    int ask_count;
    int begun[TURNS_MOST]; /* asks, in the order in which they had the lock */
    int begun_count;
    int most_holders;      /* at the same time */
    int asked_before_loss; /* asks that had come when the lost one gave up; without one: all */
    int reports;           /* threads that reported a failure */
    int wrong_deadlines;   /* waits whose deadline is not ls_wait_timeout_s() from now */
    int wrong_spins;       /* waits that do not spin as their device says */
    /* records; `torn`: a LOCK or an UNLOCK that is not followed, or preceded, by the same thread's other one; `late`: a
     * LOCK that begins after the wait; `slow`: one that ends after the turn has begun; `hasty`: an UNLOCK that begins or
     * ends before the turn is over */
    int locks, unlocks, torn, late, slow, hasty, objects, other_labels;
};

/* Runs them, on CPU devices of their own. Fails if there are no threads or devices. */
ls_status turns_run(struct turns *t);

/* Threads that draw numbers side by side, as fast as they can, and do not wait: how often one was drawn twice. */
ls_status turns_crowd(int *doubles);

#endif
