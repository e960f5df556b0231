/* attention — causal attention, fast rung: scores in memory. (Tiled: attention_tiled.cu.)
 *   idea   : one call of cuBLAS multiplies all sequences' matrices of one head; it reads and writes the heads in place,
 *            in qkv, y and dqkv. Scores, and their gradients, are whole squares of floats. Between the products a warp
 *            for each row computes p from scores, or ds from gradients
 *   launch : a product for each head and matrix, and one kernel
 *   cost   : flops of the formula, twice, since the upper triangles are computed, too. Bytes: forward writes and reads
 *            scores and p, backward dp, ds and p
 *   half   : scores and dp are floats. ds replaces them in place: a row's 16-bit values begin where its floats began
 *   order  : products in cuBLAS's order. A row's sums: each lane's every 32nd position or channel, ascending, then the
 *            butterfly of launch.cuh */
#include "kernels/cuda/attention.cuh"

using namespace ls_cuda;

namespace {

constexpr unsigned ROWS_PER_BLOCK = THREADS / WARP;

/* A row of scores for each warp. */
struct Row {
    size_t number, b, h, t;

    __device__ explicit Row(const Attention &a) {
        number = (size_t)blockIdx.x * ROWS_PER_BLOCK + threadIdx.x / WARP;
        t = number % a.context;
        h = number / a.context % a.heads;
        b = number / a.context / a.heads;
    }
};

/* p may be `scores` if T is float; otherwise they must not overlap. */
template <class T> __global__ void softmax(Attention a, const float *scores, T *p) {
    const Row r(a);
    const unsigned lane = threadIdx.x % WARP;
    if (r.b >= a.batch) return;
    scores += r.number * a.context, p += r.number * a.context;
    float largest = -INFINITY, sum = 0;
    for (size_t u = lane; u <= r.t; u += WARP) largest = fmaxf(largest, scores[u]);
    largest = a.scale * warp_max(largest);
    for (size_t u = lane; u <= r.t; u += WARP) sum += ls_exp_float(a.scale * scores[u] - largest);
    const float factor = 1 / warp_sum(sum);
    for (size_t u = lane; u < a.context; u += WARP)
        p[u] = from_float<T>(u <= r.t ? ls_exp_float(a.scale * scores[u] - largest) * factor : 0);
}

/* Replaces a row's dp by ds in place. A warp overwrites only what it has read: ds is not wider than dp. */
template <class T> __global__ void score_gradients(Attention a, float *gradients, const T *p, const T *dy, const T *y) {
    const Row r(a);
    const unsigned lane = threadIdx.x % WARP;
    if (r.b >= a.batch) return;
    const float *dp = gradients + r.number * a.context;
    T *ds = reinterpret_cast<T *>(gradients + r.number * a.context);
    const size_t at = a.place(r.b, r.h, r.t, 0, 1);
    float mean = 0;
    for (size_t c = lane; c < a.d; c += WARP) mean = fmaf(to_float(dy[at + c]), to_float(y[at + c]), mean);
    mean = warp_sum(mean);
    p += r.number * a.context;
    for (size_t first = 0; first < a.context; first += WARP) {
        const size_t u = first + lane;
        const float value = u <= r.t ? to_float(p[u]) * (dp[u] - mean) * a.scale : 0;
        __syncwarp();
        if (u < a.context) ds[u] = from_float<T>(value);
    }
}

/* --- products ------------------------------------------------------------------------------------------------------ */

/* A matrix of each head and sequence: rows of an array like y (parts 1) or qkv (part 0, 1, 2 of 3); or scores, with
 * rows `parts` x context elements apart. */
struct Operand {
    const void *array;
    ls_dtype dtype;
    size_t part, parts;
    bool scores, transposed;
};

const void *first_of(const Attention &a, const Operand &x, size_t h) {
    size_t at = x.scores ? h * a.context * a.context * x.parts : a.place(0, h, 0, x.part, x.parts);
    return static_cast<const char *>(x.array) + at * ls_dtype_nbytes(x.dtype);
}

size_t row_of(const Attention &a, const Operand &x) { return x.parts * (x.scores ? a.context : a.channels); }

size_t stride_of(const Attention &a, const Operand &x) { return row_of(a, x) * a.context * (x.scores ? a.heads : 1); }

/* to = left right, for every head and sequence */
ls_status multiply(const ls_cuda_lane *lane, const char *op, const Attention &a, const Operand &left,
                   const Operand &right, const Operand &to) {
    ls_status status = LS_OK;
    for (size_t h = 0; status == LS_OK && h < a.heads; h++) {
        ls_cuda_product p = {};
        p.dtype = left.dtype, p.c_dtype = to.dtype;
        p.transpose_a = left.transposed, p.transpose_b = right.transposed;
        p.m = a.context, p.n = to.scores ? a.context : a.d, p.k = left.scores ? a.context : a.d;
        p.a = first_of(a, left, h), p.row_a = row_of(a, left), p.stride_a = stride_of(a, left);
        p.b = first_of(a, right, h), p.row_b = row_of(a, right), p.stride_b = stride_of(a, right);
        p.c = const_cast<void *>(first_of(a, to, h)), p.row_c = row_of(a, to), p.stride_c = stride_of(a, to);
        p.batch = a.batch;
        status = ls_cuda_matmul(lane, op, &p);
    }
    return status;
}

template <class... Parameters, class... Arguments>
ls_status launch_rows(const ls_cuda_lane *lane, const char *op, const Attention &a, void (*kernel)(Parameters...),
                      Arguments... arguments) {
    size_t rows = a.batch * a.heads * a.context;
    return launch(lane, op, dim3((unsigned)divide_up(rows, ROWS_PER_BLOCK)), THREADS, kernel, a, arguments...);
}

} // namespace

