/* The state of a model, shared by model.c (its memory and parts) and passes.c (forward and backward). Private to
 * common/nn. */
#ifndef LS_NN_MODEL_INTERNAL_H
#define LS_NN_MODEL_INTERNAL_H

#include "common/nn/built_in.h"
#include "common/nn/described.h"
#include "common/nn/model.h"

struct ls_model {
    /* constant after create */
    ls_device *device;
    ls_stream *compute;
    ls_dtype precision;
    size_t max_batch;
    char *description; /* the text that it was made from; NULL: it is described */
    struct ls_description layout;
    const struct ls_described *described; /* in place of layers; NULL: there are layers */
    /* with described: what layers have otherwise */
    struct ls_tensor *tensors;
    ls_comm *group;
    double *shared;
    int64_t batches_tracked;
    size_t parameter_count, buffer_count;
    struct ls_tensor **parameters, **buffers; /* into the layers */
    bool *untaken;                            /* per parameter; NULL: all take part */
    float *slab;
    size_t parameter_floats, slab_floats; /* with padding */
    void *workspace;
    void *exchange[2]; /* backward: dy and dx in turn */
    /* in half precision; NULL in fp32 */
    void *half_slab; /* the parameters, laid out like the slab */
    float *outputs;
    bool half_is_stale; /* the parameters have changed since the copy was made */
    /* set by the caller */
    float *gradient_slab; /* ls_model_alloc_gradients, or NULL */
    ls_grad_ready_fn hook;
    void *hook_context;
    /* the last forward */
    const void *x;
    size_t batch;
};

/* The gradient's last operation has been enqueued: tells probes and hook. What the hook fails with sticks to the device,
 * as what it enqueues does; on a device that has failed nothing happens. (passes.c) */
void ls_model_report_ready(ls_model *model, size_t parameter);

/* The tensors of a described model. (described.c) */
ls_status ls_describe_tensors(ls_model *model);

/* ls_model_sync_batchnorm and ls_model_batchnorm_count of a described model. (described.c) */
ls_status ls_describe_sync_batchnorm(ls_model *model, ls_comm *group);
size_t ls_described_batchnorm_count(const struct ls_described *described);

static inline bool ls_model_in_half(const ls_model *model) { return model->precision != LS_FP32; }

#endif
