/* data_parallel — creates and destroys the objects that dp_step.c uses. */
#include "dp_threads/data_parallel.h"

#include <stdlib.h>

#include "common/base/chunk.h"
#include "common/base/log.h"
#include "common/seam/devices.h"
#include "dp_threads/dp.h"

static ls_status create_events(struct dp_replica *r) {
    const struct {
        ls_event **event;
        const char *name;
    } events[] = {
        {&r->piece_arrived, "piece arrived"},
        {&r->arrived, "replica updated"},
        {&r->outputs_ready, "outputs ready"},
        {&r->gathered, "outputs gathered"},
        {&r->gradient_arrived, "loss gradient arrived"},
        {&r->backward_done, "backward done"},
        {&r->gradients_sent, "gradients sent"},
    };
    ls_status status = LS_OK;
    for (size_t e = 0; status == LS_OK && e < sizeof events / sizeof *events; e++) {
        status = ls_event_create(events[e].event, events[e].name);
    }
    return status;
}

static void destroy_events(struct dp_replica *r) {
    ls_event_destroy(r->piece_arrived);
    ls_event_destroy(r->arrived);
    ls_event_destroy(r->outputs_ready);
    ls_event_destroy(r->gathered);
    ls_event_destroy(r->gradient_arrived);
    ls_event_destroy(r->backward_done);
    ls_event_destroy(r->gradients_sent);
}

static ls_status create_replica(struct dp *dp, int i, const dp_options *options) {
    struct dp_replica *r = &dp->replicas[i];
    r->device = options->devices[i];
    r->compute = ls_device_stream(r->device, LS_STREAM_COMPUTE);
    r->copy = ls_device_stream(r->device, LS_STREAM_COPY);
    r->comm = ls_device_stream(r->device, LS_STREAM_COMM);
    r->clock = &dp->base.clocks[i];
    size_t first = 0, piece = 0; /* the first piece is the largest */
    ls_chunk(options->max_batch, options->device_count, 0, &first, &piece);
    ls_status status = create_events(r);
    if (status == LS_OK && i == 0) {
        r->model = dp->base.model;
    } else if (status == LS_OK) {
        status = ls_model_create_like(&r->model, r->device, dp->base.model, piece);
        size_t nbytes = piece * ls_model_input_nbytes(dp->base.model);
        if (status == LS_OK) {
            status = ls_device_alloc(r->device, LS_MEMORY_INPUT, nbytes, "a piece of the batch", &r->inputs);
        }
    }
    if (status == LS_OK) status = ls_model_alloc_gradients(r->model);
    if (status == LS_OK && i != dp->output_replica) {
        status = ls_device_alloc(r->device, LS_MEMORY_ACTIVATION, piece * dp->output_count * sizeof(float),
                                 "output gradients", (void **)&r->dy);
    }
    if (status == LS_OK && i > 0 && options->replicate == DP_REPLICATE_FLAT) {
        float *gradients;
        size_t count;
        ls_model_gradients(r->model, &gradients, &count);
        status = ls_device_alloc(dp->base.devices[0], LS_MEMORY_GRADIENT, count * sizeof(float),
                                 "gradients of the replicas", (void **)&r->sent);
        dp->sent[i - 1] = r->sent;
    }
    return status;
}

/* Creates a group of the replicas' threads; on GPUs it moves their memory by `path`. On failure ends[] is all NULL. */
static ls_status create_group(ls_comm *ends[LS_MAX_DEVICES], const dp_options *options, ls_comm_path path) {
    /* a wait for a device includes NCCL's operations but cannot name them; the group can, so it times out first */
    double timeout_s = path == LS_COMM_NCCL ? ls_wait_timeout_s() / 2 : ls_wait_timeout_s();
    ls_comm_options group = {.world_size = options->device_count, .timeout_s = timeout_s, .allreduce = "direct"};
    _Static_assert(LS_MAX_DEVICES <= LS_COMM_MAX_RANKS, "a group has room for all devices");
    ls_status status = ls_comm_create_threads(ends, &group);
    if (status != LS_OK || ls_device_memory_is_host(options->devices[0])) return status;
    status = ls_comm_attach_devices(ends, options->devices, path);
    for (int i = 0; status != LS_OK && i < options->device_count; i++) {
        ls_comm_destroy(ends[i]);
        ends[i] = NULL;
    }
    return status;
}

/* These sums of a few hundred bytes are added in replica order ("direct"), as the ranks of DistributedDataParallel add
 * them. */
