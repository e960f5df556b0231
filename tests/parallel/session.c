#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "ddp_procs/buckets.h"
#include "ddp_procs/distributed.h"
#include "ddp_procs/sharded.h"
#include "ddp_procs/topk.h"
#include "dp_threads/data_parallel.h"
#include "tests/checkpoint/stored.h"
#include "tests/parallel/plan.h"

static ls_status open_devices(struct session *s, const struct plan *plan) {
    if (plan->gpus > 0) setenv("CUDA_ON_CPU_STREAMS", plan->streams ? plan->streams : "eager", 1);
    if (plan->gpus == 0) setenv("LS_CPU_STREAMS", plan->streams ? plan->streams : "inline", 1);
    ls_status status = LS_OK;
    int count = plan->mode == MODE_DP ? plan->devices : 1;
    for (int i = 0; status == LS_OK && i < count; i++) {
        ls_device_options options = {.kind = plan->gpus > 0 ? LS_DEVICE_CUDA : LS_DEVICE_CPU,
                                     .index = plan->gpus > 0 ? (s->rank + i) % plan->gpus : s->rank + i,
                                     .devices_on_node = plan->mode == MODE_SINGLE ? 1 : plan->devices,
                                     .place = s->rank + i};
        status = ls_device_open(&s->devices[i], &options);
        if (status == LS_OK) s->device_count++;
    }
    if (status == LS_OK) status = ls_device_bind_thread(s->devices[0]); /* math libraries: one thread */
    return status;
}

static int micro_batches(const struct plan *plan) { return plan->accumulate > 0 ? plan->accumulate : 1; }

/* Samples of a micro-batch, over all devices, at most; DataParallel wants one for each. */
static size_t max_batch(const struct plan *plan) {
    size_t rows = ls_micro_batch_rows(plan->batch, micro_batches(plan)), devices = (size_t)plan->devices;
    return plan->mode == MODE_DP && rows < devices ? devices : rows;
}

static ls_optimizer_options optimizer_of(const struct plan *plan) {
    ls_optimizer_options optimizer = plan->optimizer;
    if (plan->precision == LS_FP16) optimizer.scaler.enabled = true;
    return optimizer;
}

/* As rank `rank` does. */
static ls_status fill_model(struct session *s, const struct plan *plan, int rank) {
    bool stored = plan->stored && rank == 0;
    if (stored) return stored_load(plan->stored, plan->state, s->model) ? LS_OK : LS_ERR_IO;
    return ls_model_init(s->model, plan->seed + (uint64_t)rank);
}

static ls_status open_model(struct session *s, const struct plan *plan) {
    size_t pieces = plan->mode == MODE_DP ? (size_t)plan->devices : 1, rows = (max_batch(plan) + pieces - 1) / pieces;
    bool placed = plan->mode == MODE_ZERO3;
    ls_status status = plan->network ? ls_model_create_segments_of(&s->model, s->devices[0], plan->network, rows,
                                                                   plan->precision, plan->every, placed)
                                     : ls_model_create_segments(&s->model, s->devices[0], plan->model, rows,
                                                                plan->precision, plan->every, placed);
    return status == LS_OK && !placed ? fill_model(s, plan, s->rank) : status;
}

static ls_status open_single(struct session *s, const struct plan *plan, ls_comm *comm) {
    (void)comm;
    ls_optimizer_options optimizer = optimizer_of(plan);
    return ls_single_create(&s->parallel, s->devices[0], s->model, &optimizer, max_batch(plan));
}

static ls_status open_dp(struct session *s, const struct plan *plan, ls_comm *comm) {
    (void)comm;
    dp_options options = {.devices = s->devices,
                          .device_count = s->device_count,
                          .output_device = plan->output_device,
                          .max_batch = max_batch(plan),
                          .sync_bn = plan->sync_bn,
                          .replicate = plan->nccl ? DP_REPLICATE_NCCL : DP_REPLICATE_FLAT,
                          .optimizer = optimizer_of(plan)};
    return dp_create(&s->parallel, s->model, &options);
}

