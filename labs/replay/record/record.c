/* record — the real step, run on meta devices, with times of a node.
 *   idea  : does the work of the loop around a step (loop.c) without data: a batch without memory, and no loader; the
 *           time is priced
 *   cost  : the host's share of the steps, once for DDP whatever the number of ranks; then that of recost.h */
#include "labs/replay/record/record.h"

#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/probe.h"
#include "common/seam/step.h"
#include "common/trace/resolve.h"
#include "ddp_procs/distributed.h"
#include "ddp_procs/sharded.h"
#include "ddp_procs/topk.h"
#include "dp_threads/data_parallel.h"
#include "labs/replay/engine/recost.h"
#include "labs/replay/engine/workload_cut.h"
#include "labs/replay/record/describe.h"

#define MIB 1048576.0
#define TIMEOUT_S 60.0

enum { WARM_UP_STEPS = 2 }; /* DDP's first step has one bucket; the second builds the final ones */

/* --- modes ------------------------------------------------------------------------------------------------------- */

static ls_status create_single(ls_parallel **out, const struct record_scene *s) {
    return ls_single_create(out, s->devices[0], s->model, &s->optimizer, s->samples);
}

static ls_status create_dp(ls_parallel **out, const struct record_scene *s) {
    bool together = s->options->replicate_by_collectives && s->device_count > 1;
    dp_options options = {.devices = s->devices,
                          .device_count = s->device_count,
                          .max_batch = s->samples,
                          .sync_bn = s->options->sync_bn && s->device_count > 1,
                          .replicate = together ? DP_REPLICATE_NCCL : DP_REPLICATE_FLAT,
                          .optimizer = s->optimizer};
    return dp_create(out, s->model, &options);
}

static ls_status create_ddp(ls_parallel **out, const struct record_scene *s) {
    static ls_status (*const creates[RECORD_SHARD_STAGES + 1])(
        ls_parallel * *out, ls_model * model, const ddp_options *options) = {ddp_create, ddp_create_zero1,
                                                                             ddp_create_zero2, ddp_create_zero3};
    const struct ls_plan *o = s->options;
    ddp_options options = {.comm = s->comm,
                           .mesh = s->mesh.job ? &s->mesh : NULL,
                           .sync_bn = o->sync_bn ? s->beside : NULL,
                           .shards = s->beside,
                           .prefetch_blocks = o->prefetch_blocks,
                           .join.enable = o->join,
                           .max_batch = s->samples,
                           .optimizer = s->optimizer,
                           .reducer = {.bucket_cap_mb = (double)o->bucket_bytes / MIB,
                                       .first_bucket_mb = (double)o->first_bucket_bytes / MIB,
                                       .overlap = o->overlap,
                                       .compress = o->gradient_element_bytes < sizeof(float) ? LS_FP16 : LS_FP32},
                           .compression = {LS_FP32, o->top_k, o->feedback}};
    return o->top_k > 0 ? ddp_create_topk(out, s->model, &options) : creates[o->shard_state](out, s->model, &options);
}

const struct record_mode record_modes[] = {[LS_PLAN_SINGLE] = {&ls_single_mode, create_single},
                                           [LS_PLAN_DP] = {&dp_mode, create_dp},
                                           [LS_PLAN_DDP] = {&ddp_mode, create_ddp}};

/* --- a scene ----------------------------------------------------------------------------------------------------- */

static void close_scene(struct record_scene *s, ls_parallel *parallel) {
    if (parallel) parallel->ops->destroy(parallel);
    ls_comm_destroy(s->beside);
    if (s->mesh.job)
        ls_mesh_destroy(&s->mesh);
    else
        ls_comm_destroy(s->comm);
    ls_model_destroy(s->model);
    ls_network_destroy(s->network);
    for (int d = 0; d < s->device_count; d++) ls_device_close(s->devices[d]);
}

/* Creates a grid in which neighbours share layers. */
static ls_status join_grid(struct record_scene *s, const ls_comm_options *job) {
    const int sizes[LS_MESH_AXES] = {[LS_MESH_TENSOR] = s->options->tensor,
                                     [LS_MESH_DATA] = job->world_size / s->options->tensor,
                                     [LS_MESH_PIPELINE] = 1};
    ls_status status = ls_mesh_create_meta(&s->mesh, sizes, job, s->devices[0]);
    s->comm = s->mesh.axis[LS_MESH_DATA];
    return status;
}

