/* class_loss — the three steps of a cross entropy whose classes are split over ranks (kernels.h), each on its own part.
 *   cost  : each step reads the part's logits once; exponentials are computed twice, since their divisor is known
 *           only after a reduction over all ranks, and storing them would take as much memory as the logits
 *   order : rows ascending, the loss summed in double; within a row, classes ascending. All ranks compute the same loss
 *           from the same numbers */
#include "common/base/log.h"
#include "kernels/cpu/variant/exponentials.h"

ls_status LS_CPU(class_maxima)(const struct ls_class_maxima_arguments *a) {
    for (size_t r = 0; r < a->rows; r++) {
        const float *logits = a->logits + r * a->part.room;
        float best = -INFINITY;
        for (size_t c = 0; c < a->part.count; c++) best = logits[c] > best || isnan(logits[c]) ? logits[c] : best;
        a->maxima[r] = best;
    }
    return LS_OK;
}

/* The index of a row's label in the part; at least part.count if another part has it. */
static size_t place_of(int64_t label, struct ls_class_part part) {
    return (size_t)label >= part.first ? (size_t)label - part.first : SIZE_MAX;
}

ls_status LS_CPU(class_sums)(const struct ls_class_sums_arguments *a) {
    for (size_t r = 0; r < a->rows; r++) {
        const float *logits = a->logits + r * a->part.room;
        int64_t label = a->labels[r];
        if (label < 0 || (uint64_t)label >= a->part.whole) {
            return ls_fail(LS_ERR_INVALID, "row %zu has label %lld; expected a label below %zu", r, (long long)label,
                           a->part.whole);
        }
        float shift = a->maxima[r], sum = 0, e[LS_EXP_BLOCK];
        for (size_t begin = 0, n; (n = ls_exp_count(a->part.count - begin)) > 0; begin += n) {
            for (size_t c = 0; c < n; c++) e[c] = logits[begin + c] - shift;
            ls_exp_rows(e, 0, 1, n, 1, NULL);
            for (size_t c = 0; c < n; c++) sum += e[c];
        }
        size_t place = place_of(label, a->part);
        a->sums[r] = sum;
        a->sums[a->rows + r] = place < a->part.count ? logits[place] - shift : 0;
    }
    return LS_OK;
}

ls_status LS_CPU(class_loss)(const struct ls_class_loss_arguments *a) {
    double total = 0;
    for (size_t r = 0; r < a->rows; r++) {
        const float *logits = a->logits + r * a->part.room;
        float *d = a->dlogits + r * a->part.room, shift = a->maxima[r], factor = a->scale / a->sums[r];
        size_t place = place_of(a->labels[r], a->part);
        total += (double)(logf(a->sums[r]) - a->sums[a->rows + r]);
        for (size_t c = 0; c < a->part.count; c++) d[c] = ls_exp_float(logits[c] - shift) * factor;
        for (size_t c = a->part.count; c < a->part.room; c++) d[c] = 0;
        if (place < a->part.count) d[place] -= a->scale;
    }
    *a->loss = (float)(total * (double)a->scale);
    return LS_OK;
}
