/* How a value is laid out over the ranks of a split network. Private to common/nn. */
#ifndef LS_NN_TENSOR_VALUES_H
#define LS_NN_TENSOR_VALUES_H

#include "common/nn/network_internal.h"

enum ls_tensor_value {
    LS_TENSOR_ALIKE, /* replicated */
    LS_TENSOR_PART,  /* split by channels */
    LS_TENSOR_ROWS   /* split by rows */
};

/* The layout of a layer's output, given those of its inputs (values, per layer of the whole network). LS_ERR_INVALID:
 * the layer cannot process such inputs. */
ls_status ls_tensor_find_value(const ls_layer *layer, const enum ls_tensor_value *values, bool sequence,
                               enum ls_tensor_value *out);

/* Whether the layer is an embedding whose vocabulary is split. */
bool ls_tensor_is_embedding(const ls_layer *layer);

/* The one layer that reads the layer's output; NULL: there are more, or none. */
const ls_layer *ls_tensor_only_reader(const ls_network *network, const ls_layer *layer);

#endif
