/* maxpool — the largest value of each window, and its index.
 *   idea  : windows do not overlap (stride = size), so backward writes each input gradient exactly once, without
 *           adding. Windows of 2x2, the usual ones, go four at a time: shuffles separate the even and odd columns of
 *           two rows
 *   cost  : one read of the input and one write of output and choice; backward one read of those and one write
 *   order : the first of equal values wins; a NaN always wins, the last one if there are several (PyTorch's rule)
 *   half  : in pieces whose input fits a block (half.h): several rows of windows, or a part of a long row. Nothing is
 *           rounded, since results are values of the input */
#include "kernels/cpu/variant/half.h"

/* --- windows of any size ------------------------------------------------------------------------------------------ */

/* One output row, or a part of it, from `size` input rows that are `width` apart. */
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

/* If the width is not a multiple of four, the last four windows of a row overlap those before them; the overlap is
 * written twice, with the same values. */
static int clamp_to_row(int o, int out_width) { return o + QUAD <= out_width ? o : out_width - QUAD; }

/* Compares four windows' values at index `k` with the best so far, and keeps the winners. */
static inline void keep_largest(quad *best, int_quad *at, quad value, int32_t k) {
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
        keep_largest(&best, &at, second, 1);
        keep_largest(&best, &at, third, 2);
        keep_largest(&best, &at, fourth, 3);
        byte_quad choices = __builtin_convertvector(at, byte_quad);
        memcpy(y + begin, &best, sizeof best);
        memcpy(choice + begin, &choices, sizeof choices);
    }
}

/* Writes the gradients of indices `k` and `k` + 1, side by side. */
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

/* --- planes ------------------------------------------------------------------------------------------------------- */

/* The windows of a plane, or of a piece of one: `rows` x `columns`, with input rows `width` apart. */
struct windows {
    int rows, columns, width, size;
};

static void forward_windows(const struct windows *w, float *y, uint8_t *choice, const float *x) {
    bool in_quads = w->size == 2 && w->columns >= QUAD;
    for (int r = 0; r < w->rows; r++, y += w->columns, choice += w->columns, x += (ptrdiff_t)w->size * w->width) {
        if (in_quads) {
            forward_row_2x2(y, choice, x, w->width, w->columns);
        } else {
            forward_row(y, choice, x, w->width, w->columns, w->size);
        }
    }
}

static void backward_windows(const struct windows *w, float *dx, const float *dy, const uint8_t *choice) {
    bool in_quads = w->size == 2 && w->columns >= QUAD;
    for (int r = 0; r < w->rows; r++, dy += w->columns, choice += w->columns, dx += (ptrdiff_t)w->size * w->width) {
        if (in_quads) {
            backward_row_2x2(dx, dy, choice, w->width, w->columns);
        } else {
            backward_row(dx, dy, choice, w->width, w->columns, w->size);
        }
    }
}

/* --- half precision: planes in pieces ----------------------------------------------------------------------------- */

/* A part of a plane whose input fits a block. It begins at element `in` of the plane's input and `out` of its output.
 * Its input is `runs` runs of `run` contiguous elements, one plane row apart. */
struct piece {
    struct windows windows;
    size_t in, out, outputs, run;
    int runs;
};

static int smaller(int a, int b) { return a < b ? a : b; }

/* The piece that begins at a row and a column of windows: whole rows (one run) or, if a row is too long, a part of
 * one. */
static struct piece make_piece(const struct windows *plane, int row, int column) {
    int size = plane->size, row_nelements = size * plane->width;
    struct windows w = {1, smaller(plane->columns - column, LS_BLOCK / (size * size)), plane->width, size};
    bool whole_rows = row_nelements <= LS_BLOCK;
    if (whole_rows) {
        w.rows = smaller(plane->rows - row, LS_BLOCK / row_nelements);
        w.columns = plane->columns;
    } else {
        w.width = w.columns * size;
    }
    return (struct piece){.windows = w,
                          .in = (size_t)row * (size_t)row_nelements + (size_t)(column * size),
                          .out = (size_t)row * (size_t)plane->columns + (size_t)column,
                          .outputs = (size_t)(w.rows * w.columns),
                          .run = (size_t)(whole_rows ? w.rows * row_nelements : w.width),
                          .runs = whole_rows ? 1 : size};
}

