/* Optimizers over ranges of tensors, such as all parameters of a model: SGD (momentum, nesterov, weight decay), Adam, AdamW,
 * by PyTorch's rules (docs/pytorch.md#optimizers; kernels.h has the formulas). State is on the device, in category
 * optimizer, for the ranges only, consecutive. Offloaded, the moments are in host memory, and a step waits for
 * the gradients; no other code may then change the values between the first step and ls_optimizer_write_states.
 *
 * Sharded over ranks, an optimizer has only the part of each parameter that its rank updates. The caller, which defined
 * the parts, gathers the new values. A checkpoint gathers the moments, if range p is a part of parameter p and the
 * ranks of the optimizer's group together have the whole of it. Update states are the same on all ranks, if all skip
 * the same parameters. */
#ifndef LS_OPTIM_OPTIMIZER_H
#define LS_OPTIM_OPTIMIZER_H

#include "common/comm/comm.h"
#include "common/nn/model.h"
#include "common/optim/grad_scaler.h"
#include "common/optim/offload.h"

typedef struct ls_optimizer ls_optimizer;

/* Elements first .. first + count - 1 of a tensor and of its gradient, whose address may change between steps. */
typedef struct ls_optimizer_range {
    const struct ls_tensor *tensor;
    size_t first, count;
    /* the address of these elements, if only this part is kept; NULL: within the tensor and its gradient */
    float *values, *gradient;
} ls_optimizer_range;

typedef enum ls_optimizer_kind { LS_SGD, LS_ADAM, LS_ADAMW } ls_optimizer_kind;

typedef struct ls_optimizer_options {
    ls_optimizer_kind kind;
    double learning_rate; /* >= 0 */
    double momentum;      /* SGD, >= 0 */
    bool nesterov;        /* SGD; needs momentum > 0 */
    double weight_decay;  /* >= 0; Adam: added to the gradient, AdamW: taken from the parameter */
    double beta1, beta2;  /* Adam, AdamW: in [0, 1) */
    double epsilon;       /* Adam, AdamW */
    double clip_norm;     /* gradients with a larger norm, over all ranges together, are scaled down to it; 0: none */
    bool measure_norm;    /* compute the gradients' norm even if only the records need it */
    size_t record_count;  /* room for ls_optimizer_record; 0: none */
    bool offload;         /* state is in host memory, and the host computes the update: offload.c */
    ls_grad_scaler_options scaler; /* of the loss, for fp16 */
} ls_optimizer_options;

/* PyTorch's defaults: no clipping, no loss scaling; no momentum; betas 0.9 and 0.999, epsilon 1e-8; learning rate 1e-3;
 * weight decay 0 (AdamW: 0.01). */
ls_optimizer_options ls_optimizer_defaults(ls_optimizer_kind kind);

/* LS_ERR_USAGE, with one line, for options that are out of range or contradict each other. */
ls_status ls_optimizer_check(const ls_optimizer_options *options);

/* Over all parameters of a model: range p is parameter p. For a part of a split network (common/nn/tensor_parallel.h)
 * the norm is that of the whole network. */
ls_status ls_optimizer_create(ls_optimizer **out, ls_model *model, const ls_optimizer_options *options);

/* Over ranges in the memory of `device`; there may be none. The list is copied, the tensors are borrowed until destroy.
 * The gradients' norm and found_inf are computed over the ranges of all ranks of `group` (NULL: this process has all),
 * which must be disjoint. Its collectives run on the compute stream, so the group must not be used for anything else.
 * LS_ERR_USAGE for options out of range. On failure *out is NULL. */
ls_status ls_optimizer_create_of(ls_optimizer **out, ls_device *device, const ls_optimizer_range *ranges,
                                 size_t range_count, ls_comm *group, const ls_optimizer_options *options);

/* For the optimizer of a part of a split network (common/nn/tensor_parallel.h), whose range p is a part of parameter p:
 * norm and found_inf are computed over all parts, replicated parameters counted once. A no-op for a network that is not
 * split. Call before the first step; ls_optimizer_create calls it. */
ls_status ls_optimizer_share_norm(ls_optimizer *optimizer, const ls_model *model);

/* Enqueues one update of every range from its gradient, on the compute stream of the device: unscale, clip, update, and
 * the loss scaler's update, all decided on the device. The gradients themselves are not modified: unscaling and
 * clipping are one factor, which the update applies as it reads them. If the tensors are a model's, call
 * ls_model_parameters_changed afterwards. Offloaded, the call waits until the gradients have been copied to the host.
 *
 * Ranges with skip[index] true (NULL: none) are skipped, like parameters whose gradient is None in PyTorch: no weight
 * decay, no momentum, no step count. From the first such step on each range counts its own updates. */
ls_status ls_optimizer_step(ls_optimizer *optimizer, const bool *skip);

/* The learning rate of the updates that follow; enqueues an operation if it differs from the last one. */
void ls_optimizer_set_rate(ls_optimizer *optimizer, double rate);

/* The loss scaler, or NULL; and the factor for the loss's gradient, in device memory, NULL without a scaler. */
ls_grad_scaler *ls_optimizer_scaler(const ls_optimizer *optimizer);
const float *ls_optimizer_loss_scale(const ls_optimizer *optimizer);

/* record enqueues a copy of the last update's state (norm, scale, learning rate, found_inf) to record `index`; a no-op
 * without records. read_records is host-blocking; `records` has room for record_count. */
void ls_optimizer_record(ls_optimizer *optimizer, size_t index);
ls_status ls_optimizer_read_records(const ls_optimizer *optimizer, struct ls_update_state *records);
size_t ls_optimizer_record_count(const ls_optimizer *optimizer);

/* The moments of a range, one float per element (SGD's momentum or Adam's two moments), in device memory or, offloaded,
 * in host memory; ls_copy on the device's streams accesses both. */
const ls_optimizer_range *ls_optimizer_range_at(const ls_optimizer *optimizer, size_t range);
ls_comm *ls_optimizer_group(const ls_optimizer *optimizer);
size_t ls_optimizer_moment_count(const ls_optimizer *optimizer);
const char *ls_optimizer_moment_name(const ls_optimizer *optimizer, size_t moment); /* "momentum", "first moment" */
float *ls_optimizer_moment(const ls_optimizer *optimizer, size_t moment, size_t range);

/* The update states: one for all ranges, or (see ls_optimizer_step) one for each. Read to the host, which waits. A
 * resumed run writes them: `count` is 1, for all ranges, or their number. */
size_t ls_optimizer_state_count(const ls_optimizer *optimizer);
ls_status ls_optimizer_read_states(const ls_optimizer *optimizer, struct ls_update_state *states);
ls_status ls_optimizer_write_states(ls_optimizer *optimizer, const struct ls_update_state *states, size_t count);

/* NULL: nothing is offloaded. */
const ls_offload_report *ls_optimizer_offload_report(const ls_optimizer *optimizer);

void ls_optimizer_destroy(ls_optimizer *optimizer);

#endif
