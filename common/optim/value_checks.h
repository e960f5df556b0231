/* What an update asks of the labels of values (common/comm/values.h), while ls_values_on(). Private to common/optim. */
#ifndef LS_OPTIM_VALUE_CHECKS_H
#define LS_OPTIM_VALUE_CHECKS_H

#include "common/comm/values.h"
#include "common/nn/tensor.h"

/* The parameter's gradient is complete: replicated, or split among ranks that have parts of the weight; on the data axis only where
 * `shards` says that ranks share the state out. The parameter then is split there until it is gathered. `here`: this rank
 * updates something of it. */
ls_status ls_check_gradient(const struct ls_tensor *parameter, bool shards, bool here);

/* A rank's sum of squares: partial on each axis on which it has a part of a gradient only; when all have been added up, it must be
 * replicated. In this order, the second for each parameter. */
void ls_label_square_sum(const double *square_sum);
void ls_label_square_sum_of(const double *square_sum, const struct ls_tensor *parameter);
ls_status ls_check_square_sum(const double *square_sum);

#endif
