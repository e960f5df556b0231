/* pipeline_mode — the parts of a pipeline besides its step: memory, a stage's optimizer, queries.
 *   memory: for each micro-batch in flight a frame of the stage's blocks and a buffer for its input, so M or P - stage
 *           of them; one workspace for all, since passes run one at a time. The update is of the stage's parameters;
 *           norm and infinities are reduced over all stages in the second group of the axis */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/nn/tensor_parallel.h"
#include "ddp_procs/pipeline_internal.h"

/* --- queries ------------------------------------------------------------------------------------------------------ */

static const char *graph_obstacle(const ls_parallel *p) {
    (void)p;
    return "--pipeline, whose stages run several micro-batches in turn";
}

/* The bytes that this stage sends. */
static void count_bytes(const ls_parallel *p, struct ls_step_size size, int local, uint64_t bytes[LS_PHASE_COUNT]) {
    const struct pipeline *s = (const struct pipeline *)p;
    size_t rows = ls_parallel_rows(p, size, p->data_rank, 0), floats = s->stage->floats;
    size_t elements = ddp_stage_is_last(s->stage) ? 0 : s->output_count;
    (void)local;
    if (!ddp_stage_is_first(s->stage)) elements += s->input_count;
    bytes[LS_PHASE_STAGES] =
        (uint64_t)size.micro_batches * rows * elements * ls_dtype_nbytes(ls_model_precision(p->model));
    if (is_owner(s) || is_reader(s)) bytes[LS_PHASE_STAGES] += tied_count(s) * sizeof(float);
    bytes[LS_PHASE_TENSOR] = (uint64_t)size.micro_batches * ls_tensor_blocks_nbytes(p->model, s->stage->blocks, rows);
    if (p->data_size == 1) return;
    bytes[s->sharded ? LS_PHASE_REDUCE : LS_PHASE_ALL_REDUCE] = floats * sizeof(float);
    if (s->sharded) bytes[LS_PHASE_GATHER] = floats * sizeof(float);
}

/* Searches the frame of the micro-batch with that loss: the input from the previous stage, and this stage's own. */
static ls_status find_nonfinite(ls_parallel *p, char *place, size_t capacity) {
    const struct pipeline *s = pipeline_of(p);
    int slot = 0;
    bool is_received;
    while (s->slots[slot].batch != p->batch) slot++;
    ls_status status = ls_model_search_frame(p->model, s->slots[slot].frame, place, capacity, &is_received);
    size_t length = strlen(place);
    if (status != LS_OK || length == 0) return status;
    if (is_received && s->slots[slot].input)
        snprintf(place + length, capacity - length, ", which rank %d has sent",
                 ls_comm_job_rank(s->axis, s->stage->number - 1));
    else
        snprintf(place + length, capacity - length, " on rank %d", p->rank);
    return LS_OK;
}

/* An evaluation uses the buffers of the first replica's stages. */
static ls_status before_evaluation(ls_parallel *p) {
    ls_status status = ddp_stage_share_buffers(pipeline_of(p)->stage);
    ddp_of(p)->buffers_changed = true;
    return status == LS_OK ? ddp_before_evaluation(p) : status;
}

static void get_resume_state(const ls_parallel *p, const int64_t **values, size_t *count) {
    (void)p;
    *values = NULL;
    *count = 0;
}

static ls_status set_resume_state(ls_parallel *p, const int64_t *values, size_t count) {
    (void)p, (void)values, (void)count; /* the order of another mode's buckets */
    return LS_OK;
}

/* --- life ------------------------------------------------------------------------------------------------------------ */