/* Ranks beyond a group's limit do the same as the others. */
static ls_status join_ranks(struct record_scene *s) {
    int ranks = s->options->devices;
    if (s->options->shard_state > 0 && ranks > LS_COMM_MAX_RANKS)
        return ls_fail(LS_ERR_INVALID, "at most %d ranks can share the state, not %d", LS_COMM_MAX_RANKS, ranks);
    if (s->options->top_k > 0 && ranks > LS_COMM_MAX_RANKS)
        return ls_fail(LS_ERR_INVALID, "at most %d ranks' lists can be added, not %d", LS_COMM_MAX_RANKS, ranks);
    int room = LS_COMM_MAX_RANKS / s->options->tensor * s->options->tensor; /* in whole replicas */
    ls_comm_options group = {.world_size = ranks < room ? ranks : room, .timeout_s = TIMEOUT_S, .group = "all devices"};
    ls_status status =
        s->options->tensor > 1 ? join_grid(s, &group) : ls_comm_create_meta(&s->comm, &group, s->devices[0]);
    group.group = "beside";
    group.world_size = s->comm ? ls_comm_world_size(s->comm) : 1;
    if (status == LS_OK && (s->options->sync_bn || s->options->shard_state > 0))
        status = ls_comm_create_meta(&s->beside, &group, s->devices[0]);
    return status;
}

static ls_status open_scene(struct record_scene *s, struct ls_described *described, const ls_node *node) {
    int count = s->options->mode == LS_PLAN_DP ? s->options->devices : 1;
    ls_status status = LS_OK;
    for (int d = 0; status == LS_OK && d < count; d++) {
        ls_device_options options = {.kind = LS_DEVICE_META,
                                     .index = d,
                                     .place = d,
                                     .devices_on_node = count,
                                     .behind = !ls_node_host(node)->runs_compute};
        status = ls_device_open(&s->devices[d], &options);
        s->device_count += status == LS_OK;
    }
    size_t most = (s->samples + (size_t)count - 1) / (size_t)count;
    if (status == LS_OK) status = ls_network_create_described(&s->network, described);
    if (status == LS_OK)
        status = ls_model_create_segments_of(&s->model, s->devices[0], s->network, most, described->precision,
                                             s->options->every, s->options->shard_state == 3);
    if (status == LS_OK && s->options->mode == LS_PLAN_DDP) status = join_ranks(s);
    described->group = s->mesh.axis[LS_MESH_TENSOR];
    return status;
}

/* An optimizer for which states are allocated; the cost of updates is the workload's. */
static ls_optimizer_options optimizer_of(const ls_workload *w) {
    ls_optimizer_options options = ls_optimizer_defaults(w->optimizer_states == 2 ? LS_ADAM : LS_SGD);
    if (w->optimizer_states == 1) options.momentum = 0.9;
    return options;
}

/* --- steps ------------------------------------------------------------------------------------------------------- */

/* Samples with which a micro-batch is recorded: one on each device that has any. */
static size_t recorded_samples(const struct ls_plan *o) {
    size_t samples = 0;
    for (int d = 0; d < o->devices; d++) samples += ls_plan_rows(o, d) > 0;
    return o->mode == LS_PLAN_DP ? samples : 1;
}

/* Every micro-batch is the batch `context`. */
static ls_batch same_batch(void *context, int index) {
    (void)index;
    return *(const ls_batch *)context;
}

/* Does the same as loop.c and feed.c; `next` names the loader's flag. */
static ls_status take_step(ls_parallel *p, const struct ls_plan *o, size_t samples, uint32_t step) {
    static char nowhere, next;
    size_t ranks = (size_t)p->data_size;
    ls_batch batch = {.inputs = &nowhere,
                      .labels = (const int64_t *)(const void *)&nowhere,
                      .targets = (const float *)(const void *)&nowhere,
                      .count = samples,
                      .global_count = samples * ranks * (size_t)p->micro_batches};
    ls_phase_enter(p->clocks, LS_PHASE_LOADER);
    if (ls_probing()) ls_probe_instant(LS_PROBE_RAISE, "next batch", (uintptr_t)&next, step + 1);
    bool anyone;
    ls_status status = o->join && p->process ? p->process->join(p, &batch, &anyone) : LS_OK;
    if (status == LS_OK) status = ls_step_gradients_of(p, same_batch, &batch);
    if (status == LS_OK) status = ls_step_update(p);
    ls_phase_enter(p->clocks, LS_PHASE_OTHER);
    p->step++;
    return status == LS_OK ? ls_event_synchronize(p->batch_copied) : status;
}

