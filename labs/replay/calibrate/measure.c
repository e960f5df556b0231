/* measure — runs of jobs, alone and beside others.
 *   idea  : a job is a call, and a run repeats it for a millisecond: long enough that the clock's cost is negligible,
 *           short enough to fit into a gap of other load. A call before the clock starts loads the job's data into the
 *           caches
 *   order : rounds. Jobs alternate, one run each, so that a machine that slows down for a while slows all of them, and
 *           no figure depends on one moment. Long jobs skip some rounds, evenly
 *   beside: threads of other devices begin at the same moment as the caller, and repeat their job until the caller's
 *           has ended. The first millisecond does not count: a thread that has just started, on an idle core, is slow
 *           for reasons that do not apply to training. "Alone" is measured in the same way, with no thread beside
 *   clock : CPU time if the thread did all of the work itself, since other load is not part of the machine's rates
 *   fails : the first job that fails ends the measurement; threads beside are stopped and joined in any case */
#define _GNU_SOURCE /* RUSAGE_THREAD */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "labs/replay/calibrate/measure.h"

#define RUN_US 1e3
#define RUN_BESIDE_US 4e3
#define ALL_RUNS_US 5e5 /* of one job, but at least RUNS_MIN */
#define LEAD_IN_US 1e3

enum { RUNS_MIN = 11, QUICK_RUNS = 5, CALLS_MAX = 1 << 16, TRIES = 3, BESIDE_MAX = 8 };

/* --- alone -------------------------------------------------------------------------------------------------------- */

/* The number of times that the calling thread has blocked. */
static long count_waits(void) {
    struct rusage usage = {0};
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : -1;
}

/* A thread that has never blocked has done all of the work itself: its CPU time counts, which other load does not
 * lengthen. */
static ls_status time_calls(const struct calibrate_worker *worker, struct calibrate_job job, int calls, double *us) {
    ls_status status = job.call(worker, job.argument);
    long waits = count_waits();
    double begin_us = ls_now_us(), begin_cpu_us = ls_thread_cpu_us();
    for (int i = 0; i < calls && status == LS_OK; i++) status = job.call(worker, job.argument);
    double cpu_us = ls_thread_cpu_us() - begin_cpu_us, elapsed_us = ls_now_us() - begin_us;
    *us = (waits >= 0 && count_waits() == waits ? cpu_us : elapsed_us) / calls;
    return status;
}

/* Doubles the calls until the fastest of a few tries is long enough: one try may be long for other reasons. */
static ls_status find_calls(const struct calibrate_worker *worker, struct calibrate_job job, double wanted_us,
                            int *calls, double *run_us) {
    ls_status status = LS_OK;
    for (*calls = 1; status == LS_OK; *calls *= 2) {
        *run_us = wanted_us * CALLS_MAX;
        for (int i = 0; i < TRIES && status == LS_OK; i++) {
            double us = 0;
            status = time_calls(worker, job, *calls, &us);
            if (us * *calls < *run_us) *run_us = us * *calls;
        }
        if (*run_us >= wanted_us / 2 || *calls >= CALLS_MAX) break;
    }
    return status;
}

static int runs_for(double run_us, bool quick) {
    if (quick) return QUICK_RUNS;
    double runs = ALL_RUNS_US / run_us;
    return runs > CALIBRATE_RUNS_MAX ? CALIBRATE_RUNS_MAX : runs < RUNS_MIN ? RUNS_MIN : (int)runs;
}

struct timed {
    int calls, runs, done;
    double us[CALIBRATE_RUNS_MAX];
};

