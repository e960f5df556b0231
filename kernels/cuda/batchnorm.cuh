/* Shared by both rungs of batch normalisation: the arithmetic of one channel. From the same statistics or sums, it
 * gives the bits of kernels/cpu/variant/batchnorm.c. C++ only. */
#ifndef LS_KERNELS_CUDA_BATCHNORM_CUH
#define LS_KERNELS_CUDA_BATCHNORM_CUH

#include "kernels/cuda/launch.cuh"

namespace ls_cuda {

/* Statistics of the values of a channel, or of some of them. */
struct Statistics {
    double count, mean, m2; /* m2 = sum of squared deviations from the mean */
};

/* Chan's formula: the statistics of two sets of values together; `more` is not empty. */
__device__ inline void merge(Statistics *total, Statistics more) {
    double delta = more.mean - total->mean, sum = total->count + more.count;
    total->m2 += more.m2 + delta * delta * total->count * more.count / sum;
    total->mean += delta * more.count / sum;
    total->count = sum;
}

/* The values that the forward pass stores for each channel. */
struct Kept {
    float *mean, *invstd, *running_mean, *running_var;
};

__device__ inline float invstd_of(const ls_batchnorm_shape &s, const Statistics &total) {
    return (float)(1.0 / sqrt(total.m2 / total.count + (double)s.epsilon));
}

__device__ inline void store_channel(const ls_batchnorm_shape &s, const Statistics &total, Kept kept, int c) {
    float mean = (float)total.mean, unbiased = (float)(total.m2 / (total.count - 1));
    kept.mean[c] = mean;
    kept.invstd[c] = invstd_of(s, total);
    if (!kept.running_mean) return;
    kept.running_mean[c] = (1 - s.momentum) * kept.running_mean[c] + s.momentum * mean;
    kept.running_var[c] = (1 - s.momentum) * kept.running_var[c] + s.momentum * unbiased;
}

/* Constants of one channel: y = x scale + shift, x̂ = (x - mean) invstd. With a ReLU, y is at least floor_value, and dy
 * passes where y > gate; without one, both are minus infinity. */
struct Channel {
    float mean, invstd, scale, shift, floor_value, gate;
};

/* The largest y that rounds to 0 when it is stored. */
__device__ inline float largest_zero(ls_dtype dtype) {
    return dtype == LS_FP16 ? 0x1p-25f : dtype == LS_BF16 ? 0x1p-134f : 0;
}

__device__ inline Channel make_channel(const ls_batchnorm_shape &s, float mean, float invstd, float scale, float beta) {
    float floor_value = s.relu ? 0 : -INFINITY, gate = s.relu ? largest_zero(s.dtype) : -INFINITY;
    return {mean, invstd, scale, fmaf(-mean, scale, beta), floor_value, gate};
}

/* The per-channel inputs of an operation, in device memory. */
struct Parameters {
    const float *gamma, *beta, *mean, *invstd;
};

__device__ inline Channel read_channel(const ls_batchnorm_shape &s, const Parameters &p, int c) {
    return make_channel(s, p.mean[c], p.invstd[c], p.gamma[c] * p.invstd[c], p.beta[c]);
}

/* For evaluation: from the running variance instead of invstd. */
__device__ inline Channel read_running_channel(const ls_batchnorm_shape &s, const Parameters &p,
                                               const float *running_var, int c) {
    float scale = p.gamma[c] / sqrtf(running_var[c] + s.epsilon);
    return make_channel(s, p.mean[c], 0, scale, p.beta[c]);
}

__device__ inline float normalized(const Channel &ch, float x) {
    float value = fmaf(x, ch.scale, ch.shift);
    return value < ch.floor_value ? ch.floor_value : value;
}

/* dy, or 0 where the ReLU blocks it */
__device__ inline float masked(const Channel &ch, float dy, float x) {
    return fmaf(x, ch.scale, ch.shift) > ch.gate ? dy : 0;
}

/* Sums over one channel of masked dy, and of masked dy x̂. */
struct Sums {
    double dy, dy_xhat;
};

/* The parameters' gradients are the sums themselves. */
__device__ inline void store_sums(const Sums &sums, bool accumulate, float *dgamma, float *dbeta) {
    *dbeta = (accumulate ? *dbeta : 0) + (float)sums.dy;
    *dgamma = (accumulate ? *dgamma : 0) + (float)sums.dy_xhat;
}

/* dx = scale (dy - sums.dy/m - x̂ sums.dy_xhat/m), rearranged as scale dy + x p + q */
struct Slope {
    float p, q;
};

__device__ inline Slope make_slope(const Channel &ch, const Sums &sums, double m) {
    float p = (float)(-(double)ch.scale * (double)ch.invstd * sums.dy_xhat / m);
    return {p, (float)(-(double)ch.scale * sums.dy / m - (double)p * (double)ch.mean)};
}

__device__ inline float input_gradient(const Channel &ch, Slope slope, float dy, float x) {
    return fmaf(ch.scale, masked(ch, dy, x), fmaf(x, slope.p, slope.q));
}

/* The index of a channel's first value, and the distance between planes of a channel. */
__device__ inline size_t channel_begin(const ls_batchnorm_shape &s, int c) { return (size_t)c * (size_t)s.plane; }
__host__ __device__ inline size_t image_of(const ls_batchnorm_shape &s) { return (size_t)s.plane * (size_t)s.channels; }

/* Number of values of one channel. */
__host__ __device__ inline size_t values_of(const ls_batchnorm_shape &s) { return (size_t)s.batch * (size_t)s.plane; }

inline ls_status expect_spread(double count) {
    if (count >= 2) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "batch norm needs more than one value per channel in training; this batch has %.0f",
                   count);
}

} // namespace ls_cuda

#endif
