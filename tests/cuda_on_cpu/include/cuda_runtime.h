/* CUDA C++ for the CPU's compiler, for "CUDA on the CPU": a .cu file that uses only this subset compiles as C++17, and
 * its kernels run in tests/cuda_on_cpu/threads.cpp, block after block, with the results of a GPU.
 *
 *   language   __global__, __device__, __host__, __shared__ (static arrays: one block runs at a time),
 *              __launch_bounds__, __align__, __forceinline__; threadIdx, blockIdx, blockDim, gridDim, warpSize
 *   vectors    float2, float4, ... and make_float4 (vector_types.h)
 *   together   __syncthreads, __syncwarp, __shfl_sync, __shfl_up_sync, __shfl_down_sync, __shfl_xor_sync of values of
 *              up to 8 bytes
 *   numbers    those of <cmath>, min and max, rsqrtf, __ldg and the bit casts; expf and logf only as accurate as CUDA
 *              documents, if the environment requests it
 *   launch     cudaLaunchKernelEx; without attributes and without dynamic shared memory
 *
 * Stricter than a GPU: every thread of a block must reach every __syncthreads, and all the same one, even after others
 * have left the kernel; the value of a lane that does not take part in a shuffle is all ones (in floating point: NaN)
 * instead of undefined; pointers among a kernel's arguments must be NULL or point into (or just past) memory that a GPU
 * can reach. */
#ifndef CUDA_ON_CPU_CUDA_RUNTIME_H
#define CUDA_ON_CPU_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>
#include <vector_types.h>

#ifdef __cplusplus

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(nbytes) __attribute__((aligned(nbytes)))
#define __forceinline__ inline __attribute__((always_inline))

/* --- a thread's position: constant while a thread runs ------------------------------------------------------------ */

extern const uint3 threadIdx __asm__("cuda_on_cpu_thread_index");
extern const uint3 blockIdx __asm__("cuda_on_cpu_block_index");
extern const dim3 blockDim __asm__("cuda_on_cpu_block_dim");
extern const dim3 gridDim __asm__("cuda_on_cpu_grid_dim");
constexpr int warpSize = 32;

/* --- vectors ------------------------------------------------------------------------------------------------------ */

