/* devices — the performance of one CPU device, alone and beside others.
 *   idea  : the jobs are the calls of training, in sizes of training. measure.c runs them
 *   caches: data that a network uses again stays in the caches if it fits. So there are two sets of sizes: in one all
 *           data stays in caches; in the other none does: weights of many layers alternate, and passes and copies go
 *           through memory piece by piece, each piece evicted from the caches before its next turn. They use pieces,
 *           since a run must be short (measure.c)
 *   order : a thread that is bound to device 0 does the calling thread's part, as in the programs */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/comm/comm.h"
#include "kernels/kernels.h"
#include "labs/replay/calibrate/calibrate.h"
#include "labs/replay/calibrate/measure.h"

enum { DEVICES_MAX = 8, BATCH_MAX = 1024, SMALL_BYTES = 64, COPY_BYTES = 4 << 20 };

/* Sizes: with one layer all data stays in caches; beyond caches, weights of many layers alternate, as in a network. */
struct sizes {
    int width, layers;
    int copies; /* of COPY_BYTES, used in turn */
};
static const struct sizes near = {512, 1, 1}, far = {1024, 24, 16};

/* 128 KiB, 8 MiB, 128 MiB of floats, and the number of them that a call passes over. */
static const size_t pass_counts[CALIBRATE_PASSES] = {1 << 15, 1 << 21, 1 << 25};
static const size_t pass_pieces[CALIBRATE_PASSES] = {1 << 15, 1 << 21, 1 << 20};

/* The state of a device's thread. */
struct calibrate_worker {
    ls_device *device;
    ls_stream *compute, *copy, *comm;
    float *x, *w, *y, *pass; /* multiplies: BATCH_MAX x width, layers of width x width, BATCH_MAX x width */
    const struct sizes *sizes;
    int *turn; /* of layers and pieces */
    char *from, *to;
    void *workspace;
    ls_event *event;
    ls_comm *alone; /* a group of one */
    const struct calibrate_worker *peer;
};

/* --- the jobs ----------------------------------------------------------------------------------------------------- */

/* Forward and both gradients of a linear layer of width x width with that many samples. */
static ls_status three_products(const struct calibrate_worker *w, ls_dtype dtype, size_t rows) {
    size_t width = (size_t)w->sizes->width, layers = (size_t)w->sizes->layers, turn = (size_t)(*w->turn)++;
    /* of three layers, far from one another: none reuses data of another */
    float *first = w->w + turn % layers * width * width, *second = w->w + (turn + layers / 3) % layers * width * width,
          *third = w->w + (turn + 2 * layers / 3) % layers * width * width;
    ls_gemm(w->compute, dtype, false, true, rows, width, width, w->x, first, 0, dtype, w->y, w->workspace);
    ls_gemm(w->compute, dtype, false, false, rows, width, width, w->y, second, 0, dtype, w->x, w->workspace);
    ls_gemm(w->compute, dtype, true, false, width, width, rows, w->y, w->x, 0, dtype, third, w->workspace);
    return ls_device_status(w->device);
}

static ls_status fp32_products(const struct calibrate_worker *w, int rows) {
    return three_products(w, LS_FP32, (size_t)rows);
}
static ls_status bf16_products(const struct calibrate_worker *w, int rows) {
    return three_products(w, LS_BF16, (size_t)rows);
}

static ls_status pass_over(const struct calibrate_worker *w, int which) {
    size_t piece = pass_pieces[which], turn = (size_t)(*w->turn)++ % (pass_counts[which] / piece);
    ls_scale(w->compute, w->pass + turn * piece, 1, piece);
    return ls_device_status(w->device);
}

static ls_status smallest_kernel(const struct calibrate_worker *w, int unused) {
    (void)unused;
    ls_fill(w->compute, w->pass, 0, 16);
    return ls_device_status(w->device);
}

static ls_status nothing(const void *arguments) {
    (void)arguments;
    return LS_OK;
}

static ls_status launch_nothing(const struct calibrate_worker *w, int unused) {
    (void)unused;
    ls_stream_launch(w->compute, "nothing", nothing, &unused, sizeof unused);
    return ls_device_status(w->device);
}

/* Two operations: the record and the other stream's wait. */
static ls_status record_and_wait(const struct calibrate_worker *w, int unused) {
    (void)unused;
    ls_event_record(w->event, w->compute);
    ls_stream_wait_event(w->copy, w->event);
    return ls_device_status(w->device);
}

static ls_status synchronize(const struct calibrate_worker *w, int unused) {
    (void)unused;
    return ls_stream_synchronize(w->compute);
}

static ls_status smallest_collective(const struct calibrate_worker *w, int unused) {
    (void)unused;
    return ls_comm_all_reduce(w->alone, w->comm, w->pass, 1, LS_FP32, LS_REDUCE_SUM);
}

