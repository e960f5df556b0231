/* Threads that ask for the host lock, one running at a time: at every call that could let another thread run, the next
 * one is drawn. So the results depend neither on timing nor on the number of cores. */
#ifndef LABS_08_LOCK_TURNS_H
#define LABS_08_LOCK_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/device/device.h"

enum { TURNS_THREADS = 6, TURNS_MOST = 64 };

/* One launch's request for a turn, and its outcome. */
struct turns_ask {
    int thread;
    ls_status status;
    int waits; /* calls of ls_flag_wait */
    int busy;  /* whole turns for which a core was kept busy */
};

struct turns {
    /* input */
    int threads, asks_of_each;
    int turns_before; /* of one thread alone, before the others begin */
    double us;
    int lost;      /* the ask, counted over all threads, whose wait misses its deadline; -1: none */
    uint64_t seed; /* of the order in which threads run */
    /* results */
    struct turns_ask asks[TURNS_MOST]; /* in order of arrival */
    int ask_count;
    int begun[TURNS_MOST]; /* asks, in the order in which they held the lock */
    int begun_count;
    int most_holders;      /* at the same time */
    int asked_before_loss; /* asks before the lost one gave up; if none is lost: all */
    int reports;           /* threads that reported a failure */
    int wrong_deadlines;   /* waits whose deadline is not ls_wait_timeout_s() from now */
    int wrong_spins;       /* waits whose spinning is not their device's setting */
    /* records; `torn`: a LOCK or an UNLOCK that is not followed, or preceded, by the same thread's other one; `late`: a
     * LOCK that begins after the wait; `slow`: one that ends after the turn has begun; `hasty`: an UNLOCK that begins or
     * ends before the turn is over */
    int locks, unlocks, torn, late, slow, hasty, objects, other_labels;
};

/* Runs the threads, each on a CPU device of its own. Fails if threads or devices cannot be created. */
ls_status turns_run(struct turns *t);

/* Runs threads that draw numbers concurrently, as fast as they can, without waiting. *doubles: how often a number was
 * drawn twice. */
ls_status turns_crowd(int *doubles);

#endif