static ls_status join_batchnorm(struct dp *dp, const dp_options *options) {
    if (!options->sync_bn || ls_model_batchnorm_count(dp->base.model) == 0) return LS_OK;
    ls_comm *ends[LS_MAX_DEVICES];
    ls_status status = create_group(ends, options, LS_COMM_STAGED);
    for (int i = 0; status == LS_OK && i < options->device_count; i++) dp->replicas[i].sync_bn = ends[i];
    for (int i = 0; status == LS_OK && i < options->device_count; i++) {
        status = ls_model_sync_batchnorm(dp->replicas[i].model, ends[i]);
    }
    return status;
}

static ls_status join_nccl(struct dp *dp, const dp_options *options) {
    if (options->replicate != DP_REPLICATE_NCCL) return LS_OK;
    ls_comm *ends[LS_MAX_DEVICES];
    ls_status status = create_group(ends, options, LS_COMM_NCCL);
    for (int i = 0; status == LS_OK && i < options->device_count; i++) dp->replicas[i].nccl = ends[i];
    return status;
}

static ls_status place_loss_scale(struct dp *dp) {
    ls_parallel *p = &dp->base;
    p->loss_scale = ls_optimizer_loss_scale(p->optimizer);
    if (!p->loss_scale || dp->output_replica == 0) return LS_OK;
    ls_status status = ls_device_alloc(p->loss_device, LS_MEMORY_OPTIMIZER, sizeof *dp->loss_scale,
                                       "the loss scale's copy", (void **)&dp->loss_scale);
    p->loss_scale = dp->loss_scale;
    return status;
}

/* Number of different GPUs; 0 for CPU devices. */
static int count_gpus(const dp_options *options) {
    ls_device_choice choice = {.kind = ls_device_kind_of(options->devices[0]), .count = options->device_count};
    for (int i = 0; i < choice.count; i++) choice.indices[i] = ls_device_index(options->devices[i]);
    return ls_devices_gpus(&choice);
}

static ls_status check(const ls_model *module, const dp_options *options) {
    if (options->device_count < 1 || options->device_count > LS_MAX_DEVICES) {
        return ls_fail(LS_ERR_USAGE, "DataParallel cannot use %d devices; expected 1 to %d", options->device_count,
                       LS_MAX_DEVICES);
    }
    if ((size_t)options->device_count > options->max_batch) {
        return ls_fail(
            LS_ERR_USAGE,
            "a micro-batch of %zu samples cannot be cut for %d devices; use fewer devices, a larger batch or "
            "fewer micro-batches",
            options->max_batch, options->device_count);
    }
    if (options->output_device < 0 || options->output_device >= options->device_count) {
        return ls_fail(LS_ERR_USAGE, "output device %d is not among the %d devices", options->output_device,
                       options->device_count);
    }
    if (options->replicate == DP_REPLICATE_NCCL && ls_device_kind_of(options->devices[0]) == LS_DEVICE_CPU) {
        return ls_fail(LS_ERR_USAGE, "NCCL works between GPUs only; give --replicate flat for other devices");
    }
    bool shares = ls_device_computes(options->devices[0]) && count_gpus(options) < options->device_count;
    if (options->replicate == DP_REPLICATE_NCCL && shares) {
        return ls_fail(LS_ERR_USAGE,
                       "NCCL needs a GPU for each of the %d devices, but they share %d; give --replicate flat",
                       options->device_count, count_gpus(options));
    }
    int required = ls_device_index(options->devices[0]), actual = ls_device_index(ls_model_device(module));
    if (ls_model_device(module) != options->devices[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "the module must have its parameters and buffers on device %d (the first of the list), but they "
                       "are on device %d",
                       required, actual);
    }
    return LS_OK;
}

static ls_status build(struct dp *dp, const dp_options *options) {
    ls_parallel *p = &dp->base;
    ls_device *output = options->devices[dp->output_replica];
    ls_status status = ls_parallel_init(p);
    if (status == LS_OK) status = ls_event_create(&dp->loss_taken, "loss taken");
    if (status == LS_OK) status = ls_event_create(&dp->updated, "parameters updated");
    dp->sent = calloc((size_t)options->device_count, sizeof *dp->sent);
    if (status == LS_OK && !dp->sent) status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for DataParallel");
    if (status == LS_OK) status = ls_parallel_alloc_places(p, options->max_batch);
    if (status == LS_OK) {
        status =
            ls_device_alloc(output, LS_MEMORY_GATHERED_OUTPUT, options->max_batch * dp->output_count * sizeof(float),
                            "gathered outputs", (void **)&dp->gathered_outputs);
    }
    for (int i = 0; status == LS_OK && i < options->device_count; i++) status = create_replica(dp, i, options);
    if (status == LS_OK) status = join_batchnorm(dp, options);
    if (status == LS_OK) status = join_nccl(dp, options);
    if (status == LS_OK) status = ls_optimizer_create(&p->optimizer, p->model, &options->optimizer);
    if (status == LS_OK) status = place_loss_scale(dp);
    if (status == LS_OK) status = dp_workers_create(&dp->workers, options->devices, options->device_count);
    return status;
}

