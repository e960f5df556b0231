/* measure — runs of jobs, alone and beside others.
 *   idea  : a job is a call, and a run repeats it for a millisecond: long enough that the clock does not count, short
 *           enough to find a gap in what else the machine does. A call before the clock starts brings what the job
 *           needs into the caches, whatever was there
 *   order : rounds. Jobs take turns, one run each, so that a machine that slows down for a while slows all of them, and
 *           no figure rests on one moment. Long jobs sit out some rounds, evenly
 *   beside: threads of other devices begin at the same moment as the caller, and repeat their job until it has done.
 *           How long the first millisecond's worth took each of them tells whether it was disturbed (estimate.c)
 *   fails : the first job that fails ends it; threads beside are stopped and joined in any case */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "labs/calibrate/measure.h"

#define RUN_US 1e3
#define ALL_RUNS_US 5e5 /* of one job, if that is not less than RUNS_MIN */

enum { RUNS_MIN = 11, QUICK_RUNS = 5, CALLS_MAX = 1 << 16, TRIES = 3, BESIDE_MAX = 8 };

/* --- alone -------------------------------------------------------------------------------------------------------- */

static ls_status time_calls(const struct calibrate_worker *worker, struct calibrate_job job, int calls, double *us) {
    ls_status status = job.call(worker, job.argument);
    double begin_us = ls_now_us();
    for (int i = 0; i < calls && status == LS_OK; i++) status = job.call(worker, job.argument);
    *us = (ls_now_us() - begin_us) / calls;
    return status;
}

/* Twice as many until the fastest of a few tries is long enough: one try may be long for other reasons. */
static ls_status find_calls(const struct calibrate_worker *worker, struct calibrate_job job, int *calls,
                            double *run_us) {
    ls_status status = LS_OK;
    for (*calls = 1; status == LS_OK; *calls *= 2) {
        *run_us = RUN_US * CALLS_MAX;
        for (int i = 0; i < TRIES && status == LS_OK; i++) {
            double us = 0;
            status = time_calls(worker, job, *calls, &us);
            if (us * *calls < *run_us) *run_us = us * *calls;
        }
        if (*run_us >= RUN_US / 2 || *calls >= CALLS_MAX) break;
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
    ls_status status = timed ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "no memory for times");
    int rounds = quick ? QUICK_RUNS : CALIBRATE_RUNS_MAX;
    for (int i = 0; i < count && status == LS_OK; i++) {
        double run_us = 0;
        status = find_calls(worker, measurements[i].job, &timed[i].calls, &run_us);
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
    double begin_us; /* before `begin` */
};

struct beside {
    const struct calibrate_worker *worker;
    struct calibrate_job job;
    pthread_t thread;
    struct round *round;
    double us; /* of a call, from the moment when all begin */
    int calls;
    ls_status status;
};

static void *beside_main(void *argument) {
    struct beside *self = argument;
    struct round *round = self->round;
    self->status = calibrate_bind(self->worker);
    if (self->status == LS_OK) self->status = self->job.call(self->worker, self->job.argument);
    atomic_fetch_add(&round->ready, 1);
    while (!atomic_load(&round->begin) && !atomic_load(&round->stop)) continue; /* asleep it would begin late */
    for (int i = 0; self->status == LS_OK && (i < self->calls || !atomic_load(&round->stop)); i++) {
        self->status = self->job.call(self->worker, self->job.argument);
        if (i + 1 == self->calls) self->us = (ls_now_us() - round->begin_us) / self->calls;
    }
    return NULL;
}

/* One run of all: us[0] is the caller's. */
static ls_status time_beside(const struct calibrate_worker *worker, struct calibrate_job job, int calls,
                             struct beside *beside, int count, double *us) {
    struct round round = {.begin = false};
    ls_status status = job.call(worker, job.argument);
    int started = 0;
    for (; started < count && status == LS_OK; started += status == LS_OK) {
        beside[started].round = &round;
        int error = pthread_create(&beside[started].thread, NULL, beside_main, &beside[started]);
        if (error != 0) status = ls_fail(LS_ERR_SYSTEM, "cannot start a thread: %s", strerror(error));
    }
    while (status == LS_OK && atomic_load(&round.ready) < count) continue;
    round.begin_us = ls_now_us();
    atomic_store(&round.begin, status == LS_OK);
    for (int i = 0; i < calls && status == LS_OK; i++) status = job.call(worker, job.argument);
    us[0] = (ls_now_us() - round.begin_us) / calls;
    atomic_store(&round.stop, true);
    for (int i = 0; i < started; i++) {
        pthread_join(beside[i].thread, NULL);
        us[i + 1] = beside[i].us;
        if (status == LS_OK) status = beside[i].status;
    }
    return status;
}

ls_status calibrate_measure_beside(calibrate_spread *alone, calibrate_spread *together,
                                   const struct calibrate_worker *const *workers, struct calibrate_job job,
                                   struct calibrate_job beside, int others, bool quick) {
    double alone_us[CALIBRATE_RUNS_MAX], us[BESIDE_MAX], run_us = 0;
    calibrate_rounds together_us[BESIDE_MAX];
    struct beside threads[BESIDE_MAX];
    int calls = 1, beside_calls = 1;
    ls_status status = find_calls(workers[0], job, &calls, &run_us);
    int runs = runs_for(2 * run_us, quick);
    if (status == LS_OK) status = find_calls(workers[0], beside, &beside_calls, &run_us);
    for (int i = 0; i < others; i++)
        threads[i] = (struct beside){.worker = workers[i + 1], .job = beside, .calls = beside_calls};
    for (int run = 0; run < runs && status == LS_OK; run++) {
        status = time_calls(workers[0], job, calls, &alone_us[run]);
        if (status == LS_OK) status = time_beside(workers[0], job, calls, threads, others, us);
        for (int d = 0; d <= others && status == LS_OK; d++) together_us[d][run] = us[d];
    }
    if (status != LS_OK) return status;
    *alone = calibrate_spread_of(alone_us, runs);
    *together = calibrate_spread_beside((const calibrate_rounds *)together_us, others + 1, runs);
    return status;
}
