/* batchnorm_naive — batch normalisation, naive rung: a thread for each channel, which visits the channel's values in
 * the formula's order; a thread for each value if an operation needs no sums. Training uses the other rung,
 * batchnorm.cu.
 *   sums   : in double, n ascending, then the index in the plane
 *   launch : ceil(channels / 256) blocks for any batch: 16 channels keep 16 threads busy on a GPU that can run 270,000.
 *            Neighbouring threads read `plane` values apart, so each value costs a transfer of 32 bytes
 *   bytes  : train reads x three times; backward reads x and dy twice */
#include "kernels/cuda/batchnorm.cuh"

using namespace ls_cuda;

namespace {

/* Calls body(index) for each value of channel c. */
template <class Body> __device__ void each_value(const ls_batchnorm_shape &s, int c, Body body) {
    for (int n = 0; n < s.batch; n++) {
        size_t plane = channel_begin(s, c) + (size_t)n * image_of(s);
        for (int p = 0; p < s.plane; p++) body(plane + (size_t)p);
    }
}

template <class T> __device__ Statistics channel_statistics(const ls_batchnorm_shape &s, const T *x, int c) {
    double count = (double)values_of(s), sum = 0, m2 = 0;
    if (count == 0) return {};
    each_value(s, c, [&](size_t at) { sum += (double)to_float(x[at]); });
    double mean = sum / count;
    each_value(s, c, [&](size_t at) {
        double deviation = (double)to_float(x[at]) - mean;
        m2 += deviation * deviation;
    });
    return {count, mean, m2};
}

template <class T>
__device__ Sums channel_sums(const ls_batchnorm_shape &s, const Channel &ch, const T *dy, const T *x, int c) {
    Sums sums = {};
    each_value(s, c, [&](size_t at) {
        float value = to_float(x[at]);
        double d = (double)masked(ch, to_float(dy[at]), value);
        sums.dy += d;
        sums.dy_xhat += d * ((double)value - (double)ch.mean);
    });
    sums.dy_xhat *= (double)ch.invstd;
    return sums;
}

template <class T>
__global__ void train_channel(ls_batchnorm_shape s, T *y, const T *x, const float *gamma, const float *beta,
                              Kept kept) {
    int c = (int)global_thread();
    if (c >= s.channels) return;
    store_channel(s, channel_statistics(s, x, c), kept, c);
    Channel ch = make_channel(s, kept.mean[c], kept.invstd[c], gamma[c] * kept.invstd[c], beta[c]);
    each_value(s, c, [&](size_t at) { y[at] = from_float<T>(normalized(ch, to_float(x[at]))); });
}

template <class T>
__global__ void backward_channel(ls_batchnorm_shape s, T *dx, float *dgamma, float *dbeta, const T *dy, const T *x,
                                 Parameters parameters, bool accumulate) {
    int c = (int)global_thread();
    if (c >= s.channels) return;
    Channel ch = read_channel(s, parameters, c);
    Sums sums = channel_sums(s, ch, dy, x, c);
    Slope slope = make_slope(ch, sums, (double)values_of(s));
    each_value(s, c, [&](size_t at) {
        float gradient = input_gradient(ch, slope, to_float(dy[at]), to_float(x[at]));
        dx[at] = from_float<T>(gradient);
    });
    store_sums(sums, accumulate, &dgamma[c], &dbeta[c]);
}

template <class T> __global__ void statistics_channel(ls_batchnorm_shape s, double *statistics, const T *x) {
    int c = (int)global_thread();
    if (c == 0) statistics[2 * s.channels] = (double)values_of(s);
    if (c >= s.channels) return;
    Statistics total = channel_statistics(s, x, c);
    statistics[c] = total.mean;
    statistics[s.channels + c] = total.m2;
}

template <class T>
__global__ void sums_channel(ls_batchnorm_shape s, float *out, float *dgamma, float *dbeta, const T *dy, const T *x,
                             Parameters parameters, bool accumulate) {
    int c = (int)global_thread();
    if (c >= s.channels) return;
    Sums sums = channel_sums(s, read_channel(s, parameters, c), dy, x, c);
    out[c] = (float)sums.dy;
    out[s.channels + c] = (float)sums.dy_xhat;
    store_sums(sums, accumulate, &dgamma[c], &dbeta[c]);
}

/* --- a thread for each value -------------------------------------------------------------------------------------- */

__device__ int channel_of(const ls_batchnorm_shape &s, size_t at) {
    return (int)(at / (size_t)s.plane % (size_t)s.channels);
}

template <class T>
__global__ void eval_value(ls_batchnorm_shape s, T *y, const T *x, Parameters parameters, const float *running_var,
                           size_t count) {
    size_t at = global_thread();
    if (at >= count) return;
    Channel ch = read_running_channel(s, parameters, running_var, channel_of(s, at));
    y[at] = from_float<T>(normalized(ch, to_float(x[at])));
}

template <class T>
__global__ void normalize_value(ls_batchnorm_shape s, T *y, const T *x, Parameters parameters, size_t count) {
    size_t at = global_thread();
    if (at >= count) return;
    y[at] = from_float<T>(normalized(read_channel(s, parameters, channel_of(s, at)), to_float(x[at])));
}

template <class T>
__global__ void input_gradient_value(ls_batchnorm_shape s, T *dx, const T *dy, const T *x, Parameters parameters,
                                     const float *sums, const double *m, size_t count) {
    size_t at = global_thread();
    if (at >= count) return;
    int c = channel_of(s, at);
    Channel ch = read_channel(s, parameters, c);
    Slope slope = make_slope(ch, {(double)sums[c], (double)sums[s.channels + c]}, *m);
    dx[at] = from_float<T>(input_gradient(ch, slope, to_float(dy[at]), to_float(x[at])));
}

/* --- merging the ranks: the same on both rungs -------------------------------------------------------------------- */

__global__ void merge_channel(ls_batchnorm_shape s, Kept kept, double *count, const double *statistics, int ranks,
                              ls_cuda_fault *fault) {
    int c = (int)global_thread(), stride = 2 * s.channels + 1;
    double all = 0;
    for (int r = 0; r < ranks; r++) all += statistics[(size_t)(r + 1) * (size_t)stride - 1];
    if (c == 0) *count = all;
    if (all < 2) {
        if (c > 0 || all == 0) return; /* 0: no rank has samples, and nothing changes */
        fault->value = (int64_t)all;
        fault->limit = 2;
        fault->kind = LS_CUDA_FAULT_BATCHNORM;
        return;
    }
    if (c >= s.channels) return;
    Statistics total = {};
    for (int r = 0; r < ranks; r++) {
        const double *of = statistics + (size_t)r * (size_t)stride;
        Statistics more = {of[2 * s.channels], of[c], of[s.channels + c]};
        if (more.count > 0) merge(&total, more);
    }
    store_channel(s, total, kept, c);
}

} // namespace

