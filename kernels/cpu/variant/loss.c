/* loss — the loss and its gradient in one pass over the predictions.
 *   order : rows ascending, the loss summed in double; within a row, classes ascending */
#include "common/base/log.h"
#include "kernels/cpu/variant/exponentials.h"

static float largest(const float *x, size_t count) {
    float best = x[0];
    for (size_t i = 1; i < count; i++) best = x[i] > best ? x[i] : best;
    return best;
}

ls_status LS_CPU(cross_entropy)(const struct ls_cross_entropy_arguments *a) {
    double total = 0;
    for (size_t r = 0; r < a->rows; r++) {
        const float *logits = a->logits + r * a->classes;
        float *d = a->dlogits + r * a->classes;
        int64_t label = a->labels[r];
        if (label < 0 || (uint64_t)label >= a->classes) {
            return ls_fail(LS_ERR_INVALID, "row %zu has label %lld; expected a label below %zu", r, (long long)label,
                           a->classes);
        }
        /* subtracting the largest logit only keeps exp from overflowing */
        float shift = largest(logits, a->classes), of_label = logits[label] - shift, sum = 0;
        for (size_t c = 0; c < a->classes; c++) d[c] = logits[c] - shift;
        for (size_t c = 0, count; (count = ls_exp_count(a->classes - c)) > 0; c += count)
            ls_exp_rows(d + c, 0, 1, count, 1, NULL);
        for (size_t c = 0; c < a->classes; c++) sum += d[c];
        total += (double)(logf(sum) - of_label);
        float factor = a->scale / sum;
        for (size_t c = 0; c < a->classes; c++) d[c] *= factor;
        d[label] -= a->scale;
    }
    *a->loss = (float)(total * (double)a->scale);
    return LS_OK;
}

ls_status LS_CPU(squared_error)(const struct ls_squared_error_arguments *a) {
    double total = 0;
    const float twice = 2 * a->scale;
    for (size_t begin = 0; begin < a->count; begin += LS_LANES) {
        size_t count = a->count - begin < LS_LANES ? a->count - begin : LS_LANES;
        float lanes[LS_LANES] = {0};
        for (size_t l = 0; l < count; l++) {
            float difference = a->prediction[begin + l] - a->target[begin + l];
            lanes[l] = difference * difference;
            a->dprediction[begin + l] = twice * difference;
        }
        total += (double)ls_sum_lanes(lanes);
    }
    *a->loss = (float)(total * (double)a->scale);
    return LS_OK;
}

ls_status LS_CPU(count_correct)(const struct ls_count_correct_arguments *a) {
    for (size_t r = 0; r < a->rows; r++) {
        const float *logits = a->logits + r * a->classes;
        size_t best = 0;
        for (size_t c = 1; c < a->classes; c++) best = logits[c] > logits[best] ? c : best;
        *a->correct += (int64_t)best == a->labels[r];
    }
    return LS_OK;
}
