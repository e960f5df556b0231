/* layernorm — layer normalisation of each row, and its gradients.
 *   launch : naive, a thread for each row, and for each column of the parameters' gradients; fast, a warp for each row,
 *            by fours if rows are multiples of four, and column_sums.cuh for those gradients
 *   bytes  : forward 3 reads of x and 1 write, backward 3 reads of dy and x and 1 write; all reads of a row except the
 *            first come from a cache, and those of column_sums.cuh from the L2 cache for a layer of up to some 40 MB
 *   half   : widened as they are read, rounded once as they are written
 *   order  : of a row: a lane takes every 32nd (four), ascending, then the butterfly of launch.cuh; naive, ascending.
 *            Of a column: that of column_sums.cuh; naive, rows ascending */
#include "kernels/cuda/column_sums.cuh"

using namespace ls_cuda;

namespace {

/* --- shared by both rungs ----------------------------------------------------------------------------------------- */

struct Row {
    float mean, invstd;
    __device__ float xhat(float x) const { return (x - mean) * invstd; }
};

template <class T> struct Forward {
    T *y;
    const T *x;
    const float *gamma, *beta;
    float *mean, *invstd;
    size_t rows, channels;
    float epsilon;

    template <int N> __device__ float sum(size_t at) const {
        Floats<N> x4 = load<N>(x + at);
        float total = 0;
        for (int k = 0; k < N; k++) total += x4.at[k];
        return total;
    }

    template <int N> __device__ float square_sum(size_t at, float from) const {
        Floats<N> x4 = load<N>(x + at);
        float total = 0;
        for (int k = 0; k < N; k++) total += (x4.at[k] - from) * (x4.at[k] - from);
        return total;
    }

    template <int N> __device__ void put(size_t at, size_t column, Row row) const {
        Floats<N> value = load<N>(x + at), scale = load<N>(gamma + column), shift = load<N>(beta + column);
        for (int k = 0; k < N; k++) value.at[k] = row.xhat(value.at[k]) * scale.at[k] + shift.at[k];
        store<N>(y + at, value);
    }
};

/* Sums over a row of dy gamma, and of dy gamma xhat. */
struct Slopes {
    float plain, xhat;
};

template <class T> struct Backward {
    static constexpr int SUMS = 2; /* per column: dgamma, dbeta */
    T *dx;
    const T *dy, *x;
    const float *gamma, *mean, *invstd;
    size_t rows, channels;

    __device__ Row row(size_t r) const { return {mean[r], invstd[r]}; }

    template <int N> __device__ void add_slopes(Slopes *sum, size_t at, size_t column, Row of) const {
        Floats<N> dy4 = load<N>(dy + at), x4 = load<N>(x + at), scale = load<N>(gamma + column);
        for (int k = 0; k < N; k++) {
            float d = dy4.at[k] * scale.at[k];
            sum->plain += d;
            sum->xhat += d * of.xhat(x4.at[k]);
        }
    }

    template <int N> __device__ void put_gradient(size_t at, size_t column, Row of, Slopes average) const {
        Floats<N> dy4 = load<N>(dy + at), x4 = load<N>(x + at), scale = load<N>(gamma + column);
        for (int k = 0; k < N; k++)
            dy4.at[k] = of.invstd * (dy4.at[k] * scale.at[k] - average.plain - of.xhat(x4.at[k]) * average.xhat);
        store<N>(dx + at, dy4);
    }

    template <int N> __device__ void add(size_t r, size_t column, Floats<N> (&sum)[2]) const {
        Floats<N> dy4 = load<N>(dy + r * channels + column), x4 = load<N>(x + r * channels + column);
        Row of = row(r);
        for (int k = 0; k < N; k++) {
            sum[0].at[k] += dy4.at[k] * of.xhat(x4.at[k]);
            sum[1].at[k] += dy4.at[k];
        }
    }
};

template <class Run> ls_status with_forward(const ls_layernorm_forward_arguments *a, Run run) {
    return with_element(a->dtype, "layernorm_forward", [&](auto zero) {
        using T = decltype(zero);
        return run(Forward<T>{static_cast<T *>(a->y), static_cast<const T *>(a->x), a->gamma, a->beta, a->mean,
                              a->invstd, a->rows, a->channels, a->epsilon});
    });
}

/* run(body, where its sums are stored) */
template <class Run> ls_status with_backward(const ls_layernorm_backward_arguments *a, Run run) {
    return with_element(a->dtype, "layernorm_backward", [&](auto zero) {
        using T = decltype(zero);
        return run(Backward<T>{static_cast<T *>(a->dx), static_cast<const T *>(a->dy), static_cast<const T *>(a->x),
                               a->gamma, a->mean, a->invstd, a->rows, a->channels},
                   Columns<2>{{a->dgamma, a->dbeta}, a->rows, a->channels, a->accumulate});
    });
}

/* --- naive -------------------------------------------------------------------------------------------------------- */

template <class F> __global__ void forward_naive(F f) {
    size_t r = global_thread(), at = r * f.channels;
    if (r >= f.rows) return;
    float sum = 0, squares = 0;
    for (size_t c = 0; c < f.channels; c++) sum += f.template sum<1>(at + c);
    float mean = sum / (float)f.channels;
    for (size_t c = 0; c < f.channels; c++) squares += f.template square_sum<1>(at + c, mean);
    Row row = {mean, 1 / sqrtf(squares / (float)f.channels + f.epsilon)};
    f.mean[r] = row.mean;
    f.invstd[r] = row.invstd;
    for (size_t c = 0; c < f.channels; c++) f.template put<1>(at + c, c, row);
}

template <class B> __global__ void backward_row_naive(B b) {
    size_t r = global_thread(), at = r * b.channels;
    if (r >= b.rows) return;
    Row row = b.row(r);
    Slopes sum = {};
    for (size_t c = 0; c < b.channels; c++) b.template add_slopes<1>(&sum, at + c, c, row);
    Slopes average = {sum.plain / (float)b.channels, sum.xhat / (float)b.channels};
    for (size_t c = 0; c < b.channels; c++) b.template put_gradient<1>(at + c, c, row, average);
}

template <class B> __global__ void backward_column_naive(B b, Columns<2> columns) {
    size_t c = global_thread();
    if (c >= b.channels) return;
    Floats<1> sum[2] = {};
    for (size_t r = 0; r < b.rows; r++) b.template add<1>(r, c, sum);
    for (int s = 0; s < 2; s++)
        columns.out[s][c] = columns.accumulate ? columns.out[s][c] + sum[s].at[0] : sum[s].at[0];
}

/* --- fast --------------------------------------------------------------------------------------------------------- */

__device__ size_t warp_of_grid() { return global_thread() / WARP; }
__device__ size_t lane_of_warp() { return threadIdx.x % WARP; }

/* A warp for each row. */
template <int N, class T> __global__ void forward_fast(Forward<T> f) {
    size_t r = warp_of_grid(), at = r * f.channels, first = lane_of_warp() * N;
    if (r >= f.rows) return;
    float sum = 0, squares = 0;
    for (size_t c = first; c < f.channels; c += WARP * N) sum += f.template sum<N>(at + c);
    float mean = warp_sum(sum) / (float)f.channels;
    for (size_t c = first; c < f.channels; c += WARP * N) squares += f.template square_sum<N>(at + c, mean);
    Row row = {mean, 1 / sqrtf(warp_sum(squares) / (float)f.channels + f.epsilon)};
    if (first == 0) {
        f.mean[r] = row.mean;
        f.invstd[r] = row.invstd;
    }
    for (size_t c = first; c < f.channels; c += WARP * N) f.template put<N>(at + c, c, row);
}

template <int N, class T> __global__ void backward_row_fast(Backward<T> b) {
    size_t r = warp_of_grid(), at = r * b.channels, first = lane_of_warp() * N;
    if (r >= b.rows) return;
    Row row = b.row(r);
    Slopes sum = {};
    for (size_t c = first; c < b.channels; c += WARP * N) b.template add_slopes<N>(&sum, at + c, c, row);
    Slopes average = {warp_sum(sum.plain) / (float)b.channels, warp_sum(sum.xhat) / (float)b.channels};
    for (size_t c = first; c < b.channels; c += WARP * N) b.template put_gradient<N>(at + c, c, row, average);
}

template <int N, class T> ls_status run_forward(const ls_cuda_lane *lane, Forward<T> f) {
    return launch_each(lane, "layernorm_forward", f.rows * WARP, forward_fast<N, T>, f);
}

template <int N, class T> ls_status run_backward(const ls_cuda_lane *lane, Backward<T> b, Columns<2> columns) {
    const char *op = "layernorm_backward";
    ls_status status = launch_each(lane, op, b.rows * WARP, backward_row_fast<N, T>, b);
    return status == LS_OK ? sum_columns<N>(lane, op, b, columns) : status;
}

} // namespace

