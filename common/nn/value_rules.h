/* How layers propagate the labels of values (common/comm/values.h). Passes call these while ls_values_on(). Private to
 * common/nn. */
#ifndef LS_NN_VALUE_RULES_H
#define LS_NN_VALUE_RULES_H

#include "common/comm/values.h"
#include "common/nn/frame_internal.h"

/* Call before a layer's pass: sets the position for messages, and for a frame's last layer labels dy, the output's
 * gradient. */
void ls_value_rules_begin(const ls_frame *frame, const ls_parameters *parameters, size_t l, void *dy);

/* Call after it: labels the output; or the gradients of the inputs, at to[], and of the parameters. A failure poisons
 * the device. */
void ls_value_rules_forward(const ls_frame *frame, size_t l, const struct ls_pass *pass);
void ls_value_rules_backward(const ls_frame *frame, const ls_parameters *parameters, size_t l,
                             const struct ls_pass *pass, void *const to[LS_LAYER_MAX_INPUTS]);

#endif