inline float2 make_float2(float x, float y) { return float2{x, y}; }
inline float3 make_float3(float x, float y, float z) { return float3{x, y, z}; }
inline float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }
inline double2 make_double2(double x, double y) { return double2{x, y}; }
inline int2 make_int2(int x, int y) { return int2{x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return int4{x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return uint2{x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{x, y, z, w}; }
inline uchar4 make_uchar4(unsigned char x, unsigned char y, unsigned char z, unsigned char w) {
    return uchar4{x, y, z, w};
}

/* --- threads together --------------------------------------------------------------------------------------------- */

namespace cuda_on_cpu {

/* The source position of a thread's call. */
struct Site {
    const char *file, *function;
    int line;
    static constexpr Site here(const char *file = __builtin_FILE(), const char *function = __builtin_FUNCTION(),
                               int line = __builtin_LINE()) {
        return Site{file, function, line};
    }
};

enum class Exchange { none, sync, index, up, down, exclusive_or };

void block_barrier(const Site &site);
/* The value of another lane of the warp, as that kind of shuffle selects it. */
uint64_t warp_exchange(Exchange kind, unsigned mask, uint64_t value, unsigned argument, int width, const Site &site);

template <class T> T shuffle(Exchange kind, unsigned mask, T value, unsigned argument, int width, const Site &site) {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) >= 4 && sizeof(T) <= 8, "shuffles move 4 or 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = warp_exchange(kind, mask, bits, argument, width, site);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

} // namespace cuda_on_cpu

inline void __syncthreads(const cuda_on_cpu::Site &site = cuda_on_cpu::Site::here()) {
    cuda_on_cpu::block_barrier(site);
}

inline void __syncwarp(unsigned mask = 0xffffffffu, const cuda_on_cpu::Site &site = cuda_on_cpu::Site::here()) {
    cuda_on_cpu::warp_exchange(cuda_on_cpu::Exchange::sync, mask, 0, 0, warpSize, site);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize,
              const cuda_on_cpu::Site &site = cuda_on_cpu::Site::here()) {
    return cuda_on_cpu::shuffle(cuda_on_cpu::Exchange::index, mask, value, static_cast<unsigned>(lane), width, site);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 const cuda_on_cpu::Site &site = cuda_on_cpu::Site::here()) {
    return cuda_on_cpu::shuffle(cuda_on_cpu::Exchange::up, mask, value, delta, width, site);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   const cuda_on_cpu::Site &site = cuda_on_cpu::Site::here()) {
    return cuda_on_cpu::shuffle(cuda_on_cpu::Exchange::down, mask, value, delta, width, site);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                  const cuda_on_cpu::Site &site = cuda_on_cpu::Site::here()) {
    return cuda_on_cpu::shuffle(cuda_on_cpu::Exchange::exclusive_or, mask, value, static_cast<unsigned>(lane_mask),
                                width, site);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

template <class T> T __ldg(const T *address) { return *address; }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }

namespace cuda_on_cpu {
template <class To, class From> To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &value, sizeof to);
    return to;
}
} // namespace cuda_on_cpu

inline unsigned __float_as_uint(float x) { return cuda_on_cpu::bits_as<unsigned>(x); }
inline int __float_as_int(float x) { return cuda_on_cpu::bits_as<int>(x); }
inline float __uint_as_float(unsigned x) { return cuda_on_cpu::bits_as<float>(x); }
inline float __int_as_float(int x) { return cuda_on_cpu::bits_as<float>(x); }

/* expf and logf of kernels, which CUDA_ON_CPU_ROUNDING=ulps may perturb: rounding.cpp. */
namespace cuda_on_cpu {
float kernel_expf(float x);
float kernel_logf(float x);
} // namespace cuda_on_cpu
#define expf(x) cuda_on_cpu::kernel_expf(x)
#define logf(x) cuda_on_cpu::kernel_logf(x)

#define CUDA_ON_CPU_MIN_MAX(type)                                                                                      \
    inline type min(type a, type b) { return b < a ? b : a; }                                                          \
    inline type max(type a, type b) { return a < b ? b : a; }
CUDA_ON_CPU_MIN_MAX(int)
CUDA_ON_CPU_MIN_MAX(unsigned)
CUDA_ON_CPU_MIN_MAX(long)
CUDA_ON_CPU_MIN_MAX(unsigned long)
CUDA_ON_CPU_MIN_MAX(long long)
CUDA_ON_CPU_MIN_MAX(unsigned long long)
#undef CUDA_ON_CPU_MIN_MAX
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }

/* --- launch ------------------------------------------------------------------------------------------------------- */

typedef struct cudaLaunchAttribute_st cudaLaunchAttribute; /* no attribute is supported here */

typedef struct cudaLaunchConfig_st {
    dim3 gridDim;
    dim3 blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned int numAttrs;
} cudaLaunchConfig_t;

namespace cuda_on_cpu {

/* Enqueues a kernel; `thread` runs one of its threads. `pointers` are its arguments, NULL for those that are not
 * pointers; they are checked when the kernel runs. */
cudaError_t launch_kernel(const cudaLaunchConfig_t *config, const void *kernel, std::function<void()> thread,
                          std::vector<const void *> pointers);

template <class T> const void *pointer_or_null(const T &argument) {
    if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) {
        return static_cast<const void *>(argument);
    } else {
        (void)argument;
        return nullptr;
    }
}

/* The arguments already have the parameters' types, as CUDA converts them at the launch. */
template <class... Parameters>
cudaError_t launch_values(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...), Parameters... arguments) {
    static_assert((std::is_trivially_copyable_v<Parameters> && ...),
                  "a kernel's arguments are copied to the GPU byte by byte");
    auto thread = [kernel, values = std::tuple<Parameters...>(arguments...)] { std::apply(kernel, values); };
    return launch_kernel(config, reinterpret_cast<const void *>(kernel), thread, {pointer_or_null(arguments)...});
}

} // namespace cuda_on_cpu

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...),
                               Arguments &&...arguments) {
    return cuda_on_cpu::launch_values<Parameters...>(config, kernel, std::forward<Arguments>(arguments)...);
}

#endif /* __cplusplus */

#endif
