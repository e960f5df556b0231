/* The kernels of selftest.h, in the language of .cu files. Launch geometry: one block unless the caller says
 * otherwise. */
#include "tests/cuda_on_cpu/selftest.h"

#include <cuda_runtime.h>

#include <cstring>

namespace {

template <class... Parameters, class... Arguments>
cudaError_t launch(cudaStream_t stream, dim3 grid, dim3 block, void (*kernel)(Parameters...), Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

__device__ void set_three(unsigned *to, unsigned x, unsigned y, unsigned z) {
    to[0] = x;
    to[1] = y;
    to[2] = z;
}

__global__ void places_kernel(selftest_place *places, unsigned *turns) {
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    selftest_place *place = &places[block * blockDim.x * blockDim.y * blockDim.z + thread];
    set_three(place->thread, threadIdx.x, threadIdx.y, threadIdx.z);
    set_three(place->block, blockIdx.x, blockIdx.y, blockIdx.z);
    set_three(place->block_dim, blockDim.x, blockDim.y, blockDim.z);
    set_three(place->grid_dim, gridDim.x, gridDim.y, gridDim.z);
    place->turn = (*turns)++;
}

__global__ void nothing_kernel() {}

__global__ void __launch_bounds__(1024) reverse_kernel(bool with_barrier, const float *in, float *__restrict__ out) {
    __shared__ float tile[1024];
    unsigned i = threadIdx.x, last = blockDim.x - 1;
    tile[i] = __ldg(&in[i]);
    if (with_barrier) __syncthreads();
    out[i] = tile[last - i];
    __syncthreads();
    tile[i] = 0; /* so that the next launch does not find this launch's values */
}

__global__ void rounds_kernel(unsigned rounds, bool with_second_barrier, float *x) {
    __shared__ float tile[1024];
    unsigned i = threadIdx.x;
    float value = x[i];
    for (unsigned r = 0; r < rounds; r++) {
        tile[i] = value;
        __syncthreads();
        value = tile[i > 0 ? i - 1 : 0] + 1;
        if (with_second_barrier) __syncthreads();
    }
    x[i] = value;
}

__global__ void swap_kernel(bool with_barrier, const float *in, float *out) {
    __shared__ float tile[1024];
    unsigned i = threadIdx.x;
    tile[i] = in[i];
    if (with_barrier) __syncwarp();
    out[i] = tile[i ^ 1];
    __syncwarp();
    tile[i] = 0;
}

template <class T> __device__ __forceinline__ T warp_sum(T value) {
    for (unsigned delta = warpSize / 2; delta > 0; delta /= 2) value += __shfl_down_sync(0xffffffffu, value, delta);
    return value;
}

__global__ void block_sums_kernel(const double *in, double *out) {
    __shared__ double warps[32];
    double value = warp_sum(in[blockIdx.x * blockDim.x + threadIdx.x]);
    if (threadIdx.x % warpSize == 0) warps[threadIdx.x / warpSize] = value;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    value = warp_sum(threadIdx.x < blockDim.x / warpSize ? warps[threadIdx.x] : 0.0);
    if (threadIdx.x == 0) out[blockIdx.x] = value;
}

__global__ void chain_kernel(int *x) { x[blockIdx.x + 1] = x[blockIdx.x] + 1; }

__global__ void shuffle_kernel(char kind, int argument, int width, unsigned from, int *out) {
    int self = static_cast<int>(threadIdx.x), got = 0;
    if (threadIdx.x >= from) return;
    if (kind == 'i') got = __shfl_sync(0xffffffffu, self, argument, width);
    if (kind == 'u') got = __shfl_up_sync(0xffffffffu, self, static_cast<unsigned>(argument), width);
    if (kind == 'd') got = __shfl_down_sync(0xffffffffu, self, static_cast<unsigned>(argument), width);
    if (kind == 'x') got = __shfl_xor_sync(0xffffffffu, self, argument, width);
    out[threadIdx.x] = got;
}

__global__ void halves_kernel(int *out) {
    unsigned mask = threadIdx.x % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
    int sum = static_cast<int>(threadIdx.x);
    for (int distance = 2; distance < 32; distance *= 2) sum += __shfl_xor_sync(mask, sum, distance);
    out[threadIdx.x] = sum;
}

__global__ void by_value_kernel(selftest_values values, float widened, selftest_values *out) {
    *out = values;
    out->number += widened;
}

__global__ void left_kernel(int *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = 1;
    if (threadIdx.x == 5) return;
    __syncthreads();
}

__global__ void apart_kernel(int *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = 1;
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

__global__ void lane_kernel(int *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = 1;
    if (threadIdx.x == 3) __syncthreads();
    warp_sum(1.0f);
}

__global__ void masks_kernel(int *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = 1;
    __syncwarp(threadIdx.x == 9 ? 0x0000ffffu : 0xffffffffu);
}

__global__ void stranger_kernel(int *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = 1;
    __syncwarp(0xffffff7fu);
}

__global__ void width_kernel(int *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = 1;
    __shfl_down_sync(0xffffffffu, 1, 1, 12);
}

/* Each frame uses a page of stack. */
__device__ unsigned go_down(unsigned nbytes, unsigned seed) {
    volatile unsigned char frame[1024];
    frame[seed % 1024] = static_cast<unsigned char>(seed);
    if (nbytes > 1024) seed = go_down(nbytes - 1024, seed + 1) - 1;
    return seed + frame[seed % 1024] - static_cast<unsigned char>(seed);
}

__global__ void deep_kernel(unsigned nbytes, int *out) {
    __syncthreads();
    unsigned i = go_down(nbytes, threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = static_cast<int>(i);
}

dim3 dim3_of(const unsigned *sizes) { return dim3(sizes[0], sizes[1], sizes[2]); }

} // namespace

cudaError_t selftest_places(cudaStream_t stream, selftest_geometry geometry, selftest_place *places, unsigned *turns) {
    return launch(stream, dim3_of(geometry.grid), dim3_of(geometry.block), places_kernel, places, turns);
}

cudaError_t selftest_nothing(cudaStream_t stream, selftest_geometry geometry) {
    return launch(stream, dim3_of(geometry.grid), dim3_of(geometry.block), nothing_kernel);
}

cudaError_t selftest_reverse(cudaStream_t stream, unsigned threads, bool with_barrier, const float *in, float *out) {
    return launch(stream, 1, threads, reverse_kernel, with_barrier, in, out);
}

cudaError_t selftest_rounds(cudaStream_t stream, unsigned threads, unsigned rounds, bool with_second_barrier,
                            float *x) {
    return launch(stream, 1, threads, rounds_kernel, rounds, with_second_barrier, x);
}

cudaError_t selftest_swap(cudaStream_t stream, unsigned threads, bool with_barrier, const float *in, float *out) {
    return launch(stream, 1, threads, swap_kernel, with_barrier, in, out);
}

cudaError_t selftest_block_sums(cudaStream_t stream, unsigned blocks, unsigned threads, const double *in, double *out) {
    return launch(stream, blocks, threads, block_sums_kernel, in, out);
}

cudaError_t selftest_chain(cudaStream_t stream, unsigned blocks, int *x) {
    return launch(stream, blocks, 1, chain_kernel, x);
}

cudaError_t selftest_shuffle(cudaStream_t stream, unsigned threads, char kind, int argument, int width, unsigned from,
                             int *out) {
    return launch(stream, 1, threads, shuffle_kernel, kind, argument, width, from, out);
}

cudaError_t selftest_halves(cudaStream_t stream, int *out) { return launch(stream, 1, 32, halves_kernel, out); }

cudaError_t selftest_by_value(cudaStream_t stream, selftest_values values, short narrow, selftest_values *out) {
    cudaError_t error = launch(stream, 1, 1, by_value_kernel, values, narrow, out);
    std::memset(&values, 0, sizeof values);
    return error;
}

cudaError_t selftest_stuck(cudaStream_t stream, const char *what, unsigned blocks, int *out) {
    static const struct {
        const char *what;
        void (*kernel)(int *);
    } kernels[] = {{"left", left_kernel},   {"apart", apart_kernel},       {"lane", lane_kernel},
                   {"masks", masks_kernel}, {"stranger", stranger_kernel}, {"width", width_kernel}};
    for (const auto &row : kernels) {
        if (std::strcmp(row.what, what) == 0) return launch(stream, blocks, 64, row.kernel, out);
    }
    return cudaErrorInvalidValue;
}

cudaError_t selftest_deep(cudaStream_t stream, unsigned threads, unsigned nbytes, int *out) {
    return launch(stream, 1, threads, deep_kernel, nbytes, out);
}
