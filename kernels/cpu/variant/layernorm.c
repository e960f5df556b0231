/* layernorm — layer normalisation of each row.
 *   cost  : forward 3 reads of x, of which the last two find the row in the L1 cache, and 1 write; backward 3 reads of dy
 *           and x, likewise, and 1 write. Rows of more than LS_BLOCK channels: dy and x once more for each block
 *   order : a row's sums in LS_LANES parts, in fp32. Sums over rows ascending, LS_BLOCK columns at a time
 *   halves: widened block by block (half.h); parts go on from block to block, so that a row has the sums of an fp32 row
 *           of the same values */
#include "kernels/cpu/variant/half.h"

/* --- forward ----------------------------------------------------------------------------------------------------- */

static float row_mean(ls_dtype dtype, const void *x, size_t at, size_t channels) {
    float lanes[LS_LANES] = {0}, buffer[LS_BLOCK];
    for (size_t i = 0, count; (count = ls_block_count(dtype, channels - i)) > 0; i += count) {
        const float *block = ls_block(dtype, x, at + i, count, buffer);
        size_t whole = count / LS_LANES * LS_LANES;
        for (size_t k = 0; k < whole; k += LS_LANES) {
            for (int l = 0; l < LS_LANES; l++) lanes[l] += block[k + (size_t)l];
        }
        for (size_t k = whole; k < count; k++) lanes[k - whole] += block[k];
    }
    return ls_sum_lanes(lanes) / (float)channels;
}

static float row_variance(ls_dtype dtype, const void *x, size_t at, size_t channels, float mean) {
    float lanes[LS_LANES] = {0}, buffer[LS_BLOCK];
    for (size_t i = 0, count; (count = ls_block_count(dtype, channels - i)) > 0; i += count) {
        const float *block = ls_block(dtype, x, at + i, count, buffer);
        size_t whole = count / LS_LANES * LS_LANES;
        for (size_t k = 0; k < whole; k += LS_LANES) {
            for (int l = 0; l < LS_LANES; l++) {
                float deviation = block[k + (size_t)l] - mean;
                lanes[l] += deviation * deviation;
            }
        }
        for (size_t k = whole; k < count; k++) lanes[k - whole] += (block[k] - mean) * (block[k] - mean);
    }
    return ls_sum_lanes(lanes) / (float)channels;
}

static void normalize(float *restrict y, const float *restrict x, const float *restrict gamma,
                      const float *restrict beta, float mean, float invstd, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = (x[i] - mean) * invstd * gamma[i] + beta[i];
}

ls_status LS_CPU(layernorm_forward)(const struct ls_layernorm_forward_arguments *a) {
    float in[LS_BLOCK], out[LS_BLOCK];
    ls_dtype dtype = a->dtype;
    for (size_t r = 0; r < a->rows; r++) {
        size_t at = r * a->channels;
        float mean = row_mean(dtype, a->x, at, a->channels);
        float invstd = 1 / sqrtf(row_variance(dtype, a->x, at, a->channels, mean) + a->epsilon);
        a->mean[r] = mean;
        a->invstd[r] = invstd;
        for (size_t i = 0, count; (count = ls_block_count(dtype, a->channels - i)) > 0; i += count) {
            float *y = ls_block_to_fill(dtype, a->y, at + i, out);
            normalize(y, ls_block(dtype, a->x, at + i, count, in), a->gamma + i, a->beta + i, mean, invstd, count);
            ls_store_block(dtype, a->y, at + i, y, count);
        }
    }
    return LS_OK;
}

/* --- backward ---------------------------------------------------------------------------------------------------- */

/* Of a row: averages of dy gamma, and of dy gamma xhat. */
struct averages {
    float slope, slope_xhat;
};

static struct averages row_averages(const struct ls_layernorm_backward_arguments *a, size_t r) {
    float slope[LS_LANES] = {0}, slope_xhat[LS_LANES] = {0}, dy_buffer[LS_BLOCK], x_buffer[LS_BLOCK];
    const float mean = a->mean[r], invstd = a->invstd[r];
    for (size_t i = 0, count; (count = ls_block_count(a->dtype, a->channels - i)) > 0; i += count) {
        const float *dy = ls_block(a->dtype, a->dy, r * a->channels + i, count, dy_buffer),
                    *x = ls_block(a->dtype, a->x, r * a->channels + i, count, x_buffer), *gamma = a->gamma + i;
        for (size_t k = 0; k < count; k += LS_LANES) {
            size_t lanes = count - k < LS_LANES ? count - k : LS_LANES;
            for (size_t l = 0; l < lanes; l++) {
                float d = dy[k + l] * gamma[k + l];
                slope[l] += d;
                slope_xhat[l] += d * ((x[k + l] - mean) * invstd);
            }
        }
    }
    return (struct averages){ls_sum_lanes(slope) / (float)a->channels, ls_sum_lanes(slope_xhat) / (float)a->channels};
}

static void input_gradient(const struct ls_layernorm_backward_arguments *a, size_t r, struct averages of) {
    float dy_buffer[LS_BLOCK], x_buffer[LS_BLOCK], out[LS_BLOCK];
    const float mean = a->mean[r], invstd = a->invstd[r];
    for (size_t i = 0, count; (count = ls_block_count(a->dtype, a->channels - i)) > 0; i += count) {
        size_t at = r * a->channels + i;
        const float *dy = ls_block(a->dtype, a->dy, at, count, dy_buffer),
                    *x = ls_block(a->dtype, a->x, at, count, x_buffer), *gamma = a->gamma + i;
        float *restrict dx = ls_block_to_fill(a->dtype, a->dx, at, out);
        for (size_t k = 0; k < count; k++) {
            float xhat = (x[k] - mean) * invstd;
            dx[k] = invstd * (dy[k] * gamma[k] - of.slope - xhat * of.slope_xhat);
        }
        ls_store_block(a->dtype, a->dx, at, dx, count);
    }
}

static void add_row(float *restrict dgamma, float *restrict dbeta, const float *restrict dy, const float *restrict x,
                    float mean, float invstd, size_t count) {
    for (size_t k = 0; k < count; k++) {
        dbeta[k] += dy[k];
        dgamma[k] += dy[k] * ((x[k] - mean) * invstd);
    }
}

/* With the first columns, while a row is in the cache, its dx, too. */
ls_status LS_CPU(layernorm_backward)(const struct ls_layernorm_backward_arguments *a) {
    for (size_t begin = 0; begin < a->channels; begin += LS_BLOCK) {
        size_t count = a->channels - begin < LS_BLOCK ? a->channels - begin : LS_BLOCK;
        float dgamma[LS_BLOCK] = {0}, dbeta[LS_BLOCK] = {0}, dy_buffer[LS_BLOCK], x_buffer[LS_BLOCK];
        for (size_t r = 0; r < a->rows; r++) {
            size_t at = r * a->channels + begin;
            if (begin == 0) input_gradient(a, r, row_averages(a, r));
            add_row(dgamma, dbeta, ls_block(a->dtype, a->dy, at, count, dy_buffer),
                    ls_block(a->dtype, a->x, at, count, x_buffer), a->mean[r], a->invstd[r], count);
        }
        ls_put_sum(a->dgamma + begin, dgamma, count, a->accumulate);
        ls_put_sum(a->dbeta + begin, dbeta, count, a->accumulate);
    }
    return LS_OK;
}
