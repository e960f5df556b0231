/* devices — what one CPU device reaches, alone and beside others.
 *   idea  : a job is a call that is repeated: so often that a run takes milliseconds, and in several runs, of which
 *           median and quartiles are kept. The calling thread is device 0's. While it measures, threads of other
 *           devices may repeat jobs of theirs beside it: that is how sharing of caches, memory and cores shows
 *   order : jobs that are compared (alone and beside others) take turns, run by run, so that a machine that slows down
 *           between them slows down both
 *   fails : the first job that fails ends it; threads beside are stopped and joined in any case */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/statistics.h"
#include "common/comm/comm.h"
#include "kernels/kernels.h"
#include "labs/calibrate/calibrate.h"

#define RUN_US 4e3 /* of several calls, so that the clock does not count */

enum { DEVICES_MAX = 8, BATCH_MAX = 1024, SMALL_BYTES = 64 };

/* Sizes: with one layer all stays in caches; beyond them, weights of many layers take turns, as in a network. */
struct sizes {
    int width, layers;
    int copy_bytes;
};
static const struct sizes near = {512, 1, 4 << 20}, far = {1024, 24, 64 << 20};

static const size_t pass_counts[CALIBRATE_PASSES] = {1 << 15, 1 << 21, 1 << 25}; /* 128 KiB, 8 MiB, 128 MiB of floats */

/* What a device's thread needs. */
struct worker {
    ls_device *device;
    ls_stream *compute, *copy, *comm;
    float *x, *w, *y, *pass; /* products: BATCH_MAX x width, layers of width x width, BATCH_MAX x width */
    const struct sizes *sizes;
    int *turn; /* layer of the next products */
    char *from, *to;
    void *workspace;
    ls_event *event;
    ls_comm *alone; /* a group of one */
    const struct worker *peer;
};

typedef ls_status (*job_fn)(const struct worker *worker, int argument);

struct job {
    job_fn call;
    int argument;
};

calibrate_spread calibrate_spread_of(double *values, int count) {
    ls_sort(values, (size_t)count);
    return (calibrate_spread){.median = ls_quantile(values, (size_t)count, 0.5),
                              .low = ls_quantile(values, (size_t)count, 0.25),
                              .high = ls_quantile(values, (size_t)count, 0.75),
                              .runs = count};
}

/* --- the jobs ----------------------------------------------------------------------------------------------------- */

/* Forward and both gradients of a linear layer of width x width with so many samples. */
static ls_status three_products(const struct worker *w, ls_dtype dtype, size_t rows) {
    size_t width = (size_t)w->sizes->width, layers = (size_t)w->sizes->layers, turn = (size_t)(*w->turn)++;
    /* of three layers, far from one another: none finds what another one has just used */
    float *first = w->w + turn % layers * width * width, *second = w->w + (turn + layers / 3) % layers * width * width,
          *third = w->w + (turn + 2 * layers / 3) % layers * width * width;
    ls_status status =
        ls_gemm(w->compute, dtype, false, true, rows, width, width, w->x, first, 0, dtype, w->y, w->workspace);
    if (status == LS_OK)
        status =
            ls_gemm(w->compute, dtype, false, false, rows, width, width, w->y, second, 0, dtype, w->x, w->workspace);
    if (status == LS_OK)
        status = ls_gemm(w->compute, dtype, true, false, width, width, rows, w->y, w->x, 0, dtype, third, w->workspace);
    return status;
}

static ls_status fp32_products(const struct worker *w, int rows) { return three_products(w, LS_FP32, (size_t)rows); }
static ls_status bf16_products(const struct worker *w, int rows) { return three_products(w, LS_BF16, (size_t)rows); }

static ls_status pass_over(const struct worker *w, int which) {
    return ls_scale(w->compute, w->pass, 1, pass_counts[which]);
}

static ls_status smallest_kernel(const struct worker *w, int unused) {
    (void)unused;
    return ls_fill(w->compute, w->pass, 0, 16);
}

static ls_status nothing(const void *arguments) {
    (void)arguments;
    return LS_OK;
}

static ls_status launch_nothing(const struct worker *w, int unused) {
    (void)unused;
    return ls_stream_launch(w->compute, "nothing", nothing, &unused, sizeof unused);
}

/* Two operations: the record and the other stream's wait. */
static ls_status record_and_wait(const struct worker *w, int unused) {
    (void)unused;
    ls_status status = ls_event_record(w->event, w->compute);
    return status == LS_OK ? ls_stream_wait_event(w->copy, w->event) : status;
}