/* Copies into the peer's pool; the peer copies in the other direction. */
static ls_status copy_to_peer(const struct calibrate_worker *w, int bytes) {
    size_t at = (size_t)((*w->turn)++ % w->sizes->copies) * COPY_BYTES;
    return ls_copy_now(w->copy, w->peer->to + at, w->from + at, (size_t)bytes);
}

/* Reads the data that the peer passes over. */
static ls_status read_of_peer(const struct calibrate_worker *w, int which) {
    return ls_copy_now(w->copy, w->to, w->peer->pass, sizeof(float) * pass_pieces[which]);
}

ls_status calibrate_bind(const struct calibrate_worker *worker) { return ls_device_bind_thread(worker->device); }

/* --- devices and their memory ------------------------------------------------------------------------------------- */

static ls_status take_memory(struct calibrate_worker *worker, int place) {
    size_t width = (size_t)worker->sizes->width, copy = (size_t)worker->sizes->copies * COPY_BYTES;
    size_t workspace = 0, matrix = BATCH_MAX * width * sizeof(float);
    size_t weights = (size_t)worker->sizes->layers * width * width * sizeof(float);
    for (ls_dtype dtype = LS_FP32; dtype <= LS_BF16; dtype++) {
        size_t one = ls_gemm_workspace_nbytes(LS_DEVICE_CPU, dtype, BATCH_MAX, width, width);
        size_t other = ls_gemm_workspace_nbytes(LS_DEVICE_CPU, dtype, width, width, BATCH_MAX);
        if (one > workspace) workspace = one;
        if (other > workspace) workspace = other;
    }
    bool all = place == 0 || worker->sizes == &far; /* all sizes, or only the one for sharing */
    size_t pass = pass_counts[all ? CALIBRATE_PASSES - 1 : CALIBRATE_NODE_PASS] * sizeof(float);
    const struct {
        void *to;
        size_t nbytes;
    } parts[] = {{&worker->x, matrix},  {&worker->w, weights}, {&worker->y, matrix}, {&worker->workspace, workspace},
                 {&worker->pass, pass}, {&worker->from, copy}, {&worker->to, copy}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        ls_status status =
            ls_device_alloc(worker->device, LS_MEMORY_WORKSPACE, parts[i].nbytes, "calibration", parts[i].to);
        if (status != LS_OK) return status;
    }
    memset(worker->from, 1, copy); /* pages of its own */
    memset(worker->w, 0, weights);
    return LS_OK;
}

static ls_status open_worker(struct calibrate_worker *worker, int place, int devices) {
    ls_device_options device = {.kind = LS_DEVICE_CPU, .index = place, .place = place, .devices_on_node = devices};
    ls_comm_options group = {.world_size = 1, .timeout_s = 30};
    ls_status status = ls_device_open(&worker->device, &device);
    if (status != LS_OK) return status;
    worker->compute = ls_device_stream(worker->device, LS_STREAM_COMPUTE);
    worker->copy = ls_device_stream(worker->device, LS_STREAM_COPY);
    worker->comm = ls_device_stream(worker->device, LS_STREAM_COMM);
    status = take_memory(worker, place);
    if (status == LS_OK) status = ls_event_create(&worker->event, "calibration");
    if (status == LS_OK) status = ls_comm_create_shm(&worker->alone, &group);
    return status;
}

static void close_worker(struct calibrate_worker *worker) {
    void *const memory[] = {worker->x, worker->w, worker->y, worker->pass, worker->from, worker->to, worker->workspace};
    ls_comm_destroy(worker->alone);
    ls_event_destroy(worker->event);
    for (size_t i = 0; worker->device && i < sizeof memory / sizeof *memory; i++)
        ls_device_free(worker->device, memory[i]);
    ls_device_close(worker->device);
}

/* --- all figures -------------------------------------------------------------------------------------------------- */

static ls_status measure_rates(calibrate_figures *f, const struct calibrate_worker *worker, bool quick) {
    static const int batches[CALIBRATE_BATCHES] = {1, 4, 16, 32, 64, 128, 256, 1024};
    struct calibrate_measurement all[2 * CALIBRATE_BATCHES + CALIBRATE_PASSES];
    int count = 0;
    for (int i = 0; i < CALIBRATE_BATCHES; i++) {
        f->batches[f->batch_count++] = batches[i];
        f->gemm_flops[i] = 3 * 2.0 * batches[i] * f->width * f->width;
        all[count++] = (struct calibrate_measurement){&f->fp32_us[i], {fp32_products, batches[i]}, 1};
        all[count++] = (struct calibrate_measurement){&f->bf16_us[i], {bf16_products, batches[i]}, 1};
    }
    for (int i = 0; i < CALIBRATE_PASSES; i++) {
        f->pass_of_bytes[i] = sizeof(float) * (double)pass_counts[i];
        f->pass_bytes[i] = 2.0 * sizeof(float) * (double)pass_pieces[i]; /* read and written */
        all[count++] = (struct calibrate_measurement){&f->pass_us[i], {pass_over, i}, 1};
    }
    return calibrate_measure(all, count, worker, quick);
}

