/* Optimizers over all parameters of a model: SGD (momentum, nesterov, weight decay), Adam, AdamW, by PyTorch's rules
 * (kernels.h has the formulas). State lies on the model's device, in category optimizer. */
#ifndef LS_TRAIN_OPTIMIZER_H
#define LS_TRAIN_OPTIMIZER_H

#include "common/nn/model.h"

typedef struct ls_optimizer ls_optimizer;

typedef enum ls_optimizer_kind { LS_SGD, LS_ADAM, LS_ADAMW } ls_optimizer_kind;

typedef struct ls_optimizer_options {
    ls_optimizer_kind kind;
    double learning_rate; /* >= 0 */
    double momentum;      /* SGD, >= 0 */
    bool nesterov;        /* SGD; needs momentum > 0 */
    double weight_decay;  /* >= 0; Adam: added to the gradient, AdamW: taken from the parameter */
    double beta1, beta2;  /* Adam, AdamW: in [0, 1) */
    double epsilon;       /* Adam, AdamW */
} ls_optimizer_options;

/* PyTorch's defaults: no momentum; betas 0.9 and 0.999, epsilon 1e-8; learning rate 1e-3; weight decay 0 (AdamW:
 * 0.01). */
ls_optimizer_options ls_optimizer_defaults(ls_optimizer_kind kind);

/* LS_ERR_USAGE, with one line, for options that are out of range or contradict each other. */
ls_status ls_optimizer_check(const ls_optimizer_options *options);

/* `model` is borrowed until destroy. LS_ERR_USAGE for options out of range. On failure *out is NULL. */
ls_status ls_optimizer_create(ls_optimizer **out, ls_model *model, const ls_optimizer_options *options);

/* Enqueues one update of every parameter from its gradient, on the compute stream of the model's device. */
ls_status ls_optimizer_step(ls_optimizer *optimizer);

/* The same without the parameters for which skip[index] is true (NULL: none), as PyTorch does for those whose gradient
 * is None: no weight decay, no momentum, no count of the step. From the first such step on each parameter counts its
 * own updates. */
ls_status ls_optimizer_step_without(ls_optimizer *optimizer, const bool *skip);

/* The state of a parameter, `parameter->count` floats of device memory each: SGD's momentum, or Adam's two moments. */
size_t ls_optimizer_moment_count(const ls_optimizer *optimizer);
const char *ls_optimizer_moment_name(const ls_optimizer *optimizer, size_t moment); /* "momentum", "first moment" */
const float *ls_optimizer_moment(const ls_optimizer *optimizer, size_t moment, size_t parameter);

void ls_optimizer_destroy(ls_optimizer *optimizer);

#endif