ls_status ls_cuda_attention_forward(const ls_attention_forward_arguments *arguments, const ls_cuda_lane *lane) {
    const char *op = "attention_forward";
    const ls_dtype dtype = arguments->shape.dtype;
    if (arguments->shape.tiled) return tiled_forward(lane, arguments);
    const Attention a = attention_of(arguments->shape);
    float *scores = static_cast<float *>(dtype == LS_FP32 ? arguments->saved : arguments->workspace);
    const Operand q = {arguments->qkv, dtype, 0, 3, false, false}, k = {arguments->qkv, dtype, 1, 3, false, true},
                  v = {arguments->qkv, dtype, 2, 3, false, false};
    ls_status status = multiply(lane, op, a, q, k, {scores, LS_FP32, 0, 1, true, false});
    if (status != LS_OK) return status;
    status = with_element(dtype, op, [&](auto zero) {
        using T = decltype(zero);
        return launch_rows(lane, op, a, softmax<T>, scores, static_cast<T *>(arguments->saved));
    });
    if (status != LS_OK) return status;
    return multiply(lane, op, a, {arguments->saved, dtype, 0, 1, true, false}, v,
                    {arguments->y, dtype, 0, 1, false, false});
}

ls_status ls_cuda_attention_backward(const ls_attention_backward_arguments *arguments, const ls_cuda_lane *lane) {
    const char *op = "attention_backward";
    const ls_dtype dtype = arguments->shape.dtype;
    if (arguments->shape.tiled) return tiled_backward(lane, arguments);
    const Attention a = attention_of(arguments->shape);
    float *gradients = static_cast<float *>(arguments->workspace);
    const Operand q = {arguments->qkv, dtype, 0, 3, false, false}, k = {arguments->qkv, dtype, 1, 3, false, false},
                  v = {arguments->qkv, dtype, 2, 3, false, true}, dy = {arguments->dy, dtype, 0, 1, false, false};
    ls_status status = multiply(lane, op, a, dy, v, {gradients, LS_FP32, 0, 1, true, false});
    if (status != LS_OK) return status;
    status = with_element(dtype, op, [&](auto zero) {
        using T = decltype(zero);
        return launch_rows(lane, op, a, score_gradients<T>, gradients, static_cast<const T *>(arguments->saved),
                           static_cast<const T *>(arguments->dy), static_cast<const T *>(arguments->y));
    });
    const size_t apart = sizeof(float) / ls_dtype_nbytes(dtype);
    const Operand ds = {gradients, dtype, 0, apart, true, false}, ds_turned = {gradients, dtype, 0, apart, true, true},
                  p_turned = {arguments->saved, dtype, 0, 1, true, true};
    void *dqkv = arguments->dqkv;
    if (status == LS_OK) status = multiply(lane, op, a, ds, k, {dqkv, dtype, 0, 3, false, false});
    if (status == LS_OK) status = multiply(lane, op, a, ds_turned, q, {dqkv, dtype, 1, 3, false, false});
    if (status == LS_OK) status = multiply(lane, op, a, p_turned, dy, {dqkv, dtype, 2, 3, false, false});
    return status;
}
