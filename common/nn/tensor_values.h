/* What a value is on the ranks that share a network. Private to common/nn. */
#ifndef LS_NN_TENSOR_VALUES_H
#define LS_NN_TENSOR_VALUES_H

#include "common/nn/network_internal.h"

enum ls_tensor_value {
    LS_TENSOR_ALIKE, /* the same on all */
    LS_TENSOR_PART,  /* each has channels of its own */
    LS_TENSOR_ROWS   /* each has rows of its own */
};

/* What a layer of the whole network makes of what its inputs are (values, per layer). LS_ERR_INVALID: it cannot work on that. */
ls_status ls_tensor_find_value(const ls_layer *layer, const enum ls_tensor_value *values, bool sequence,
                               enum ls_tensor_value *out);

/* Whether it is an embedding whose vocabulary is cut. */
bool ls_tensor_is_embedding(const ls_layer *layer);

/* The one layer that reads the layer's output; NULL: there are more, or none. */
const ls_layer *ls_tensor_only_reader(const ls_network *network, const ls_layer *layer);

#endif
