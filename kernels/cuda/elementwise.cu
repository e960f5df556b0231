/* elementwise — fill, scale, divide, scale_by, cast, cast_divide, reduce_add, relu_forward, relu_backward.
 *   formula : y[i] = f(y[i], x[i], ..), from kernels.h; each operation is a body that computes N elements from the
 *             i-th on
 *   launch  : naive, a thread for each element; fast, fours of elements in a grid-stride loop of at most 8 blocks of
 *             256 threads per multiprocessor. A thread has 16 bytes of each array of floats in flight, which keeps the
 *             memory busy
 *   cost    : bytes and flops of ops.def; bound by bandwidth. reduce_add reads and writes y once for up to SOURCES
 *             sources
 *   order   : reduce_add adds source after source; every result has the bits of kernels/cpu, on both rungs */
#include "kernels/cuda/launch.cuh"

using namespace ls_cuda;

namespace {

struct Fill {
    float *y;
    float value;
    template <int N> __device__ void at(size_t i) const {
        Floats<N> y4;
        for (int k = 0; k < N; k++) y4.at[k] = value;
        store<N>(y + i, y4);
    }
};

struct Scale {
    float *y;
    float factor;
    template <int N> __device__ void at(size_t i) const {
        Floats<N> y4 = load<N>(y + i);
        for (int k = 0; k < N; k++) y4.at[k] *= factor;
        store<N>(y + i, y4);
    }
};

struct ScaleBy {
    float *y;
    const float *factor;
    template <int N> __device__ void at(size_t i) const { Scale{y, *factor}.at<N>(i); }
};

struct Divide {
    float *y;
    float divisor;
    template <int N> __device__ void at(size_t i) const {
        Floats<N> y4 = load<N>(y + i);
        for (int k = 0; k < N; k++) y4.at[k] /= divisor;
        store<N>(y + i, y4);
    }
};

/* One of the two types is float, so a stored value has been rounded once. */
template <class To, class From> struct Cast {
    To *y;
    const From *x;
    template <int N> __device__ void at(size_t i) const { store<N>(y + i, load<N>(x + i)); }
};

template <class To> struct CastDivide {
    To *y;
    const float *x;
    float divisor;
    template <int N> __device__ void at(size_t i) const {
        Floats<N> x4 = load<N>(x + i);
        for (int k = 0; k < N; k++) x4.at[k] = rounded<To>(x4.at[k]) / divisor;
        store<N>(y + i, x4);
    }
};

/* A NaN is not <= 0 and stays. */
template <class T> struct Relu {
    T *y;
    const T *x;
    template <int N> __device__ void at(size_t i) const {
        Floats<N> x4 = load<N>(x + i);
        for (int k = 0; k < N; k++) x4.at[k] = x4.at[k] <= 0 ? 0 : x4.at[k];
        store<N>(y + i, x4);
    }
};

template <class T> struct Add {
    T *y;
    const T *a, *b;
    template <int N> __device__ void at(size_t i) const {
        Floats<N> sum = load<N>(a + i), more = load<N>(b + i);
        for (int k = 0; k < N; k++) sum.at[k] += more.at[k];
        store<N>(y + i, sum);
    }
};

/* A NaN in y lets the gradient through, as in PyTorch. */
template <class T> struct ReluBackward {
    T *dx;
    const T *dy, *y;
    template <int N> __device__ void at(size_t i) const {
        Floats<N> dy4 = load<N>(dy + i), y4 = load<N>(y + i);
        for (int k = 0; k < N; k++) dy4.at[k] = y4.at[k] <= 0 ? 0 : dy4.at[k];
        store<N>(dx + i, dy4);
    }
};

/* The addresses travel with the launch, so the array that names them may go when the call has returned. */
constexpr int SOURCES = 64;

struct ReduceAdd {
    float *y;
    int source_count;
    const float *sources[SOURCES];
    template <int N> __device__ void at(size_t i) const {
        Floats<N> sum = load<N>(y + i);
        for (int s = 0; s < source_count; s++) {
            Floats<N> x = load<N>(sources[s] + i);
            for (int k = 0; k < N; k++) sum.at[k] += x.at[k];
        }
        store<N>(y + i, sum);
    }
};

/* Up to SOURCES sources from the `first`-th on. */
ReduceAdd some_sources(const ls_reduce_add_arguments *a, int first) {
    ReduceAdd body = {a->y, a->source_count - first < SOURCES ? a->source_count - first : SOURCES, {}};
    for (int s = 0; s < body.source_count; s++) body.sources[s] = a->sources[first + s];
    return body;
}

bool sources_aligned(const ReduceAdd &body) {
    bool aligned = is_aligned(body.y);
    for (int s = 0; s < body.source_count; s++) aligned = aligned && is_aligned(body.sources[s]);
    return aligned;
}

/* run(body, whether the arrays allow fours) for the body that this cast needs. */
template <class Run> ls_status with_cast(const ls_cast_arguments *a, Run run) {
    ls_dtype other = a->to == LS_FP32 ? a->from : a->to;
    if ((a->from != LS_FP32 && a->to != LS_FP32) || !is_element(other))
        return ls_fail(LS_ERR_INVALID,
                       "cannot cast from %s to %s; expected fp32 on one side, and fp32, fp16 or bf16 on the other",
                       ls_dtype_name(a->from), ls_dtype_name(a->to));
    return with_element(other, "cast", [&](auto zero) {
        using T = decltype(zero);
        if (a->to == LS_FP32) {
            Cast<float, T> body = {static_cast<float *>(a->y), static_cast<const T *>(a->x)};
            return run(body, is_aligned(body.y, body.x));
        }
        Cast<T, float> body = {static_cast<T *>(a->y), static_cast<const float *>(a->x)};
        return run(body, is_aligned(body.y, body.x));
    });
}

template <class Run> ls_status with_cast_divide(const ls_cast_divide_arguments *a, Run run) {
    if (a->to == LS_FP32 || !is_element(a->to))
        return ls_fail(LS_ERR_INVALID, "cast_divide cannot write %s; expected fp16 or bf16", ls_dtype_name(a->to));
    return with_element(a->to, "cast_divide", [&](auto zero) {
        using T = decltype(zero);
        CastDivide<T> body = {static_cast<T *>(a->y), a->x, a->divisor};
        return run(body, is_aligned(body.y, body.x));
    });
}

template <class Run> ls_status with_add(const ls_add_arguments *a, Run run) {
    return with_element(a->dtype, "add", [&](auto zero) {
        using T = decltype(zero);
        Add<T> body = {static_cast<T *>(a->y), static_cast<const T *>(a->a), static_cast<const T *>(a->b)};
        return run(body, is_aligned(body.y, body.a, body.b));
    });
}

template <class Run> ls_status with_relu(const ls_relu_forward_arguments *a, Run run) {
    return with_element(a->dtype, "relu_forward", [&](auto zero) {
        using T = decltype(zero);
        Relu<T> body = {static_cast<T *>(a->y), static_cast<const T *>(a->x)};
        return run(body, is_aligned(body.y, body.x));
    });
}

template <class Run> ls_status with_relu_backward(const ls_relu_backward_arguments *a, Run run) {
    return with_element(a->dtype, "relu_backward", [&](auto zero) {
        using T = decltype(zero);
        ReluBackward<T> body = {static_cast<T *>(a->dx), static_cast<const T *>(a->dy), static_cast<const T *>(a->y)};
        return run(body, is_aligned(body.dx, body.dy, body.y));
    });
}

} // namespace

