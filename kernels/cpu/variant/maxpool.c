/* maxpool — the largest value of each window, and where it was.
 *   idea  : windows do not overlap (stride = size), so backward writes each input gradient exactly once, without adding.
 *           Windows of 2x2, the usual ones, go four at a time: the even and odd columns of two rows are gathered by shuffles
 *   cost  : one read of the input and one write of output and choice; backward one read of those and one write
 *   order : the first of equal values wins; a NaN always wins, the last one if there are several (PyTorch's rule)
 *   halves: a row goes in strips of windows whose input fits a block (half.h); nothing is rounded, since results are values of the
 *           input */
#include "kernels/cpu/variant/half.h"

/* --- windows of any size ------------------------------------------------------------------------------------------ */

/* One output row, or a strip of it, from `size` input rows that lie `width` apart. */
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

/* --- strips ------------------------------------------------------------------------------------------------------- */

/* `count` windows of an output row, and where they begin in the output and, with their first row, in the input. */
struct strip {
    size_t in, out;
    int count;
};

static int out_height(const struct ls_pool_shape *s) { return s->in_height / s->size; }
static int out_width(const struct ls_pool_shape *s) { return s->in_width / s->size; }

/* From `column` of an output row on: as many windows as fit a block, all of them if there is nothing to widen. */
static struct strip make_strip(const struct ls_pool_shape *s, int plane, int row, int column) {
    size_t in_row = (size_t)plane * (size_t)s->in_height + (size_t)(row * s->size);
    size_t out_row = (size_t)plane * (size_t)out_height(s) + (size_t)row;
    int rest = out_width(s) - column, most = s->dtype == LS_FP32 ? rest : LS_BLOCK / (s->size * s->size);
    return (struct strip){in_row * (size_t)s->in_width + (size_t)(column * s->size),
                          out_row * (size_t)out_width(s) + (size_t)column, rest < most ? rest : most};
}

static bool goes_in_quads(const struct ls_pool_shape *s, int count) { return s->size == 2 && count >= QUAD; }

static void forward_strip(const struct ls_maxpool_forward_arguments *a, struct strip strip) {
    const struct ls_pool_shape *s = &a->shape;
    float in[LS_BLOCK], out[LS_BLOCK], *y = ls_block_to_fill(s->dtype, a->y, strip.out, out);
    const float *x = s->dtype == LS_FP32 ? (const float *)a->x + strip.in : in;
    int width = s->dtype == LS_FP32 ? s->in_width : strip.count * s->size;
    for (int r = 0; s->dtype != LS_FP32 && r < s->size; r++) {
        (void)ls_block(s->dtype, a->x, strip.in + (size_t)(r * s->in_width), (size_t)width, in + r * width);
    }
    if (goes_in_quads(s, strip.count)) {
        forward_row_2x2(y, a->choice + strip.out, x, width, strip.count);
    } else {
        forward_row(y, a->choice + strip.out, x, width, strip.count, s->size);
    }
    ls_store_block(s->dtype, a->y, strip.out, y, (size_t)strip.count);
}

static void backward_strip(const struct ls_maxpool_backward_arguments *a, struct strip strip) {
    const struct ls_pool_shape *s = &a->shape;
    float in[LS_BLOCK], out[LS_BLOCK], *dx = ls_block_to_fill(s->dtype, a->dx, strip.in, in);
    const float *dy = ls_block(s->dtype, a->dy, strip.out, (size_t)strip.count, out);
    int width = s->dtype == LS_FP32 ? s->in_width : strip.count * s->size;
    if (goes_in_quads(s, strip.count)) {
        backward_row_2x2(dx, dy, a->choice + strip.out, width, strip.count);
    } else {
        backward_row(dx, dy, a->choice + strip.out, width, strip.count, s->size);
    }
    for (int r = 0; r < s->size; r++) {
        ls_store_block(s->dtype, a->dx, strip.in + (size_t)(r * s->in_width), dx + r * width, (size_t)width);
    }
}

/* --- the operations ----------------------------------------------------------------------------------------------- */

ls_status LS_CPU(maxpool_forward)(const struct ls_maxpool_forward_arguments *a) {
    const struct ls_pool_shape *s = &a->shape;
    for (int p = 0; p < s->planes; p++) {
        for (int row = 0; row < out_height(s); row++) {
            for (int column = 0; column < out_width(s);) {
                struct strip strip = make_strip(s, p, row, column);
                forward_strip(a, strip);
                column += strip.count;
            }
        }
    }
    return LS_OK;
}

ls_status LS_CPU(maxpool_backward)(const struct ls_maxpool_backward_arguments *a) {
    const struct ls_pool_shape *s = &a->shape;
    bool covered = out_height(s) * s->size == s->in_height && out_width(s) * s->size == s->in_width;
    if (!covered) memset(a->dx, 0, ls_pool_count(s) * ls_dtype_nbytes(s->dtype));
    for (int p = 0; p < s->planes; p++) {
        for (int row = 0; row < out_height(s); row++) {
            for (int column = 0; column < out_width(s);) {
                struct strip strip = make_strip(s, p, row, column);
                backward_strip(a, strip);
                column += strip.count;
            }
        }
    }
    return LS_OK;
}
