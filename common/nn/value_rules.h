/* What layers make of the labels of values (common/comm/values.h): called by the passes while ls_values_on(). Private to
 * common/nn. */
#ifndef LS_NN_VALUE_RULES_H
#define LS_NN_VALUE_RULES_H

#include "common/comm/values.h"
#include "common/nn/frame_internal.h"

/* Before a layer's pass: where it is. A frame's last layer gets the gradient of the output here. */
void ls_value_rules_begin(const ls_frame *frame, const ls_parameters *parameters, size_t l, void *dy);

/* Behind it: labels its output; or the gradients of its inputs, which lie in to[], and of its parameters. A failure poisons the
 * device. */
void ls_value_rules_forward(const ls_frame *frame, size_t l, const struct ls_pass *pass);
void ls_value_rules_backward(const ls_frame *frame, const ls_parameters *parameters, size_t l,
                             const struct ls_pass *pass, void *const to[LS_LAYER_MAX_INPUTS]);

#endif