/* --- naive -------------------------------------------------------------------------------------------------------- */

ls_status ls_cuda_naive_fill(const ls_fill_arguments *a, const ls_cuda_lane *lane) {
    return naive_each(lane, "fill", Fill{a->y, a->value}, a->count);
}

ls_status ls_cuda_naive_scale(const ls_scale_arguments *a, const ls_cuda_lane *lane) {
    return naive_each(lane, "scale", Scale{a->y, a->factor}, a->count);
}

ls_status ls_cuda_naive_scale_by(const ls_scale_by_arguments *a, const ls_cuda_lane *lane) {
    return naive_each(lane, "scale_by", ScaleBy{a->y, a->factor}, a->count);
}

ls_status ls_cuda_naive_divide(const ls_divide_arguments *a, const ls_cuda_lane *lane) {
    return naive_each(lane, "divide", Divide{a->y, a->divisor}, a->count);
}

ls_status ls_cuda_naive_cast(const ls_cast_arguments *a, const ls_cuda_lane *lane) {
    return with_cast(a, [&](auto body, bool) { return naive_each(lane, "cast", body, a->count); });
}

ls_status ls_cuda_naive_cast_divide(const ls_cast_divide_arguments *a, const ls_cuda_lane *lane) {
    return with_cast_divide(a, [&](auto body, bool) { return naive_each(lane, "cast_divide", body, a->count); });
}

