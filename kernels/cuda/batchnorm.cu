/* batchnorm — batch normalisation, fast rung: several blocks for each channel, and few passes over memory.
 *   terms  : slice = the values of a channel, in the order (n, index in the plane), that one block visits; about 2048
 *            of them, more if there would be too many slices. Slices depend on the shape alone, so the bits do not
 *            depend on the GPU
 *   idea   : a sum over the batch needs all slices, and blocks cannot wait for each other; so it takes two launches.
 *            The first stores each slice's statistics (or sums) in scratch memory. In the second, every block adds up
 *            its channel's slices itself, at most 512 of them and from the cache, which saves a third launch
 *   types  : x, y and their gradients are elements of the shape's type, widened as they are read and rounded once as
 *            they are written; all arithmetic is the same for all types
 *   launch : channels x slices blocks of 256 threads: 400 for 16 channels of 64 images of 28x28. A thread takes four
 *            neighbouring values at a time if planes are multiples of four (in one read if the arrays are aligned),
 *            and steps from plane to plane by addition: one division a thread
 *   bytes  : train 2 reads + 1 write of x; backward 2 reads of x and dy + 1 write; the other operations one visit. The
 *            second read comes from the L2 cache for a layer of up to some 40 MB. flops: 3 to 8 a value, which memory
 *            hides
 *   order  : a thread adds its 16 (gradients: 8) values in float, ascending. Statistics: the block's mean in float,
 *            then squared deviations from it, of values still in registers (no second read); then groups in double, by
 *            Chan's formula. Gradient sums: in double from a thread's 8 values on. Slices: in double; a lane of a warp
 *            takes every 32nd, then a butterfly */
#include "kernels/cuda/batchnorm_slices.cuh"

using namespace ls_cuda;

