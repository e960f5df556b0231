#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/nn/tensor_parallel.h"
#include "ddp_procs/buckets.h"
#include "ddp_procs/pipeline.h"
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

/* The largest number of samples of a micro-batch, over all devices; DataParallel needs at least one for each. A network
 * that is split has room for the samples of its replica. */
static size_t max_batch(const struct plan *plan) {
    size_t replicas = plan->mode >= MODE_SPLIT ? (size_t)plan_replicas(plan) : 1, devices = (size_t)plan->devices;
    size_t rows = ls_micro_batch_rows((plan->batch + replicas - 1) / replicas, micro_batches(plan));
    return plan->mode == MODE_DP && rows < devices ? devices : rows;
}

static ls_optimizer_options optimizer_of(const struct plan *plan) {
    ls_optimizer_options optimizer = plan->optimizer;
    if (plan->precision == LS_FP16) optimizer.scaler.enabled = true;
    return optimizer;
}

/* As if called by rank `rank`. */
static ls_status fill_model(struct session *s, const struct plan *plan, int rank) {
    bool stored = plan->stored && rank == 0;
    if (stored) return stored_load(plan->stored, plan->state, s->model) ? LS_OK : LS_ERR_IO;
    return ls_model_init(s->model, plan->seed + (uint64_t)rank);
}

/* A part of each layer: ranks with other parts draw the same weights. */
static ls_status open_part(struct session *s, const struct plan *plan) {
    int parts = plan_parts(plan);
    const ls_tensor_options part = {s->rank % parts, parts, plan->sequence};
    ls_status status = ls_tensor_create_model(&s->model, s->devices[0], plan->model, &part, max_batch(plan),
                                              plan->precision, plan->every, false);
    if (status != LS_OK) return status;
    ls_tensor_meet(s->model, plan->groups.mesh.axis[LS_MESH_TENSOR]);
    return fill_model(s, plan, s->rank / parts);
}

static ls_status open_model(struct session *s, const struct plan *plan) {
    size_t pieces = plan->mode == MODE_DP ? (size_t)plan->devices : 1, rows = (max_batch(plan) + pieces - 1) / pieces;
    bool placed = plan->mode == MODE_ZERO3 || plan->mode == MODE_PIPELINE;
    int every = plan->mode == MODE_PIPELINE ? LS_FORWARD_ONLY : plan->every;
    if (plan->mode == MODE_TENSOR) return open_part(s, plan);
    ls_status status =
        plan->network
            ? ls_model_create_segments_of(&s->model, s->devices[0], plan->network, rows, plan->precision, every, placed)
            : ls_model_create_segments(&s->model, s->devices[0], plan->model, rows, plan->precision, every, placed);
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
    const struct plan_groups *groups = &plan->groups;
    bool is_grid = groups->mesh.job != NULL;
    return (ddp_options){.comm = is_grid ? groups->mesh.axis[LS_MESH_DATA] : comm,
                         .mesh = is_grid ? &groups->mesh : NULL,
                         .sync_bn = plan->sync_bn ? groups->second : NULL,
                         .shards = plan->mode == MODE_PIPELINE ? groups->all : groups->second,
                         .stages = groups->stages,
                         .schedule = plan->schedule,
                         .micro_batches = micro_batches(plan),
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

static ls_status open_pipeline(struct session *s, const struct plan *plan, ls_comm *comm) {
    const ddp_options options = options_of(plan, comm);
    ls_status status = ddp_create_pipeline(&s->parallel, s->model, &options);
    return status == LS_OK ? fill_model(s, plan, 0) : status;
}

static ls_status open_tensor(struct session *s, const struct plan *plan, ls_comm *comm) {
    return plan->sharded ? open_zero1(s, plan, comm) : open_ddp(s, plan, comm);
}

const struct plan_mode plan_modes[MODES] = {
    [MODE_SINGLE] = {&ls_single_mode, open_single},
    [MODE_DP] = {&dp_mode, open_dp},
    [MODE_DDP] = {&ddp_mode, open_ddp},
    [MODE_TOPK] = {&ddp_topk_mode, open_topk},
    [MODE_ZERO1] = {&ddp_zero1_mode, open_zero1},
    [MODE_ZERO2] = {&ddp_zero2_mode, open_zero2},
    [MODE_ZERO3] = {&ddp_zero3_mode, open_zero3},
    [MODE_PIPELINE] = {&ddp_pipeline_mode, open_pipeline},
    [MODE_TENSOR] = {&ddp_mode, open_tensor},
};

bool plan_has_group(const struct plan *plan) { return plan_modes[plan->mode].mode->process != NULL; }

bool plan_has_buckets(const struct plan *plan) { return plan_has_group(plan) && plan->mode != MODE_PIPELINE; }

int plan_ranks(const struct plan *plan) { return plan_has_group(plan) ? plan->devices : 1; }

int plan_parts(const struct plan *plan) {
    if (plan->mode < MODE_SPLIT) return 1;
    return plan->parts > 0 ? plan->parts : 1 + (plan->devices % 2 == 0);
}

int plan_replicas(const struct plan *plan) { return plan->devices / plan_parts(plan); }

struct plan plan_equal(const struct plan *plan) {
    struct plan equal = *plan;
    const char *option = plan_modes[plan->mode].mode->equals;
    if (plan->mode == MODE_PIPELINE) {
        equal.devices = plan_replicas(plan);
        equal.mode = equal.devices > 1 ? MODE_DDP : MODE_SINGLE;
    } else {
        for (equal.mode = 0; strcmp(plan_modes[equal.mode].mode->option, option) != 0;) equal.mode++;
    }
    return equal;
}

ls_status session_open(struct session *s, const struct plan *plan, ls_comm *comm) {
    *s = (struct session){.rank = comm ? ls_comm_rank(comm) : 0, .world_size = comm ? ls_comm_world_size(comm) : 1};
    if (plan->gpus > 0) {
        s->attached = plan->groups;
        s->attached.job = comm;
    }
    ls_status status = open_devices(s, plan);
    if (status == LS_OK) status = open_model(s, plan);
    if (status == LS_OK && plan->gpus > 0) status = plan_groups_attach(&s->attached, plan, s->devices[0]);
    if (status == LS_OK) status = plan_modes[plan->mode].open(s, plan, comm);
    if (status == LS_OK) s->parallel->micro_batches = micro_batches(plan);
    if (status != LS_OK) session_close(s);
    return status;
}

void session_close(struct session *s) {
    if (s->parallel) s->parallel->ops->destroy(s->parallel);
    ls_model_destroy(s->model);
    plan_groups_close(&s->attached);
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
    size_t count = ls_parameters_whole(all, t)->count;
    float *host = malloc(count * sizeof *host);
    ls_status status = host ? ls_parameters_read(all, t, host) : LS_ERR_NO_MEMORY;
    if (status == LS_OK) *hash = hash_floats(*hash, host, count);
    free(host);
    return status;
}

ls_status session_share_buffers(struct session *s) {
    ls_parallel *p = s->parallel;
    return p->mode == &ddp_pipeline_mode ? p->process->before_evaluation(p) : LS_OK;
}

ls_status session_hash(struct session *s, uint64_t *weights, uint64_t *state) {
    size_t parameters = ls_model_parameter_count(s->model), count = parameters + ls_model_buffer_count(s->model), t = 0;
    ls_status status = session_synchronize(s);
    if (status == LS_OK) status = session_share_buffers(s);
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
