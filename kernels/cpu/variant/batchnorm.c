/* batchnorm — batch normalisation per channel, with the ReLU that usually follows in the same pass.
 *   terms : plane = one channel of one image, contiguous; m = batch x plane values share a mean and a variance
 *   idea  : y = x a + b with a = gamma invstd, b = beta - mean a: one fused multiply-add per element
 *   cost  : forward 2 reads + 1 write of x; backward 4 reads + 1 write. A channel's planes are visited twice in a row,
 *           so the second visit finds them in the cache
 *   order : a plane's mean and sum of squared deviations in fp32, in LS_LANES parts, while the plane is in the L1
 *           cache. Planes are merged in batch order, in double (statistics.h)
 *   half  : a plane of up to LS_BLOCK values (half.h) is converted to fp32 as a whole, and has the sums of an fp32
 *           plane of the same values. A longer plane is cut into blocks, which are merged as planes are
 *   split : for a batch on several devices, a collective must run between the two visits, so each visit is an
 *           operation: statistics, all_gather, merge, normalize; and sums, all_reduce, input_gradient. They use the
 *           functions of the whole passes. The result differs from one device's only by the rounding of doubles
 *           (forward: ranks are merged as planes are) and by the rounding of the ranks' sums to float (backward). An
 *           empty batch has no planes */
#include "common/base/log.h"
#include "kernels/cpu/statistics.h"
#include "kernels/cpu/variant/half.h"

/* --- forward ----------------------------------------------------------------------------------------------------- */

static float block_sum(const float *x, size_t count) {
    float lanes[LS_LANES] = {0};
    size_t whole = count / LS_LANES * LS_LANES;
    for (size_t i = 0; i < whole; i += LS_LANES) {
        for (int l = 0; l < LS_LANES; l++) lanes[l] += x[i + (size_t)l];
    }
    for (size_t i = whole; i < count; i++) lanes[i - whole] += x[i];
    return ls_sum_lanes(lanes);
}

static float block_m2(const float *x, size_t count, float mean) {
    float lanes[LS_LANES] = {0};
    size_t whole = count / LS_LANES * LS_LANES;
    for (size_t i = 0; i < whole; i += LS_LANES) {
        for (int l = 0; l < LS_LANES; l++) {
            float deviation = x[i + (size_t)l] - mean;
            lanes[l] = fmaf(deviation, deviation, lanes[l]);
        }
    }
    for (size_t i = whole; i < count; i++) lanes[i - whole] = fmaf(x[i] - mean, x[i] - mean, lanes[i - whole]);
    return ls_sum_lanes(lanes);
}

/* The offset of the plane of channel c of image n. */
static size_t plane_at(const struct ls_batchnorm_shape *s, int n, int c) {
    return ((size_t)n * (size_t)s->channels + (size_t)c) * (size_t)s->plane;
}

/* Functions for a plane, here and below: it begins at x[at] and is read block by block. */
static void add_plane_statistics(struct ls_statistics *total, const struct ls_batchnorm_shape *s, const void *x,
                                 size_t at) {
    float buffer[LS_BLOCK];
    for (size_t i = 0, count; (count = ls_block_count(s->dtype, (size_t)s->plane - i)) > 0; i += count) {
        const float *block = ls_block(s->dtype, x, at + i, count, buffer);
        float mean = block_sum(block, count) / (float)count;
        ls_statistics_merge(total,
                            (struct ls_statistics){(double)count, (double)mean, (double)block_m2(block, count, mean)});
    }
}

static struct ls_statistics channel_statistics(const struct ls_batchnorm_shape *s, const void *x, int c) {
    struct ls_statistics total = {0};
    for (int n = 0; n < s->batch; n++) add_plane_statistics(&total, s, x, plane_at(s, n, c));
    return total;
}

static ls_status expect_spread(double count) {
    if (count >= 2) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "batch norm needs more than one value per channel in training; this batch has %.0f",
                   count);
}