/* The plane has at least one window, here and in backward_halves. */
static void forward_halves(ls_dtype dtype, const struct windows *plane, uint16_t *y, uint8_t *choice,
                           const uint16_t *x) {
    float in[LS_BLOCK], out[LS_BLOCK];
    struct piece p = make_piece(plane, 0, 0);
    for (int row = 0; row < plane->rows; row += p.windows.rows) {
        for (int column = 0; column < plane->columns; column += p.windows.columns) {
            p = make_piece(plane, row, column);
            LS_CPU(widen)(dtype, in, x + p.in, p.run);
            for (int r = 1; r < p.runs; r++) {
                LS_CPU(widen)(dtype, in + (size_t)r * p.run, x + p.in + (ptrdiff_t)r * plane->width, p.run);
            }
            forward_windows(&p.windows, out, choice + p.out, in);
            LS_CPU(narrow)(dtype, y + p.out, out, p.outputs);
        }
    }
}

static void backward_halves(ls_dtype dtype, const struct windows *plane, uint16_t *dx, const uint16_t *dy,
                            const uint8_t *choice) {
    float in[LS_BLOCK], out[LS_BLOCK];
    struct piece p = make_piece(plane, 0, 0);
    if (plane->columns * plane->size < plane->width) memset(in, 0, sizeof in); /* values outside of all windows */
    for (int row = 0; row < plane->rows; row += p.windows.rows) {
        for (int column = 0; column < plane->columns; column += p.windows.columns) {
            p = make_piece(plane, row, column);
            LS_CPU(widen)(dtype, out, dy + p.out, p.outputs);
            backward_windows(&p.windows, in, out, choice + p.out);
            for (int r = 0; r < p.runs; r++) {
                LS_CPU(narrow)(dtype, dx + p.in + (ptrdiff_t)r * plane->width, in + (size_t)r * p.run, p.run);
            }
        }
    }
}

/* --- the operations ----------------------------------------------------------------------------------------------- */

static struct windows plane_of(const struct ls_pool_shape *s) {
    return (struct windows){s->in_height / s->size, s->in_width / s->size, s->in_width, s->size};
}

ls_status LS_CPU(maxpool_forward)(const struct ls_maxpool_forward_arguments *a) {
    const struct ls_pool_shape *s = &a->shape;
    struct windows plane = plane_of(s);
    size_t in = (size_t)s->in_height * (size_t)s->in_width, out = (size_t)plane.rows * (size_t)plane.columns;
    for (size_t p = 0; out > 0 && p < (size_t)s->planes; p++) {
        uint8_t *choice = a->choice + p * out;
        if (s->dtype == LS_FP32) {
            forward_windows(&plane, (float *)a->y + p * out, choice, (const float *)a->x + p * in);
        } else {
            forward_halves(s->dtype, &plane, (uint16_t *)a->y + p * out, choice, (const uint16_t *)a->x + p * in);
        }
    }
    return LS_OK;
}

ls_status LS_CPU(maxpool_backward)(const struct ls_maxpool_backward_arguments *a) {
    const struct ls_pool_shape *s = &a->shape;
    struct windows plane = plane_of(s);
    size_t in = (size_t)s->in_height * (size_t)s->in_width, out = (size_t)plane.rows * (size_t)plane.columns;
    if (in != out * (size_t)(s->size * s->size)) memset(a->dx, 0, ls_pool_count(s) * ls_dtype_nbytes(s->dtype));
    for (size_t p = 0; out > 0 && p < (size_t)s->planes; p++) {
        const uint8_t *choice = a->choice + p * out;
        if (s->dtype == LS_FP32) {
            backward_windows(&plane, (float *)a->dx + p * in, (const float *)a->dy + p * out, choice);
        } else {
            backward_halves(s->dtype, &plane, (uint16_t *)a->dx + p * in, (const uint16_t *)a->dy + p * out, choice);
        }
    }
    return LS_OK;
}
