/* maxpool — the largest value of each window, and where it was.
 *   idea  : windows do not overlap (stride = size), so backward writes each input gradient exactly once, without adding
 *   cost  : one read of the input and one write of output and choice; backward one read of those and one write
 *   order : the first of equal values wins; a NaN always wins, the last one if there are several (PyTorch's rule) */
#include "kernels/cpu/variant/variant.h"

/* One output row from `size` input rows. Inlined with a constant size, so that the windows unroll and the row vectorises. */
static inline void forward_row(float *restrict y, uint8_t *restrict choice, const float *restrict x, int width,
                               int out_width, int size) {
    for (int o = 0; o < out_width; o++) {
        const float *window = x + o * size;
        float best = -INFINITY;
        int at = 0;
        for (int k = 0; k < size * size; k++) {
            float value = window[k / size * width + k % size];
            bool wins = value > best || value != value;
            best = wins ? value : best;
            at = wins ? k : at;
        }
        y[o] = best;
        choice[o] = (uint8_t)at;
    }
}

static inline void backward_row(float *restrict dx, const float *restrict dy, const uint8_t *restrict choice, int width,
                                int out_width, int size) {
    for (int k = 0; k < size * size; k++) {
        float *row = dx + k / size * width + k % size;
        for (int o = 0; o < out_width; o++) row[o * size] = choice[o] == k ? dy[o] : 0;
    }
}

ls_status LS_CPU(maxpool_forward)(const struct ls_maxpool_forward_arguments *a) {
    const struct ls_pool_shape *s = &a->shape;
    int out_height = s->in_height / s->size, out_width = s->in_width / s->size;
    for (int p = 0; p < s->planes; p++) {
        for (int o = 0; o < out_height; o++) {
            const float *x = a->x + ((size_t)p * (size_t)s->in_height + (size_t)(o * s->size)) * (size_t)s->in_width;
            size_t at = ((size_t)p * (size_t)out_height + (size_t)o) * (size_t)out_width;
            if (s->size == 2) {
                forward_row(a->y + at, a->choice + at, x, s->in_width, out_width, 2);
            } else {
                forward_row(a->y + at, a->choice + at, x, s->in_width, out_width, s->size);
            }
        }
    }
    return LS_OK;
}

ls_status LS_CPU(maxpool_backward)(const struct ls_maxpool_backward_arguments *a) {
    const struct ls_pool_shape *s = &a->shape;
    int out_height = s->in_height / s->size, out_width = s->in_width / s->size;
    bool covered = out_height * s->size == s->in_height && out_width * s->size == s->in_width;
    if (!covered) memset(a->dx, 0, ls_pool_count(s) * sizeof *a->dx);
    for (int p = 0; p < s->planes; p++) {
        for (int o = 0; o < out_height; o++) {
            float *dx = a->dx + ((size_t)p * (size_t)s->in_height + (size_t)(o * s->size)) * (size_t)s->in_width;
            size_t at = ((size_t)p * (size_t)out_height + (size_t)o) * (size_t)out_width;
            if (s->size == 2) {
                backward_row(dx, a->dy + at, a->choice + at, s->in_width, out_width, 2);
            } else {
                backward_row(dx, a->dy + at, a->choice + at, s->in_width, out_width, s->size);
            }
        }
    }
    return LS_OK;
}
