/* Loss scaling for fp16, by the rules of PyTorch's GradScaler (docs/pytorch.md#loss-scaling).
 *
 * In fp16 everything below 2^-24 is lost, and small gradients with it. So the gradient of the loss is multiplied by a
 * large scale before it goes back, and the gradients of the parameters, which are fp32, are divided by it before the
 * update. An infinity or a NaN among them says that the scale was too large for this step: the update is left out and
 * the scale halved; after growth_interval updates without any it is doubled.
 *
 * Only gradients are judged. A loss that is itself not finite, because an activation is beyond fp16's 65504, ends the
 * run (divergence.c): no scale would help.
 *
 * All of it lives and happens on the device (kernels.h: ls_weigh_gradients, ls_update_scale): the host enqueues the
 * same operations in every step and never asks. One thread at a time.
 *
 * Where PyTorch's object is called four times a step and refuses a wrong order of calls (unscale_ twice, step after
 * step, update without either), an optimizer here owns its scaler: ls_optimizer_step is unscale_, clip_grad_norm_, step
 * and update in one call, in this order, so there is no other. The gradients are not written: the update multiplies by
 * gradient_factor as it reads them. One scaler has one optimizer, whose gradients lie on one device; if their parts lie on
 * several ranks, the optimizer's group joins found_inf. Without a scaler nothing is scaled, as with enabled=False. */
#ifndef LS_OPTIM_GRAD_SCALER_H
#define LS_OPTIM_GRAD_SCALER_H

#include <stdbool.h>

#include "common/device/device.h"
#include "kernels/kernels.h"

typedef struct ls_grad_scaler ls_grad_scaler;

typedef struct ls_grad_scaler_options {
    bool enabled;
    double init_scale;     /* > 0, finite as a float */
    double growth_factor;  /* > 1 */
    double backoff_factor; /* in (0, 1) */
    int growth_interval;   /* >= 1 */
} ls_grad_scaler_options;

/* PyTorch's: 65536, 2, 0.5, 2000; not enabled. */
ls_grad_scaler_options ls_grad_scaler_defaults(void);

/* LS_ERR_USAGE, with one line, for options out of range. */
ls_status ls_grad_scaler_check(const ls_grad_scaler_options *options);

/* On `device`, in category optimizer. *out is NULL if the options do not enable it, and on failure. */
ls_status ls_grad_scaler_create(ls_grad_scaler **out, ls_device *device, const ls_grad_scaler_options *options);

/* Its state, memory of the device; NULL for no scaler. */
const struct ls_scaler_state *ls_grad_scaler_state(const ls_grad_scaler *scaler);

/* Enqueues, on the device's compute stream and behind the update: what `state`, which ls_weigh_gradients has filled,
 * means for the scale. NULL is a no-op. */
void ls_grad_scaler_update(ls_grad_scaler *scaler, const struct ls_update_state *state);

/* The state from and to the host, which waits. A tracker that is beyond this scaler's growth interval, as that of a
 * run with a longer one may be, is taken as one step short of it. */
ls_status ls_grad_scaler_read(const ls_grad_scaler *scaler, struct ls_scaler_state *state);
ls_status ls_grad_scaler_write(ls_grad_scaler *scaler, const struct ls_scaler_state *state);

/* NULL is a no-op. */
void ls_grad_scaler_destroy(ls_grad_scaler *scaler);

#endif
