/* elementwise — one pass over memory per operation: bandwidth is the limit, so plain loops are enough.
 *   half  : operations with a type work on blocks (half.h): fp32 in place, 16-bit types widened in the L1 cache
 *   order : element by element; bias_gradient adds its rows in ascending order, square_sum_list the elements of a
 *           tensor in LS_LANES parts, and tensors in their order */
#include "common/base/log.h"
#include "kernels/cpu/variant/half.h"

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

static bool is_half(ls_dtype dtype) { return dtype == LS_FP16 || dtype == LS_BF16; }

ls_status LS_CPU(cast)(const struct ls_cast_arguments *a) {
    if (is_half(a->from) && a->to == LS_FP32) {
        LS_CPU(widen)(a->from, a->y, a->x, a->count);
    } else if (a->from == LS_FP32 && is_half(a->to)) {
        LS_CPU(narrow)(a->to, a->y, a->x, a->count);
    } else if (a->from == LS_FP32 && a->to == LS_FP32) {
        memcpy(a->y, a->x, a->count * sizeof(float));
    } else {
        return ls_fail(LS_ERR_INVALID,
                       "cannot cast from %s to %s; expected fp32 on one side, and fp32, fp16 or bf16 on the other",
                       ls_dtype_name(a->from), ls_dtype_name(a->to));
    }
    return LS_OK;
}

ls_status LS_CPU(cast_divide)(const struct ls_cast_divide_arguments *a) {
    float block[LS_BLOCK];
    if (!is_half(a->to)) {
        return ls_fail(LS_ERR_INVALID, "cast_divide cannot write %s; expected fp16 or bf16", ls_dtype_name(a->to));
    }
    for (size_t i = 0, count; (count = ls_block_count(a->to, a->count - i)) > 0; i += count) {
        uint16_t *y = (uint16_t *)a->y + i;
        LS_CPU(narrow)(a->to, y, a->x + i, count);
        LS_CPU(widen)(a->to, block, y, count);
        for (size_t k = 0; k < count; k++) block[k] /= a->divisor;
        LS_CPU(narrow)(a->to, y, block, count);
    }
    return LS_OK;
}

/* Blocks that stay in the L1 cache, so that y is read and written once for any number of sources. */
ls_status LS_CPU(reduce_add)(const struct ls_reduce_add_arguments *a) {
    const size_t block = 2048;
    for (size_t begin = 0; begin < a->count; begin += block) {
        size_t count = a->count - begin < block ? a->count - begin : block;
        for (int s = 0; s < a->source_count; s++) ls_add_floats(a->y + begin, a->sources[s] + begin, count);
    }
    return LS_OK;
}

static void rectify(float *y, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = y[i] <= 0 ? 0 : y[i]; /* a NaN is not <= 0 and stays */
}

/* Rounding moves no value across 0, so the ReLU may come before it. */
static void add_bias(ls_dtype dtype, void *y, const void *bias, size_t rows, size_t columns, bool relu) {
    float y_buffer[LS_BLOCK], bias_buffer[LS_BLOCK];
    for (size_t c = 0, count; (count = ls_block_count(dtype, columns - c)) > 0; c += count) {
        const float *bias_block = ls_block(dtype, bias, c, count, bias_buffer);
        for (size_t at = c; at < rows * columns; at += columns) {
            float *block = ls_block_to_change(dtype, y, at, count, y_buffer);
            ls_add_floats(block, bias_block, count);
            if (relu) rectify(block, count);
            ls_store_block(dtype, y, at, block, count);
        }
    }
}

ls_status LS_CPU(add_bias)(const struct ls_add_bias_arguments *a) {
    add_bias(a->dtype, a->y, a->bias, a->rows, a->columns, false);
    return LS_OK;
}

ls_status LS_CPU(add_bias_relu)(const struct ls_add_bias_relu_arguments *a) {
    add_bias(a->dtype, a->y, a->bias, a->rows, a->columns, true);
    return LS_OK;
}

/* A NaN lets the gradient through, as in PyTorch. */
static void mask(float *restrict dx, const float *restrict y, size_t count) {
    for (size_t i = 0; i < count; i++) dx[i] = y[i] <= 0 ? 0 : dx[i];
}