namespace {

/* --- the statistics of slices ------------------------------------------------------------------------------------- */

struct Spread {
    double mean, m2;
};

template <int N, int STEPS>
__device__ Statistics group_statistics(const Group<N, STEPS> &group, const Floats<N> (&x)[STEPS], size_t count) {
    float sum = 0, m2 = 0;
    for (int k = 0; k < STEPS; k++) {
        for (int i = 0; i < N; i++) sum += x[k].at[i];
    }
    float mean = block_sum(sum) / (float)count;
    for (int k = 0; k < STEPS; k++) {
        for (int i = 0; i < N; i++) {
            float deviation = group.there[k] ? x[k].at[i] - mean : 0;
            m2 = fmaf(deviation, deviation, m2);
        }
    }
    m2 = block_sum(m2);
    return {(double)count, (double)mean, (double)m2};
}

/* spreads[channel][slice] */
template <class T, int N>
__global__ void slice_statistics(ls_batchnorm_shape s, Slices slices, const T *x, Spread *spreads) {
    Walk<N> walk(s, slices);
    Statistics total = {};
    for (size_t first = walk.begin; first < walk.end;) {
        Group<N, 16 / N> group(walk, slices.aligned);
        Floats<N> values[16 / N];
        group.read(values, x);
        size_t left = walk.end - first, count = left < group.BLOCK_VALUES ? left : group.BLOCK_VALUES;
        Statistics more = group_statistics(group, values, count);
        if (threadIdx.x == 0) merge(&total, more);
        first += count;
    }
    if (threadIdx.x == 0) spreads[blockIdx.x] = {total.mean, total.m2};
}

/* The statistics of a whole channel, from its slices; a whole warp calls. */
__device__ Statistics merged(const ls_batchnorm_shape &s, const Slices &slices, const Spread *spreads, int channel) {
    const Spread *of = spreads + (size_t)channel * slices.count;
    size_t all = values_of(s), lane = threadIdx.x % WARP;
    if (all == 0) return {};
    double sum = 0, m2 = 0;
    for (size_t i = lane; i < slices.count; i += WARP) {
        size_t first = i * slices.values, left = all > first ? all - first : 0;
        sum += of[i].mean * (double)(left < slices.values ? left : slices.values);
    }
    double mean = warp_sum(sum) / (double)all;
    for (size_t i = lane; i < slices.count; i += WARP) {
        size_t first = i * slices.values, left = all > first ? all - first : 0;
        double deviation = of[i].mean - mean;
        m2 += of[i].m2 + deviation * deviation * (double)(left < slices.values ? left : slices.values);
    }
    return {(double)all, mean, warp_sum(m2)};
}

/* statistics = means, sums of squared deviations, count; a warp for each channel */
__global__ void put_statistics(ls_batchnorm_shape s, Slices slices, double *statistics, const Spread *spreads) {
    int c = (int)(global_thread() / WARP);
    if (global_thread() == 0) statistics[2 * s.channels] = (double)values_of(s);
    if (c >= s.channels) return;
    Statistics total = merged(s, slices, spreads, c);
    if (threadIdx.x % WARP > 0) return;
    statistics[c] = total.mean;
    statistics[s.channels + c] = total.m2;
}

/* --- y ------------------------------------------------------------------------------------------------------------ */

template <class T, int N>
__device__ void normalize_slice(Walk<N> &walk, const Slices &slices, const Channel &ch, T *y, const T *x) {
    for (size_t first = walk.begin; first < walk.end; first += Group<N, 8 / N>::BLOCK_VALUES) {
        Group<N, 8 / N> group(walk, slices.aligned);
        Floats<N> values[8 / N];
        group.read(values, x);
        for (int k = 0; k < 8 / N; k++) {
            for (int i = 0; i < N; i++) values[k].at[i] = normalized(ch, values[k].at[i]);
        }
        group.write(y, values);
    }
}

template <class T, int N>
__global__ void train_slice(ls_batchnorm_shape s, Slices slices, T *y, const T *x, const float *gamma,
                            const float *beta, Kept kept, const Spread *spreads) {
    __shared__ float mean, invstd;
    Walk<N> walk(s, slices);
    if (threadIdx.x < WARP) {
        Statistics total = merged(s, slices, spreads, walk.channel);
        if (threadIdx.x == 0) {
            mean = (float)total.mean;
            invstd = invstd_of(s, total);
            if (walk.slice == 0) store_channel(s, total, kept, walk.channel);
        }
    }
    __syncthreads();
    normalize_slice(walk, slices, make_channel(s, mean, invstd, gamma[walk.channel] * invstd, beta[walk.channel]), y,
                    x);
}

template <class T, int N>
__global__ void normalize_kernel(ls_batchnorm_shape s, Slices slices, T *y, const T *x, Parameters parameters) {
    Walk<N> walk(s, slices);
    normalize_slice(walk, slices, read_channel(s, parameters, walk.channel), y, x);
}

template <class T, int N>
__global__ void eval_kernel(ls_batchnorm_shape s, Slices slices, T *y, const T *x, Parameters parameters,
                            const float *running_var) {
    Walk<N> walk(s, slices);
    normalize_slice(walk, slices, read_running_channel(s, parameters, running_var, walk.channel), y, x);
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* partial[channel][slice] */
template <class T, int N>
__global__ void slice_sums(ls_batchnorm_shape s, Slices slices, Sums *partial, const T *dy, const T *x,
                           Parameters parameters) {
    Walk<N> walk(s, slices);
    Channel ch = read_channel(s, parameters, walk.channel);
    Sums total = {};
    for (size_t first = walk.begin; first < walk.end; first += Group<N, 8 / N>::BLOCK_VALUES) {
        Group<N, 8 / N> group(walk, slices.aligned);
        Floats<N> values[8 / N], gradients[8 / N];
        group.read(values, x);
        group.read(gradients, dy);
        float sum = 0, xhat_sum = 0;
        for (int k = 0; k < 8 / N; k++) {
            for (int i = 0; i < N; i++) {
                float d = group.there[k] ? masked(ch, gradients[k].at[i], values[k].at[i]) : 0;
                sum += d;
                xhat_sum = fmaf(d, values[k].at[i] - ch.mean, xhat_sum);
            }
        }
        total.dy += (double)sum;
        total.dy_xhat += (double)xhat_sum;
    }
    total.dy = block_sum(total.dy);
    total.dy_xhat = block_sum(total.dy_xhat) * (double)ch.invstd;
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

/* The sums of a whole channel, from its slices; a whole warp calls. */
__device__ Sums added(const Slices &slices, const Sums *partial, int channel) {
    const Sums *of = partial + (size_t)channel * slices.count;
    Sums total = {};
    for (unsigned i = threadIdx.x % WARP; i < slices.count; i += WARP) {
        total.dy += of[i].dy;
        total.dy_xhat += of[i].dy_xhat;
    }
    return {warp_sum(total.dy), warp_sum(total.dy_xhat)};
}

/* A warp for each channel. */
__global__ void put_sums(ls_batchnorm_shape s, Slices slices, float *sums, float *dgamma, float *dbeta, bool accumulate,
                         const Sums *partial) {
    int c = (int)(global_thread() / WARP);
    if (c >= s.channels) return;
    Sums total = added(slices, partial, c);
    if (threadIdx.x % WARP > 0) return;
    sums[c] = (float)total.dy;
    sums[s.channels + c] = (float)total.dy_xhat;
    store_sums(total, accumulate, &dgamma[c], &dbeta[c]);
}

/* dx may be dy: a thread reads an element before it writes it. */
template <class T, int N>
__device__ void input_gradient_slice(Walk<N> &walk, const Slices &slices, const Channel &ch, Slope slope, T *dx,
                                     const T *dy, const T *x) {
    for (size_t first = walk.begin; first < walk.end; first += Group<N, 8 / N>::BLOCK_VALUES) {
        Group<N, 8 / N> group(walk, slices.aligned);
        Floats<N> values[8 / N], gradients[8 / N];
        group.read(values, x);
        group.read(gradients, dy);
        for (int k = 0; k < 8 / N; k++) {
            for (int i = 0; i < N; i++)
                gradients[k].at[i] = input_gradient(ch, slope, gradients[k].at[i], values[k].at[i]);
        }
        group.write(dx, gradients);
    }
}

template <class T, int N>
__global__ void backward_slice(ls_batchnorm_shape s, Slices slices, T *dx, float *dgamma, float *dbeta, const T *dy,
                               const T *x, Parameters parameters, bool accumulate, const Sums *partial) {
    __shared__ Slope slope;
    Walk<N> walk(s, slices);
    Channel ch = read_channel(s, parameters, walk.channel);
    if (threadIdx.x < WARP) {
        Sums total = added(slices, partial, walk.channel);
        if (threadIdx.x == 0) {
            slope = make_slope(ch, total, (double)values_of(s));
            if (walk.slice == 0) store_sums(total, accumulate, &dgamma[walk.channel], &dbeta[walk.channel]);
        }
    }
    __syncthreads();
    input_gradient_slice(walk, slices, ch, slope, dx, dy, x);
}

template <class T, int N>
__global__ void input_gradient_kernel(ls_batchnorm_shape s, Slices slices, T *dx, const T *dy, const T *x,
                                      Parameters parameters, const float *sums, const double *count) {
    Walk<N> walk(s, slices);
    Channel ch = read_channel(s, parameters, walk.channel);
    Sums total = {(double)sums[walk.channel], (double)sums[s.channels + walk.channel]};
    input_gradient_slice(walk, slices, ch, make_slope(ch, total, *count), dx, dy, x);
}

/* --- launching ---------------------------------------------------------------------------------------------------- */

/* Whether threads take four values at a time: if planes are multiples of four, no four values cross a plane's end. */
bool in_fours(const ls_batchnorm_shape &s) { return s.plane % 4 == 0; }

/* Checks that the lane's scratch memory has 16 bytes for each slice. */
ls_status expect_room(const char *op, const ls_batchnorm_shape &s, const Slices &slices) {
    static_assert(sizeof(Spread) == 16 && sizeof(Sums) == 16, "as counted here");
    size_t most = LS_CUDA_SCRATCH_NBYTES / 16;
    if ((size_t)s.channels * slices.count <= most) return LS_OK;
    return ls_fail(LS_ERR_UNSUPPORTED, "%s of %d channels does not fit a GPU's scratch memory, which has room for %zu",
                   op, s.channels, most);
}

unsigned warps_in_blocks(const ls_batchnorm_shape &s) {
    return (unsigned)divide_up(s.channels > 0 ? (size_t)s.channels : 1, THREADS / WARP);
}

/* The first launch of the operations that need statistics, which it stores in *spreads. */
template <class T>
ls_status launch_statistics(const ls_cuda_lane *lane, const char *op, const ls_batchnorm_shape &s, const Slices &slices,
                            const void *x, Spread **spreads) {
    *spreads = static_cast<Spread *>(lane->scratch);
    ls_status status = expect_room(op, s, slices);
    if (status != LS_OK) return status;
    auto kernel = in_fours(s) ? slice_statistics<T, 4> : slice_statistics<T, 1>;
    return launch(lane, op, dim3(blocks_of(s, slices)), THREADS, kernel, s, slices, x, *spreads);
}

/* The same for operations that need sums of gradients. */
template <class T>
ls_status launch_sums(const ls_cuda_lane *lane, const char *op, const ls_batchnorm_shape &s, const Slices &slices,
                      const void *dy, const void *x, Parameters parameters, Sums **partial) {
    *partial = static_cast<Sums *>(lane->scratch);
    ls_status status = expect_room(op, s, slices);
    if (status != LS_OK) return status;
    auto kernel = in_fours(s) ? slice_sums<T, 4> : slice_sums<T, 1>;
    return launch(lane, op, dim3(blocks_of(s, slices)), THREADS, kernel, s, slices, *partial, dy, x, parameters);
}

} // namespace

ls_status ls_cuda_batchnorm_train(const ls_batchnorm_train_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "batchnorm_train";
    ls_status status = expect_spread((double)values_of(a->shape));
    if (status != LS_OK) return status;
    return with_element(a->shape.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        Slices slices = make_slices<T>(a->shape, a->x, a->y);
        Spread *spreads;
        ls_status first = launch_statistics<T>(lane, op, a->shape, slices, a->x, &spreads);
        if (first != LS_OK) return first;
        auto kernel = in_fours(a->shape) ? train_slice<T, 4> : train_slice<T, 1>;
        return launch(lane, op, dim3(blocks_of(a->shape, slices)), THREADS, kernel, a->shape, slices, a->y, a->x,
                      a->gamma, a->beta, Kept{a->mean, a->invstd, a->running_mean, a->running_var}, spreads);
    });
}

ls_status ls_cuda_batchnorm_statistics(const ls_batchnorm_statistics_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "batchnorm_statistics";
    return with_element(a->shape.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        Slices slices = make_slices<T>(a->shape, a->x);
        Spread *spreads;
        ls_status first = launch_statistics<T>(lane, op, a->shape, slices, a->x, &spreads);
        if (first != LS_OK) return first;
        return launch(lane, op, dim3(warps_in_blocks(a->shape)), THREADS, put_statistics, a->shape, slices,
                      a->statistics, spreads);
    });
}

