/* maxpool — the largest value of each window, and where it was.
 *   idea  : windows do not overlap (stride = size), so backward writes each input gradient exactly once, without adding.
 *           Windows of 2x2, the usual ones, go four at a time: the even and odd columns of two rows are gathered by shuffles
 *   cost  : one read of the input and one write of output and choice; backward one read of those and one write
 *   order : the first of equal values wins; a NaN always wins, the last one if there are several (PyTorch's rule) */
#include "kernels/cpu/variant/variant.h"

/* --- windows of any size ------------------------------------------------------------------------------------------ */

/* One output row from `size` input rows. */
static void forward_row(float *restrict y, uint8_t *restrict choice, const float *restrict x, int width, int out_width,
                        int size) {
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

static void backward_row(float *restrict dx, const float *restrict dy, const uint8_t *restrict choice, int width,
                         int out_width, int size) {
    for (int k = 0; k < size * size; k++) {
        float *row = dx + k / size * width + k % size;
        for (int o = 0; o < out_width; o++) row[o * size] = choice[o] == k ? dy[o] : 0;
    }
}

/* --- windows of 2x2, rows of at least four -------------------------------------------------------------------------- */

typedef float quad __attribute__((vector_size(16)));
typedef int32_t int_quad __attribute__((vector_size(16)));
typedef uint8_t byte_quad __attribute__((vector_size(4)));

#define QUAD 4

/* The last four windows of a row overlap those before them where the width is no multiple of four; what they have in
 * common is written twice, with the same values. */
static int clamp_to_row(int o, int out_width) { return o + QUAD <= out_width ? o : out_width - QUAD; }

/* Puts four windows' values of place `k` before the best so far, where they win. */
static inline void challenge(quad *best, int_quad *at, quad value, int32_t k) {
    int_quad wins = (value > *best) | ~(value <= INFINITY); /* a NaN is not <= infinity */
    *best = (quad)((wins & (int_quad)value) | (~wins & (int_quad)*best));
    *at = (wins & k) | (~wins & *at);
}

static inline void load_columns(const float *row, quad *even, quad *odd) {
    quad low, high;
    memcpy(&low, row, sizeof low);
    memcpy(&high, row + QUAD, sizeof high);
    *even = __builtin_shufflevector(low, high, 0, 2, 4, 6);
    *odd = __builtin_shufflevector(low, high, 1, 3, 5, 7);
}

static void forward_row_2x2(float *restrict y, uint8_t *restrict choice, const float *restrict x, int width,
                            int out_width) {
    for (int o = 0; o < out_width; o += QUAD) {
        int begin = clamp_to_row(o, out_width);
        quad best, second, third, fourth;
        int_quad at = {0};
        load_columns(x + 2 * begin, &best, &second);
        load_columns(x + 2 * begin + width, &third, &fourth);
        challenge(&best, &at, second, 1);
        challenge(&best, &at, third, 2);
        challenge(&best, &at, fourth, 3);
        byte_quad choices = __builtin_convertvector(at, byte_quad);
        memcpy(y + begin, &best, sizeof best);
        memcpy(choice + begin, &choices, sizeof choices);
    }
}

/* Writes the gradients of places `k` and `k` + 1, side by side. */
static inline void put_columns(float *row, int_quad dy, int_quad at, int32_t k) {
    int_quad even = (at == k) & dy, odd = (at == k + 1) & dy;
    int_quad low = __builtin_shufflevector(even, odd, 0, 4, 1, 5);
    int_quad high = __builtin_shufflevector(even, odd, 2, 6, 3, 7);
    memcpy(row, &low, sizeof low);
    memcpy(row + QUAD, &high, sizeof high);
}

static void backward_row_2x2(float *restrict dx, const float *restrict dy, const uint8_t *restrict choice, int width,
                             int out_width) {
    for (int o = 0; o < out_width; o += QUAD) {
        int begin = clamp_to_row(o, out_width);
        int_quad gradient;
        byte_quad choices;
        memcpy(&gradient, dy + begin, sizeof gradient);
        memcpy(&choices, choice + begin, sizeof choices);
        int_quad at = __builtin_convertvector(choices, int_quad);
        put_columns(dx + 2 * begin, gradient, at, 0);
        put_columns(dx + 2 * begin + width, gradient, at, 2);
    }
}

/* --- the operations ----------------------------------------------------------------------------------------------- */

ls_status LS_CPU(maxpool_forward)(const struct ls_maxpool_forward_arguments *a) {
    const struct ls_pool_shape *s = &a->shape;
    int out_height = s->in_height / s->size, out_width = s->in_width / s->size;
    bool in_quads = s->size == 2 && out_width >= QUAD;
    for (int p = 0; p < s->planes; p++) {
        for (int o = 0; o < out_height; o++) {
            const float *x = a->x + ((size_t)p * (size_t)s->in_height + (size_t)(o * s->size)) * (size_t)s->in_width;
            size_t at = ((size_t)p * (size_t)out_height + (size_t)o) * (size_t)out_width;
            if (in_quads) {
                forward_row_2x2(a->y + at, a->choice + at, x, s->in_width, out_width);
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
    bool in_quads = s->size == 2 && out_width >= QUAD;
    bool covered = out_height * s->size == s->in_height && out_width * s->size == s->in_width;
    if (!covered) memset(a->dx, 0, ls_pool_count(s) * sizeof *a->dx);
    for (int p = 0; p < s->planes; p++) {
        for (int o = 0; o < out_height; o++) {
            float *dx = a->dx + ((size_t)p * (size_t)s->in_height + (size_t)(o * s->size)) * (size_t)s->in_width;
            size_t at = ((size_t)p * (size_t)out_height + (size_t)o) * (size_t)out_width;
            if (in_quads) {
                backward_row_2x2(dx, a->dy + at, a->choice + at, s->in_width, out_width);
            } else {
                backward_row(dx, a->dy + at, a->choice + at, s->in_width, out_width, s->size);
            }
        }
    }
    return LS_OK;
}