static ls_status synchronize(const struct worker *w, int unused) {
    (void)unused;
    return ls_stream_synchronize(w->compute);
}

static ls_status smallest_collective(const struct worker *w, int unused) {
    (void)unused;
    return ls_comm_all_reduce(w->alone, w->comm, w->pass, 1, LS_FP32, LS_REDUCE_SUM);
}

/* Into the peer's pool, the peer's copies come back. */
static ls_status copy_to_peer(const struct worker *w, int bytes) {
    return ls_copy_now(w->copy, w->peer->to, w->from, (size_t)bytes);
}

/* --- repeating them, alone and beside others ---------------------------------------------------------------------- */

struct beside {
    const struct worker *worker;
    struct job job;
    pthread_t thread;
    _Atomic bool *stop;
    _Atomic int *going;
    ls_status status;
};

static void *beside_main(void *argument) {
    struct beside *self = argument;
    self->status = ls_device_bind_thread(self->worker->device);
    if (self->status == LS_OK) self->status = self->job.call(self->worker, self->job.argument);
    atomic_fetch_add(self->going, 1);
    while (self->status == LS_OK && !atomic_load(self->stop))
        self->status = self->job.call(self->worker, self->job.argument);
    return NULL;
}

static ls_status time_calls(const struct worker *worker, struct job job, int calls, double *us) {
    ls_status status = LS_OK;
    double begin_us = ls_now_us();
    for (int i = 0; i < calls && status == LS_OK; i++) status = job.call(worker, job.argument);
    *us = (ls_now_us() - begin_us) / calls;
    return status;
}

/* One run, while `count` other workers repeat a job of theirs. */
static ls_status time_beside(const struct worker *workers, struct job job, int calls, struct job others, int count,
                             double *us) {
    struct beside beside[DEVICES_MAX];
    _Atomic bool stop = false;
    _Atomic int going = 0;
    ls_status status = LS_OK;
    int started = 0;
    for (; started < count && status == LS_OK; started += status == LS_OK) {
        beside[started] = (struct beside){&workers[started + 1], others, .stop = &stop, .going = &going};
        int error = pthread_create(&beside[started].thread, NULL, beside_main, &beside[started]);
        if (error != 0) status = ls_fail(LS_ERR_SYSTEM, "cannot start a thread: %s", strerror(error));
    }
    while (status == LS_OK && atomic_load(&going) < count) sched_yield();
    if (status == LS_OK) status = time_calls(&workers[0], job, calls, us);
    atomic_store(&stop, true);
    for (int i = 0; i < started; i++) {
        pthread_join(beside[i].thread, NULL);
        if (status == LS_OK) status = beside[i].status;
    }
    return status;
}

static ls_status find_calls(const struct worker *worker, struct job job, int *calls) {
    double us = 0;
    ls_status status = time_calls(worker, job, 1, &us); /* the first is slower */
    if (status == LS_OK) status = time_calls(worker, job, 1, &us);
    double wished = RUN_US / (us > 0.01 ? us : 0.01);
    *calls = wished < 1 ? 1 : wished > 1e5 ? 100000 : (int)wished;
    return status;
}

static ls_status measure(calibrate_spread *spread, const struct worker *worker, job_fn call, int argument, bool quick) {
    struct job job = {call, argument};
    double us[CALIBRATE_RUNS_MAX];
    int calls, runs = quick ? 5 : 31;
    ls_status status = find_calls(worker, job, &calls);
    for (int run = 0; run < runs && status == LS_OK; run++) status = time_calls(worker, job, calls, &us[run]);
    *spread = calibrate_spread_of(us, status == LS_OK ? runs : 0);
    return status;
}

/* The same alone and beside others, in turns. */
static ls_status measure_both(calibrate_spread *alone, calibrate_spread *together, const struct worker *workers,
                              struct job job, struct job others, int count, bool quick) {
    double alone_us[CALIBRATE_RUNS_MAX], together_us[CALIBRATE_RUNS_MAX];
    int calls, runs = quick ? 5 : 31;
    ls_status status = find_calls(&workers[0], job, &calls);
    for (int run = 0; run < runs && status == LS_OK; run++) {
        status = time_calls(&workers[0], job, calls, &alone_us[run]);
        if (status == LS_OK) status = time_beside(workers, job, calls, others, count, &together_us[run]);
    }
    *alone = calibrate_spread_of(alone_us, status == LS_OK ? runs : 0);
    *together = calibrate_spread_of(together_us, status == LS_OK ? runs : 0);
    return status;
}