ls_status ls_cuda_batchnorm_eval(const ls_batchnorm_eval_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "batchnorm_eval";
    return with_element(a->shape.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        Slices slices = make_slices<T>(a->shape, a->x, a->y);
        auto kernel = in_fours(a->shape) ? eval_kernel<T, 4> : eval_kernel<T, 1>;
        return launch(lane, op, dim3(blocks_of(a->shape, slices)), THREADS, kernel, a->shape, slices, a->y, a->x,
                      Parameters{a->gamma, a->beta, a->running_mean, nullptr}, a->running_var);
    });
}

ls_status ls_cuda_batchnorm_normalize(const ls_batchnorm_normalize_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "batchnorm_normalize";
    return with_element(a->shape.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        Slices slices = make_slices<T>(a->shape, a->x, a->y);
        auto kernel = in_fours(a->shape) ? normalize_kernel<T, 4> : normalize_kernel<T, 1>;
        return launch(lane, op, dim3(blocks_of(a->shape, slices)), THREADS, kernel, a->shape, slices, a->y, a->x,
                      Parameters{a->gamma, a->beta, a->mean, a->invstd});
    });
}

ls_status ls_cuda_batchnorm_backward(const ls_batchnorm_backward_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "batchnorm_backward";
    return with_element(a->shape.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        Slices slices = make_slices<T>(a->shape, a->dx, a->dy, a->x);
        Parameters parameters = {a->gamma, a->beta, a->mean, a->invstd};
        Sums *partial;
        ls_status first = launch_sums<T>(lane, op, a->shape, slices, a->dy, a->x, parameters, &partial);
        if (first != LS_OK) return first;
        auto kernel = in_fours(a->shape) ? backward_slice<T, 4> : backward_slice<T, 1>;
        return launch(lane, op, dim3(blocks_of(a->shape, slices)), THREADS, kernel, a->shape, slices, a->dx, a->dgamma,
                      a->dbeta, a->dy, a->x, parameters, a->accumulate, partial);
    });
}

