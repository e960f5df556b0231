/* What the rungs of attention share. C++ only. */
#ifndef LS_KERNELS_CUDA_ATTENTION_CUH
#define LS_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/launch.cuh"

namespace ls_cuda {

/* The sizes of a shape, as kernels use them. */
struct Attention {
    size_t batch, context, heads, channels, d; /* d: channels of a head */
    float scale;                               /* 1 / sqrt(d) */
    bool tiled;
};

inline Attention attention_of(const ls_attention_shape &s) {
    const size_t d = ls_attention_head(&s);
    return {(size_t)s.batch, (size_t)s.context, (size_t)s.heads, (size_t)s.channels, d, 1 / sqrtf((float)d), s.tiled};
}

} // namespace ls_cuda

#endif
