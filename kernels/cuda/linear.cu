/* linear — the operations of a linear layer besides its matrix multiplies: add_bias, add_bias_relu, add_bias_gelu,
 * bias_gradient, relu_bias_gradient, gelu_bias_gradient.
 *   formula : y[r,c] += bias[c], then max(.., 0) or gelu(..); dbias[c] = sum over r of dy[r,c], with dy[r,c] = 0 where
 *             y[r,c] <= 0, or dy[r,c] times GELU's slope at x[r,c]
 *   launch  : bias, fast: a grid-stride loop over fours of y; a thread's column advances by a constant, so the loop has
 *             no division. Gradient, fast: column_sums.cuh. Naive: a thread for each element, and for each
 *             column
 *   cost    : bytes and flops of ops.def, and the parts' sums; bound by bandwidth. The fused operations save one pass
 *             over y (8 bytes per element; in half precision 4) and over dy (4 bytes; 2)
 *   half    : widened when read; sums are floats, those of parts too; y is rounded when it is stored. GELU
 *             reads x as stored, and dbias sums dy as stored
 *   order   : of a column: that of column_sums.cuh. Naive: rows ascending, the bits of kernels/cpu */
#include "kernels/cuda/column_sums.cuh"
#include "kernels/exponential.h"

using namespace ls_cuda;

