#include "labs/24-silent/found.h"

/* A line per program: the tensor, the axis, the tensor's state, and the function with the bug. found.h lists the
 * words. */
struct finding found(int program) {
    static const struct finding all[] = {
        [1] = {GRADIENT_OF_ANY_PARAMETER, TENSOR_AXIS, SPLIT, CREATE_UPDATE},
        [2] = {GRADIENT_OF_A_LAYER_NORM, TENSOR_AXIS, PARTIAL, LAYERNORM_PART_BACKWARD},
        [3] = {STATISTICS_OF_A_BATCH_NORM, TENSOR_AXIS, REPLICATED, DDP_SETUP_FORM_PARALLEL},
        [4] = {OUTPUT_OF_A_LAYER_NORM, TENSOR_AXIS, REPLICATED, ENTER},
        [5] = {SQUARE_SUM_OF_THE_GRADIENTS, TENSOR_AXIS, PARTIAL, SCALE_GRADIENTS},
        [6] = {INPUTS_OF_A_MICRO_BATCH, TENSOR_AXIS, OTHER_BITS, LS_FEED_OPEN},
        [7] = {OUTPUT_OF_A_PRODUCT, TENSOR_AXIS, PARTIAL, ADD_TERMS},
        [8] = {EMBEDDING, PIPELINE_AXIS, OTHER_BITS, RENEW_COPY},
    };
    return all[program];
}