ls_status ls_cuda_batchnorm_sums(const ls_batchnorm_sums_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "batchnorm_sums";
    return with_element(a->shape.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        Slices slices = make_slices<T>(a->shape, a->dy, a->x);
        Parameters parameters = {a->gamma, a->beta, a->mean, a->invstd};
        Sums *partial;
        ls_status first = launch_sums<T>(lane, op, a->shape, slices, a->dy, a->x, parameters, &partial);
        if (first != LS_OK) return first;
        return launch(lane, op, dim3(warps_in_blocks(a->shape)), THREADS, put_sums, a->shape, slices, a->sums,
                      a->dgamma, a->dbeta, a->accumulate, partial);
    });
}

ls_status ls_cuda_batchnorm_input_gradient(const ls_batchnorm_input_gradient_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "batchnorm_input_gradient";
    return with_element(a->shape.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        Slices slices = make_slices<T>(a->shape, a->dx, a->dy, a->x);
        auto kernel = in_fours(a->shape) ? input_gradient_kernel<T, 4> : input_gradient_kernel<T, 1>;
        return launch(lane, op, dim3(blocks_of(a->shape, slices)), THREADS, kernel, a->shape, slices, a->dx, a->dy,
                      a->x, Parameters{a->gamma, a->beta, a->mean, a->invstd}, a->sums, a->count);
    });
}
