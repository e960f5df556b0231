/* layernorm — layer normalisation of each row.
 *   cost  : forward 3 reads of x, of which the last two find the row in the L1 cache, and 1 write; backward 3 reads of dy
 *           and x, likewise, and 1 write. Rows of more than LS_BLOCK channels: dy and x once more for each block
 *   order : a row's sums in LS_LANES parts, in fp32. Sums over rows ascending, LS_BLOCK columns at a time
 *   half  : a row of up to LS_BLOCK channels (half.h) is widened as a whole and has the bits of an fp32 row of the same
 *           values. A longer row is summed block by block, and the blocks' sums are added */
#include "kernels/cpu/variant/half.h"

/* Rows that the forward pass takes together, step by step, so that no step of a row waits for that row's sum. */
#define ROWS 8

/* --- forward ----------------------------------------------------------------------------------------------------- */

/* The sum of (x - mean), or of its square. */
static LS_ALWAYS_INLINE float block_sum(const float *x, size_t count, float mean, bool squared) {
    float parts[LS_LANES] = {0};
    size_t whole = count / LS_LANES * LS_LANES;
    for (size_t i = 0; i < whole; i += LS_LANES) {
        for (size_t l = 0; l < LS_LANES; l++) {
            float deviation = x[i + l] - mean;
            parts[l] += squared ? deviation * deviation : deviation;
        }
    }
    for (size_t i = whole; i < count; i++) {
        float deviation = x[i] - mean;
        parts[i - whole] += squared ? deviation * deviation : deviation;
    }
    return ls_sum_lanes(parts);
}

/* The average over row r. */
static LS_ALWAYS_INLINE float average(const struct ls_layernorm_forward_arguments *a, size_t r, float mean,
                                      bool squared) {
    float sum = 0, buffer[LS_BLOCK];
    for (size_t i = 0, count; (count = ls_block_count(a->dtype, a->channels - i)) > 0; i += count)
        sum += block_sum(ls_block(a->dtype, a->x, r * a->channels + i, count, buffer), count, mean, squared);
    return sum / (float)a->channels;
}

static void normalize(float *restrict y, const float *restrict x, const float *restrict gamma,
                      const float *restrict beta, float mean, float invstd, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = (x[i] - mean) * invstd * gamma[i] + beta[i];
}

static void normalize_row(const struct ls_layernorm_forward_arguments *a, size_t r) {
    float in[LS_BLOCK], out[LS_BLOCK];
    for (size_t i = 0, count; (count = ls_block_count(a->dtype, a->channels - i)) > 0; i += count) {
        size_t at = r * a->channels + i;
        float *y = ls_block_to_fill(a->dtype, a->y, at, out);
        normalize(y, ls_block(a->dtype, a->x, at, count, in), a->gamma + i, a->beta + i, a->mean[r], a->invstd[r],
                  count);
        ls_store_block(a->dtype, a->y, at, y, count);
    }
}

ls_status LS_CPU(layernorm_forward)(const struct ls_layernorm_forward_arguments *a) {
    for (size_t begin = 0, end; begin < a->rows; begin = end) {
        end = a->rows - begin < ROWS ? a->rows : begin + ROWS;
        for (size_t r = begin; r < end; r++) a->mean[r] = average(a, r, 0, false);
        for (size_t r = begin; r < end; r++) a->invstd[r] = 1 / sqrtf(average(a, r, a->mean[r], true) + a->epsilon);
        for (size_t r = begin; r < end; r++) normalize_row(a, r);
    }
    return LS_OK;
}

/* --- backward ---------------------------------------------------------------------------------------------------- */

/* Sums over a row, or averages, of dy gamma and of dy gamma xhat. */
struct slopes {
    float plain, xhat;
};

/* Adds `count` terms, at most LS_LANES, to one part each. */
static LS_ALWAYS_INLINE void add_slopes(float *restrict plain, float *restrict xhat, const float *restrict dy,
                                        const float *restrict x, const float *restrict gamma, size_t count, float mean,
                                        float invstd) {
    for (size_t l = 0; l < count; l++) {
        float d = dy[l] * gamma[l];
        plain[l] += d;
        xhat[l] += d * ((x[l] - mean) * invstd);
    }
}