/* Changes the mode's default number of places for batches. */
static ls_status set_places(ls_parallel *p, const struct ls_plan *o, int *own) {
    *own = p->places.count;
    if (o->batch_places == 1) p->places.count = 1;
    if (o->batch_places < 2) return LS_OK;
    ls_status status = ls_parallel_add_places(p, 2);
    *own = p->places.count;
    return status;
}

static ls_status warm_up(ls_parallel *p, const struct ls_plan *o, size_t samples, int *places) {
    ls_status status = set_places(p, o, places);
    p->micro_batches = o->micro_batches;
    p->check_each_loss = !ls_device_runs_behind(p->devices[0]);
    for (int step = 0; status == LS_OK && step < WARM_UP_STEPS; step++) status = take_step(p, o, samples, 0);
    return status;
}

static ls_status record_them(ls_parallel *p, const struct ls_plan *o, size_t samples) {
    ls_status status = LS_OK;
    ls_probe_start(false);
    for (int step = 0; status == LS_OK && step < o->steps; step++) {
        ls_probe_step(step);
        status = take_step(p, o, samples, (uint32_t)step);
    }
    ls_probe_step(-1);
    ls_probe_stop();
    return status;
}

/* By the groups' counts so far; 0 for other modes. */
static uint64_t sent_bytes(const struct record_scene *s) {
    ls_comm_traffic all = {0}, beside = {0}, tensor = {0};
    if (s->comm) ls_comm_traffic_read(s->comm, &all);
    if (s->beside) ls_comm_traffic_read(s->beside, &beside);
    if (s->mesh.job) ls_comm_traffic_read(s->mesh.axis[LS_MESH_TENSOR], &tensor);
    return all.sent_bytes + beside.sent_bytes + tensor.sent_bytes;
}

/* Reads the bytes that the devices hold, and that one more step sends. Between ranks that share layers bytes grow with
 * the samples. */
static ls_status look(struct record_memory *memory, ls_parallel *p, const struct record_scene *s) {
    uint64_t before = sent_bytes(s);
    size_t samples = s->options->tensor > 1 ? s->samples : recorded_samples(s->options);
    ls_status status = take_step(p, s->options, samples, 0);
    memory->sent_bytes = sent_bytes(s) - before;
    ls_device_memory(s->devices[0], &memory->first);
    ls_device_memory(s->devices[s->device_count - 1], &memory->last);
    return status;
}

/* Runs the warm-up steps, then records steps, or reads the memory, as requested. */
static ls_status take_steps(ls_parallel *p, const struct record_scene *s, struct record_memory *memory) {
    int places;
    size_t samples = recorded_samples(s->options);
    ls_status status = warm_up(p, s->options, samples, &places);
    if (status == LS_OK) status = memory ? look(memory, p, s) : record_them(p, s->options, samples);
    p->places.count = places; /* all are freed */
    return status;
}

/* Adds the recording as that rank's. */
static ls_status read_rank(ls_trace *trace, int rank) {
    const struct ls_probe_thread *threads;
    size_t count;
    if (ls_probe_lost() > 0) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the records of a step");
    ls_status status = ls_probe_read(&threads, &count);
    return status == LS_OK ? ls_trace_resolve(trace, threads, count, rank, rank, false) : status;
}

static ls_status read_trace(ls_trace **out) {
    ls_status status = ls_trace_create(out);
    if (status == LS_OK) status = read_rank(*out, 0);
    return status == LS_OK ? ls_trace_seal(*out) : status;
}