/* The same on the bits of 16-bit values. Numbers above 0 and positive NaNs are > 0 as int16_t; negative NaNs are above
 * minus infinity as uint16_t. */
static void mask_halves(ls_dtype dtype, uint16_t *restrict dx, const uint16_t *restrict y, size_t count) {
    const uint16_t minus_infinity = dtype == LS_FP16 ? 0xfc00 : 0xff80;
    for (size_t i = 0; i < count; i++) dx[i] = (int16_t)y[i] > 0 || y[i] > minus_infinity ? dx[i] : 0;
}

/* Sums the columns of dy, 256 at a time; with y, masks dy first. Always inline, so that fp32 has a separate loop. */
static inline __attribute__((always_inline)) void sum_rows(ls_dtype dtype, float *dbias, void *dy, const void *y,
                                                           size_t rows, size_t columns, bool accumulate) {
    enum { SUMS = 256 };
    for (size_t begin = 0; begin < columns; begin += SUMS) {
        size_t count = columns - begin < SUMS ? columns - begin : SUMS;
        float sum[SUMS] = {0}, buffer[SUMS];
        for (size_t r = 0; r < rows; r++) {
            size_t at = r * columns + begin;
            if (y && dtype == LS_FP32) mask((float *)dy + at, (const float *)y + at, count);
            if (y && dtype != LS_FP32) mask_halves(dtype, (uint16_t *)dy + at, (const uint16_t *)y + at, count);
            ls_add_floats(sum, ls_block(dtype, dy, at, count, buffer), count);
        }
        ls_put_sum(dbias + begin, sum, count, accumulate);
    }
}

ls_status LS_CPU(bias_gradient)(const struct ls_bias_gradient_arguments *a) {
    void *dy = (void *)(uintptr_t)a->dy; /* without y it is not changed */
    if (a->dtype == LS_FP32) {
        sum_rows(LS_FP32, a->dbias, dy, NULL, a->rows, a->columns, a->accumulate);
    } else {
        sum_rows(a->dtype, a->dbias, dy, NULL, a->rows, a->columns, a->accumulate);
    }
    return LS_OK;
}

ls_status LS_CPU(relu_bias_gradient)(const struct ls_relu_bias_gradient_arguments *a) {
    if (a->dtype == LS_FP32) {
        sum_rows(LS_FP32, a->dbias, a->dy, a->y, a->rows, a->columns, a->accumulate);
    } else {
        sum_rows(a->dtype, a->dbias, a->dy, a->y, a->rows, a->columns, a->accumulate);
    }
    return LS_OK;
}

ls_status LS_CPU(add)(const struct ls_add_arguments *arguments) {
    float in[LS_BLOCK], more[LS_BLOCK], out[LS_BLOCK];
    ls_dtype dtype = arguments->dtype;
    for (size_t i = 0, count; (count = ls_block_count(dtype, arguments->count - i)) > 0; i += count) {
        const float *a = ls_block(dtype, arguments->a, i, count, in),
                    *b = ls_block(dtype, arguments->b, i, count, more);
        float *y = ls_block_to_fill(dtype, arguments->y, i, out);
        for (size_t k = 0; k < count; k++) y[k] = a[k] + b[k];
        ls_store_block(dtype, arguments->y, i, y, count);
    }
    return LS_OK;
}

ls_status LS_CPU(relu_forward)(const struct ls_relu_forward_arguments *a) {
    float in[LS_BLOCK], out[LS_BLOCK];
    for (size_t i = 0, count; (count = ls_block_count(a->dtype, a->count - i)) > 0; i += count) {
        const float *x = ls_block(a->dtype, a->x, i, count, in);
        float *y = ls_block_to_fill(a->dtype, a->y, i, out);
        if (y != x) memcpy(y, x, count * sizeof *y);
        rectify(y, count);
        ls_store_block(a->dtype, a->y, i, y, count);
    }
    return LS_OK;
}

ls_status LS_CPU(relu_backward)(const struct ls_relu_backward_arguments *a) {
    if (a->dx != a->dy) memcpy(a->dx, a->dy, a->count * ls_dtype_nbytes(a->dtype));
    if (a->dtype == LS_FP32)
        mask(a->dx, a->y, a->count);
    else
        mask_halves(a->dtype, a->dx, a->y, a->count);
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