static ls_status alloc_slot(struct pipeline *s, struct slot *slot, size_t max_batch) {
    ls_parallel *p = &s->ddp.base;
    ls_dtype precision = ls_model_precision(p->model);
    ls_status status =
        ls_frame_create(&slot->frame, device_of(s), ls_model_network(p->model), precision, s->stage->blocks, max_batch);
    size_t workspace = status == LS_OK ? ls_frame_workspace_nbytes(slot->frame) : 0;
    if (status == LS_OK && !s->workspace && workspace > 0)
        status = ls_device_alloc(device_of(s), LS_MEMORY_WORKSPACE, workspace, "products", &s->workspace);
    if (status == LS_OK) status = ls_frame_place(slot->frame, NULL, s->workspace);
    if (status == LS_OK) status = ls_frame_sync_batchnorm(slot->frame, s->ddp.sync_bn);
    if (status != LS_OK || ddp_stage_is_first(s->stage)) return status;
    return ls_device_alloc(device_of(s), LS_MEMORY_ACTIVATION, max_batch * s->input_count * ls_dtype_nbytes(precision),
                           "inputs of a stage", &slot->input);
}

static ls_status alloc_slots(struct pipeline *s, const ddp_options *options) {
    ls_parallel *p = &s->ddp.base;
    size_t element = ls_dtype_nbytes(ls_model_precision(p->model));
    ls_status status = LS_OK;
    s->slots = calloc((size_t)s->slot_count, sizeof *s->slots);
    if (!s->slots) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a pipeline");
    for (int i = 0; status == LS_OK && i < s->slot_count; i++) status = alloc_slot(s, &s->slots[i], options->max_batch);
    if (status == LS_OK && !ddp_stage_is_last(s->stage))
        status = ls_device_alloc(device_of(s), LS_MEMORY_ACTIVATION, options->max_batch * s->output_count * element,
                                 "gradient of a stage's output", &s->dy);
    if (status == LS_OK && is_owner(s))
        status = ls_device_alloc(device_of(s), LS_MEMORY_GRADIENT, tied_count(s) * sizeof(float), "a shared gradient",
                                 (void **)&s->tied_sum);
    /* if the host runs ahead, one more micro-batch is being copied */
    return status == LS_OK ? ls_parallel_add_places(p, s->slot_count + ls_device_runs_behind(device_of(s))) : status;
}

/* The part of parameter p that this rank updates: all of a parameter of its stage, or with sharded state the part in
 * its slice; nothing of a copy. */
static ls_optimizer_range find_own(const struct pipeline *s, size_t p) {
    const ls_parallel *base = &s->ddp.base;
    const struct ls_tensor *tensor = ls_model_parameter(base->model, p);
    const ddp_stage *stage = s->stage;
    ls_optimizer_range range = {.tensor = tensor};
    if (stage->parts[p].count == 0 || tensor->data >= stage->values + stage->floats) return range;
    size_t slice = s->sharded ? ddp_stage_slice(stage, base->data_size) : stage->floats;
    size_t begin = s->sharded ? slice * (size_t)base->data_rank : 0, end = begin + slice;
    size_t at = (size_t)(tensor->data - stage->values), behind = at + tensor->count;
    if (begin < at) begin = at;
    if (end > behind) end = behind;
    if (begin >= end) return range;
    range.first = begin - at;
    range.count = end - begin;
    return range;
}

static ls_status create_optimizer(struct pipeline *s, const ddp_options *options) {
    ls_parallel *p = &s->ddp.base;
    size_t count = ls_model_parameter_count(p->model);
    ls_optimizer_range *own = calloc(count + 1, sizeof *own);
    if (!own) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a stage's part of an optimizer");
    for (size_t i = 0; i < count; i++) own[i] = find_own(s, i);
    ls_comm *group = s->sharded ? options->shards : options->stages;
    ls_status status = ls_optimizer_create_of(&p->optimizer, device_of(s), own, count, group, &options->optimizer);
    free(own);
    return status == LS_OK ? ls_optimizer_share_norm(p->optimizer, p->model) : status;
}

/* The first stage has the most micro-batches in flight. */
ls_status ddp_pipeline_check(const ddp_schedule *schedule) {
    int most = LS_MOST_BATCH_PLACES - 1, in_flight = ddp_schedule_in_flight(schedule, 0);
    if (in_flight <= most) return LS_OK;
    return ls_fail(LS_ERR_USAGE,
                   "--schedule %s: %d micro-batches would be in flight on the first stage, which has room for %d%s",
                   ddp_schedule_names[schedule->kind], in_flight, most,
                   schedule->kind == DDP_GPIPE ? " (1f1b has one for each stage)" : "");
}

