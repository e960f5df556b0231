/* Shared by both rungs of attention. C++ only. */
#ifndef LS_KERNELS_CUDA_ATTENTION_CUH
#define LS_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/launch.cuh"
#include "kernels/exponential.h"

namespace ls_cuda {

/* The sizes of a shape, as kernels use them. */
struct Attention {
    size_t batch, context, heads, channels, d; /* d: channels of a head */
    float scale;                               /* 1 / sqrt(d) */
    bool tiled;

    /* The offset of head h in position t of sequence b, in an array of `parts` x channels a position. */
    __host__ __device__ size_t place(size_t b, size_t h, size_t t, size_t part, size_t parts) const {
        return ((b * context + t) * parts + part) * channels + h * d;
    }
};

inline Attention attention_of(const ls_attention_shape &s) {
    const size_t d = ls_attention_head(&s);
    return {(size_t)s.batch, (size_t)s.context, (size_t)s.heads, (size_t)s.channels, d, 1 / sqrtf((float)d), s.tiled};
}

/* --- attention_tiled.cu ------------------------------------------------------------------------------------------- */

ls_status tiled_forward(const ls_cuda_lane *lane, const ls_attention_forward_arguments *a);
ls_status tiled_backward(const ls_cuda_lane *lane, const ls_attention_backward_arguments *a);

} // namespace ls_cuda

#endif
