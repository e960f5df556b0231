/* parallel_apply — the hand-off to the replicas' threads and back.
 *   idea  : two counters per thread: the caller raises `started`, the thread raises `finished`. A thread that sees a
 *           raised counter also sees all writes before it was raised, so the job itself needs no lock
 *   cost  : if every thread has a core, a few hundred nanoseconds each way; otherwise a futex call and a context switch
 *   fails : a replica that does not return before the deadline is reported; its thread is then abandoned, with all
 *           that it uses, since there is no safe way to stop it */
#include "dp_threads/parallel_apply.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/cores.h"
#include "common/base/flag.h"
#include "common/base/log.h"
#include "common/base/probe.h"

struct worker {
    /* constant after create */
    dp_workers *workers;
    int replica;
    ls_device *device;
    pthread_t thread;
    /* the hand-off */
    ls_flag started, finished;
    /* written by the thread before it raises `finished`; read by the caller after it */
    ls_status status;
    char message[400];
};

struct dp_workers {
    int count;
    double spin_us;
    bool stuck; /* a thread missed its deadline */
    bool stopping;
    /* the job: written by the caller before it raises `started` */
    dp_replica_fn task;
    void *context;
    struct worker workers[];
};

/* --- probes of the hand-off --------------------------------------------------------------------------------------- */

/* Before the flag is raised, since a thread that sees it raised may read the records. */
static void probe_raise(ls_flag *flag, const char *label, uint32_t value) {
    ls_probe_instant(LS_PROBE_RAISE, label, (uintptr_t)flag, value);
}

/* A wait that began while the probes were off ends now: the replicas' threads wait between steps. */
static bool probe_wait(ls_flag *flag, const char *label, uint32_t value, double spin_us, double until_us) {
    struct ls_probe_record record = {0};
    if (ls_probing()) record = ls_probe_begin(LS_PROBE_AWAIT, label);
    bool reached = ls_flag_wait(flag, value, spin_us, until_us);
    if (!reached || !ls_probing()) return reached;
    if (!record.label) record = ls_probe_begin(LS_PROBE_AWAIT, label);
    record.object = (uintptr_t)flag;
    record.number = value;
    ls_probe_end(&record);
    return true;
}

static const char job_given[] = "replica starts", job_done[] = "replica done";

/* --- the threads -------------------------------------------------------------------------------------------------- */

static void run_replica(struct worker *worker) {
    ls_log_capture(worker->message, sizeof worker->message);
    worker->status = worker->workers->task(worker->workers->context, worker->replica);
    ls_log_capture(NULL, 0);
}

static void *worker_main(void *argument) {
    struct worker *worker = argument;
    ls_probe_name_thread("replica %d", worker->replica);
    (void)ls_device_bind_thread(worker->device);
    for (uint32_t job = 1;; job++) {
        while (!probe_wait(&worker->started, job_given, job, worker->workers->spin_us, ls_now_us() + 1e9)) {
        }
        if (worker->workers->stopping) return NULL;
        run_replica(worker);
        probe_raise(&worker->finished, job_done, job);
        ls_flag_set(&worker->finished, job);
    }
}

ls_status dp_workers_create(dp_workers **out, ls_device *const *devices, int count) {
    *out = NULL;
    dp_workers *workers = calloc(1, sizeof *workers + (size_t)count * sizeof *workers->workers);
    if (!workers) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for %d replica threads", count);
    workers->spin_us = ls_spin_us_for(count);
    workers->count = 1;
    for (int i = 0; i < count; i++) {
        workers->workers[i].workers = workers;
        workers->workers[i].replica = i;
        workers->workers[i].device = devices[i];
    }
    for (int i = 1; i < count; i++, workers->count++) {
        struct worker *worker = &workers->workers[i];
        int error = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (error == 0) continue;
        dp_workers_destroy(workers);
        return ls_fail(LS_ERR_SYSTEM, "cannot start the thread of device %d: %s", ls_device_index(devices[i]),
                       strerror(error));
    }
    ls_probe_name_thread("replica %d", 0);
    ls_status status = ls_device_bind_thread(devices[0]);
    if (status != LS_OK) {
        dp_workers_destroy(workers);
        return status;
    }
    *out = workers;
    return LS_OK;
}

bool dp_workers_stuck(const dp_workers *workers) { return workers && workers->stuck; }

bool dp_workers_destroy(dp_workers *workers) {
    if (!workers) return true;
    if (workers->stuck) return false;
    workers->stopping = true;
    for (int i = 1; i < workers->count; i++) ls_flag_raise(&workers->workers[i].started);
    for (int i = 1; i < workers->count; i++) pthread_join(workers->workers[i].thread, NULL);
    free(workers);
    return true;
}

static ls_status join(dp_workers *workers, int replicas) {
    double until_us = ls_now_us() + 2 * ls_wait_timeout_s() * 1e6;
    for (int i = 1; i < replicas; i++) {
        struct worker *worker = &workers->workers[i];
        uint32_t job = ls_flag_value(&worker->started);
        if (probe_wait(&worker->finished, job_done, job, workers->spin_us, until_us)) continue;
        workers->stuck = true;
        return ls_fail(LS_ERR_TIMEOUT, "replica %d on device %d did not return within %g s", i,
                       ls_device_index(worker->device), 2 * ls_wait_timeout_s());
    }
    return LS_OK;
}

/* How close a replica's failure is to the cause: a failure that another replica's failure has caused ranks lowest, then
 * one without a message (of a GPU that they share and that has failed before). 0: it has not failed. */
static int failure_severity(const struct worker *worker) {
    if (worker->status == LS_OK) return 0;
    if (worker->status == LS_ERR_PEER) return 1;
    return worker->message[0] == '\0' ? 2 : 3;
}

/* The first in replica order of the most severe failures. NULL: none failed. */
static const struct worker *first_failed(const dp_workers *workers, int replicas) {
    const struct worker *first = NULL;
    for (int i = 0; i < replicas; i++) {
        const struct worker *worker = &workers->workers[i];
        if (failure_severity(worker) > (first ? failure_severity(first) : 0)) first = worker;
    }
    return first;
}

ls_status dp_parallel_apply(dp_workers *workers, int replicas, dp_replica_fn task, void *context) {
    workers->task = task;
    workers->context = context;
    for (int i = 1; i < replicas; i++) {
        ls_flag *started = &workers->workers[i].started;
        probe_raise(started, job_given, ls_flag_value(started) + 1); /* only this thread raises it */
        ls_flag_raise(started);
    }
    run_replica(&workers->workers[0]);
    ls_status status = join(workers, replicas);
    const struct worker *failed = status == LS_OK ? first_failed(workers, replicas) : NULL;
    if (!failed) return status;
    return ls_fail(failed->status, "replica %d on device %d: %s", failed->replica, ls_device_index(failed->device),
                   failed->message[0] ? failed->message : ls_status_text(failed->status));
}