/* Stores the results of the forward pass for channel c, from the statistics of its whole batch. */
static void store_channel(const struct ls_batchnorm_shape *s, const struct ls_statistics *total, int c, float *mean,
                          float *invstd, float *running_mean, float *running_var) {
    double variance = total->m2 / total->count;
    float unbiased = (float)(total->m2 / (total->count - 1));
    mean[c] = (float)total->mean;
    invstd[c] = (float)(1.0 / sqrt(variance + (double)s->epsilon));
    if (!running_mean) return;
    running_mean[c] = (1 - s->momentum) * running_mean[c] + s->momentum * mean[c];
    running_var[c] = (1 - s->momentum) * running_var[c] + s->momentum * unbiased;
}

/* y = x a + b, then max(y, 0) if relu; y may be x */
static void affine(float *y, const float *x, size_t count, float a, float b, bool relu) {
    const float floor_value = relu ? 0 : -INFINITY;
    for (size_t i = 0; i < count; i++) {
        float value = fmaf(x[i], a, b);
        y[i] = value < floor_value ? floor_value : value;
    }
}

static void affine_plane(const struct ls_batchnorm_shape *s, void *y, const void *x, size_t at, float a, float b) {
    float in[LS_BLOCK], out[LS_BLOCK];
    for (size_t i = 0, count; (count = ls_block_count(s->dtype, (size_t)s->plane - i)) > 0; i += count) {
        float *block = ls_block_to_fill(s->dtype, y, at + i, out);
        affine(block, ls_block(s->dtype, x, at + i, count, in), count, a, b, s->relu);
        ls_store_block(s->dtype, y, at + i, block, count);
    }
}

static void normalize_channel(const struct ls_batchnorm_shape *s, void *y, const void *x, int c, float mean,
                              float invstd, float gamma, float beta) {
    float scale = gamma * invstd, shift = fmaf(-mean, scale, beta);
    for (int n = 0; n < s->batch; n++) affine_plane(s, y, x, plane_at(s, n, c), scale, shift);
}

ls_status LS_CPU(batchnorm_train)(const struct ls_batchnorm_train_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    ls_status status = expect_spread((double)s->batch * s->plane);
    for (int c = 0; status == LS_OK && c < s->channels; c++) {
        struct ls_statistics total = channel_statistics(s, a->x, c);
        store_channel(s, &total, c, a->mean, a->invstd, a->running_mean, a->running_var);
        normalize_channel(s, a->y, a->x, c, a->mean[c], a->invstd[c], a->gamma[c], a->beta[c]);
    }
    return status;
}

ls_status LS_CPU(batchnorm_statistics)(const struct ls_batchnorm_statistics_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    for (int c = 0; c < s->channels; c++) {
        struct ls_statistics total = channel_statistics(s, a->x, c);
        a->statistics[c] = total.mean;
        a->statistics[s->channels + c] = total.m2;
    }
    a->statistics[2 * s->channels] = (double)s->batch * s->plane;
    return LS_OK;
}

ls_status LS_CPU(batchnorm_merge)(const struct ls_batchnorm_merge_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    size_t stride = ls_batchnorm_statistics_count(s);
    *a->count = 0;
    for (int r = 0; r < a->ranks; r++) *a->count += a->statistics[(size_t)(r + 1) * stride - 1];
    if (*a->count == 0) return LS_OK; /* no rank has samples: nothing changes */
    ls_status status = expect_spread(*a->count);
    for (int c = 0; status == LS_OK && c < s->channels; c++) {
        struct ls_statistics total = {0};
        for (int r = 0; r < a->ranks; r++) {
            const double *of = a->statistics + (size_t)r * stride;
            struct ls_statistics more = {of[2 * s->channels], of[c], of[s->channels + c]};
            ls_statistics_merge(&total, more);
        }
        store_channel(s, &total, c, a->mean, a->invstd, a->running_mean, a->running_var);
    }
    return status;
}

ls_status LS_CPU(batchnorm_normalize)(const struct ls_batchnorm_normalize_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    for (int c = 0; c < s->channels; c++) {
        normalize_channel(s, a->y, a->x, c, a->mean[c], a->invstd[c], a->gamma[c], a->beta[c]);
    }
    return LS_OK;
}

