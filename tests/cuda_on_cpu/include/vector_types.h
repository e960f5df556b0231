/* CUDA's small vectors, in C and in C++, with CUDA's sizes and alignments: a float4 at an address that is not a
 * multiple of 16 is an error on a GPU, and the undefined-behaviour sanitizer finds it here. */
#ifndef CUDA_ON_CPU_VECTOR_TYPES_H
#define CUDA_ON_CPU_VECTOR_TYPES_H

#define CUDA_ON_CPU_VECTOR2(name, type, nbytes)                                                                        \
    struct name {                                                                                                      \
        type x, y;                                                                                                     \
    } __attribute__((aligned(nbytes)));                                                                                \
    typedef struct name name;
#define CUDA_ON_CPU_VECTOR3(name, type)                                                                                \
    struct name {                                                                                                      \
        type x, y, z;                                                                                                  \
    };                                                                                                                 \
    typedef struct name name;
#define CUDA_ON_CPU_VECTOR4(name, type, nbytes)                                                                        \
    struct name {                                                                                                      \
        type x, y, z, w;                                                                                               \
    } __attribute__((aligned(nbytes)));                                                                                \
    typedef struct name name;

CUDA_ON_CPU_VECTOR2(float2, float, 8)
CUDA_ON_CPU_VECTOR2(double2, double, 16)
CUDA_ON_CPU_VECTOR2(int2, int, 8)
CUDA_ON_CPU_VECTOR2(uint2, unsigned, 8)
CUDA_ON_CPU_VECTOR3(float3, float)
CUDA_ON_CPU_VECTOR3(int3, int)
CUDA_ON_CPU_VECTOR3(uint3, unsigned)
CUDA_ON_CPU_VECTOR4(float4, float, 16)
CUDA_ON_CPU_VECTOR4(int4, int, 16)
CUDA_ON_CPU_VECTOR4(uint4, unsigned, 16)
CUDA_ON_CPU_VECTOR4(uchar4, unsigned char, 4)

#undef CUDA_ON_CPU_VECTOR2
#undef CUDA_ON_CPU_VECTOR3
#undef CUDA_ON_CPU_VECTOR4

struct dim3 {
    unsigned x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
#endif
};
typedef struct dim3 dim3;

#endif
