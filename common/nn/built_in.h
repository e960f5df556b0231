/* From a model's description ("mlp:784,512,10") to its layers. Private to common/nn. */
#ifndef LS_NN_BUILT_IN_H
#define LS_NN_BUILT_IN_H

#include "common/nn/layer.h"

#define LS_MODEL_MAX_LAYERS 160

struct ls_description {
    struct ls_image input;
    ls_loss_kind loss;
    size_t layer_count;
    ls_layer layers[LS_MODEL_MAX_LAYERS]; /* planned, without memory */
};

/* LS_ERR_USAGE with one line if the text is not a model. */
ls_status ls_describe_model(struct ls_description *description, const char *text);

#endif
