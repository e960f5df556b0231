/* grad_scaler — loss scaling: options, device memory, and the state in checkpoints. The rule by which the scale grows
 * and shrinks runs on the device: ls_weigh_gradients and ls_update_scale (kernels/kernels.h). */
#include "common/optim/grad_scaler.h"

#include <float.h>
#include <stdlib.h>

#include "common/base/log.h"

struct ls_grad_scaler {
    ls_device *device;
    ls_stream *compute;
    struct ls_scaler_rule rule;
    struct ls_scaler_state *state; /* device */
};

ls_grad_scaler_options ls_grad_scaler_defaults(void) {
    return (ls_grad_scaler_options){
        .init_scale = 65536, .growth_factor = 2, .backoff_factor = 0.5, .growth_interval = 2000};
}

ls_status ls_grad_scaler_check(const ls_grad_scaler_options *o) {
    if (!o->enabled) return LS_OK;
    if (!(o->init_scale >= (double)FLT_MIN && o->init_scale <= (double)FLT_MAX)) {
        return ls_fail(LS_ERR_USAGE,
                       "the initial scale of the loss is %g (--init-scale); expected a positive fp32 number",
                       o->init_scale);
    }
    if (!(o->growth_factor > 1 && o->growth_factor <= (double)FLT_MAX)) {
        return ls_fail(LS_ERR_USAGE, "the scale's growth factor is %g; expected more than 1", o->growth_factor);
    }
    if (!(o->backoff_factor > 0 && o->backoff_factor < 1)) {
        return ls_fail(LS_ERR_USAGE, "the scale's backoff factor is %g; expected a number between 0 and 1",
                       o->backoff_factor);
    }
    if (o->growth_interval < 1) {
        return ls_fail(LS_ERR_USAGE, "the scale's growth interval is %d; expected at least 1", o->growth_interval);
    }
    return LS_OK;
}

ls_status ls_grad_scaler_create(ls_grad_scaler **out, ls_device *device, const ls_grad_scaler_options *o) {
    *out = NULL;
    ls_status status = ls_grad_scaler_check(o);
    if (status != LS_OK || !o->enabled) return status;
    ls_grad_scaler *scaler = calloc(1, sizeof *scaler);
    if (!scaler) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the loss scaler");
    scaler->device = device;
    scaler->compute = ls_device_stream(device, LS_STREAM_COMPUTE);
    scaler->rule = (struct ls_scaler_rule){o->growth_factor, o->backoff_factor, o->growth_interval};
    status = ls_device_alloc(device, LS_MEMORY_OPTIMIZER, sizeof *scaler->state, "loss scale", (void **)&scaler->state);
    struct ls_scaler_state start = {.scale = (float)o->init_scale};
    if (status == LS_OK) status = ls_grad_scaler_write(scaler, &start);
    if (status != LS_OK) {
        ls_grad_scaler_destroy(scaler);
        return status;
    }
    *out = scaler;
    return LS_OK;
}

const struct ls_scaler_state *ls_grad_scaler_state(const ls_grad_scaler *scaler) {
    return scaler ? scaler->state : NULL;
}

void ls_grad_scaler_update(ls_grad_scaler *scaler, const struct ls_update_state *state) {
    if (scaler) ls_update_scale(scaler->compute, scaler->state, state, scaler->rule);
}

ls_status ls_grad_scaler_read(const ls_grad_scaler *scaler, struct ls_scaler_state *state) {
    return ls_copy_now(scaler->compute, state, scaler->state, sizeof *state);
}

ls_status ls_grad_scaler_write(ls_grad_scaler *scaler, const struct ls_scaler_state *state) {
    struct ls_scaler_state taken = *state;
    /* ls_update_scale tests for equality with the interval: with a larger tracker the scale would never grow */
    if (taken.growth_tracker >= scaler->rule.growth_interval) taken.growth_tracker = scaler->rule.growth_interval - 1;
    return ls_copy_now(scaler->compute, scaler->state, &taken, sizeof taken);
}

void ls_grad_scaler_destroy(ls_grad_scaler *scaler) {
    if (!scaler) return;
    ls_device_free(scaler->device, scaler->state);
    free(scaler);
}
