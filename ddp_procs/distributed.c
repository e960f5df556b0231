/* distributed — building DistributedDataParallel on a rank: the ranks compare their models, then take rank 0's
 * state. */
#include "ddp_procs/distributed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "ddp_procs/ddp.h"

ls_status ddp_update(struct ddp *ddp) {
    ls_status status = ls_parallel_update(&ddp->base, ddp_reducer_unused(ddp->reducer));
    if (status != LS_OK || !ddp->compare_each_step) return status;
    return ddp_compare_state(ddp, ddp->sync_bn != NULL); /* synchronised statistics are the same on all ranks */
}

/* --- construction checks ----------------------------------------------------------------------------------------- */

static ls_status compare_counts(struct ddp *ddp) {
    int64_t mine = (int64_t)ls_model_parameter_count(ddp->base.model), all[LS_COMM_MAX_RANKS] = {0};
    ls_comm_label(ddp->job, "number of parameters", -1);
    ls_status status =
        ls_comm_settle(ddp->comm_stream, ls_comm_all_gather(ddp->job, ddp->comm_stream, &mine, all, 1, LS_INT64));
    for (int r = 1; status == LS_OK && r < ls_comm_world_size(ddp->job); r++) {
        if (all[r] == all[0]) continue;
        return ls_fail(LS_ERR_INVALID,
                       "the model must be the same on all ranks, but rank 0 has %lld parameters and rank %d has %lld",
                       (long long)all[0], r, (long long)all[r]);
    }
    return status;
}

enum { SHAPE_WORDS = 5 }; /* ndim and up to four sizes */