ls_status ls_cuda_naive_batchnorm_train(const ls_batchnorm_train_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "batchnorm_train";
    ls_status status = expect_spread((double)values_of(a->shape));
    if (status != LS_OK) return status;
    return with_element(a->shape.dtype, op, [&](auto zero) {
        return launch_each(lane, op, (size_t)a->shape.channels, train_channel<decltype(zero)>, a->shape, a->y, a->x,
                           a->gamma, a->beta, Kept{a->mean, a->invstd, a->running_mean, a->running_var});
    });
}

ls_status ls_cuda_naive_batchnorm_backward(const ls_batchnorm_backward_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "batchnorm_backward";
    return with_element(a->shape.dtype, op, [&](auto zero) {
        return launch_each(lane, op, (size_t)a->shape.channels, backward_channel<decltype(zero)>, a->shape, a->dx,
                           a->dgamma, a->dbeta, a->dy, a->x, Parameters{a->gamma, a->beta, a->mean, a->invstd},
                           a->accumulate);
    });
}

ls_status ls_cuda_naive_batchnorm_statistics(const ls_batchnorm_statistics_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "batchnorm_statistics";
    return with_element(a->shape.dtype, op, [&](auto zero) {
        return launch_each(lane, op, (size_t)a->shape.channels, statistics_channel<decltype(zero)>, a->shape,
                           a->statistics, a->x);
    });
}

ls_status ls_cuda_naive_batchnorm_sums(const ls_batchnorm_sums_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "batchnorm_sums";
    return with_element(a->shape.dtype, op, [&](auto zero) {
        return launch_each(lane, op, (size_t)a->shape.channels, sums_channel<decltype(zero)>, a->shape, a->sums,
                           a->dgamma, a->dbeta, a->dy, a->x, Parameters{a->gamma, a->beta, a->mean, a->invstd},
                           a->accumulate);
    });
}

ls_status ls_cuda_naive_batchnorm_eval(const ls_batchnorm_eval_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "batchnorm_eval";
    size_t count = ls_batchnorm_count(&a->shape);
    return with_element(a->shape.dtype, op, [&](auto zero) {
        return launch_each(lane, op, count, eval_value<decltype(zero)>, a->shape, a->y, a->x,
                           Parameters{a->gamma, a->beta, a->running_mean, nullptr}, a->running_var, count);
    });
}

ls_status ls_cuda_naive_batchnorm_normalize(const ls_batchnorm_normalize_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "batchnorm_normalize";
    size_t count = ls_batchnorm_count(&a->shape);
    return with_element(a->shape.dtype, op, [&](auto zero) {
        return launch_each(lane, op, count, normalize_value<decltype(zero)>, a->shape, a->y, a->x,
                           Parameters{a->gamma, a->beta, a->mean, a->invstd}, count);
    });
}

ls_status ls_cuda_naive_batchnorm_input_gradient(const ls_batchnorm_input_gradient_arguments *a,
                                                 const ls_cuda_lane *lane) {
    const char *op = "batchnorm_input_gradient";
    size_t count = ls_batchnorm_count(&a->shape);
    return with_element(a->shape.dtype, op, [&](auto zero) {
        return launch_each(lane, op, count, input_gradient_value<decltype(zero)>, a->shape, a->dx, a->dy, a->x,
                           Parameters{a->gamma, a->beta, a->mean, a->invstd}, a->sums, a->count, count);
    });
}

ls_status ls_cuda_naive_batchnorm_merge(const ls_batchnorm_merge_arguments *a, const ls_cuda_lane *lane) {
    size_t threads = a->shape.channels > 0 ? (size_t)a->shape.channels : 1;
    return launch_each(lane, "batchnorm_merge", threads, merge_channel, a->shape,
                       Kept{a->mean, a->invstd, a->running_mean, a->running_var}, a->count, a->statistics, a->ranks,
                       lane->fault);
}

ls_status ls_cuda_batchnorm_merge(const ls_batchnorm_merge_arguments *a, const ls_cuda_lane *lane) {
    return ls_cuda_naive_batchnorm_merge(a, lane);
}
