/* batchnorm — batch normalisation per channel, with the ReLU that usually follows in the same pass.
 *   terms : plane = one channel of one image, contiguous; m = batch x plane values share a mean and a variance
 *   idea  : y = x a + b with a = gamma invstd, b = beta - mean a: one fused multiply-add per element
 *   cost  : forward 2 reads + 1 write of x; backward 4 reads + 1 write. A channel's planes are visited twice in a row, so the
 *           second visit finds them in the cache
 *   order : a plane's mean and sum of squared deviations in LS_LANES parts while it lies in the L1 cache, then planes are merged
 *           in batch order, in double (Chan's formula), which does not cancel as sum(x^2) - sum(x)^2/m does
 *   split : where the batch lies on several devices, the two visits are operations of their own, and a collective stands between them:
 *           statistics, all_gather, merge, normalize; and sums, all_reduce, input_gradient. They are made of the same parts as
 *           the whole passes, and ranks are merged as planes are, in double, so the result is that of one device but for the
 *           rounding of doubles (forward) and of the ranks' sums to float (backward). A batch of 0 has no planes to visit */
#include "common/base/log.h"
#include "kernels/cpu/variant/variant.h"

/* --- forward ----------------------------------------------------------------------------------------------------- */

struct statistics {
    double count, mean, m2; /* m2 = sum of squared deviations from the mean */
};

static float plane_sum(const float *x, size_t count) {
    float lanes[LS_LANES] = {0};
    size_t whole = count / LS_LANES * LS_LANES;
    for (size_t i = 0; i < whole; i += LS_LANES) {
        for (int l = 0; l < LS_LANES; l++) lanes[l] += x[i + (size_t)l];
    }
    for (size_t i = whole; i < count; i++) lanes[i - whole] += x[i];
    return ls_sum_lanes(lanes);
}

static float plane_m2(const float *x, size_t count, float mean) {
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

/* Chan's formula: the statistics of two sets of values together; `more` is not empty. */
static void merge(struct statistics *total, struct statistics more) {
    double delta = more.mean - total->mean, sum = total->count + more.count;
    total->m2 += more.m2 + delta * delta * total->count * more.count / sum;
    total->mean += delta * more.count / sum;
    total->count = sum;
}

/* Values between the planes of one channel. */
static size_t image_of(const struct ls_batchnorm_shape *s) { return (size_t)s->plane * (size_t)s->channels; }

/* x points to the channel's first plane, here and below. */
static struct statistics channel_statistics(const struct ls_batchnorm_shape *s, const float *x) {
    struct statistics total = {0};
    size_t plane = (size_t)s->plane;
    for (int n = 0; n < s->batch; n++, x += image_of(s)) {
        float mean = plane_sum(x, plane) / (float)plane;
        merge(&total, (struct statistics){(double)plane, (double)mean, (double)plane_m2(x, plane, mean)});
    }
    return total;
}

static ls_status expect_spread(double count) {
    if (count >= 2) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "batch norm needs more than one value per channel in training; this batch has %.0f",
                   count);
}

/* What the forward pass leaves behind of a channel, from the statistics of its whole batch. */
static void settle_channel(const struct ls_batchnorm_shape *s, const struct statistics *total, float *mean,
                           float *invstd, float *running_mean, float *running_var) {
    double variance = total->m2 / total->count;
    float unbiased = (float)(total->m2 / (total->count - 1));
    *mean = (float)total->mean;
    *invstd = (float)(1.0 / sqrt(variance + (double)s->epsilon));
    *running_mean = (1 - s->momentum) * *running_mean + s->momentum * *mean;
    *running_var = (1 - s->momentum) * *running_var + s->momentum * unbiased;
}

/* y = x a + b, then max(y, 0) if relu; y may be x */
static void affine(float *y, const float *x, size_t count, float a, float b, bool relu) {
    const float floor_value = relu ? 0 : -INFINITY;
    for (size_t i = 0; i < count; i++) {
        float value = fmaf(x[i], a, b);
        y[i] = value < floor_value ? floor_value : value;
    }
}

