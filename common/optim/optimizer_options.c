/* optimizer_options — PyTorch's defaults, and the checks of options. */
#include <float.h>
#include <math.h>

#include "common/base/log.h"
#include "common/optim/optimizer.h"

ls_optimizer_options ls_optimizer_defaults(ls_optimizer_kind kind) {
    return (ls_optimizer_options){
        .kind = kind,
        .learning_rate = 1e-3,
        .weight_decay = kind == LS_ADAMW ? 0.01 : 0,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .epsilon = 1e-8,
        .scaler = ls_grad_scaler_defaults(),
    };
}

static bool is_amount(double value) { return isfinite(value) && value >= 0; }

ls_status ls_optimizer_check(const ls_optimizer_options *o) {
    if (!is_amount(o->learning_rate))
        return ls_fail(LS_ERR_USAGE, "the learning rate is %g; expected at least 0", o->learning_rate);
    if (!is_amount(o->weight_decay))
        return ls_fail(LS_ERR_USAGE, "the weight decay is %g; expected at least 0", o->weight_decay);
    if (!is_amount(o->momentum)) return ls_fail(LS_ERR_USAGE, "the momentum is %g; expected at least 0", o->momentum);
    if (o->nesterov && !(o->momentum > 0)) return ls_fail(LS_ERR_USAGE, "nesterov needs a momentum above 0");
    if (o->kind != LS_SGD && (o->momentum > 0 || o->nesterov)) {
        return ls_fail(LS_ERR_USAGE, "momentum and nesterov belong to sgd; adam and adamw take betas");
    }
    if (!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1)) {
        return ls_fail(LS_ERR_USAGE, "the betas are %g and %g; expected numbers in [0, 1)", o->beta1, o->beta2);
    }
    /* the device has it in fp32, where 0 means no clipping */
    bool can_clip = o->clip_norm >= (double)FLT_MIN && o->clip_norm <= (double)FLT_MAX;
    if (o->clip_norm != 0 && !can_clip) {
        return ls_fail(LS_ERR_USAGE, "the norm to clip at is %g; expected a positive fp32 number", o->clip_norm);
    }
    return ls_grad_scaler_check(&o->scaler);
}