ls_status record_rank(ls_trace *trace, ls_parallel *parallel, const struct ls_plan *options, size_t samples, int rank) {
    int places;
    ls_status status = warm_up(parallel, options, samples, &places);
    if (status == LS_OK && trace) status = record_them(parallel, options, samples);
    if (status == LS_OK && trace) status = read_rank(trace, rank);
    parallel->places.count = places;
    ls_probe_drop();
    return status;
}

/* Runs the steps of the mode, and returns a trace, or the devices' memory, as requested. */
static ls_status run(ls_trace **trace, struct record_memory *memory, record_create_fn create,
                     struct record_scene *scene, struct ls_described *described, const ls_node *node) {
    ls_parallel *parallel = NULL;
    ls_status status = open_scene(scene, described, node);
    if (status == LS_OK) status = create(&parallel, scene);
    if (status == LS_OK) status = take_steps(parallel, scene, memory);
    if (status == LS_OK && trace) status = read_trace(trace);
    close_scene(scene, parallel);
    if (trace) ls_probe_drop();
    return status;
}

static ls_status record(ls_trace **recorded, record_create_fn create, const ls_workload *workload, const ls_node *node,
                        const struct ls_plan *options) {
    struct record_scene scene = {.options = options,
                                 .optimizer = optimizer_of(workload),
                                 .samples = options->mode == LS_PLAN_DP ? (size_t)options->devices : 1};
    struct ls_described described;
    *recorded = NULL;
    ls_status status = record_describe(&described, workload, options);
    if (status == LS_OK) status = run(recorded, NULL, create, &scene, &described, node);
    record_describe_free(&described);
    return status;
}

static ls_status record_whole(ls_trace **out, record_create_fn create, const ls_workload *workload, const ls_node *node,
                              const struct ls_plan *options) {
    ls_trace *recorded;
    ls_status status = record(&recorded, create, workload, node, options);
    if (status == LS_OK) status = ls_recost(out, recorded, workload, node, options);
    ls_trace_destroy(recorded);
    return status;
}

ls_status record_unpriced(ls_trace **recorded, const ls_workload *workload, const ls_node *node,
                          const struct ls_plan *options) {
    *recorded = NULL;
    ls_status status = ls_plan_check(workload, node, options);
    return status == LS_OK ? record(recorded, record_modes[options->mode].create, workload, node, options) : status;
}

/* A rank's part of the workload, which the caller closes, if ranks share layers; else NULL, for the whole workload. */
static ls_status open_part(ls_workload **part, const ls_workload *workload, const ls_node *node,
                           const struct ls_plan *options) {
    *part = NULL;
    ls_status status = ls_plan_check(workload, node, options);
    if (status != LS_OK || options->tensor == 1) return status;
    return ls_workload_cut(part, workload, options->tensor, options->sequence);
}

ls_status record_steps_of(ls_trace **out, record_create_fn create, const ls_workload *workload, const ls_node *node,
                          const struct ls_plan *options) {
    ls_workload *part;
    *out = NULL;
    ls_status status = open_part(&part, workload, node, options);
    if (status == LS_OK) status = record_whole(out, create, part ? part : workload, node, options);
    ls_workload_close(part);
    return status;
}

ls_status record_steps(ls_trace **out, const ls_workload *workload, const ls_node *node,
                       const struct ls_plan *options) {
    return record_steps_of(out, record_modes[options->mode].create, workload, node, options);
}

/* The samples of a micro-batch of this process. */
static size_t whole_samples(const struct ls_plan *o) {
    return (size_t)ceil((o->mode == LS_PLAN_DP ? o->batch : ls_plan_rows(o, 0)) / o->micro_batches);
}

ls_status record_memory(struct record_memory *memory, const ls_workload *workload, const ls_node *node,
                        const struct ls_plan *options) {
    struct record_scene scene = {.options = options, .optimizer = optimizer_of(workload)};
    struct ls_described described;
    ls_workload *part;
    ls_status status = open_part(&part, workload, node, options);
    if (status != LS_OK) return status;
    scene.samples = whole_samples(options);
    status = record_describe(&described, part ? part : workload, options);
    if (status == LS_OK) status = run(NULL, memory, record_modes[options->mode].create, &scene, &described, node);
    record_describe_free(&described);
    ls_workload_close(part);
    return status;
}