static void normalize_channel(const struct ls_batchnorm_shape *s, float *y, const float *x, float mean, float invstd,
                              float gamma, float beta) {
    float scale = gamma * invstd, shift = fmaf(-mean, scale, beta);
    size_t image = image_of(s);
    for (int n = 0; n < s->batch; n++, x += image, y += image) affine(y, x, (size_t)s->plane, scale, shift, s->relu);
}

ls_status LS_CPU(batchnorm_train)(const struct ls_batchnorm_train_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    ls_status status = expect_spread((double)s->batch * s->plane);
    for (int c = 0; status == LS_OK && c < s->channels; c++) {
        size_t at = (size_t)c * (size_t)s->plane;
        struct statistics total = channel_statistics(s, a->x + at);
        settle_channel(s, &total, &a->mean[c], &a->invstd[c], &a->running_mean[c], &a->running_var[c]);
        normalize_channel(s, a->y + at, a->x + at, a->mean[c], a->invstd[c], a->gamma[c], a->beta[c]);
    }
    return status;
}

ls_status LS_CPU(batchnorm_statistics)(const struct ls_batchnorm_statistics_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    for (int c = 0; c < s->channels; c++) {
        struct statistics total = channel_statistics(s, a->x + (size_t)c * (size_t)s->plane);
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
    ls_status status = expect_spread(*a->count);
    for (int c = 0; status == LS_OK && c < s->channels; c++) {
        struct statistics total = {0};
        for (int r = 0; r < a->ranks; r++) {
            const double *of = a->statistics + (size_t)r * stride;
            struct statistics more = {of[2 * s->channels], of[c], of[s->channels + c]};
            if (more.count > 0) merge(&total, more);
        }
        settle_channel(s, &total, &a->mean[c], &a->invstd[c], &a->running_mean[c], &a->running_var[c]);
    }
    return status;
}

ls_status LS_CPU(batchnorm_normalize)(const struct ls_batchnorm_normalize_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    for (int c = 0; c < s->channels; c++) {
        size_t at = (size_t)c * (size_t)s->plane;
        normalize_channel(s, a->y + at, a->x + at, a->mean[c], a->invstd[c], a->gamma[c], a->beta[c]);
    }
    return LS_OK;
}

ls_status LS_CPU(batchnorm_eval)(const struct ls_batchnorm_eval_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    size_t plane = (size_t)s->plane;
    for (int n = 0; n < s->batch; n++) {
        for (int c = 0; c < s->channels; c++) {
            size_t at = ((size_t)n * (size_t)s->channels + (size_t)c) * plane;
            float scale = a->gamma[c] / sqrtf(a->running_var[c] + s->epsilon);
            affine(a->y + at, a->x + at, plane, scale, fmaf(-a->running_mean[c], scale, a->beta[c]), s->relu);
        }
    }
    return LS_OK;
}

/* --- backward ---------------------------------------------------------------------------------------------------- */

/* What the passes over one channel need: y = x scale + shift (its sign is the ReLU's mask), x̂ = (x - mean) invstd. */
struct channel {
    float mean, invstd, scale, shift, floor_value;
};

static struct channel make_channel(const struct ls_batchnorm_shape *s, float mean, float invstd, float gamma,
                                   float beta) {
    float scale = gamma * invstd;
    return (struct channel){mean, invstd, scale, fmaf(-mean, scale, beta), s->relu ? 0 : -INFINITY};
}

/* dy as the ReLU behind it passes it on, and with x̂; of one channel */
struct gradient_sums {
    double dy, dy_xhat;
};

static void add_plane(struct gradient_sums *sums, const struct channel *ch, const float *dy, const float *x,
                      size_t count) {
    float dy_lanes[LS_LANES] = {0}, xhat_lanes[LS_LANES] = {0};
    size_t whole = count / LS_LANES * LS_LANES;
    for (size_t i = 0; i < count; i += LS_LANES) {
        int lanes = i < whole ? LS_LANES : (int)(count - whole);
        for (int l = 0; l < lanes; l++) {
            float value = x[i + (size_t)l];
            float d = fmaf(value, ch->scale, ch->shift) > ch->floor_value ? dy[i + (size_t)l] : 0;
            dy_lanes[l] += d;
            xhat_lanes[l] = fmaf(d, value - ch->mean, xhat_lanes[l]);
        }
    }
    sums->dy += (double)ls_sum_lanes(dy_lanes);
    sums->dy_xhat += (double)ls_sum_lanes(xhat_lanes) * (double)ch->invstd;
}

static struct gradient_sums channel_sums(const struct ls_batchnorm_shape *s, const struct channel *ch, const float *dy,
                                         const float *x) {
    struct gradient_sums sums = {0};
    size_t image = image_of(s);
    for (int n = 0; n < s->batch; n++, dy += image, x += image) add_plane(&sums, ch, dy, x, (size_t)s->plane);
    return sums;
}

/* dx = scale dy + x p + q, with dy masked as above; dx may be dy */
static void plane_input_gradient(const struct channel *ch, float *dx, const float *dy, const float *x, size_t count,
                                 float p, float q) {
    const float scale = ch->scale, shift = ch->shift, floor_value = ch->floor_value;
    for (size_t i = 0; i < count; i++) {
        float d = fmaf(x[i], scale, shift) > floor_value ? dy[i] : 0;
        dx[i] = fmaf(scale, d, fmaf(x[i], p, q));
    }
}

/* dx = scale (dy - sums.dy/m - x̂ sums.dy_xhat/m), gathered into scale dy + x p + q */
static void channel_input_gradient(const struct ls_batchnorm_shape *s, const struct channel *ch,
                                   const struct gradient_sums *sums, double m, float *dx, const float *dy,
                                   const float *x) {
    float p = (float)(-(double)ch->scale * (double)ch->invstd * sums->dy_xhat / m);
    float q = (float)(-(double)ch->scale * sums->dy / m - (double)p * (double)ch->mean);
    size_t image = image_of(s);
    for (int n = 0; n < s->batch; n++, dx += image, dy += image, x += image) {
        plane_input_gradient(ch, dx, dy, x, (size_t)s->plane, p, q);
    }
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
        size_t at = (size_t)c * (size_t)s->plane;
        struct channel ch = make_channel(s, a->mean[c], a->invstd[c], a->gamma[c], a->beta[c]);
        struct gradient_sums sums = channel_sums(s, &ch, a->dy + at, a->x + at);
        channel_input_gradient(s, &ch, &sums, m, a->dx + at, a->dy + at, a->x + at);
        store_sums(&sums, a->accumulate, &a->dgamma[c], &a->dbeta[c]);
    }
    return LS_OK;
}

ls_status LS_CPU(batchnorm_sums)(const struct ls_batchnorm_sums_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    for (int c = 0; c < s->channels; c++) {
        size_t at = (size_t)c * (size_t)s->plane;
        struct channel ch = make_channel(s, a->mean[c], a->invstd[c], a->gamma[c], a->beta[c]);
        struct gradient_sums sums = channel_sums(s, &ch, a->dy + at, a->x + at);
        a->sums[c] = (float)sums.dy;
        a->sums[s->channels + c] = (float)sums.dy_xhat;
        store_sums(&sums, a->accumulate, &a->dgamma[c], &a->dbeta[c]);
    }
    return LS_OK;
}

ls_status LS_CPU(batchnorm_input_gradient)(const struct ls_batchnorm_input_gradient_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    for (int c = 0; c < s->channels; c++) {
        size_t at = (size_t)c * (size_t)s->plane;
        struct channel ch = make_channel(s, a->mean[c], a->invstd[c], a->gamma[c], a->beta[c]);
        struct gradient_sums sums = {(double)a->sums[c], (double)a->sums[s->channels + c]};
        channel_input_gradient(s, &ch, &sums, *a->count, a->dx + at, a->dy + at, a->x + at);
    }
    return LS_OK;
}
