/* The state of a model: a network, its parameters and its activations on one device. Private to common/nn. */
#ifndef LS_NN_MODEL_INTERNAL_H
#define LS_NN_MODEL_INTERNAL_H

#include "common/nn/frame_internal.h"
#include "common/nn/model.h"
#include "common/nn/segments.h"

struct ls_model {
    /* constant after create */
    ls_device *device;
    ls_stream *compute;
    ls_dtype precision;
    size_t max_batch;
    const ls_network *network;
    ls_network *owned; /* the same, if the model was made from a text */
    ls_parameters *parameters;
    int every; /* blocks of a segment; 0: all */
    ls_segments *segments;
    float *class_sums; /* scratch memory of the loss, if the network has a part of the classes */
    /* set by the caller */
    struct ls_hooks hooks;
};

/* ls_model_create_segments_of, for a network that the model owns from now on, also if this fails. */
ls_status ls_model_create_owning(ls_model **out, ls_device *device, ls_network *network, size_t max_batch,
                                 ls_dtype precision, int every, bool placed);

#endif
