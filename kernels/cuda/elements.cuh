/* The types of elements in a GPU's memory, and their conversion to and from float, in which all arithmetic is done.
 *
 *   types     float, __half (fp16) and __nv_bfloat16 (bf16): LS_FP32, LS_FP16 and LS_BF16. Kernels are templates of
 *             them (class T); the host chooses with with_element
 *   numbers   loading to float is exact. Storing rounds to the nearest element, ties to even; beyond the largest, to
 *             infinity. NaN stays NaN, with bits of the GPU's own
 *   memory    four elements are loaded or stored in one instruction (16 bytes; fp16, bf16: 8) if the arrays are aligned
 *   for
 *             it. Other arrays are accessed element by element, with the same results
 * C++ only. */
#ifndef LS_KERNELS_CUDA_ELEMENTS_CUH
#define LS_KERNELS_CUDA_ELEMENTS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/cuda/cuda.h"

namespace ls_cuda {

/* --- one element -------------------------------------------------------------------------------------------------- */

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T> __device__ inline T from_float(float x) {
    if constexpr (std::is_same_v<T, __half>) {
        return __float2half_rn(x);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        return __float2bfloat16_rn(x);
    } else {
        static_assert(std::is_same_v<T, float>);
        return x;
    }
}

/* x after it was stored as a T. */
template <class T> __device__ inline float rounded(float x) { return to_float(from_float<T>(x)); }

/* --- N consecutive elements: 1 or 4 ------------------------------------------------------------------------------- */

/* In registers: floats, for any type in memory. */
template <int N> struct Floats { float at[N]; };

/* In memory. */
template <class T> struct alignas(4 * sizeof(T)) Four { T at[4]; };

/* Whether all addresses allow access by fours. */
template <class... T> __host__ __device__ inline bool is_aligned(const T *...arrays) {
    return ((reinterpret_cast<uintptr_t>(arrays) % (4 * sizeof(T)) == 0) && ...);
}

template <int N, class T> __device__ inline Floats<N> load(const T *p) {
    if constexpr (N == 4) {
        Four<T> four = *reinterpret_cast<const Four<T> *>(p);
        return {{to_float(four.at[0]), to_float(four.at[1]), to_float(four.at[2]), to_float(four.at[3])}};
    } else {
        return {{to_float(*p)}};
    }
}

template <int N, class T> __device__ inline void store(T *p, Floats<N> value) {
    if constexpr (N == 4) {
        *reinterpret_cast<Four<T> *>(p) = {{from_float<T>(value.at[0]), from_float<T>(value.at[1]),
                                            from_float<T>(value.at[2]), from_float<T>(value.at[3])}};
    } else {
        *p = from_float<T>(value.at[0]);
    }
}

/* Four elements. If only `count` are left, the others are 0. */
template <class T> __device__ inline Floats<4> load_four(const T *p, size_t count, bool aligned) {
    if (aligned && count >= 4) return load<4>(p);
    Floats<4> value = {};
    for (size_t k = 0; k < 4; k++) value.at[k] = k < count ? to_float(p[k]) : 0;
    return value;
}

template <class T> __device__ inline void store_four(T *p, Floats<4> value, size_t count, bool aligned) {
    if (aligned && count >= 4) {
        store<4>(p, value);
    } else {
        for (size_t k = 0; k < 4 && k < count; k++) p[k] = from_float<T>(value.at[k]);
    }
}

/* --- choosing, on the host ---------------------------------------------------------------------------------------- */

inline bool is_element(ls_dtype dtype) { return dtype == LS_FP32 || dtype == LS_FP16 || dtype == LS_BF16; }

/* Calls body(T()) with the C++ type of `dtype`, for a body that is the same text for all types:
 *     with_element(a->dtype, "add_bias", [&](auto zero) {
 *         using T = decltype(zero);
 *         return launch(.., kernel<T>, static_cast<T *>(a->y), ..);
 *     });
 * LS_ERR_INVALID, reported as `op`'s, for types that no arithmetic is done in. */
template <class Body> ls_status with_element(ls_dtype dtype, const char *op, Body body) {
    switch (dtype) {
    case LS_FP32: return body(float());
    case LS_FP16: return body(__half());
    case LS_BF16: return body(__nv_bfloat16());
    default: return ls_fail(LS_ERR_INVALID, "%s has no kernels for %s", op, ls_dtype_name(dtype));
    }
}

} // namespace ls_cuda

#endif