/* --- devices and their memory ------------------------------------------------------------------------------------- */

static ls_status take(struct worker *worker, size_t nbytes, void *to) {
    return ls_device_alloc(worker->device, LS_MEMORY_WORKSPACE, nbytes, "calibration", to);
}

static ls_status open_worker(struct worker *worker, int place, int devices) {
    ls_device_options device = {.kind = LS_DEVICE_CPU, .index = place, .place = place, .devices_on_node = devices};
    ls_comm_options group = {.world_size = 1, .timeout_s = 30};
    size_t width = (size_t)worker->sizes->width, copy = (size_t)worker->sizes->copy_bytes;
    size_t workspace = 0, matrix = BATCH_MAX * width * sizeof(float);
    size_t weights = (size_t)worker->sizes->layers * width * width * sizeof(float);
    for (ls_dtype dtype = LS_FP32; dtype <= LS_BF16; dtype++) {
        size_t one = ls_gemm_workspace_nbytes(LS_DEVICE_CPU, dtype, BATCH_MAX, width, width);
        size_t other = ls_gemm_workspace_nbytes(LS_DEVICE_CPU, dtype, width, width, BATCH_MAX);
        if (one > workspace) workspace = one;
        if (other > workspace) workspace = other;
    }
    ls_status status = ls_device_open(&worker->device, &device);
    if (status != LS_OK) return status;
    worker->compute = ls_device_stream(worker->device, LS_STREAM_COMPUTE);
    worker->copy = ls_device_stream(worker->device, LS_STREAM_COPY);
    worker->comm = ls_device_stream(worker->device, LS_STREAM_COMM);
    status = take(worker, matrix, &worker->x);
    if (status == LS_OK) status = take(worker, weights, &worker->w);
    if (status == LS_OK) status = take(worker, matrix, &worker->y);
    if (status == LS_OK) status = take(worker, workspace, &worker->workspace);
    bool all = place == 0 || worker->sizes == &far; /* sizes, or that for sharing */
    size_t pass = pass_counts[all ? CALIBRATE_PASSES - 1 : CALIBRATE_NODE_PASS];
    if (status == LS_OK) status = take(worker, pass * sizeof(float), &worker->pass);
    if (status == LS_OK) status = take(worker, copy, &worker->from);
    if (status == LS_OK) status = take(worker, copy, &worker->to);
    if (status == LS_OK) memset(worker->from, 1, copy); /* pages of its own */
    if (status == LS_OK) memset(worker->w, 0, weights);
    if (status == LS_OK) status = ls_event_create(&worker->event, "calibration");
    if (status == LS_OK) status = ls_comm_create_shm(&worker->alone, &group);
    return status;
}

static void close_worker(struct worker *worker) {
    void *const memory[] = {worker->x, worker->w, worker->y, worker->pass, worker->from, worker->to, worker->workspace};
    ls_comm_destroy(worker->alone);
    ls_event_destroy(worker->event);
    for (size_t i = 0; worker->device && i < sizeof memory / sizeof *memory; i++)
        ls_device_free(worker->device, memory[i]);
    ls_device_close(worker->device);
}

/* --- all figures -------------------------------------------------------------------------------------------------- */

static ls_status measure_rates(calibrate_figures *f, const struct worker *worker, bool quick) {
    static const int batches[CALIBRATE_BATCHES] = {1, 4, 16, 64, 256, 1024};
    ls_status status = LS_OK;
    for (int i = 0; i < CALIBRATE_BATCHES && status == LS_OK; i++) {
        f->batches[f->batch_count++] = batches[i];
        f->gemm_flops[i] = 3 * 2.0 * batches[i] * f->width * f->width;
        status = measure(&f->fp32_us[i], worker, fp32_products, batches[i], quick);
        if (status == LS_OK) status = measure(&f->bf16_us[i], worker, bf16_products, batches[i], quick);
    }
    for (int i = 0; i < CALIBRATE_PASSES && status == LS_OK; i++) {
        f->pass_bytes[i] = 2.0 * sizeof(float) * (double)pass_counts[i]; /* read and written */
        status = measure(&f->pass_us[i], worker, pass_over, i, quick);
    }
    return status;
}