namespace {

enum class Activation { NONE, RELU, GELU };

/* --- bias --------------------------------------------------------------------------------------------------------- */

/* N elements of y from x, which is y except for GELU. The ReLU may precede the rounding, which changes no sign. */
template <int N, class T, Activation F> __device__ void activate(T *y, T *x, const T *bias) {
    Floats<N> value = load<N>(x), bias4 = load<N>(bias);
    for (int k = 0; k < N; k++) value.at[k] += bias4.at[k];
    if constexpr (F == Activation::RELU) {
        for (int k = 0; k < N; k++) value.at[k] = value.at[k] <= 0 ? 0 : value.at[k];
    }
    if constexpr (F == Activation::GELU) {
        store<N>(x, value);
        for (int k = 0; k < N; k++) value.at[k] = ls_gelu_float(rounded<T>(value.at[k]));
    }
    store<N>(y, value);
}

template <class T, Activation F>
__global__ void add_bias_naive(T *y, T *x, const T *bias, size_t columns, size_t count) {
    size_t i = global_thread();
    if (i < count) activate<1, T, F>(y + i, x + i, bias + i % columns);
}

template <int N, class T, Activation F>
__global__ void add_bias_fast(T *y, T *x, const T *bias, size_t columns, size_t count) {
    size_t step = global_threads() * N, column_step = step % columns, column = global_thread() * N % columns;
    for (size_t i = global_thread() * N; i < count; i += step) {
        activate<N, T, F>(y + i, x + i, bias + column);
        column += column_step;
        if (column >= columns) column -= columns;
    }
}

/* The input: y, except for GELU. */
void *input_of(const ls_add_bias_arguments *a) { return a->y; }
void *input_of(const ls_add_bias_relu_arguments *a) { return a->y; }
void *input_of(const ls_add_bias_gelu_arguments *a) { return a->x; }

template <Activation F, class Arguments>
ls_status naive_add_bias(const ls_cuda_lane *lane, const char *op, const Arguments *a) {
    return with_element(a->dtype, op, [&](auto zero) {
        using T = decltype(zero);
        size_t count = a->rows * a->columns;
        return launch_each(lane, op, count, add_bias_naive<T, F>, static_cast<T *>(a->y), static_cast<T *>(input_of(a)),
                           static_cast<const T *>(a->bias), a->columns, count);
    });
}

template <Activation F, class Arguments>
ls_status fast_add_bias(const ls_cuda_lane *lane, const char *op, const Arguments *a) {
    return with_element(a->dtype, op, [&](auto zero) {
        using T = decltype(zero);
        T *y = static_cast<T *>(a->y), *x = static_cast<T *>(input_of(a));
        const T *bias = static_cast<const T *>(a->bias);
        size_t count = a->rows * a->columns;
        if (count == 0) return LS_OK;
        if (a->columns % 4 == 0 && is_aligned(y, x, bias))
            return launch(lane, op, dim3(blocks_for(lane, count / 4)), THREADS, add_bias_fast<4, T, F>, y, x, bias,
                          a->columns, count);
        return launch(lane, op, dim3(blocks_for(lane, count)), THREADS, add_bias_fast<1, T, F>, y, x, bias, a->columns,
                      count);
    });
}

/* --- gradient ----------------------------------------------------------------------------------------------------- */

/* The part of dy that passes through F, from the value that forward stored: its output, or for GELU its input. */
template <Activation F> __device__ float passed(float dy, float kept) {
    if constexpr (F == Activation::RELU) return kept <= 0 ? 0 : dy;
    if constexpr (F == Activation::GELU) return dy * ls_gelu_slope(kept);
    return dy;
}

template <class T, Activation F> struct Gradient {
    static constexpr int SUMS = 1;
    T *dy;         /* written if there is an activation */
    const T *kept; /* read if there is one */
    size_t columns;

    template <int N> __device__ void add(size_t row, size_t column, Floats<N> (&sum)[1]) const {
        size_t i = row * columns + column;
        Floats<N> d = load<N>(dy + i);
        if constexpr (F != Activation::NONE) {
            Floats<N> of = load<N>(kept + i);
            for (int k = 0; k < N; k++) d.at[k] = rounded<T>(passed<F>(d.at[k], of.at[k]));
            store<N>(dy + i, d);
        }
        for (int k = 0; k < N; k++) sum[0].at[k] += d.at[k];
    }
};

template <class Body> __global__ void gradient_naive(Body body, Columns<1> c) {
    size_t column = global_thread();
    if (column >= c.columns) return;
    Floats<1> sum[1] = {};
    for (size_t r = 0; r < c.rows; r++) body.template add<1>(r, column, sum);
    c.out[0][column] = c.accumulate ? c.out[0][column] + sum[0].at[0] : sum[0].at[0];
}

const void *kept_of(const ls_bias_gradient_arguments *) { return nullptr; }
const void *kept_of(const ls_relu_bias_gradient_arguments *a) { return a->y; }
const void *kept_of(const ls_gelu_bias_gradient_arguments *a) { return a->x; }

/* run(body, columns), for any type. */
template <Activation F, class Arguments, class Run>
ls_status with_gradient(const char *op, const Arguments *a, Run run) {
    return with_element(a->dtype, op, [&](auto zero) {
        using T = decltype(zero);
        T *dy = static_cast<T *>(const_cast<void *>(static_cast<const void *>(a->dy)));
        Gradient<T, F> body = {dy, static_cast<const T *>(kept_of(a)), a->columns};
        return run(body, Columns<1>{{a->dbias}, a->rows, a->columns, a->accumulate});
    });
}

template <Activation F, class Arguments>
ls_status naive_gradient(const ls_cuda_lane *lane, const char *op, const Arguments *a) {
    return with_gradient<F>(op, a, [&](auto body, Columns<1> c) {
        return launch_each(lane, op, c.columns, gradient_naive<decltype(body)>, body, c);
    });
}

template <Activation F, class Arguments>
ls_status fast_gradient(const ls_cuda_lane *lane, const char *op, const Arguments *a) {
    return with_gradient<F>(op, a, [&](auto body, Columns<1> c) {
        bool by_fours = c.columns % 4 == 0 && is_aligned(body.dy, body.kept); /* NULL is aligned */
        return by_fours ? sum_columns<4>(lane, op, body, c) : sum_columns<1>(lane, op, body, c);
    });
}

} // namespace

/* --- both rungs of each operation --------------------------------------------------------------------------------- */

#define BOTH_RUNGS(op, function, activation)                                                                           \
    ls_status ls_cuda_naive_##op(const ls_##op##_arguments *a, const ls_cuda_lane *lane) {                             \
        return naive_##function<Activation::activation>(lane, #op, a);                                                 \
    }                                                                                                                  \
    ls_status ls_cuda_##op(const ls_##op##_arguments *a, const ls_cuda_lane *lane) {                                   \
        return fast_##function<Activation::activation>(lane, #op, a);                                                  \
    }
BOTH_RUNGS(add_bias, add_bias, NONE)
BOTH_RUNGS(add_bias_relu, add_bias, RELU)
BOTH_RUNGS(add_bias_gelu, add_bias, GELU)
BOTH_RUNGS(bias_gradient, gradient, NONE)
BOTH_RUNGS(relu_bias_gradient, gradient, RELU)
BOTH_RUNGS(gelu_bias_gradient, gradient, GELU)