ls_status LS_CPU(batchnorm_eval)(const struct ls_batchnorm_eval_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    for (int n = 0; n < s->batch; n++) {
        for (int c = 0; c < s->channels; c++) {
            float scale = a->gamma[c] / sqrtf(a->running_var[c] + s->epsilon);
            float shift = fmaf(-a->running_mean[c], scale, a->beta[c]);
            affine_plane(s, a->y, a->x, plane_at(s, n, c), scale, shift);
        }
    }
    return LS_OK;
}

/* --- backward ---------------------------------------------------------------------------------------------------- */

/* Constants of one channel: y = x scale + shift and x̂ = (x - mean) invstd; dy passes where y > floor_value. */
struct channel {
    float mean, invstd, scale, shift, floor_value;
};

/* The largest y that rounds to 0 when it is stored. */
static float largest_zero(ls_dtype dtype) {
    if (dtype == LS_FP16) return 0x1p-25f;
    return dtype == LS_BF16 ? 0x1p-134f : 0;
}

static struct channel make_channel(const struct ls_batchnorm_shape *s, float mean, float invstd, float gamma,
                                   float beta) {
    float scale = gamma * invstd, floor_value = s->relu ? largest_zero(s->dtype) : -INFINITY;
    return (struct channel){mean, invstd, scale, fmaf(-mean, scale, beta), floor_value};
}

/* Sums over one channel of dy, masked by the ReLU, and of dy x̂. */
struct gradient_sums {
    double dy, dy_xhat;
};

/* The same sums of one block, in LS_LANES parts. */
struct sum_lanes {
    float dy[LS_LANES], xhat[LS_LANES];
};

static inline void add_group(struct sum_lanes *sums, const struct channel *ch, const float *dy, const float *x,
                             int count) {
    for (int l = 0; l < count; l++) {
        float d = fmaf(x[l], ch->scale, ch->shift) > ch->floor_value ? dy[l] : 0;
        sums->dy[l] += d;
        sums->xhat[l] = fmaf(d, x[l] - ch->mean, sums->xhat[l]);
    }
}

static void add_block(struct gradient_sums *sums, const struct channel *ch, const float *dy, const float *x,
                      size_t count) {
    struct sum_lanes lanes = {{0}, {0}};
    size_t whole = count / LS_LANES * LS_LANES;
    for (size_t i = 0; i < whole; i += LS_LANES) add_group(&lanes, ch, dy + i, x + i, LS_LANES);
    add_group(&lanes, ch, dy + whole, x + whole, (int)(count - whole));
    sums->dy += (double)ls_sum_lanes(lanes.dy);
    sums->dy_xhat += (double)ls_sum_lanes(lanes.xhat) * (double)ch->invstd;
}

static void add_plane(struct gradient_sums *sums, const struct ls_batchnorm_shape *s, const struct channel *ch,
                      const void *dy, const void *x, size_t at) {
    float dy_buffer[LS_BLOCK], x_buffer[LS_BLOCK];
    for (size_t i = 0, count; (count = ls_block_count(s->dtype, (size_t)s->plane - i)) > 0; i += count) {
        const float *dy_block = ls_block(s->dtype, dy, at + i, count, dy_buffer);
        add_block(sums, ch, dy_block, ls_block(s->dtype, x, at + i, count, x_buffer), count);
    }
}

static struct gradient_sums channel_sums(const struct ls_batchnorm_shape *s, const struct channel *ch, int c,
                                         const void *dy, const void *x) {
    struct gradient_sums sums = {0};
    for (int n = 0; n < s->batch; n++) add_plane(&sums, s, ch, dy, x, plane_at(s, n, c));
    return sums;
}