ls_status ls_cuda_naive_relu_forward(const ls_relu_forward_arguments *a, const ls_cuda_lane *lane) {
    return with_relu(a, [&](auto body, bool) { return naive_each(lane, "relu_forward", body, a->count); });
}

ls_status ls_cuda_naive_relu_backward(const ls_relu_backward_arguments *a, const ls_cuda_lane *lane) {
    return with_relu_backward(a, [&](auto body, bool) { return naive_each(lane, "relu_backward", body, a->count); });
}

ls_status ls_cuda_naive_add(const ls_add_arguments *a, const ls_cuda_lane *lane) {
    return with_add(a, [&](auto body, bool) { return naive_each(lane, "add", body, a->count); });
}

/* A launch for each source. */
ls_status ls_cuda_naive_reduce_add(const ls_reduce_add_arguments *a, const ls_cuda_lane *lane) {
    ls_status status = LS_OK;
    for (int s = 0; s < a->source_count && status == LS_OK; s++) {
        ReduceAdd body = {a->y, 1, {a->sources[s]}};
        status = naive_each(lane, "reduce_add", body, a->count);
    }
    return status;
}

/* --- fast --------------------------------------------------------------------------------------------------------- */

ls_status ls_cuda_fill(const ls_fill_arguments *a, const ls_cuda_lane *lane) {
    return fast_each(lane, "fill", Fill{a->y, a->value}, a->count, is_aligned(a->y));
}

ls_status ls_cuda_scale(const ls_scale_arguments *a, const ls_cuda_lane *lane) {
    return fast_each(lane, "scale", Scale{a->y, a->factor}, a->count, is_aligned(a->y));
}

ls_status ls_cuda_scale_by(const ls_scale_by_arguments *a, const ls_cuda_lane *lane) {
    return fast_each(lane, "scale_by", ScaleBy{a->y, a->factor}, a->count, is_aligned(a->y));
}

ls_status ls_cuda_divide(const ls_divide_arguments *a, const ls_cuda_lane *lane) {
    return fast_each(lane, "divide", Divide{a->y, a->divisor}, a->count, is_aligned(a->y));
}

ls_status ls_cuda_cast(const ls_cast_arguments *a, const ls_cuda_lane *lane) {
    return with_cast(a, [&](auto body, bool aligned) { return fast_each(lane, "cast", body, a->count, aligned); });
}

ls_status ls_cuda_cast_divide(const ls_cast_divide_arguments *a, const ls_cuda_lane *lane) {
    return with_cast_divide(
        a, [&](auto body, bool aligned) { return fast_each(lane, "cast_divide", body, a->count, aligned); });
}

ls_status ls_cuda_add(const ls_add_arguments *a, const ls_cuda_lane *lane) {
    return with_add(a, [&](auto body, bool aligned) { return fast_each(lane, "add", body, a->count, aligned); });
}

ls_status ls_cuda_relu_forward(const ls_relu_forward_arguments *a, const ls_cuda_lane *lane) {
    return with_relu(a,
                     [&](auto body, bool aligned) { return fast_each(lane, "relu_forward", body, a->count, aligned); });
}

ls_status ls_cuda_relu_backward(const ls_relu_backward_arguments *a, const ls_cuda_lane *lane) {
    return with_relu_backward(
        a, [&](auto body, bool aligned) { return fast_each(lane, "relu_backward", body, a->count, aligned); });
}

ls_status ls_cuda_reduce_add(const ls_reduce_add_arguments *a, const ls_cuda_lane *lane) {
    ls_status status = LS_OK;
    for (int first = 0; first < a->source_count && status == LS_OK; first += SOURCES) {
        ReduceAdd body = some_sources(a, first);
        status = fast_each(lane, "reduce_add", body, a->count, sources_aligned(body));
    }
    return status;
}
