/* tensor_model — models of a rank's part of a network. */
#include "common/nn/model_internal.h"
#include "common/nn/tensor_parallel.h"

ls_status ls_tensor_create_model(ls_model **out, ls_device *device, const char *description,
                                 const ls_tensor_options *options, size_t max_batch, ls_dtype precision, int every,
                                 bool placed) {
    ls_network *network;
    *out = NULL;
    ls_status status = ls_network_create(&network, description);
    if (status == LS_OK && options->ranks > 0) status = ls_tensor_cut(&network, network, options);
    if (status != LS_OK) return status;
    return ls_model_create_owning(out, device, network, max_batch, precision, every, placed);
}

void ls_tensor_meet(ls_model *model, ls_comm *group) {
    model->owned->tensor = group;
    model->parameters->cut_group = group;
}