static ddp_options options_of(const struct plan *plan, ls_comm *comm) {
    double cap = plan->bucket_cap_mb > 0 ? plan->bucket_cap_mb : DDP_DEFAULT_BUCKET_CAP_MB;
    return (ddp_options){.comm = comm,
                         .sync_bn = plan->sync_bn ? plan->sync_group : NULL,
                         .shards = plan->sync_group,
                         .max_batch = max_batch(plan),
                         .optimizer = optimizer_of(plan),
                         .join = plan->join,
                         .compare_each_step = plan->compare_each_step,
                         .reducer = {.bucket_cap_mb = cap,
                                     .overlap = !plan->no_overlap,
                                     .find_unused = plan->find_unused,
                                     .compress = plan->compress}};
}

static ls_status open_ddp(struct session *s, const struct plan *plan, ls_comm *comm) {
    const ddp_options options = options_of(plan, comm);
    return ddp_create(&s->parallel, s->model, &options);
}

static ls_status open_topk(struct session *s, const struct plan *plan, ls_comm *comm) {
    ddp_options options = options_of(plan, comm);
    double fraction = plan->fraction > 0 ? plan->fraction : 1;
    options.compression = (ddp_compression){LS_FP32, fraction, !plan->forgets};
    return ddp_create_topk(&s->parallel, s->model, &options);
}

static ls_status open_zero1(struct session *s, const struct plan *plan, ls_comm *comm) {
    const ddp_options options = options_of(plan, comm);
    return ddp_create_zero1(&s->parallel, s->model, &options);
}

static ls_status open_zero2(struct session *s, const struct plan *plan, ls_comm *comm) {
    const ddp_options options = options_of(plan, comm);
    return ddp_create_zero2(&s->parallel, s->model, &options);
}

static ls_status open_zero3(struct session *s, const struct plan *plan, ls_comm *comm) {
    ddp_options options = options_of(plan, comm);
    options.prefetch_blocks = plan->prefetch;
    ls_status status = ddp_create_zero3(&s->parallel, s->model, &options);
    return status == LS_OK ? fill_model(s, plan, 0) : status;
}

const struct plan_mode plan_modes[MODES] = {
    [MODE_SINGLE] = {&ls_single_mode, open_single},
    [MODE_DP] = {&dp_mode, open_dp},
    [MODE_DDP] = {&ddp_mode, open_ddp},
    [MODE_TOPK] = {&ddp_topk_mode, open_topk},
    [MODE_ZERO1] = {&ddp_zero1_mode, open_zero1},
    [MODE_ZERO2] = {&ddp_zero2_mode, open_zero2},
    [MODE_ZERO3] = {&ddp_zero3_mode, open_zero3},
};

bool plan_has_group(const struct plan *plan) { return plan_modes[plan->mode].mode->process != NULL; }

int plan_ranks(const struct plan *plan) { return plan_has_group(plan) ? plan->devices : 1; }

/* Gives the rank's groups its GPU. */
static ls_status attach(struct session *s, const struct plan *plan, ls_comm *comm) {
    if (plan->gpus == 0) return LS_OK;
    ls_comm_options options = {
        .rank = s->rank, .world_size = s->world_size, .timeout_s = PLAN_TIMEOUT_S, .bootstrap = plan->bootstrap};
    ls_comm_path path = plan->nccl ? LS_COMM_NCCL : LS_COMM_STAGED;
    ls_status status = comm ? ls_comm_attach_device(comm, s->devices[0], path, &options) : LS_OK;
    options.group = "sync_bn";
    if (status != LS_OK || !plan->sync_group) return status;
    return ls_comm_attach_device(plan->sync_group, s->devices[0], path, &options);
}

ls_status session_open(struct session *s, const struct plan *plan, ls_comm *comm) {
    *s = (struct session){.rank = comm ? ls_comm_rank(comm) : 0, .world_size = comm ? ls_comm_world_size(comm) : 1};
    if (plan->gpus > 0) {
        s->attached[0] = plan->sync_group;
        s->attached[1] = comm;
    }
    ls_status status = open_devices(s, plan);
    if (status == LS_OK) status = open_model(s, plan);
    if (status == LS_OK) status = attach(s, plan, comm);
    if (status == LS_OK) status = plan_modes[plan->mode].open(s, plan, comm);
    if (status == LS_OK) s->parallel->micro_batches = micro_batches(plan);
    if (status != LS_OK) session_close(s);
    return status;
}