static const char *graph_obstacle(const ls_parallel *p) {
    if (p->device_count > 1) return "DataParallel on several devices, each with a thread of its own";
    return ((const struct dp *)p)->replicas[0].nccl ? "--replicate nccl, which one device has no use for" : NULL;
}

/* Inputs, outputs and their gradients are sent with each micro-batch; parameters with the first, gradients with the
 * last. If the step is one micro-batch, a device without a piece of it takes no part. */
static void count_bytes(const ls_parallel *p, struct ls_step_size size, int local, uint64_t bytes[LS_PHASE_COUNT]) {
    float *data;
    size_t parameters, rows = 0;
    for (int k = 0; k < size.micro_batches; k++) rows += ls_parallel_rows(p, size, local, k);
    if (p->device_count == 1 || (rows == 0 && size.micro_batches == 1)) return;
    ls_model_parameters(p->model, &data, &parameters);
    uint64_t outputs = rows * ls_model_outputs(p->model) * sizeof(float);
    bytes[LS_PHASE_GATHER] = outputs; /* the loss's own device, too: a copy within its memory */
    if (p->devices[local] != p->loss_device) bytes[LS_PHASE_SCATTER] += outputs; /* sent back as gradients */
    if (local == 0) return;
    bytes[LS_PHASE_SCATTER] += rows * ls_model_input_nbytes(p->model);
    bytes[LS_PHASE_REPLICATE] = bytes[LS_PHASE_REDUCE] = parameters * sizeof(float);
}

static void destroy(ls_parallel *p) {
    struct dp *dp = dp_of(p);
    if (!dp_workers_destroy(dp->workers)) return; /* reported; a stuck thread may still use everything */
    for (int i = 0; i < p->device_count; i++) (void)ls_device_synchronize(p->devices[i]);
    for (int i = 0; i < p->device_count; i++) {
        struct dp_replica *r = &dp->replicas[i];
        if (!r->device) continue; /* creation failed before it */
        destroy_events(r);
        ls_device_free(r->device, r->inputs);
        ls_device_free(r->device, r->dy);
        ls_device_free(p->devices[0], r->sent);
        if (i == 0) (void)ls_model_sync_batchnorm(p->model, NULL);
        if (i > 0) ls_model_destroy(r->model);
        ls_comm_destroy(r->sync_bn);
        ls_comm_destroy(r->nccl);
    }
    ls_optimizer_destroy(p->optimizer);
    ls_device_free(p->loss_device, dp->gathered_outputs);
    ls_device_free(p->loss_device, dp->loss_scale);
    ls_event_destroy(dp->loss_taken);
    ls_event_destroy(dp->updated);
    ls_parallel_release(p);
    free(dp->sent);
    free(dp);
}

static const struct ls_parallel_ops dp_ops = {
    .prepare = dp_prepare,
    .forward_backward = dp_forward_backward,
    .reduce = dp_reduce,
    .apply = dp_apply,
    .abandon = dp_abandon,
    .destroy = destroy,
};

const struct ls_mode dp_mode = {
    .name = "DataParallel",
    .option = "dp",
    .step = &dp_ops,
    .graph_obstacle = graph_obstacle,
    .count_bytes = count_bytes,
    .find_nonfinite = dp_find_nonfinite,
};

ls_status dp_create(ls_parallel **out, ls_model *module, const dp_options *options) {
    *out = NULL;
    ls_status status = check(module, options);
    if (status != LS_OK) return status;
    struct dp *dp = calloc(1, sizeof *dp + (size_t)options->device_count * sizeof *dp->replicas);
    if (!dp) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for DataParallel");
    ls_parallel *p = &dp->base;
    ls_parallel_set_mode(p, &dp_mode);
    p->world_size = 1;
    p->device_count = p->local_device_count = options->device_count;
    for (int i = 0; i < options->device_count; i++) p->devices[i] = options->devices[i];
    p->model = module;
    p->loss_device = options->devices[options->output_device];
    p->gpu_count = count_gpus(options);
    p->backend = options->replicate == DP_REPLICATE_NCCL ? "nccl" : "copies";
    dp->output_replica = options->output_device;
    dp->output_count = ls_model_outputs(module);
    if (p->device_count == 1) dp->without_gradient = ls_model_untaken(module);
    status = build(dp, options);
    if (status != LS_OK) {
        destroy(p);
        return status;
    }
    *out = p;
    return LS_OK;
}
