/* The state of a model: a network, its parameters and a frame on one device; or a described network (described.h), which
 * needs no frame. Private to common/nn. */
#ifndef LS_NN_MODEL_INTERNAL_H
#define LS_NN_MODEL_INTERNAL_H

#include "common/nn/described.h"
#include "common/nn/frame_internal.h"
#include "common/nn/model.h"

struct ls_model {
    /* constant after create */
    ls_device *device;
    ls_stream *compute;
    ls_dtype precision;
    size_t max_batch;
    const ls_network *network;
    ls_network *owned; /* the same, if the model was made from a text */
    ls_parameters *parameters;
    ls_frame *frame;
    /* in place of network and frame */
    const struct ls_described *described;
    float *activations;
    ls_comm *group;
    double *shared;
    /* set by the caller */
    struct ls_hooks hooks;
};

/* The tensors of a described model. (described.c) */
ls_status ls_describe_parameters(ls_model *model);

/* ls_model_sync_batchnorm and ls_model_batchnorm_count of a described model. (described.c) */
ls_status ls_describe_sync_batchnorm(ls_model *model, ls_comm *group);
size_t ls_described_batchnorm_count(const struct ls_described *described);

#endif