void session_close(struct session *s) {
    if (s->parallel) s->parallel->ops->destroy(s->parallel);
    ls_model_destroy(s->model);
    for (int i = 0; i < 2; i++) ls_comm_destroy(s->attached[i]);
    for (int i = 0; i < s->device_count; i++) ls_device_close(s->devices[i]);
    *s = (struct session){0};
}

ls_status session_step(struct session *s, const ls_batch *batch) {
    ls_status status = ls_step(s->parallel, batch);
    s->parallel->step++;
    return status;
}

ls_status session_synchronize(struct session *s) {
    ls_status first = LS_OK;
    for (int i = 0; i < s->device_count; i++) {
        ls_status status = ls_device_synchronize(s->devices[i]);
        if (first == LS_OK) first = status;
    }
    return first;
}

/* As ls_hash, but four bytes at a time: weights are hashed after every step of hundreds of runs. */
static uint64_t hash_floats(uint64_t hash, const float *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        hash = (hash ^ bits) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static ls_status hash_tensor(uint64_t *hash, const struct session *s, size_t t) {
    const ls_parameters *all = ls_model_tensors(s->model);
    float *host = malloc(all->tensors[t].count * sizeof *host);
    ls_status status = host ? ls_parameters_read(all, t, host) : LS_ERR_NO_MEMORY;
    if (status == LS_OK) *hash = hash_floats(*hash, host, all->tensors[t].count);
    free(host);
    return status;
}

ls_status session_hash(struct session *s, uint64_t *weights, uint64_t *state) {
    size_t parameters = ls_model_parameter_count(s->model), count = parameters + ls_model_buffer_count(s->model), t = 0;
    ls_status status = session_synchronize(s);
    *weights = LS_HASH_SEED;
    for (; status == LS_OK && t < parameters; t++) status = hash_tensor(weights, s, t);
    *state = *weights;
    for (; status == LS_OK && t < count; t++) status = hash_tensor(state, s, t);
    return status;
}

ls_status session_scaler(const struct session *s, struct ls_scaler_state *scaler) {
    const ls_grad_scaler *of = ls_optimizer_scaler(s->parallel->optimizer);
    *scaler = (struct ls_scaler_state){0};
    return of ? ls_grad_scaler_read(of, scaler) : LS_OK;
}

ls_status session_loss(struct session *s, uint64_t step, double *loss) {
    ls_stream *stream = ls_device_stream(s->parallel->loss_device, LS_STREAM_COMPUTE);
    float value;
    ls_status status = ls_copy_now(stream, &value, s->parallel->losses + step % LS_LOSS_RING, sizeof value);
    *loss = (double)value;
    return status;
}

ls_status group_open(ls_comm **out, const struct rank *rank, const char *allreduce) {
    ls_comm_options options = {.rank = rank->rank,
                               .world_size = rank->world_size,
                               .timeout_s = PLAN_TIMEOUT_S,
                               .allreduce = allreduce ? allreduce : "naive",
                               .bootstrap = &rank->bootstrap};
    return ls_comm_create_shm(out, &options);
}

ls_status sync_group_open(ls_comm **out, const ls_comm *comm, const struct rank *rank, const struct plan *plan) {
    *out = NULL;
    bool shards = plan->mode >= MODE_ZERO1;
    if (!plan_has_group(plan) || !(plan->sync_bn || shards)) return LS_OK;
    ls_comm_options options = {.rank = rank->rank,
                               .world_size = rank->world_size,
                               .timeout_s = PLAN_TIMEOUT_S,
                               .allreduce = "direct",
                               .bootstrap = &rank->bootstrap,
                               .group = "sync_bn",
                               .job = comm};
    return ls_comm_create_shm(out, &options);
}