static ls_status measure_host(calibrate_figures *f, const struct worker *worker, bool quick) {
    const struct {
        calibrate_spread *to;
        job_fn call;
        double operations;
    } jobs[] = {{&f->launch_us, launch_nothing, 1},
                {&f->smallest_us, smallest_kernel, 1},
                {&f->event_us, record_and_wait, 2},
                {&f->sync_us, synchronize, 1},
                {&f->collective_us, smallest_collective, 1}};
    ls_status status = LS_OK;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs && status == LS_OK; i++) {
        status = measure(jobs[i].to, worker, jobs[i].call, 0, quick);
        jobs[i].to->median /= jobs[i].operations;
        jobs[i].to->low /= jobs[i].operations;
        jobs[i].to->high /= jobs[i].operations;
    }
    return status;
}

/* How many times as long a job takes beside others. */
static ls_status measure_factor(double *factor, const struct worker *workers, struct job job, struct job others,
                                int count, bool quick) {
    calibrate_spread alone, together;
    ls_status status = measure_both(&alone, &together, workers, job, others, count, quick);
    *factor = together.median / alone.median;
    return status;
}

static ls_status measure_sharing(calibrate_figures *f, const struct worker *workers, bool quick) {
    const struct job products = {fp32_products, 64}, passes = {pass_over, f->node_pass},
                     copies = {copy_to_peer, workers[0].sizes->copy_bytes};
    int others =
        f->cores < 2 ? 0 : f->devices - 1; /* one core: beside others means half the time, which says nothing */
    f->products_crowded = f->passes_crowded = f->products_beside_copies = 1;
    f->copy_bytes = workers[0].sizes->copy_bytes;
    ls_status status = measure(&f->copy_smallest_us, &workers[0], copy_to_peer, SMALL_BYTES, quick);
    if (status == LS_OK)
        status = measure_both(&f->copy_us, &f->copy_both_us, workers, copies, copies, others > 0, quick);
    if (status != LS_OK || others == 0) return status;
    status = measure_factor(&f->products_crowded, workers, products, products, others, quick);
    if (status == LS_OK) status = measure_factor(&f->passes_crowded, workers, passes, passes, others, quick);
    if (status == LS_OK) status = measure_factor(&f->products_beside_copies, workers, products, copies, 1, quick);
    return status;
}

/* What the thread of device 0 does. */
struct first {
    calibrate_figures *figures;
    const calibrate_settings *settings;
    struct worker *workers;
    ls_status status;
};

static ls_status measure_all(calibrate_figures *figures, const calibrate_settings *settings,
                             const struct worker *workers) {
    ls_device *const devices[] = {workers[0].device, workers[1].device};
    ls_status status = ls_device_bind_thread(workers[0].device);
    ls_note("products and passes over memory");
    if (status == LS_OK) status = measure_rates(figures, &workers[0], settings->quick);
    ls_note("launches, events, copies, sharing");
    if (status == LS_OK) status = measure_host(figures, &workers[0], settings->quick);
    if (status == LS_OK) status = measure_sharing(figures, workers, settings->quick);
    return status == LS_OK ? calibrate_hand_over(figures, devices, settings) : status;
}

static void *first_main(void *argument) {
    struct first *first = argument;
    first->status = measure_all(first->figures, first->settings, first->workers);
    return NULL;
}

/* A thread of its own for device 0, as in the programs: this one must stay on all cores, since that is where devices
 * look for the cores that there are. */
ls_status calibrate_devices(calibrate_figures *figures, const calibrate_settings *settings) {
    struct worker workers[DEVICES_MAX] = {0};
    int turns[DEVICES_MAX] = {0};
    const struct sizes *sizes = settings->beyond_cache ? &far : &near;
    figures->width = sizes->width;
    figures->beyond_cache = settings->beyond_cache;
    figures->node_pass = settings->beyond_cache ? CALIBRATE_FAR_PASS : CALIBRATE_NODE_PASS;
    struct first first = {figures, settings, workers, LS_OK};
    pthread_t thread;
    ls_status status = LS_OK;
    for (int d = 0; d < figures->devices && status == LS_OK; d++) {
        workers[d].peer = &workers[d == 0 ? 1 : 0];
        workers[d].sizes = sizes;
        workers[d].turn = &turns[d];
        status = open_worker(&workers[d], d, figures->devices);
    }
    int error = status == LS_OK ? pthread_create(&thread, NULL, first_main, &first) : 0;
    if (error != 0) status = ls_fail(LS_ERR_SYSTEM, "cannot start a thread: %s", strerror(error));
    if (status == LS_OK) {
        pthread_join(thread, NULL);
        status = first.status;
    }
    for (int d = 0; d < figures->devices; d++) close_worker(&workers[d]);
    return status;
}
