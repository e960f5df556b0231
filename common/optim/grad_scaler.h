/* Loss scaling for fp16, by the rules of PyTorch's GradScaler (docs/pytorch.md#loss-scaling).
 *
 * In fp16 everything below 2^-24 is lost, and small gradients with it. So the gradient of the loss is multiplied by a
 * large scale before backward, and the gradients of the parameters, which are fp32, are divided by it before the
 * update. An infinity or a NaN among them means that the scale was too large for this step: the update is skipped and
 * the scale halved; after growth_interval updates without one the scale is doubled.
 *
 * Only gradients are checked. A loss that is itself not finite, because an activation exceeds fp16's 65504, ends the
 * run (divergence.c): no scale would help.
 *
 * All state and all decisions are on the device (kernels.h: ls_weigh_gradients, ls_update_scale): the host enqueues the
 * same operations in every step and never waits for a result. One thread at a time.
 *
 * PyTorch's object is called four times per step and rejects a wrong order of calls (unscale_ twice, step after step,
 * update without either). Here an optimizer owns its scaler: ls_optimizer_step is unscale_, clip_grad_norm_, step and
 * update in one call, so no other order is possible. The gradients are not modified: the update multiplies by
 * gradient_factor as it reads them. One scaler has one optimizer, whose gradients are on one device; if they are
 * sharded over ranks, the optimizer's group combines found_inf. Without a scaler nothing is scaled, as with
 * enabled=False. */
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

/* Creates a scaler on `device`, in category optimizer. *out is NULL on failure and if the options do not enable it. */
ls_status ls_grad_scaler_create(ls_grad_scaler **out, ls_device *device, const ls_grad_scaler_options *options);

/* Its state, memory of the device; NULL for no scaler. */
const struct ls_scaler_state *ls_grad_scaler_state(const ls_grad_scaler *scaler);

/* Enqueues the update of the scale from `state`, which ls_weigh_gradients has filled in, on the device's compute
 * stream, after the optimizer's update. NULL is a no-op. */
void ls_grad_scaler_update(ls_grad_scaler *scaler, const struct ls_update_state *state);

/* Copy the state to and from the host; host-blocking. A tracker beyond this scaler's growth interval, from a run with a
 * longer one, is set to one step less than the interval. */
ls_status ls_grad_scaler_read(const ls_grad_scaler *scaler, struct ls_scaler_state *state);
ls_status ls_grad_scaler_write(ls_grad_scaler *scaler, const struct ls_scaler_state *state);

/* NULL is a no-op. */
void ls_grad_scaler_destroy(ls_grad_scaler *scaler);

#endif
