/* DistributedDataParallel over NCCL whose steps are recorded into a graph, including all-reduces on the comm stream and
 * broadcasts of buffers. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/random.h"
#include "common/seam/step.h"
#include "common/seam/step_graph.h"
#include "ddp_procs/distributed.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu_ranks.h"
#include "tests/cuda_on_cpu/include/cuda_on_cpu.h"
#include "tests/ddp_procs/inside.h"

#define TIMEOUT_S 60.0

enum { RANKS = 2, BATCH = 2, STEPS = 8, INPUTS = BATCH * 784 };

/* Each rank has its own samples, so that without broadcasts batch norm's statistics would diverge. An evaluation, after
 * which a step has no broadcast, comes just before the first recording, between launches, and at the end, after
 * launches. */
static void take_steps(const struct rank *rank, ls_parallel *p) {
    float inputs[INPUTS];
    int64_t labels[BATCH];
    ls_batch batch = {.inputs = inputs, .labels = labels, .count = BATCH, .global_count = (size_t)BATCH * RANKS};
    for (int k = 0; k < STEPS; k++, p->step++) {
        ls_generator generator;
        ls_generator_seed(&generator, (uint64_t)(100 * k + rank->rank));
        ls_fill_uniform(&generator, inputs, INPUTS, -1, 1 + rank->rank);
        for (int i = 0; i < BATCH; i++) labels[i] = (k + i + 3 * rank->rank) % 10;
        bool evaluate = k == LS_GRAPH_WARMUP_STEPS || k == STEPS - 2;
        if (evaluate) CHECK(p->process->before_evaluation(p) == LS_OK);
        CHECK(ls_step(p, &batch) == LS_OK);
        CHECK(ls_event_synchronize(p->batch_copied) == LS_OK);
    }
    CHECK(p->process->before_evaluation(p) == LS_OK);
    CHECK(ls_device_synchronize(rank->device) == LS_OK);
}

/* Of the parameters, buffers, losses and the host's counters. */
static uint64_t hash_of(const struct rank *rank, ls_parallel *p) {
    float *data, losses[STEPS];
    size_t count;
    ls_model_state(p->model, &data, &count);
    float *host = malloc(count * sizeof *host);
    CHECK(host);
    gpu_rank_download(rank, host, data, count * sizeof *host);
    gpu_rank_download(rank, losses, p->losses, sizeof losses);
    uint64_t hash = ls_hash(ls_hash(LS_HASH_SEED, host, count * sizeof *host), losses, sizeof losses);
    int64_t batches = (int64_t)STEPS * (p->micro_batches < BATCH ? p->micro_batches : BATCH); /* ranks with samples */
    for (size_t b = 0; b < 2; b++) CHECK(*ls_model_batches_tracked(p->model, b) == batches);
    const uint64_t *reduced = &p->clocks->bytes[LS_PHASE_ALL_REDUCE];
    CHECK(*reduced > 0);
    hash = ls_hash(hash, reduced, sizeof *reduced);
    free(host);
    return hash;
}

static uint64_t hash_after_steps(const struct rank *rank, int micro_batches, bool record) {
    ls_model *model;
    ls_parallel *p;
    CHECK(ls_model_create(&model, rank->device, "convnet", BATCH, LS_FP32) == LS_OK);
    CHECK(ls_model_init(model, (uint64_t)rank->rank) == LS_OK);
    ddp_options options = {.comm = rank->comm,
                           .max_batch = BATCH,
                           .optimizer = ls_optimizer_defaults(LS_ADAM),
                           .reducer = {.bucket_cap_mb = 0.02, .overlap = true}};
    CHECK(ddp_create(&p, model, &options) == LS_OK);
    p->micro_batches = micro_batches;
    if (record) CHECK(ls_step_graph_create(p) == LS_OK);
    take_steps(rank, p);
    if (record) CHECK(ls_step_graph_launches(p) == (STEPS - LS_GRAPH_WARMUP_STEPS) * micro_batches);
    CHECK(bucket_count(reducer_of(p)) > 1);
    uint64_t hash = hash_of(rank, p);
    ls_step_graph_destroy(p);
    p->ops->destroy(p);
    ls_model_destroy(model);
    return hash;
}