static ls_status measure_host(calibrate_figures *f, const struct calibrate_worker *worker, bool quick) {
    const struct calibrate_measurement all[] = {
        {&f->launch_us, {launch_nothing, 0}, 1},          {&f->smallest_us, {smallest_kernel, 0}, 1},
        {&f->event_us, {record_and_wait, 0}, 2},          {&f->sync_us, {synchronize, 0}, 1},
        {&f->collective_us, {smallest_collective, 0}, 1}, {&f->copy_smallest_us, {copy_to_peer, SMALL_BYTES}, 1}};
    return calibrate_measure(all, sizeof all / sizeof *all, worker, quick);
}

static ls_status measure_sharing(calibrate_figures *f, const struct calibrate_worker *const *workers, bool quick) {
    const struct calibrate_job products = {fp32_products, CALIBRATE_SHARED_SAMPLES}, passes = {pass_over, f->node_pass},
                               copies = {copy_to_peer, COPY_BYTES};
    const struct {
        double *factor;
        struct calibrate_job job, beside;
        int others;
    } shared[] = {{&f->products_crowded, products, products, f->devices - 1},
                  {&f->passes_crowded, passes, passes, f->devices - 1},
                  {&f->products_beside_copies, products, copies, 1},
                  {&f->copies_both, copies, copies, 1}};
    size_t count = sizeof shared / sizeof *shared;
    bool one_core = f->cores < 2; /* beside others each gets half of the core, so factors are meaningless */
    struct calibrate_pairs pairs = {.factor = 1};
    ls_status status = LS_OK;
    f->copy_bytes = COPY_BYTES;
    for (size_t i = 0; i < count; i++) *shared[i].factor = 1;
    for (size_t i = one_core ? count - 1 : 0; i < count && status == LS_OK; i++) {
        status = calibrate_measure_beside(&pairs, workers, shared[i].job, shared[i].beside,
                                          one_core ? 0 : shared[i].others, quick);
        *shared[i].factor = pairs.factor;
    }
    f->copy_us = pairs.alone; /* copies were the last of them */
    f->copy_both_us = pairs.together;
    f->shared_runs = pairs.together.runs;
    return status;
}

static ls_status measure_take_back(calibrate_figures *f, const struct calibrate_worker *const *workers, bool quick) {
    struct calibrate_pairs pairs;
    if (f->cores < 2) return LS_OK; /* one core: one cache */
    ls_status status = calibrate_take_back(&pairs, workers, (struct calibrate_job){pass_over, 0},
                                           (struct calibrate_job){read_of_peer, 0}, quick);
    if (status != LS_OK) return status;
    f->taken_bytes = sizeof(float) * (double)pass_pieces[0];
    f->taken_us = pairs.together;
    f->kept_us = pairs.alone;
    return status;
}

/* The work of device 0's thread. */
struct first {
    calibrate_figures *figures;
    const calibrate_settings *settings;
    struct calibrate_worker *workers;
    ls_status status;
};

static ls_status measure_all(calibrate_figures *figures, const calibrate_settings *settings,
                             const struct calibrate_worker *workers) {
    ls_device *const devices[] = {workers[0].device, workers[1].device};
    const struct calibrate_worker *all[DEVICES_MAX];
    ls_status status = calibrate_bind(&workers[0]);
    for (int d = 0; d < figures->devices; d++) all[d] = &workers[d];
    ls_note("products and passes over memory");
    if (status == LS_OK) status = measure_rates(figures, &workers[0], settings->quick);
    ls_note("launches, events, copies, sharing");
    if (status == LS_OK) status = measure_host(figures, &workers[0], settings->quick);
    if (status == LS_OK) status = measure_sharing(figures, all, settings->quick);
    if (status == LS_OK) status = measure_take_back(figures, all, settings->quick);
    return status == LS_OK ? calibrate_hand_over(figures, devices, settings) : status;
}

static void *first_main(void *argument) {
    struct first *first = argument;
    first->status = measure_all(first->figures, first->settings, first->workers);
    return NULL;
}

/* Starts a separate thread for device 0, as in the programs: the calling thread must not be pinned, since devices
 * determine the available cores from it. */
ls_status calibrate_devices(calibrate_figures *figures, const calibrate_settings *settings) {
    struct calibrate_worker workers[DEVICES_MAX] = {0};
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
