/* linear — what a linear layer does beside its matrix products: add_bias, add_bias_relu, bias_gradient,
 * relu_bias_gradient.
 *   formula : y[r,c] += bias[c], then max(.., 0); dbias[c] = sum over r of dy[r,c], with dy[r,c] = 0 where y[r,c] <= 0
 *   launch  : bias, fast: a grid-stride loop over fours of y; a thread's column moves on by a constant, so nothing is
 *             divided in the loop. Gradient, fast: a block sums a tile of 32 (by fours: 128) columns over a part of the
 *             rows, 8 rows at a time, each by a warp's coalesced access. If there are several parts, their sums go to
 *             scratch memory, and a second launch adds them up. Naive: a thread for each element, and for each column
 *   cost    : bytes and flops of ops.def, and the parts' sums, less than 2 % of that; bound by bandwidth. The fused
 *             operations save one pass over y (8 bytes per element; of halves 4) and over dy (4 bytes; 2)
 *   halves  : widened when they are read; sums are floats, those of parts too; y is rounded when it is stored
 *   order   : of a column: 8 sums over every 8th row of a part, ascending; these 8 in order; then the parts' sums in
 *             the same manner. Parts follow from the number of rows and columns alone. Naive: rows ascending, the bits
 *             of kernels/cpu */
#include "kernels/cuda/launch.cuh"

using namespace ls_cuda;

namespace {

/* --- bias --------------------------------------------------------------------------------------------------------- */

/* The ReLU may come before the rounding, which changes no sign. */
template <bool RELU> __device__ float with_bias(float y, float bias) {
    y += bias;
    return RELU && y <= 0 ? 0 : y;
}

template <class T, bool RELU> __global__ void add_bias_naive(T *y, const T *bias, size_t columns, size_t count) {
    size_t i = global_thread();
    if (i < count) y[i] = from_float<T>(with_bias<RELU>(to_float(y[i]), to_float(bias[i % columns])));
}

template <int N, class T, bool RELU> __global__ void add_bias_fast(T *y, const T *bias, size_t columns, size_t count) {
    size_t step = global_threads() * N, column_step = step % columns, column = global_thread() * N % columns;
    for (size_t i = global_thread() * N; i < count; i += step) {
        Floats<N> y4 = load<N>(y + i), bias4 = load<N>(bias + column);
        for (int k = 0; k < N; k++) y4.at[k] = with_bias<RELU>(y4.at[k], bias4.at[k]);
        store<N>(y + i, y4);
        column += column_step;
        if (column >= columns) column -= columns;
    }
}

/* Arguments: those of add_bias or of add_bias_relu. */
template <bool RELU, class Arguments>
ls_status naive_add_bias(const ls_cuda_lane *lane, const char *op, const Arguments *a) {
    return with_element(a->dtype, op, [&](auto zero) {
        using T = decltype(zero);
        size_t count = a->rows * a->columns;
        return launch_each(lane, op, count, add_bias_naive<T, RELU>, static_cast<T *>(a->y),
                           static_cast<const T *>(a->bias), a->columns, count);
    });
}

template <bool RELU, class Arguments>
ls_status fast_add_bias(const ls_cuda_lane *lane, const char *op, const Arguments *a) {
    return with_element(a->dtype, op, [&](auto zero) {
        using T = decltype(zero);
        T *y = static_cast<T *>(a->y);
        const T *bias = static_cast<const T *>(a->bias);
        size_t count = a->rows * a->columns;
        if (count == 0) return LS_OK;
        if (a->columns % 4 == 0 && is_aligned(y, bias))
            return launch(lane, op, dim3(blocks_for(lane, count / 4)), THREADS, add_bias_fast<4, T, RELU>, y, bias,
                          a->columns, count);
        return launch(lane, op, dim3(blocks_for(lane, count)), THREADS, add_bias_fast<1, T, RELU>, y, bias, a->columns,
                      count);
    });
}

/* --- gradient ----------------------------------------------------------------------------------------------------- */

template <class T> struct Gradient {
    float *dbias;
    T *dy;      /* written by MASK only */
    const T *y; /* read by MASK only */
    size_t rows, columns;
    bool accumulate;
};

template <class T, bool MASK> __global__ void gradient_naive(Gradient<T> g) {
    size_t c = global_thread();
    if (c >= g.columns) return;
    float sum = 0;
    for (size_t r = 0; r < g.rows; r++) {
        size_t i = r * g.columns + c;
        if (MASK) g.dy[i] = to_float(g.y[i]) <= 0 ? from_float<T>(0) : g.dy[i];
        sum += to_float(g.dy[i]);
    }
    g.dbias[c] = g.accumulate ? g.dbias[c] + sum : sum;
}

constexpr unsigned ROW_LANES = THREADS / WARP;

/* The sum of row `first`, first + ROW_LANES, ... of `end` rows, of N columns from `column` on. */
template <int N, class T, bool MASK>
__device__ Floats<N> sum_rows(const Gradient<T> &g, size_t column, size_t first, size_t end) {
    Floats<N> sum = {};
    for (size_t r = first; r < end; r += ROW_LANES) {
        size_t i = r * g.columns + column;
        Floats<N> d = load<N>(g.dy + i);
        if constexpr (MASK) {
            Floats<N> y = load<N>(g.y + i);
            for (int k = 0; k < N; k++) d.at[k] = y.at[k] <= 0 ? 0 : d.at[k];
            store<N>(g.dy + i, d);
        }
        for (int k = 0; k < N; k++) sum.at[k] += d.at[k];
    }
    return sum;
}

/* Block (x, y) sums tile x of the columns over part y of the rows, into row y of g.dbias. */
template <int N, class T, bool MASK> __global__ void gradient_fast(Gradient<T> g, size_t rows_per_part) {
    __shared__ float sums[ROW_LANES][WARP][N];
    unsigned lane = threadIdx.x % WARP, row_lane = threadIdx.x / WARP;
    size_t column = ((size_t)blockIdx.x * WARP + lane) * N, begin = blockIdx.y * rows_per_part;
    size_t end = begin + rows_per_part < g.rows ? begin + rows_per_part : g.rows;
    Floats<N> sum = {};
    if (column < g.columns) sum = sum_rows<N, T, MASK>(g, column, begin + row_lane, end);
    for (int k = 0; k < N; k++) sums[row_lane][lane][k] = sum.at[k];
    __syncthreads();
    if (row_lane != 0 || column >= g.columns) return;
    for (unsigned l = 1; l < ROW_LANES; l++) {
        for (int k = 0; k < N; k++) sum.at[k] += sums[l][lane][k];
    }
    float *dbias = g.dbias + blockIdx.y * g.columns + column;
    for (int k = 0; k < N; k++) dbias[k] = g.accumulate ? dbias[k] + sum.at[k] : sum.at[k];
}

/* At least 128 rows, and at least as many rows as parts, so that no thread of either launch has a long loop; more if
 * the parts' sums would not fit into scratch memory. */
size_t choose_rows_per_part(size_t rows, size_t columns) {
    size_t part = 128;
    while (part * part < rows) part *= 2;
    while (part < rows && divide_up(rows, part) * columns * sizeof(float) > LS_CUDA_SCRATCH_NBYTES) part *= 2;
    return part;
}

template <int N, class T, bool MASK>
ls_status sum_in_parts(const ls_cuda_lane *lane, const char *op, const Gradient<T> &g) {
    unsigned tiles = (unsigned)divide_up(g.columns, WARP * N);
    size_t part = choose_rows_per_part(g.rows, g.columns), parts = divide_up(g.rows, part);
    if (parts <= 1) return launch(lane, op, dim3(tiles), THREADS, gradient_fast<N, T, MASK>, g, part);
    float *partial = static_cast<float *>(lane->scratch);
    Gradient<T> first = {partial, g.dy, g.y, g.rows, g.columns, false};
    Gradient<float> second = {g.dbias, partial, nullptr, parts, g.columns, g.accumulate};
    ls_status status = launch(lane, op, dim3(tiles, (unsigned)parts), THREADS, gradient_fast<N, T, MASK>, first, part);
    if (status != LS_OK) return status;
    return launch(lane, op, dim3(tiles), THREADS, gradient_fast<N, float, false>, second, parts);
}

template <class T> Gradient<T> gradient_of(const ls_bias_gradient_arguments *a) {
    return {a->dbias, static_cast<T *>(const_cast<void *>(a->dy)), nullptr, a->rows, a->columns, a->accumulate};
}

template <class T> Gradient<T> gradient_of(const ls_relu_bias_gradient_arguments *a) {
    return {a->dbias, static_cast<T *>(a->dy), static_cast<const T *>(a->y), a->rows, a->columns, a->accumulate};
}

template <bool MASK, class Arguments>
ls_status naive_gradient(const ls_cuda_lane *lane, const char *op, const Arguments *a) {
    return with_element(a->dtype, op, [&](auto zero) {
        using T = decltype(zero);
        return launch_each(lane, op, a->columns, gradient_naive<T, MASK>, gradient_of<T>(a));
    });
}

template <bool MASK, class Arguments>
ls_status fast_gradient(const ls_cuda_lane *lane, const char *op, const Arguments *a) {
    return with_element(a->dtype, op, [&](auto zero) {
        using T = decltype(zero);
        Gradient<T> g = gradient_of<T>(a);
        bool by_fours = g.columns % 4 == 0 && is_aligned(g.dy, g.y); /* y is NULL without MASK */
        return by_fours ? sum_in_parts<4, T, MASK>(lane, op, g) : sum_in_parts<1, T, MASK>(lane, op, g);
    });
}

} // namespace

