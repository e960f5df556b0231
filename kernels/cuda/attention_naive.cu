/* attention_naive — causal attention, naive rung: kernels.h's formulas, element by element.
 *   launch : forward: a thread for each row of scores, which it normalises; then a thread for each element of y.
 *            Backward: a thread for each element of dqkv. A thread recomputes each score that is not in memory
 *   cost   : forward: context d flops for each element of y (tiled); backward: three times that and more
 *   order  : channels ascending, positions ascending, fused multiply-adds */
#include "kernels/cuda/attention.cuh"

using namespace ls_cuda;

namespace {

/* A row of scores: position t of head h of sequence b. */
struct Row {
    size_t b, h, t;
};

template <class T> struct Forward {
    Attention a;
    const T *qkv;
    void *saved; /* tiled: floats, otherwise T */
    T *y;
};

/* Head h of position t of sequence b, in q, in k (part 1) or in v (part 2). */
template <class T>
__device__ const T *head_of(const Attention &a, const T *qkv, size_t b, size_t h, size_t t, int part) {
    return qkv + ((b * a.context + t) * 3 + (size_t)part) * a.channels + h * a.d;
}

template <class T> __device__ float dot(const T *x, const T *y, size_t count) {
    float sum = 0;
    for (size_t i = 0; i < count; i++) sum = fmaf(to_float(x[i]), to_float(y[i]), sum);
    return sum;
}

template <class T> __device__ float score(const Attention &a, const T *qkv, const Row &r, size_t u) {
    return a.scale * dot(head_of(a, qkv, r.b, r.h, r.t, 0), head_of(a, qkv, r.b, r.h, u, 1), a.d);
}

__device__ size_t number_of(const Attention &a, const Row &r) { return (r.b * a.heads + r.h) * a.context + r.t; }

template <class T>
__device__ float probability(const Attention &a, const T *qkv, const void *saved, const Row &r, size_t u) {
    size_t row = number_of(a, r);
    if (a.tiled) return ls_exp_float(score(a, qkv, r, u) - static_cast<const float *>(saved)[row]);
    return to_float(static_cast<const T *>(saved)[row * a.context + u]);
}

template <class T> __global__ void softmax_naive(Forward<T> f) {
    const Attention &a = f.a;
    size_t i = global_thread();
    if (i >= a.batch * a.heads * a.context) return;
    const Row r = {i / a.context / a.heads, i / a.context % a.heads, i % a.context};
    float largest = -INFINITY, sum = 0;
    for (size_t u = 0; u <= r.t; u++) largest = fmaxf(largest, score(a, f.qkv, r, u));
    for (size_t u = 0; u <= r.t; u++) sum += ls_exp_float(score(a, f.qkv, r, u) - largest);
    if (a.tiled) {
        static_cast<float *>(f.saved)[i] = largest + logf(sum);
        return;
    }
    T *p = static_cast<T *>(f.saved) + i * a.context;
    for (size_t u = 0; u < a.context; u++)
        p[u] = from_float<T>(u <= r.t ? ls_exp_float(score(a, f.qkv, r, u) - largest) / sum : 0);
}

template <class T> __global__ void forward_naive(Forward<T> f) {
    const Attention &a = f.a;
    size_t i = global_thread();
    if (i >= a.batch * a.context * a.channels) return;
    const size_t position = i / a.channels, channel = i % a.channels;
    const Row r = {position / a.context, channel / a.d, position % a.context};
    float sum = 0;
    for (size_t u = 0; u <= r.t; u++)
        sum =
            fmaf(probability(a, f.qkv, f.saved, r, u), to_float(head_of(a, f.qkv, r.b, r.h, u, 2)[channel % a.d]), sum);
    f.y[i] = from_float<T>(sum);
}

template <class T> struct Backward {
    Attention a;
    const T *dy, *qkv, *y;
    const void *saved;
    T *dqkv;
};

/* Position t of an array like y. */
template <class T> __device__ const T *row_of(const Attention &a, const T *y, const Row &r) {
    return y + (r.b * a.context + r.t) * a.channels + r.h * a.d;
}

/* ds[t,u], as an operand of products. */
template <class T> __device__ float score_gradient(const Backward<T> &g, const Row &r, size_t u) {
    const Attention &a = g.a;
    const T *dy = row_of(a, g.dy, r);
    float dp = dot(dy, head_of(a, g.qkv, r.b, r.h, u, 2), a.d), mean = dot(dy, row_of(a, g.y, r), a.d);
    float ds = probability(a, g.qkv, g.saved, r, u) * (dp - mean) * a.scale;
    return a.tiled ? ds : rounded<T>(ds);
}

template <class T> __global__ void backward_naive(Backward<T> g) {
    const Attention &a = g.a;
    size_t i = global_thread();
    if (i >= a.batch * a.context * 3 * a.channels) return;
    const size_t position = i / (3 * a.channels), part = i / a.channels % 3, channel = i % a.channels,
                 c = channel % a.d;
    Row r = {position / a.context, channel / a.d, position % a.context};
    const size_t at = r.t;
    float sum = 0;
    for (size_t u = 0; u <= at && part == 0; u++)
        sum = fmaf(score_gradient(g, r, u), to_float(head_of(a, g.qkv, r.b, r.h, u, 1)[c]), sum);
    for (; r.t < a.context && part == 1; r.t++)
        sum = fmaf(score_gradient(g, r, at), to_float(head_of(a, g.qkv, r.b, r.h, r.t, 0)[c]), sum);
    for (; r.t < a.context && part == 2; r.t++)
        sum = fmaf(probability(a, g.qkv, g.saved, r, at), to_float(row_of(a, g.dy, r)[c]), sum);
    g.dqkv[i] = from_float<T>(sum);
}

} // namespace

ls_status ls_cuda_naive_attention_forward(const ls_attention_forward_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "attention_forward";
    return with_element(a->shape.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        Forward<T> f = {attention_of(a->shape), static_cast<const T *>(a->qkv), a->saved, static_cast<T *>(a->y)};
        ls_status status = launch_each(lane, op, f.a.batch * f.a.heads * f.a.context, softmax_naive<T>, f);
        if (status != LS_OK) return status;
        return launch_each(lane, op, f.a.batch * f.a.context * f.a.channels, forward_naive<T>, f);
    });
}

ls_status ls_cuda_naive_attention_backward(const ls_attention_backward_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "attention_backward";
    return with_element(a->shape.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        Backward<T> g = {attention_of(a->shape),
                         static_cast<const T *>(a->dy),
                         static_cast<const T *>(a->qkv),
                         static_cast<const T *>(a->y),
                         a->saved,
                         static_cast<T *>(a->dqkv)};
        return launch_each(lane, op, g.a.batch * g.a.context * 3 * g.a.channels, backward_naive<T>, g);
    });
}