static struct slopes block_slopes(const float *dy, const float *x, const float *gamma, size_t count, float mean,
                                  float invstd) {
    float plain[LS_LANES] = {0}, xhat[LS_LANES] = {0};
    size_t i = 0;
    for (; i + LS_LANES <= count; i += LS_LANES)
        add_slopes(plain, xhat, dy + i, x + i, gamma + i, LS_LANES, mean, invstd);
    add_slopes(plain, xhat, dy + i, x + i, gamma + i, count - i, mean, invstd);
    return (struct slopes){ls_sum_lanes(plain), ls_sum_lanes(xhat)};
}

static struct slopes average_slopes(const struct ls_layernorm_backward_arguments *a, size_t r) {
    struct slopes sum = {0};
    float dy_buffer[LS_BLOCK], x_buffer[LS_BLOCK];
    for (size_t i = 0, count; (count = ls_block_count(a->dtype, a->channels - i)) > 0; i += count) {
        const float *dy = ls_block(a->dtype, a->dy, r * a->channels + i, count, dy_buffer),
                    *x = ls_block(a->dtype, a->x, r * a->channels + i, count, x_buffer);
        struct slopes more = block_slopes(dy, x, a->gamma + i, count, a->mean[r], a->invstd[r]);
        sum.plain += more.plain;
        sum.xhat += more.xhat;
    }
    return (struct slopes){sum.plain / (float)a->channels, sum.xhat / (float)a->channels};
}

/* dx of a block. */
static void put_gradient(float *restrict dx, const float *restrict dy, const float *restrict x,
                         const float *restrict gamma, struct slopes average, float mean, float invstd, size_t count) {
    for (size_t k = 0; k < count; k++) {
        float xhat = (x[k] - mean) * invstd;
        dx[k] = invstd * (dy[k] * gamma[k] - average.plain - xhat * average.xhat);
    }
}

static void input_gradient(const struct ls_layernorm_backward_arguments *a, size_t r, struct slopes average) {
    float dy_buffer[LS_BLOCK], x_buffer[LS_BLOCK], out[LS_BLOCK];
    const float mean = a->mean[r], invstd = a->invstd[r];
    for (size_t i = 0, count; (count = ls_block_count(a->dtype, a->channels - i)) > 0; i += count) {
        size_t at = r * a->channels + i;
        const float *dy = ls_block(a->dtype, a->dy, at, count, dy_buffer),
                    *x = ls_block(a->dtype, a->x, at, count, x_buffer);
        float *dx = ls_block_to_fill(a->dtype, a->dx, at, out);
        put_gradient(dx, dy, x, a->gamma + i, average, mean, invstd, count);
        ls_store_block(a->dtype, a->dx, at, dx, count);
    }
}

/* Adds a row's terms to dgamma and dbeta. */
static void add_row(float *restrict dgamma, float *restrict dbeta, const float *restrict dy, const float *restrict x,
                    float mean, float invstd, size_t count) {
    for (size_t k = 0; k < count; k++) {
        dbeta[k] += dy[k];
        dgamma[k] += dy[k] * ((x[k] - mean) * invstd);
    }
}

ls_status LS_CPU(layernorm_backward)(const struct ls_layernorm_backward_arguments *a) {
    for (size_t c = 0; c < a->channels; c += LS_BLOCK) {
        size_t count = a->channels - c < LS_BLOCK ? a->channels - c : LS_BLOCK;
        float dgamma[LS_BLOCK] = {0}, dbeta[LS_BLOCK] = {0}, dy_buffer[LS_BLOCK], x_buffer[LS_BLOCK];
        for (size_t r = 0; r < a->rows; r++) {
            if (c == 0) input_gradient(a, r, average_slopes(a, r)); /* while the row is in the cache */
            add_row(dgamma, dbeta, ls_block(a->dtype, a->dy, r * a->channels + c, count, dy_buffer),
                    ls_block(a->dtype, a->x, r * a->channels + c, count, x_buffer), a->mean[r], a->invstd[r], count);
        }
        ls_put_sum(a->dgamma + c, dgamma, count, a->accumulate);
        ls_put_sum(a->dbeta + c, dbeta, count, a->accumulate);
    }
    return LS_OK;
}