ls_status ls_cuda_naive_add_bias(const ls_add_bias_arguments *a, const ls_cuda_lane *lane) {
    return naive_add_bias<false>(lane, "add_bias", a);
}

ls_status ls_cuda_naive_add_bias_relu(const ls_add_bias_relu_arguments *a, const ls_cuda_lane *lane) {
    return naive_add_bias<true>(lane, "add_bias_relu", a);
}

ls_status ls_cuda_naive_bias_gradient(const ls_bias_gradient_arguments *a, const ls_cuda_lane *lane) {
    return naive_gradient<false>(lane, "bias_gradient", a);
}

ls_status ls_cuda_naive_relu_bias_gradient(const ls_relu_bias_gradient_arguments *a, const ls_cuda_lane *lane) {
    return naive_gradient<true>(lane, "relu_bias_gradient", a);
}

ls_status ls_cuda_add_bias(const ls_add_bias_arguments *a, const ls_cuda_lane *lane) {
    return fast_add_bias<false>(lane, "add_bias", a);
}

ls_status ls_cuda_add_bias_relu(const ls_add_bias_relu_arguments *a, const ls_cuda_lane *lane) {
    return fast_add_bias<true>(lane, "add_bias_relu", a);
}

ls_status ls_cuda_bias_gradient(const ls_bias_gradient_arguments *a, const ls_cuda_lane *lane) {
    return fast_gradient<false>(lane, "bias_gradient", a);
}

ls_status ls_cuda_relu_bias_gradient(const ls_relu_bias_gradient_arguments *a, const ls_cuda_lane *lane) {
    return fast_gradient<true>(lane, "relu_bias_gradient", a);
}