static void compare_on_rank(struct rank *rank) {
    gpu_rank_attach(rank, rank->argument, "naive", TIMEOUT_S);
    for (int k = 1; k <= 3; k += 2) CHECK(hash_after_steps(rank, k, true) == hash_after_steps(rank, k, false));
    ls_comm_destroy(rank->comm);
    ls_device_close(rank->device);
}

static const struct gpu_path *path_of(ls_comm_path kind) {
    const struct gpu_path *path = gpu_paths;
    while (path->path != kind) path++;
    return path;
}

TEST(a_graph_gives_the_same_bits_on_every_rank) {
    const struct gpu_path *path = path_of(LS_COMM_NCCL);
    run_good_ranks_on(path->backend, RANKS, compare_on_rank, path);
}

/* --- averaging --------------------------------------------------------------------------------------------------- */

/* The kernels of the third step, with one bucket for everything. */
static unsigned long kernels_per_step(const struct rank *rank, const char *description) {
    float inputs[BATCH * 4] = {0};
    int64_t labels[BATCH] = {0};
    ls_batch batch = {.inputs = inputs, .labels = labels, .count = BATCH, .global_count = (size_t)BATCH * RANKS};
    ls_model *model;
    ls_parallel *p;
    unsigned long before = 0;
    CHECK(ls_model_create(&model, rank->device, description, BATCH, LS_FP32) == LS_OK);
    ddp_options options = {.comm = rank->comm,
                           .max_batch = BATCH,
                           .optimizer = ls_optimizer_defaults(LS_SGD),
                           .reducer = {.bucket_cap_mb = 1, .overlap = true}};
    CHECK(ddp_create(&p, model, &options) == LS_OK);
    for (int k = 0; k < 3; k++, p->step++) {
        before = cuda_on_cpu_kernel_launches();
        CHECK(ls_step(p, &batch) == LS_OK);
        CHECK(ls_device_synchronize(rank->device) == LS_OK);
    }
    unsigned long kernels = cuda_on_cpu_kernel_launches() - before;
    CHECK(bucket_count(reducer_of(p)) == 1);
    p->ops->destroy(p);
    ls_model_destroy(model);
    return kernels;
}

/* A single rank has nothing to average: with two, each bucket launches one division more. */
static void count_on_rank(struct rank *rank) {
    static const char *const description = "mlp:4,4,4,3"; /* six parameters */
    gpu_rank_attach(rank, rank->argument, "naive", TIMEOUT_S);
    unsigned long together = kernels_per_step(rank, description);
    ls_comm *group = rank->comm, *alone;
    ls_comm_options options = {.world_size = 1, .timeout_s = TIMEOUT_S};
    CHECK(ls_comm_create_shm(&alone, &options) == LS_OK);
    CHECK(ls_comm_attach_device(alone, rank->device, LS_COMM_STAGED, &options) == LS_OK);
    rank->comm = alone;
    CHECK(together == kernels_per_step(rank, description) + 1);
    ls_comm_destroy(alone);
    ls_comm_destroy(group);
    ls_device_close(rank->device);
}

TEST(a_bucket_is_averaged_at_once) {
    const struct gpu_path *path = path_of(LS_COMM_STAGED);
    run_good_ranks_on(path->backend, RANKS, count_on_rank, path);
}

/* --- collectives that fail --------------------------------------------------------------------------------------- */

/* Waits until every rank has arrived, and thus finished its work. Through the store, since an abort may fail unfinished
 * collectives of the other ranks, barriers included. */
static void meet(struct rank *rank) {
    const ls_bootstrap *store = &rank->bootstrap;
    char key[16], value[1];
    size_t nbytes;
    snprintf(key, sizeof key, "met/%d", rank->rank);
    CHECK(store->set(store->context, key, "", 1) == LS_OK);
    for (int r = 0; r < rank->world_size; r++) {
        snprintf(key, sizeof key, "met/%d", r);
        CHECK(store->get(store->context, key, value, sizeof value, &nbytes) == LS_OK);
    }
}