/* dx = scale dy + x p + q, with dy masked as above; dx may be dy */
static void block_input_gradient(const struct channel *ch, float *dx, const float *dy, const float *x, size_t count,
                                 float p, float q) {
    const float scale = ch->scale, shift = ch->shift, floor_value = ch->floor_value;
    for (size_t i = 0; i < count; i++) {
        float d = fmaf(x[i], scale, shift) > floor_value ? dy[i] : 0;
        dx[i] = fmaf(scale, d, fmaf(x[i], p, q));
    }
}

static void plane_input_gradient(const struct ls_batchnorm_shape *s, const struct channel *ch, void *dx, const void *dy,
                                 const void *x, size_t at, float p, float q) {
    float dx_buffer[LS_BLOCK], dy_buffer[LS_BLOCK], x_buffer[LS_BLOCK];
    for (size_t i = 0, count; (count = ls_block_count(s->dtype, (size_t)s->plane - i)) > 0; i += count) {
        const float *dy_block = ls_block(s->dtype, dy, at + i, count, dy_buffer);
        const float *x_block = ls_block(s->dtype, x, at + i, count, x_buffer);
        float *block = ls_block_to_fill(s->dtype, dx, at + i, dx_buffer);
        block_input_gradient(ch, block, dy_block, x_block, count, p, q);
        ls_store_block(s->dtype, dx, at + i, block, count);
    }
}

/* dx = scale (dy - sums.dy/m - x̂ sums.dy_xhat/m), rearranged as scale dy + x p + q */
static void channel_input_gradient(const struct ls_batchnorm_shape *s, const struct channel *ch, int c,
                                   const struct gradient_sums *sums, double m, void *dx, const void *dy,
                                   const void *x) {
    float p = (float)(-(double)ch->scale * (double)ch->invstd * sums->dy_xhat / m);
    float q = (float)(-(double)ch->scale * sums->dy / m - (double)p * (double)ch->mean);
    for (int n = 0; n < s->batch; n++) plane_input_gradient(s, ch, dx, dy, x, plane_at(s, n, c), p, q);
}

/* The parameters' gradients are the sums themselves. */
static void store_sums(const struct gradient_sums *sums, bool accumulate, float *dgamma, float *dbeta) {
    *dbeta = (accumulate ? *dbeta : 0) + (float)sums->dy;
    *dgamma = (accumulate ? *dgamma : 0) + (float)sums->dy_xhat;
}

ls_status LS_CPU(batchnorm_backward)(const struct ls_batchnorm_backward_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    double m = (double)s->batch * (double)s->plane;
    for (int c = 0; c < s->channels; c++) {
        struct channel ch = make_channel(s, a->mean[c], a->invstd[c], a->gamma[c], a->beta[c]);
        struct gradient_sums sums = channel_sums(s, &ch, c, a->dy, a->x);
        channel_input_gradient(s, &ch, c, &sums, m, a->dx, a->dy, a->x);
        store_sums(&sums, a->accumulate, &a->dgamma[c], &a->dbeta[c]);
    }
    return LS_OK;
}

ls_status LS_CPU(batchnorm_sums)(const struct ls_batchnorm_sums_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    for (int c = 0; c < s->channels; c++) {
        struct channel ch = make_channel(s, a->mean[c], a->invstd[c], a->gamma[c], a->beta[c]);
        struct gradient_sums sums = channel_sums(s, &ch, c, a->dy, a->x);
        a->sums[c] = (float)sums.dy;
        a->sums[s->channels + c] = (float)sums.dy_xhat;
        store_sums(&sums, a->accumulate, &a->dgamma[c], &a->dbeta[c]);
    }
    return LS_OK;
}

ls_status LS_CPU(batchnorm_input_gradient)(const struct ls_batchnorm_input_gradient_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    for (int c = 0; c < s->channels; c++) {
        struct channel ch = make_channel(s, a->mean[c], a->invstd[c], a->gamma[c], a->beta[c]);
        struct gradient_sums sums = {(double)a->sums[c], (double)a->sums[s->channels + c]};
        channel_input_gradient(s, &ch, c, &sums, *a->count, a->dx, a->dy, a->x);
    }
    return LS_OK;
}