static ls_status plan(struct pipeline *s, const ddp_options *options) {
    const ls_network *network = ls_model_network(s->ddp.base.model);
    const ddp_schedule schedule = {options->schedule, s->stage->cut.stages, options->micro_batches};
    ls_status status = ddp_pipeline_check(&schedule);
    if (status != LS_OK) return status;
    s->micro_batches = options->micro_batches;
    s->slot_count = ddp_schedule_in_flight(&schedule, s->stage->number);
    s->list_count = 2 * (size_t)options->micro_batches;
    s->list = calloc(s->list_count + 1, sizeof *s->list);
    if (!s->list) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a schedule");
    ddp_schedule_list(&schedule, s->stage->number, s->list);
    s->input_count = ls_shape_count(ls_network_block_input(network, s->stage->blocks.first));
    if (!ddp_stage_is_last(s->stage))
        s->output_count = ls_shape_count(ls_network_block_input(network, s->stage->blocks.end));
    return LS_OK;
}

static ls_status create_update(struct ddp *ddp, const ddp_options *options) {
    struct pipeline *s = pipeline_of(&ddp->base);
    s->axis = options->mesh->axis[LS_MESH_PIPELINE];
    s->sharded = options->shards != NULL;
    ls_status status = ddp_stage_create(&s->stage, options->stages, ddp->comm, options->shards, ddp->base.model);
    if (status != LS_OK) return status;
    ddp->base.loss_elsewhere |= !ddp_stage_is_last(s->stage);
    status = plan(s, options);
    if (status == LS_OK) status = ls_event_create(&s->passed, "stage's passes");
    if (status == LS_OK) status = ls_event_create(&s->received, "received from a stage");
    if (status == LS_OK) status = alloc_slots(s, options);
    return status == LS_OK ? create_optimizer(s, options) : status;
}

static void destroy(ls_parallel *p) {
    struct pipeline *s = pipeline_of(p);
    (void)ls_device_synchronize(p->devices[0]);
    for (int i = 0; s->slots && i < s->slot_count; i++) {
        ls_frame_destroy(s->slots[i].frame);
        ls_device_free(p->devices[0], s->slots[i].input);
    }
    ls_device_free(p->devices[0], s->tied_sum);
    ls_device_free(p->devices[0], s->dy);
    ls_device_free(p->devices[0], s->workspace);
    ls_event_destroy(s->passed);
    ls_event_destroy(s->received);
    free(s->slots);
    free(s->list);
    ddp_stage_destroy(s->stage, s->ddp.comm);
    ddp_destroy(p);
}

static const struct ls_parallel_ops pipeline_ops = {
    .prepare = ddp_pipeline_prepare,
    .forward_backward = ddp_pipeline_forward_backward,
    .reduce = ddp_pipeline_reduce,
    .apply = ddp_pipeline_apply,
    .abandon = ddp_abandon,
    .destroy = destroy,
};

static const struct ls_process_ops pipeline_process = {
    .sum_over_ranks = ddp_sum_over_ranks,
    .gather_from_ranks = ddp_gather_from_ranks,
    .give_up = ddp_give_up,
    .before_evaluation = before_evaluation,
    .join = ddp_join,
    .get_resume_state = get_resume_state,
    .set_resume_state = set_resume_state,
};

const struct ls_mode ddp_pipeline_mode = {
    .name = "pipeline",
    .option = "pipeline",
    .equals = "single",
    .step = &pipeline_ops,
    .process = &pipeline_process,
    .graph_obstacle = graph_obstacle,
    .count_bytes = count_bytes,
    .find_nonfinite = find_nonfinite,
    .gathered = "parameters",
};

ls_status ddp_create_pipeline(ls_parallel **out, ls_model *model, const ddp_options *options) {
    const struct ddp_kind kind = {&ddp_pipeline_mode, sizeof(struct pipeline), create_update};
    return ddp_create_as(out, &kind, model, options);
}
