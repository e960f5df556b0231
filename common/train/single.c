/* single — a training step on one device: the T1 that both parallel modes are measured against. */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/seam/parallel.h"

struct single {
    ls_parallel base; /* first: ops receive a pointer to it */
    ls_stream *compute, *copy;
    float *dy; /* gradient of the outputs */
};

static struct single *single_of(ls_parallel *p) { return (struct single *)p; }

static void single_prepare(ls_parallel *p, const ls_batch *batch) { ls_parallel_upload(p, single_of(p)->copy, batch); }

static ls_status single_forward_backward(ls_parallel *p) {
    struct single *s = single_of(p);

    ls_phase_enter(p->clocks, LS_PHASE_FORWARD);
    ls_parallel_await_batch(p, s->compute);
    const float *y = ls_model_forward(p->model, p->batch->inputs, p->batch->count, true);

    ls_phase_enter(p->clocks, LS_PHASE_LOSS);
    ls_parallel_take_loss(p, s->compute, s->dy, y, 1);
    ls_status status = ls_check_loss(p);
    if (status != LS_OK) return status;

    ls_phase_enter(p->clocks, LS_PHASE_BACKWARD);
    ls_model_backward(p->model, s->dy, p->accumulates);
    ls_parallel_end_backward(p, s->compute);
    return LS_OK;
}

static ls_status single_reduce(ls_parallel *p) {
    (void)p; /* one device: its gradients are those of the whole batch */
    return LS_OK;
}

static ls_status single_apply(ls_parallel *p) {
    ls_phase_enter(p->clocks, LS_PHASE_OPTIMIZER);
    ls_status status = ls_parallel_update(p, ls_model_untaken(p->model));
    ls_phase_enter(p->clocks, LS_PHASE_OTHER);
    return status;
}

static void single_destroy(ls_parallel *p) {
    struct single *s = single_of(p);
    (void)ls_device_synchronize(p->devices[0]);
    ls_optimizer_destroy(p->optimizer);
    ls_device_free(p->devices[0], s->dy);
    ls_parallel_release(p);
    free(s);
}

static const struct ls_parallel_ops single_ops = {
    .prepare = single_prepare,
    .forward_backward = single_forward_backward,
    .reduce = single_reduce,
    .apply = single_apply,
    .destroy = single_destroy,
};

const struct ls_mode ls_single_mode = {.name = "single device", .option = "single", .step = &single_ops};

ls_status ls_single_create(ls_parallel **out, ls_device *device, ls_model *model, const ls_optimizer_options *optimizer,
                           size_t max_batch) {
    *out = NULL;
    struct single *s = calloc(1, sizeof *s);
    if (!s) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a training step");
    ls_probe_name_thread("single device");
    ls_parallel *p = &s->base;
    ls_parallel_set_mode(p, &ls_single_mode);
    p->world_size = p->device_count = p->local_device_count = 1;
    p->devices[0] = p->loss_device = device;
    p->gpu_count = ls_device_kind_of(device) == LS_DEVICE_CUDA;
    p->model = model;
    s->compute = ls_device_stream(device, LS_STREAM_COMPUTE);
    s->copy = ls_device_stream(device, LS_STREAM_COPY);
    ls_status status = ls_parallel_init(p);
    if (status == LS_OK) status = ls_parallel_alloc_places(p, max_batch);
    if (status == LS_OK) {
        status = ls_device_alloc(device, LS_MEMORY_ACTIVATION, max_batch * ls_model_outputs(model) * sizeof(float),
                                 "output gradients", (void **)&s->dy);
    }
    if (status == LS_OK) status = ls_model_alloc_gradients(model);
    if (status == LS_OK) status = ls_optimizer_create(&p->optimizer, model, optimizer);
    if (status == LS_OK) p->loss_scale = ls_optimizer_loss_scale(p->optimizer);
    if (status != LS_OK) {
        single_destroy(p);
        return status;
    }
    *out = p;
    return LS_OK;
}
