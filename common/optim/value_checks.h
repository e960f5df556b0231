/* Checks of an update on the labels of values (common/comm/values.h), while ls_values_on(). Private to common/optim. */
#ifndef LS_OPTIM_VALUE_CHECKS_H
#define LS_OPTIM_VALUE_CHECKS_H

#include "common/comm/values.h"
#include "common/nn/tensor.h"

/* Checks that the parameter's gradient is complete: replicated, or split over ranks that have parts of the weight;
 * split on the data axis only if `shards` (state is sharded). The parameter is then labelled split there until it is
 * gathered. `here`: this rank updates a part of it. */
ls_status ls_check_gradient(const struct ls_tensor *parameter, bool shards, bool here);

/* A rank's sum of squares: partial on each axis on which it covers only a part of a gradient; after the reduction it
 * must be replicated. Call in this order, the second for each parameter. */
void ls_label_square_sum(const double *square_sum);
void ls_label_square_sum_of(const double *square_sum, const struct ls_tensor *parameter);
ls_status ls_check_square_sum(const double *square_sum);

#endif
