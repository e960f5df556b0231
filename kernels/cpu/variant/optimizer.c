/* optimizer — SGD, Adam and AdamW: one pass over parameter, gradient and state.
 *   idea  : values that change from step to step are read from the update state on the device. If found_inf is set, an
 *           update does nothing, so the host can enqueue it before the gradients are known. One factor unscales and
 *           clips gradients as they are read; a factor of 1 leaves their bits
 *   order : element by element; the fused multiply-adds are where PyTorch's vectorised CPU code has them */
#include "kernels/cpu/variant/variant.h"

ls_status LS_CPU(begin_update)(const struct ls_begin_update_arguments *a) {
    struct ls_update_state *state = a->state;
    if (state->found_inf != 0) return LS_OK;
    state->step += 1;
    state->step_size = (float)(state->learning_rate / (1 - pow(a->beta1, state->step)));
    state->bias2_sqrt = (float)sqrt(1 - pow(a->beta2, state->step));
    return LS_OK;
}

ls_status LS_CPU(set_learning_rate)(const struct ls_set_learning_rate_arguments *a) {
    for (size_t s = 0; s < a->state_count; s++) a->states[s].learning_rate = a->rate;
    return LS_OK;
}

static void sgd_plain(float *restrict p, const float *restrict g, size_t count, float decay, float minus_rate,
                      float factor) {
    for (size_t i = 0; i < count; i++) {
        float d = decay != 0 ? fmaf(p[i], decay, g[i] * factor) : g[i] * factor;
        p[i] = fmaf(d, minus_rate, p[i]);
    }
}

struct sgd_factors {
    float factor, decay, minus_rate, momentum, keep; /* keep = 1 - dampening */
    bool first, nesterov;
};

static inline void sgd_momentum(float *restrict p, const float *restrict g, float *restrict m, size_t count,
                                struct sgd_factors f) {
    for (size_t i = 0; i < count; i++) {
        float d = f.decay != 0 ? fmaf(p[i], f.decay, g[i] * f.factor) : g[i] * f.factor;
        m[i] = f.first ? d : fmaf(d, f.keep, m[i] * f.momentum);
        d = f.nesterov ? fmaf(m[i], f.momentum, d) : m[i];
        p[i] = fmaf(d, f.minus_rate, p[i]);
    }
}

ls_status LS_CPU(sgd)(const struct ls_sgd_arguments *a) {
    const struct ls_update_state *state = a->state;
    if (state->found_inf != 0) return LS_OK;
    const struct ls_sgd_rule *rule = &a->rule;
    float minus_rate = (float)-state->learning_rate;
    if (rule->momentum == 0) {
        sgd_plain(a->parameter, a->gradient, a->count, rule->weight_decay, minus_rate, state->gradient_factor);
        return LS_OK;
    }
    struct sgd_factors factors = {state->gradient_factor, rule->weight_decay, minus_rate,    rule->momentum,
                                  1 - rule->dampening,    state->step == 1,   rule->nesterov};
    sgd_momentum(a->parameter, a->gradient, a->momentum, a->count, factors);
    return LS_OK;
}

struct adam_factors {
    float factor; /* on the gradient */
    float beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
    float shrink, decay; /* AdamW's factor on p (1 if coupled); Adam's L2 term (0 if decoupled) */
    float minus_step_size, bias2_sqrt, bias2_sqrt_reciprocal;
};

/* x / divisor in the time of three multiplications: x times the reciprocal, corrected by the remainder. The bits are
 * those of the division: compared for every float of [1, 4) and 40 of Adam's divisors. */
static inline float quotient(float x, float divisor, float reciprocal) {
    float estimate = x * reciprocal;
    float corrected = fmaf(fmaf(-estimate, divisor, x), reciprocal, estimate);
    return corrected == corrected ? corrected : estimate; /* for an infinite x the remainder is NaN */
}

static void adam(float *restrict p, const float *restrict g, float *restrict m, float *restrict v, size_t count,
                 struct adam_factors f) {
    for (size_t i = 0; i < count; i++) {
        float parameter = p[i] * f.shrink;
        float gradient = fmaf(parameter, f.decay, g[i] * f.factor);
        float first = fmaf(gradient, f.one_minus_beta1, m[i] * f.beta1);
        float second = fmaf(gradient * f.one_minus_beta2, gradient, v[i] * f.beta2);
        float denominator = quotient(sqrtf(second), f.bias2_sqrt, f.bias2_sqrt_reciprocal) + f.epsilon;
        m[i] = first;
        v[i] = second;
        p[i] = fmaf(f.minus_step_size, first / denominator, parameter);
    }
}

ls_status LS_CPU(adam)(const struct ls_adam_arguments *a) {
    const struct ls_update_state *state = a->state;
    if (state->found_inf != 0) return LS_OK;
    const struct ls_adam_rule *rule = &a->rule;
    struct adam_factors factors = {
        .factor = state->gradient_factor,
        .beta1 = (float)rule->beta1,
        .one_minus_beta1 = (float)(1 - rule->beta1),
        .beta2 = (float)rule->beta2,
        .one_minus_beta2 = (float)(1 - rule->beta2),
        .epsilon = (float)rule->epsilon,
        .shrink = rule->decoupled ? (float)(1 - state->learning_rate * rule->weight_decay) : 1,
        .decay = rule->decoupled ? 0 : (float)rule->weight_decay,
        .minus_step_size = -state->step_size,
        .bias2_sqrt = state->bias2_sqrt,
        .bias2_sqrt_reciprocal = 1 / state->bias2_sqrt,
    };
    adam(a->parameter, a->gradient, a->first_moment, a->second_moment, a->count, factors);
    return LS_OK;
}

/* --- lists: tensor after tensor, since one core gains nothing from cutting them up ----------------------------------- */

ls_status LS_CPU(sgd_list)(const struct ls_sgd_list_arguments *a) {
    for (size_t i = 0; i < a->tensor_count; i++) {
        const struct ls_update_tensor *t = &a->tensors[i];
        struct ls_sgd_arguments one = {a->rule, a->state, t->parameter, t->gradient, t->first, t->count};
        (void)LS_CPU(sgd)(&one);
    }
    return LS_OK;
}

ls_status LS_CPU(adam_list)(const struct ls_adam_list_arguments *a) {
    for (size_t i = 0; i < a->tensor_count; i++) {
        const struct ls_update_tensor *t = &a->tensors[i];
        struct ls_adam_arguments one = {a->rule, a->state, t->parameter, t->gradient, t->first, t->second, t->count};
        (void)LS_CPU(adam)(&one);
    }
    return LS_OK;
}