ls_status calibrate_measure(const struct calibrate_measurement *measurements, int count,
                            const struct calibrate_worker *worker, bool quick) {
    struct timed *timed = calloc((size_t)count, sizeof *timed);
    ls_status status = timed ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for times");
    int rounds = quick ? QUICK_RUNS : CALIBRATE_RUNS_MAX;
    for (int i = 0; i < count && status == LS_OK; i++) {
        double run_us = 0;
        status = find_calls(worker, measurements[i].job, RUN_US, &timed[i].calls, &run_us);
        timed[i].runs = runs_for(run_us, quick);
    }
    for (int round = 1; round <= rounds; round++) {
        for (int i = 0; i < count && status == LS_OK; i++) {
            struct timed *t = &timed[i];
            if (round * t->runs / rounds == t->done) continue; /* not its turn */
            status = time_calls(worker, measurements[i].job, t->calls, &t->us[t->done]);
            t->us[t->done++] /= measurements[i].operations;
        }
    }
    for (int i = 0; i < count && status == LS_OK; i++)
        *measurements[i].to = calibrate_spread_of(timed[i].us, timed[i].done);
    free(timed);
    return status;
}

/* --- beside others ------------------------------------------------------------------------------------------------ */

struct round {
    _Atomic bool begin, stop;
    _Atomic int ready;
};

struct beside {
    const struct calibrate_worker *worker;
    struct calibrate_job job;
    pthread_t thread;
    struct round *round;
    ls_status status;
};

static void *beside_main(void *argument) {
    struct beside *self = argument;
    struct round *round = self->round;
    self->status = calibrate_bind(self->worker);
    atomic_fetch_add(&round->ready, 1);
    while (!atomic_load(&round->begin) && !atomic_load(&round->stop)) continue; /* a sleeping thread would begin late */
    while (self->status == LS_OK && !atomic_load(&round->stop))
        self->status = self->job.call(self->worker, self->job.argument);
    return NULL;
}

/* Runs the job for a while, untimed. */
static ls_status lead_in(const struct calibrate_worker *worker, struct calibrate_job job) {
    double end_us = ls_now_us() + LEAD_IN_US;
    ls_status status = LS_OK;
    while (status == LS_OK && ls_now_us() < end_us) status = job.call(worker, job.argument);
    return status;
}

/* One run of the caller while `count` others work; 0: alone. */
static ls_status time_beside(const struct calibrate_worker *worker, struct calibrate_job job, int calls,
                             struct beside *beside, int count, double *us) {
    struct round round = {.begin = false};
    ls_status status = LS_OK;
    int started = 0;
    for (; started < count && status == LS_OK; started += status == LS_OK) {
        beside[started].round = &round;
        int error = pthread_create(&beside[started].thread, NULL, beside_main, &beside[started]);
        if (error != 0) status = ls_fail(LS_ERR_SYSTEM, "cannot start a thread: %s", strerror(error));
    }
    while (status == LS_OK && atomic_load(&round.ready) < count) continue;
    atomic_store(&round.begin, status == LS_OK);
    if (status == LS_OK) status = lead_in(worker, job);
    if (status == LS_OK) status = time_calls(worker, job, calls, us);
    atomic_store(&round.stop, true);
    for (int i = 0; i < started; i++) {
        pthread_join(beside[i].thread, NULL);
        if (status == LS_OK) status = beside[i].status;
    }
    return status;
}

ls_status calibrate_measure_beside(struct calibrate_pairs *pairs, const struct calibrate_worker *const *workers,
                                   struct calibrate_job job, struct calibrate_job beside, int others, bool quick) {
    double alone_us[CALIBRATE_RUNS_MAX], together_us[CALIBRATE_RUNS_MAX], run_us = 0;
    struct beside threads[BESIDE_MAX];
    int calls = 1;
    ls_status status = find_calls(workers[0], job, RUN_BESIDE_US, &calls, &run_us);
    int runs = runs_for(run_us, quick);
    for (int i = 0; i < others; i++) threads[i] = (struct beside){.worker = workers[i + 1], .job = beside};
    for (int run = 0; run < runs && status == LS_OK; run++) {
        status = time_beside(workers[0], job, calls, NULL, 0, &alone_us[run]);
        if (status == LS_OK) status = time_beside(workers[0], job, calls, threads, others, &together_us[run]);
    }
    if (status != LS_OK) return status;
    pairs->factor = calibrate_factor(together_us, alone_us, runs);
    pairs->alone = calibrate_spread_of(alone_us, runs);
    pairs->together = calibrate_spread_of(together_us, runs);
    return status;
}