ls_status ls_cuda_naive_layernorm_forward(const ls_layernorm_forward_arguments *a, const ls_cuda_lane *lane) {
    return with_forward(
        a, [&](auto f) { return launch_each(lane, "layernorm_forward", f.rows, forward_naive<decltype(f)>, f); });
}

ls_status ls_cuda_naive_layernorm_backward(const ls_layernorm_backward_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "layernorm_backward";
    return with_backward(a, [&](auto b, Columns<2> columns) {
        ls_status status = launch_each(lane, op, b.rows, backward_row_naive<decltype(b)>, b);
        return status == LS_OK ? launch_each(lane, op, b.channels, backward_column_naive<decltype(b)>, b, columns)
                               : status;
    });
}

ls_status ls_cuda_layernorm_forward(const ls_layernorm_forward_arguments *a, const ls_cuda_lane *lane) {
    return with_forward(a, [&](auto f) {
        bool by_fours = f.channels % 4 == 0 && is_aligned(f.y, f.x) && is_aligned(f.gamma, f.beta);
        return by_fours ? run_forward<4>(lane, f) : run_forward<1>(lane, f);
    });
}

ls_status ls_cuda_layernorm_backward(const ls_layernorm_backward_arguments *a, const ls_cuda_lane *lane) {
    return with_backward(a, [&](auto b, Columns<2> columns) {
        bool by_fours = b.channels % 4 == 0 && is_aligned(b.dx, b.dy, b.x) && is_aligned(b.gamma);
        return by_fours ? run_backward<4>(lane, b, columns) : run_backward<1>(lane, b, columns);
    });
}
