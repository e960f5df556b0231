/* value_checks — checks labels before an update.
 *   idea  : a gradient that is still partial changes each rank's weights by that rank's term only, and the loss falls
 *           nonetheless. So each gradient's label is checked, with its name, and the norm's like any other value's
 *   fails : gradients without a label are not checked */
#include "common/optim/value_checks.h"

#include <stdio.h>

static struct ls_labels *gradient_of(const struct ls_tensor *parameter) {
    return ls_values_named("the gradient of %s", parameter->name);
}

ls_status ls_check_gradient(const struct ls_tensor *parameter, bool shards, bool here) {
    const unsigned complete = 1u << LS_REPLICATED, split = 1u << LS_SPLIT;
    const struct ls_labels *gradient = gradient_of(parameter);
    struct ls_labels *values = ls_values_named("%s", parameter->name);
    char name[2 * LS_TENSOR_NAME_NBYTES];
    if (!gradient) return LS_OK;
    if (values && gradient->on[LS_MESH_DATA] == LS_SPLIT) values->on[LS_MESH_DATA] = LS_SPLIT;
    if (!here) return LS_OK;
    snprintf(name, sizeof name, "the gradient of %s", parameter->name);
    ls_status status = ls_values_need(name, gradient, LS_MESH_TENSOR, complete | split, "the optimizer");
    if (status != LS_OK) return status;
    return ls_values_need(name, gradient, LS_MESH_DATA, shards ? complete | split : complete, "the optimizer");
}

void ls_label_square_sum(const double *square_sum) {
    const struct ls_labels sum = {{[LS_MESH_PIPELINE] = LS_PARTIAL}};
    ls_values_set(square_sum, sizeof *square_sum, sum, false, "the square sum of the gradients");
}

void ls_label_square_sum_of(const double *square_sum, const struct ls_tensor *parameter) {
    const struct ls_labels *gradient = gradient_of(parameter);
    struct ls_labels *sum = ls_values_find(square_sum);
    for (int a = 0; gradient && sum && a < LS_MESH_PIPELINE; a++)
        if (gradient->on[a] == LS_SPLIT) sum->on[a] = LS_PARTIAL;
}

ls_status ls_check_square_sum(const double *square_sum) {
    const struct ls_labels *sum = ls_values_find(square_sum);
    ls_status status = LS_OK;
    for (int a = 0; sum && a < LS_MESH_AXES && status == LS_OK; a++)
        status = ls_values_need("the square sum of the gradients", sum, (ls_mesh_axis)a, 1u << LS_REPLICATED,
                                "clipping and loss scaling");
    return status;
}
