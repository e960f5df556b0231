/* Shared by the .cu files: launching, geometry, sums over warps and blocks; types of elements and access to memory
 * are in elements.cuh. C++ only.
 *
 *   threads   a block has THREADS threads unless a file says otherwise; always whole warps
 *   sums      of a warp by a butterfly (every lane gets the same bits), of a block as its warps' sums in ascending
 *             order */
#ifndef LS_KERNELS_CUDA_LAUNCH_CUH
#define LS_KERNELS_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#include <math.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/elements.cuh"

namespace ls_cuda {

constexpr unsigned WARP = 32;
constexpr unsigned THREADS = 256;
constexpr unsigned BLOCKS_PER_MULTIPROCESSOR = 8; /* of THREADS threads: as many as a multiprocessor holds */
constexpr unsigned FULL_WARP = 0xffffffffu;

/* --- launching ---------------------------------------------------------------------------------------------------- */

constexpr size_t divide_up(size_t count, size_t by) { return (count + by - 1) / by; }

/* Blocks for a grid-stride loop over `items` (global_thread(), global_threads()) in which a block takes `per_block`
 * items at a time: no more blocks than the GPU runs at once. Only for loops whose results do not depend on the number
 * of blocks. */
inline unsigned blocks_for(const ls_cuda_lane *lane, size_t items, size_t per_block = THREADS) {
    size_t wanted = divide_up(items, per_block), most = (size_t)lane->multiprocessors * BLOCKS_PER_MULTIPROCESSOR;
    return (unsigned)(wanted < most ? (wanted > 0 ? wanted : 1) : most);
}

/* Enqueues kernel(arguments...); a failure is reported as `op`'s. A grid without blocks is not launched. */
template <class... Parameters, class... Arguments>
ls_status launch(const ls_cuda_lane *lane, const char *op, dim3 blocks, unsigned threads, void (*kernel)(Parameters...),
                 Arguments... arguments) {
    if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return LS_OK;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = dim3(threads);
    config.stream = lane->stream;
    return ls_cuda_check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), lane->gpu, op);
}

/* One thread for each of `items`, for any number: the geometry of the naive rung. */
template <class... Parameters, class... Arguments>
ls_status launch_each(const ls_cuda_lane *lane, const char *op, size_t items, void (*kernel)(Parameters...),
                      Arguments... arguments) {
    return launch(lane, op, dim3((unsigned)divide_up(items, THREADS)), THREADS, kernel, arguments...);
}

__device__ inline size_t global_thread() { return (size_t)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline size_t global_threads() { return (size_t)gridDim.x * blockDim.x; }

/* --- sums: every thread of the warp or block calls, and gets the same bits ---------------------------------------- */

template <class T> __device__ inline T warp_sum(T value) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(FULL_WARP, value, distance);
    return value;
}

__device__ inline float warp_max(float value) {
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(FULL_WARP, value, distance));
    return value;
}

template <class T> __device__ inline T block_sum(T value) {
    __shared__ T warps[32];
    value = warp_sum(value);
    __syncthreads(); /* threads may still read the last call's sums */
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = value;
    __syncthreads();
    T sum = warps[0];
    for (unsigned w = 1; w < blockDim.x / WARP; w++) sum += warps[w];
    return sum;
}

__device__ inline float block_max(float value) {
    __shared__ float warps[32];
    value = warp_max(value);
    __syncthreads();
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = value;
    __syncthreads();
    float best = warps[0];
    for (unsigned w = 1; w < blockDim.x / WARP; w++) best = fmaxf(best, warps[w]);
    return best;
}

/* --- elementwise operations --------------------------------------------------------------------------------------- */

/* A body has a member `template <int N> __device__ void at(size_t i) const` that computes the elements i .. i + N - 1.
 * It is in an anonymous namespace, so that its kernels belong to its file. */
template <class Body> __global__ void each_naive(Body body, size_t count) {
    size_t i = global_thread();
    if (i < count) body.template at<1>(i);
}

template <class Body> __global__ void each_fast(Body body, size_t fours, size_t count) {
    for (size_t i = global_thread(); i < fours; i += global_threads()) body.template at<4>(4 * i);
    for (size_t i = 4 * fours + global_thread(); i < count; i += global_threads()) body.template at<1>(i);
}

/* Naive: a thread for each element. Fast: a grid-stride loop over fours, if all arrays are aligned, then over the
 * rest. */
template <class Body> ls_status naive_each(const ls_cuda_lane *lane, const char *op, Body body, size_t count) {
    return launch_each(lane, op, count, each_naive<Body>, body, count);
}

template <class Body>
ls_status fast_each(const ls_cuda_lane *lane, const char *op, Body body, size_t count, bool aligned) {
    if (count == 0) return LS_OK;
    size_t fours = aligned ? count / 4 : 0;
    return launch(lane, op, dim3(blocks_for(lane, aligned ? divide_up(count, 4) : count)), THREADS, each_fast<Body>,
                  body, fours, count);
}

} // namespace ls_cuda

#endif
