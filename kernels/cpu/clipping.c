/* clipping — the factor by which the update multiplies gradients, and the next loss scale.
 *   idea  : one sum of squares (square_sum_list, in variant/elementwise.c) shows both whether all gradients are finite
 *           and their norm. Unscaling and clipping are combined into one factor, which the update applies as it reads
 *           the gradients
 *   cost  : a few numbers; the gradients are not touched
 *   fails : without a scaler nothing is skipped; with clipping, a NaN norm makes every gradient NaN, as in PyTorch */
#include <math.h>

#include "kernels/cpu/cpu.h"

ls_status ls_cpu_weigh_gradients(const struct ls_weigh_gradients_arguments *a) {
    float scale = a->scaler ? a->scaler->scale : 1, inverse = (float)(1 / (double)scale);
    float norm = (float)(sqrt(*a->square_sum) * (double)inverse);
    float limit = a->max_norm / (norm + 1e-6f);
    float coefficient = a->max_norm > 0 && !(limit > 1) ? limit : 1; /* a NaN stays */
    for (size_t s = 0; s < a->state_count; s++) {
        struct ls_update_state *state = &a->states[s];
        state->found_inf = a->scaler && !isfinite(*a->square_sum);
        state->gradient_factor = inverse * coefficient;
        state->norm = norm;
        state->scale = scale;
    }
    return LS_OK;
}

ls_status ls_cpu_update_scale(const struct ls_update_scale_arguments *a) {
    struct ls_scaler_state *scaler = a->scaler;
    if (a->state->found_inf != 0) {
        scaler->scale = (float)((double)scaler->scale * a->rule.backoff_factor);
        scaler->growth_tracker = 0;
        scaler->skipped++;
    } else if (++scaler->growth_tracker == a->rule.growth_interval) {
        float next = (float)((double)scaler->scale * a->rule.growth_factor);
        if (isfinite(next)) scaler->scale = next;
        scaler->growth_tracker = 0;
    }
    return LS_OK;
}
