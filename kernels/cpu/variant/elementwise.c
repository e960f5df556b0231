/* elementwise — one pass over memory each: bound by bandwidth, so each is as simple as it looks.
 *   order : element by element; bias_gradient adds its rows in ascending order, square_sum its elements in LS_LANES parts */
#include "kernels/cpu/variant/variant.h"

ls_status LS_CPU(fill)(const struct ls_fill_arguments *a) {
    float *y = a->y;
    for (size_t i = 0; i < a->count; i++) y[i] = a->value;
    return LS_OK;
}

static void scale(float *y, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] *= factor;
}

ls_status LS_CPU(scale)(const struct ls_scale_arguments *a) {
    scale(a->y, a->factor, a->count);
    return LS_OK;
}

ls_status LS_CPU(scale_by)(const struct ls_scale_by_arguments *a) {
    scale(a->y, *a->factor, a->count);
    return LS_OK;
}

ls_status LS_CPU(divide)(const struct ls_divide_arguments *a) {
    float *y = a->y;
    const float divisor = a->divisor;
    for (size_t i = 0; i < a->count; i++) y[i] /= divisor;
    return LS_OK;
}

static void add(float *restrict y, const float *restrict x, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] += x[i];
}

/* Blocks that stay in the L1 cache, so that y is read and written once however many sources there are. */
ls_status LS_CPU(reduce_add)(const struct ls_reduce_add_arguments *a) {
    const size_t block = 2048;
    for (size_t begin = 0; begin < a->count; begin += block) {
        size_t count = a->count - begin < block ? a->count - begin : block;
        for (int s = 0; s < a->source_count; s++) add(a->y + begin, a->sources[s] + begin, count);
    }
    return LS_OK;
}

ls_status LS_CPU(add_bias)(const struct ls_add_bias_arguments *a) {
    for (size_t r = 0; r < a->rows; r++) add(a->y + r * a->columns, a->bias, a->columns);
    return LS_OK;
}

static void rectify(float *y, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = y[i] <= 0 ? 0 : y[i]; /* a NaN is not <= 0 and stays */
}

ls_status LS_CPU(add_bias_relu)(const struct ls_add_bias_relu_arguments *a) {
    for (size_t r = 0; r < a->rows; r++) {
        add(a->y + r * a->columns, a->bias, a->columns);
        rectify(a->y + r * a->columns, a->columns);
    }
    return LS_OK;
}

/* A NaN lets the gradient through, as in PyTorch. */
static void mask(float *restrict dx, const float *restrict y, size_t count) {
    for (size_t i = 0; i < count; i++) dx[i] = y[i] <= 0 ? 0 : dx[i];
}

static void put_sum(float *dbias, const float *sum, size_t count, bool accumulate) {
    if (accumulate) {
        add(dbias, sum, count);
    } else {
        memcpy(dbias, sum, count * sizeof *sum);
    }
}

ls_status LS_CPU(bias_gradient)(const struct ls_bias_gradient_arguments *a) {
    enum { BLOCK = 256 };
    for (size_t begin = 0; begin < a->columns; begin += BLOCK) {
        size_t count = a->columns - begin < BLOCK ? a->columns - begin : BLOCK;
        float sum[BLOCK] = {0};
        for (size_t r = 0; r < a->rows; r++) add(sum, a->dy + r * a->columns + begin, count);
        put_sum(a->dbias + begin, sum, count, a->accumulate);
    }
    return LS_OK;
}

ls_status LS_CPU(relu_bias_gradient)(const struct ls_relu_bias_gradient_arguments *a) {
    enum { BLOCK = 256 };
    for (size_t begin = 0; begin < a->columns; begin += BLOCK) {
        size_t count = a->columns - begin < BLOCK ? a->columns - begin : BLOCK;
        float sum[BLOCK] = {0};
        for (size_t r = 0; r < a->rows; r++) {
            float *dy = a->dy + r * a->columns + begin;
            mask(dy, a->y + r * a->columns + begin, count);
            add(sum, dy, count);
        }
        put_sum(a->dbias + begin, sum, count, a->accumulate);
    }
    return LS_OK;
}

ls_status LS_CPU(relu_forward)(const struct ls_relu_forward_arguments *a) {
    if (a->y != a->x) memcpy(a->y, a->x, a->count * sizeof *a->y);
    rectify(a->y, a->count);
    return LS_OK;
}

ls_status LS_CPU(relu_backward)(const struct ls_relu_backward_arguments *a) {
    if (a->dx != a->dy) memcpy(a->dx, a->dy, a->count * sizeof *a->dx);
    mask(a->dx, a->y, a->count);
    return LS_OK;
}

ls_status LS_CPU(square_sum)(const struct ls_square_sum_arguments *a) {
    double lanes[LS_LANES] = {0};
    size_t whole = a->count / LS_LANES * LS_LANES;
    for (size_t i = 0; i < whole; i += LS_LANES) {
        for (int l = 0; l < LS_LANES; l++) lanes[l] += (double)a->x[i + (size_t)l] * (double)a->x[i + (size_t)l];
    }
    for (size_t i = whole; i < a->count; i++) lanes[i - whole] += (double)a->x[i] * (double)a->x[i];
    double sum = 0;
    for (int l = 0; l < LS_LANES; l++) sum += lanes[l];
    *a->sum += sum;
    return LS_OK;
}

ls_status LS_CPU(clip_coefficient)(const struct ls_clip_coefficient_arguments *a) {
    float norm = (float)sqrt(*a->square_sum);
    float coefficient = a->max_norm / (norm + 1e-6f);
    *a->norm = norm;
    *a->coefficient = coefficient > 1 ? 1 : coefficient; /* a NaN norm makes every gradient NaN, as in PyTorch */
    return LS_OK;
}
