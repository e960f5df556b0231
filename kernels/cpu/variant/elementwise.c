/* elementwise — one pass over memory each: bound by bandwidth, so each is as simple as it looks.
 *   order : element by element; bias_gradient adds its rows in ascending order, square_sum_list the elements of a tensor in LS_LANES parts, and
 *           tensors in their order */
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

ls_status LS_CPU(cast)(const struct ls_cast_arguments *a) {
    (void)a;
    return LS_ERR_UNSUPPORTED;
}

ls_status LS_CPU(cast_divide)(const struct ls_cast_divide_arguments *a) {
    (void)a;
    return LS_ERR_UNSUPPORTED;
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
    float *y = a->y;
    for (size_t r = 0; r < a->rows; r++) add(y + r * a->columns, a->bias, a->columns);
    return LS_OK;
}

static void rectify(float *y, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = y[i] <= 0 ? 0 : y[i]; /* a NaN is not <= 0 and stays */
}

ls_status LS_CPU(add_bias_relu)(const struct ls_add_bias_relu_arguments *a) {
    float *y = a->y;
    for (size_t r = 0; r < a->rows; r++) {
        add(y + r * a->columns, a->bias, a->columns);
        rectify(y + r * a->columns, a->columns);
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
    const float *dy = a->dy;
    for (size_t begin = 0; begin < a->columns; begin += BLOCK) {
        size_t count = a->columns - begin < BLOCK ? a->columns - begin : BLOCK;
        float sum[BLOCK] = {0};
        for (size_t r = 0; r < a->rows; r++) add(sum, dy + r * a->columns + begin, count);
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
            float *dy = (float *)a->dy + r * a->columns + begin;
            mask(dy, (const float *)a->y + r * a->columns + begin, count);
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

static double square_sum(const float *x, size_t count) {
    double lanes[LS_LANES] = {0};
    size_t whole = count / LS_LANES * LS_LANES;
    for (size_t i = 0; i < whole; i += LS_LANES) {
        for (int l = 0; l < LS_LANES; l++) lanes[l] += (double)x[i + (size_t)l] * (double)x[i + (size_t)l];
    }
    for (size_t i = whole; i < count; i++) lanes[i - whole] += (double)x[i] * (double)x[i];
    double sum = 0;
    for (int l = 0; l < LS_LANES; l++) sum += lanes[l];
    return sum;
}

ls_status LS_CPU(square_sum_list)(const struct ls_square_sum_list_arguments *a) {
    *a->sum = 0;
    for (size_t t = 0; t < a->tensor_count; t++) *a->sum += square_sum(a->tensors[t].gradient, a->tensors[t].count);
    return LS_OK;
}