static void write_shapes(const ls_model *model, int64_t *shapes) {
    for (size_t p = 0; p < ls_model_parameter_count(model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        shapes[SHAPE_WORDS * p] = tensor->ndim;
        for (int d = 0; d < tensor->ndim; d++) shapes[SHAPE_WORDS * p + 1 + (size_t)d] = (int64_t)tensor->shape[d];
    }
}

/* All ranks gather all shapes, so that every rank can report which rank differs. */
static ls_status compare_shapes(struct ddp *ddp) {
    size_t count = SHAPE_WORDS * ls_model_parameter_count(ddp->base.model);
    int world_size = ls_comm_world_size(ddp->job);
    int64_t *mine = calloc(count, sizeof *mine), *all = calloc(count * (size_t)world_size, sizeof *all);
    ls_status status = mine && all ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to compare models");
    if (status == LS_OK) {
        write_shapes(ddp->base.model, mine);
        ls_comm_label(ddp->job, "shapes of parameters", -1);
        status = ls_comm_settle(ddp->comm_stream,
                                ls_comm_all_gather(ddp->job, ddp->comm_stream, mine, all, count, LS_INT64));
    }
    for (size_t i = 0; status == LS_OK && i < count * (size_t)world_size; i++) {
        if (all[i] == all[i % count]) continue;
        size_t parameter = i % count / SHAPE_WORDS;
        status = ls_fail(
            LS_ERR_INVALID,
            "the model must be the same on all ranks, but the shape of %s on rank %zu differs from that on rank 0",
            ls_model_parameter(ddp->base.model, parameter)->name, i / count);
    }
    free(mine);
    free(all);
    return status;
}

static ls_status take_state_of_rank_0(struct ddp *ddp) {
    float *state;
    size_t count;
    ls_model_state(ddp->base.model, &state, &count);
    ls_model_parameters_changed(ddp->base.model);
    return ls_comm_settle(ddp->comm_stream, ls_comm_broadcast(ddp->comm, ddp->comm_stream, state, count, LS_FP32, 0));
}

/* --- queries ------------------------------------------------------------------------------------------------------ */

/* The part of a step that needs the host between its operations. */
const char *ddp_graph_obstacle(const ls_parallel *p) {
    const struct ddp *ddp = (const struct ddp *)p;
    if (ddp->join.enable) return "--join, whose ranks ask each other before each step";
    if (ddp->find_unused) return "--find-unused, which asks after each backward what was used";
    if (ddp->compare_each_step) return "--debug-ranks, which compares the ranks after each step";
    if (p->world_size == 1) return NULL; /* nothing is communicated */
    if (ls_comm_can_be_captured(ddp->comm) && (!ddp->sync_bn || ls_comm_can_be_captured(ddp->sync_bn))) return NULL;
    return "gradients staged through the host (give --backend nccl, with a GPU for each rank)";
}

/* Every rank communicates the same number of bytes, whatever its part of the batch is. */
static void count_bytes(const ls_parallel *p, struct ls_step_size size, int local, uint64_t bytes[LS_PHASE_COUNT]) {
    const struct ddp *ddp = (const struct ddp *)p;
    (void)size, (void)local;
    bytes[LS_PHASE_BROADCAST] = ddp->buffer_count * sizeof(float);
    bytes[LS_PHASE_ALL_REDUCE] = ddp_reducer_sent_nbytes(ddp->reducer);
}

void ddp_describe(const ls_parallel *p, struct ls_trace_about *about) {
    const struct ddp *ddp = (const struct ddp *)p;
    /* only NCCL's operations can be captured, and NCCL does not report its algorithm */
    if (!ls_comm_can_be_captured(ddp->comm)) about->algorithm = ls_comm_allreduce(ddp->comm);
    ddp_reducer_describe(ddp->reducer, about);
}

/* --- life -------------------------------------------------------------------------------------------------------- */

static ls_status create_update(struct ddp *ddp, const ddp_options *options) {
    ls_parallel *p = &ddp->base;
    ls_status status = ddp_reducer_create(&ddp->reducer, ddp->comm, p->model, p->clocks, &options->reducer);
    return status == LS_OK ? ls_optimizer_create(&p->optimizer, p->model, &options->optimizer) : status;
}

static ls_status build(struct ddp *ddp, const struct ddp_kind *kind, const ddp_options *options) {
    ls_parallel *p = &ddp->base;
    ls_device *device = p->devices[0];
    ls_status status = ls_parallel_init(p);
    if (status == LS_OK) status = ls_event_create(&ddp->buffers_idle, "buffers idle");
    if (status == LS_OK) status = ls_event_create(&ddp->buffers_arrived, "buffers arrived");
    if (status == LS_OK) status = compare_counts(ddp);
    if (status == LS_OK) status = compare_shapes(ddp);
    ls_comm_label(ddp->comm, "parameters at start", -1);
    if (status == LS_OK) status = take_state_of_rank_0(ddp);
    if (status == LS_OK) status = ls_parallel_alloc_places(p, options->max_batch);
    if (status == LS_OK) {
        size_t nbytes = options->max_batch * ls_model_outputs(p->model) * sizeof(float);
        status = ls_device_alloc(device, LS_MEMORY_ACTIVATION, nbytes, "output gradients", (void **)&ddp->dy);
    }
    if (status == LS_OK) status = ls_model_sync_batchnorm(p->model, ddp->sync_bn);
    if (status == LS_OK) status = kind->create_update(ddp, options);
    if (status == LS_OK) p->loss_scale = ls_optimizer_loss_scale(p->optimizer);
    return status;
}

void ddp_destroy(ls_parallel *p) {
    struct ddp *ddp = ddp_of(p);
    (void)ls_device_synchronize(p->devices[0]);
    (void)ls_model_sync_batchnorm(p->model, NULL);
    ls_optimizer_destroy(p->optimizer);
    ddp_reducer_destroy(ddp->reducer);
    ls_device_free(p->devices[0], ddp->dy);
    ls_event_destroy(ddp->buffers_idle);
    ls_event_destroy(ddp->buffers_arrived);
    ls_parallel_release(p);
    free(ddp);
}

static const struct ls_parallel_ops ddp_ops = {
    .prepare = ddp_prepare,
    .forward_backward = ddp_forward_backward,
    .reduce = ddp_reduce,
    .apply = ddp_apply,
    .abandon = ddp_abandon,
    .destroy = ddp_destroy,
};

const struct ls_mode ddp_mode = {
    .name = "DistributedDataParallel",
    .option = "ddp",
    .equals = "dp",
    .step = &ddp_ops,
    .process = &ddp_process_ops,
    .graph_obstacle = ddp_graph_obstacle,
    .count_bytes = count_bytes,
    .describe = ddp_describe,
};

/* Sets the rank's place in a grid. */
static void take_place(struct ddp *ddp, const ls_mesh *mesh) {
    ls_parallel *p = &ddp->base;
    ddp->job = mesh->job;
    p->data_rank = ls_comm_rank(mesh->axis[LS_MESH_DATA]);
    p->data_size = ls_comm_world_size(mesh->axis[LS_MESH_DATA]);
    p->tensor_rank = ls_comm_rank(mesh->axis[LS_MESH_TENSOR]);
    p->tensor_size = ls_comm_world_size(mesh->axis[LS_MESH_TENSOR]);
    p->loss_elsewhere = p->tensor_rank > 0;
}

ls_status ddp_create_as(ls_parallel **out, const struct ddp_kind *kind, ls_model *model, const ddp_options *options) {
    *out = NULL;
    struct ddp *ddp = calloc(1, kind->state_nbytes);
    if (!ddp) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for %s", kind->mode->name);
    ls_parallel *p = &ddp->base;
    ls_parallel_set_mode(p, kind->mode);
    ddp->comm = ddp->job = options->comm;
    if (options->mesh) take_place(ddp, options->mesh);
    p->rank = ls_comm_rank(ddp->job);
    ls_probe_name_thread("rank %d", p->rank);
    p->world_size = p->device_count = ls_comm_world_size(ddp->job);
    p->local_device_count = 1;
    p->model = model;
    p->devices[0] = p->loss_device = ls_model_device(model);
    p->gpu_count = options->gpu_count;
    p->backend = ls_comm_backend(ddp->job);
    p->sent_as = options->reducer.compress;
    if (options->join.enable)
        p->join_rule =
            options->join.divide_by_initial_world_size ? "dividing by initial ranks" : "dividing by active ranks";
    ddp->sync_bn = options->sync_bn;
    ddp->compute = ls_device_stream(p->devices[0], LS_STREAM_COMPUTE);
    ddp->copy = ls_device_stream(p->devices[0], LS_STREAM_COPY);
    ddp->comm_stream = ls_device_stream(p->devices[0], LS_STREAM_COMM);
    float *state, *parameters;
    size_t state_count, parameter_count;
    ls_model_state(model, &state, &state_count);
    ls_model_parameters(model, &parameters, &parameter_count);
    ddp->buffers = state + parameter_count;
    ddp->buffer_count = state_count - parameter_count;
    ddp->buffers_changed = true;
    ddp->gradient_weight = ls_comm_world_size(ddp->comm);
    ddp->join = options->join;
    ddp->compare_each_step = options->compare_each_step;
    ddp->find_unused = options->reducer.find_unused;
    ls_status status = build(ddp, kind, options);
    if (status != LS_OK) {
        char reason[100];
        snprintf(reason, sizeof reason, "construction of %s failed", kind->mode->name);
        ls_comm_abort(ddp->job, reason);
        kind->mode->step->destroy(p);
        return status;
    }
    *out = p;
    return LS_OK;
}

ls_status ddp_create(ls_parallel **out, ls_model *model, const ddp_options *options) {
    return ddp_create_as(out, &(struct ddp_kind){&ddp_mode, sizeof(struct ddp), create_update}, model, options);
}
