/* batchnorm — batch normalisation per channel, with the ReLU that usually follows in the same pass.
 *   terms : plane = one channel of one image, contiguous; m = batch x plane values share a mean and a variance
 *   idea  : y = x a + b with a = gamma invstd, b = beta - mean a: one fused multiply-add per element
 *   cost  : forward 2 reads + 1 write of x; backward 4 reads + 1 write. A channel's planes are visited twice in a row, so the
 *           second visit finds them in the cache
 *   order : a plane's mean and sum of squared deviations in LS_LANES parts while it lies in the L1 cache, then planes are merged
 *           in batch order, in double (Chan's formula), which does not cancel as sum(x^2) - sum(x)^2/m does */
#include "common/base/log.h"
#include "kernels/cpu/variant/variant.h"

struct plane_statistics {
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

static void merge_plane(struct plane_statistics *total, const float *x, size_t count) {
    float mean = plane_sum(x, count) / (float)count;
    double m2 = plane_m2(x, count, mean);
    double delta = mean - total->mean, n = (double)count, sum = total->count + n;
    total->m2 += m2 + delta * delta * total->count * n / sum;
    total->mean += delta * n / sum;
    total->count = sum;
}

/* y = x a + b, then max(y, 0) if relu; y may be x */
static void affine(float *y, const float *x, size_t count, float a, float b, bool relu) {
    const float floor_value = relu ? 0 : -INFINITY;
    for (size_t i = 0; i < count; i++) {
        float value = fmaf(x[i], a, b);
        y[i] = value < floor_value ? floor_value : value;
    }
}

ls_status LS_CPU(batchnorm_train)(const struct ls_batchnorm_train_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    size_t plane = (size_t)s->plane, image = plane * (size_t)s->channels;
    if ((size_t)s->batch * plane < 2) {
        return ls_fail(LS_ERR_INVALID,
                       "batch norm needs more than one value per channel in training; this batch has %d",
                       s->batch * s->plane);
    }
    for (int c = 0; c < s->channels; c++) {
        const float *x = a->x + (size_t)c * plane;
        float *y = a->y + (size_t)c * plane;
        struct plane_statistics total = {0};
        for (int n = 0; n < s->batch; n++) merge_plane(&total, x + (size_t)n * image, plane);
        double variance = total.m2 / total.count;
        float mean = (float)total.mean, invstd = (float)(1.0 / sqrt(variance + (double)s->epsilon));
        float scale = a->gamma[c] * invstd, shift = fmaf(-mean, scale, a->beta[c]);
        for (int n = 0; n < s->batch; n++) {
            affine(y + (size_t)n * image, x + (size_t)n * image, plane, scale, shift, s->relu);
        }
        a->mean[c] = mean;
        a->invstd[c] = invstd;
        float unbiased = (float)(total.m2 / (total.count - 1));
        a->running_mean[c] = (1 - s->momentum) * a->running_mean[c] + s->momentum * mean;
        a->running_var[c] = (1 - s->momentum) * a->running_var[c] + s->momentum * unbiased;
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

/* What the passes over one channel need: y = x scale + shift (its sign is the ReLU's mask), x̂ = (x - mean) invstd. */
struct channel {
    float mean, invstd, scale, shift, floor_value;
};

/* Adds sum(dy) and sum(dy x̂) of one plane, counting dy where y > floor_value only. */
static void plane_gradients(const struct channel *ch, const float *dy, const float *x, size_t count, double *sum_dy,
                            double *sum_dy_xhat) {
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
    *sum_dy += (double)ls_sum_lanes(dy_lanes);
    *sum_dy_xhat += (double)ls_sum_lanes(xhat_lanes) * (double)ch->invstd;
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

ls_status LS_CPU(batchnorm_backward)(const struct ls_batchnorm_backward_arguments *a) {
    const struct ls_batchnorm_shape *s = &a->shape;
    size_t plane = (size_t)s->plane, image = plane * (size_t)s->channels;
    double m = (double)s->batch * (double)plane;
    for (int c = 0; c < s->channels; c++) {
        size_t at = (size_t)c * plane;
        float scale = a->gamma[c] * a->invstd[c];
        struct channel ch = {a->mean[c], a->invstd[c], scale, fmaf(-a->mean[c], scale, a->beta[c]),
                             s->relu ? 0 : -INFINITY};
        double sum_dy = 0, sum_dy_xhat = 0;
        for (int n = 0; n < s->batch; n++, at += image) {
            plane_gradients(&ch, a->dy + at, a->x + at, plane, &sum_dy, &sum_dy_xhat);
        }
        /* dx = scale (dy - sum_dy/m - x̂ sum_dy_xhat/m), gathered into scale dy + x p + q */
        float p = (float)(-(double)scale * (double)ch.invstd * sum_dy_xhat / m);
        float q = (float)(-(double)scale * sum_dy / m - (double)p * (double)ch.mean);
        at = (size_t)c * plane;
        for (int n = 0; n < s->batch; n++, at += image) {
            plane_input_gradient(&ch, a->dx + at, a->dy + at, a->x + at, plane, p, q);
        }
        a->dbeta[c] = (a->accumulate ? a->dbeta[c] : 0) + (float)sum_dy;
        a->dgamma[c] = (a->accumulate ? a->dgamma[c] : 0) + (float)sum_dy_xhat;
    }
    return LS_OK;
}
