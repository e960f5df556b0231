/* gelu — GELU in the tanh form, after adding the bias.
 *   idea  : one pass over memory: a block gets its bias, is stored, and goes through GELU while it is in the L1 cache.
 *           exp is our own (exponential.h), so that loops are vectorised; the gradient recomputes it from x
 *   half  : GELU sees x as stored, and dbias sums dy as stored, so that both passes use the same x
 *   order : element by element; dbias adds its rows in ascending order */
#include "kernels/cpu/variant/exponentials.h"
#include "kernels/cpu/variant/half.h"

static void gelu(float *restrict y, const float *restrict x, size_t count) {
    float e[LS_EXP_BLOCK];
    for (size_t begin = 0, n; (n = ls_exp_count(count - begin)) > 0; begin += n, x += n, y += n) {
        for (size_t i = 0; i < n; i++) e[i] = ls_gelu_exponent(x[i]);
        ls_exp_rows(e, n, 1, n, 1, NULL);
        for (size_t i = 0; i < n; i++) y[i] = ls_gelu_of(x[i], e[i]);
    }
}

static void multiply_by_slope(float *restrict dy, const float *restrict x, size_t count) {
    float e[LS_EXP_BLOCK];
    for (size_t begin = 0, n; (n = ls_exp_count(count - begin)) > 0; begin += n, x += n, dy += n) {
        for (size_t i = 0; i < n; i++) e[i] = ls_gelu_slope_exponent(x[i]);
        ls_exp_rows(e, n, 1, n, 1, NULL);
        for (size_t i = 0; i < n; i++) dy[i] *= ls_gelu_slope_of(x[i], e[i]);
    }
}

ls_status LS_CPU(add_bias_gelu)(const struct ls_add_bias_gelu_arguments *a) {
    float x_buffer[LS_BLOCK], y_buffer[LS_BLOCK], bias_buffer[LS_BLOCK];
    ls_dtype dtype = a->dtype;
    for (size_t c = 0, count; (count = ls_block_count(dtype, a->columns - c)) > 0; c += count) {
        const float *bias = ls_block(dtype, a->bias, c, count, bias_buffer);
        for (size_t at = c; at < a->rows * a->columns; at += a->columns) {
            float *x = ls_block_to_change(dtype, a->x, at, count, x_buffer);
            float *y = ls_block_to_fill(dtype, a->y, at, y_buffer);
            ls_add_floats(x, bias, count);
            ls_store_block(dtype, a->x, at, x, count);
            gelu(y, ls_block(dtype, a->x, at, count, x_buffer), count);
            ls_store_block(dtype, a->y, at, y, count);
        }
    }
    return LS_OK;
}

ls_status LS_CPU(gelu_bias_gradient)(const struct ls_gelu_bias_gradient_arguments *a) {
    ls_dtype dtype = a->dtype;
    for (size_t begin = 0; begin < a->columns; begin += LS_BLOCK) {
        size_t count = a->columns - begin < LS_BLOCK ? a->columns - begin : LS_BLOCK;
        float sum[LS_BLOCK] = {0}, dy_buffer[LS_BLOCK], x_buffer[LS_BLOCK];
        for (size_t r = 0; r < a->rows; r++) {
            size_t at = r * a->columns + begin;
            float *dy = ls_block_to_change(dtype, a->dy, at, count, dy_buffer);
            multiply_by_slope(dy, ls_block(dtype, a->x, at, count, x_buffer), count);
            ls_store_block(dtype, a->dy, at, dy, count);
            ls_add_floats(sum, ls_block(dtype, a->dy, at, count, dy_buffer), count);
        }
        ls_put_sum(a->dbias + begin, sum, count, a->accumulate);
    }
    return LS_OK;
}