/* After an abort NCCL refuses later calls at once; the step learns of it only through the sticky status, in buckets and
 * in buffers. */
static void abort_on_rank(struct rank *rank) {
    float inputs[INPUTS] = {0};
    int64_t labels[BATCH] = {0};
    ls_batch batch = {.inputs = inputs, .labels = labels, .count = BATCH, .global_count = (size_t)BATCH * RANKS};
    ls_model *model;
    ls_parallel *p;
    gpu_rank_attach(rank, path_of(LS_COMM_NCCL), "naive", TIMEOUT_S);
    CHECK(ls_model_create(&model, rank->device, rank->argument, BATCH, LS_FP32) == LS_OK);
    ddp_options options = {.comm = rank->comm,
                           .max_batch = BATCH,
                           .optimizer = ls_optimizer_defaults(LS_SGD),
                           .reducer = {.bucket_cap_mb = 0.02, .overlap = true}};
    CHECK(ddp_create(&p, model, &options) == LS_OK);
    for (int k = 0; k < 2; k++, p->step++) CHECK(ls_step(p, &batch) == LS_OK);
    CHECK(ls_device_synchronize(rank->device) == LS_OK);
    meet(rank);
    (void)ls_comm_abort(rank->comm, "it has had enough");
    if (ls_model_buffer_count(model) > 0) {
        ddp_begin_forward(ddp_of(p));
        ddp_sync_buffers(ddp_of(p));
    } else {
        (void)ls_step_gradients(p, &batch);
    }
    CHECK(ls_device_status(rank->device) == LS_ERR_PEER);
    p->ops->destroy(p);
    ls_model_destroy(model);
    ls_comm_destroy(rank->comm);
    ls_device_close(rank->device);
}

TEST(a_collective_that_fails_sticks) {
    run_good_ranks_on(path_of(LS_COMM_NCCL)->backend, RANKS, abort_on_rank, "mlp:784,32,10");
    run_good_ranks_on(path_of(LS_COMM_NCCL)->backend, RANKS, abort_on_rank, "convnet");
}

/* --- refused ----------------------------------------------------------------------------------------------------- */

static void expect_refusal(struct rank *rank, ddp_options options, const char *text) {
    ls_model *model;
    ls_parallel *p;
    CHECK(ls_model_create(&model, rank->device, "mlp:4,3", BATCH, LS_FP32) == LS_OK);
    options.comm = rank->comm;
    options.max_batch = BATCH;
    options.optimizer = ls_optimizer_defaults(LS_SGD);
    options.reducer.bucket_cap_mb = 1;
    CHECK(ddp_create(&p, model, &options) == LS_OK);
    rank->message[0] = '\0';
    CHECK(ls_step_graph_create(p) == LS_ERR_USAGE && !p->graph);
    CHECK(gpu_rank_says(rank, "--cuda-graph cannot be combined with") && gpu_rank_says(rank, text));
    p->ops->destroy(p);
    ls_model_destroy(model);
}

static void refuse_on_rank(struct rank *rank) {
    const struct gpu_path *path = rank->argument;
    gpu_rank_attach(rank, path, "naive", TIMEOUT_S);
    if (path->path == LS_COMM_STAGED) {
        expect_refusal(rank, (ddp_options){0}, "--backend nccl");
    } else {
        expect_refusal(rank, (ddp_options){.join = {.enable = true}}, "--join");
        expect_refusal(rank, (ddp_options){.reducer = {.find_unused = true}}, "--find-unused");
        expect_refusal(rank, (ddp_options){.compare_each_step = true}, "--debug-ranks");
    }
    ls_comm_destroy(rank->comm);
    ls_device_close(rank->device);
}

TEST(graphs_are_refused_where_the_host_takes_part) {
    for (int kind = LS_COMM_STAGED; kind <= LS_COMM_NCCL; kind++) {
        const struct gpu_path *path = path_of((ls_comm_path)kind);
        run_good_ranks_on(path->backend, RANKS, refuse_on_rank, path);
    }
}
