/* How the convolutions of GPUs cut a batch so that what they unfold fits in bounded scratch memory. Plain C that knows nothing of
 * CUDA: the model asks before anything is allocated. */
#ifndef LS_KERNELS_CUDA_CONV2D_PLAN_H
#define LS_KERNELS_CUDA_CONV2D_PLAN_H

#include "kernels/kernels.h"

#define LS_CUDA_CONV2D_UNFOLDED_BYTES ((size_t)64 << 20) /* at most, but for a single sample that needs more */

struct ls_cuda_conv2d_plan {
    size_t taps;           /* in_channels x kernel_h x kernel_w: rows of an unfolded sample */
    size_t out_plane;      /* columns of an unfolded sample */
    size_t samples;        /* of the batch that are unfolded at a time, at least 1 */
    size_t unfolded_count; /* floats: samples x taps x out_plane */
    size_t partial_count;  /* floats: samples x out_channels x taps, the weight gradients of single samples */
};

/* false: the shape has no output. */
bool ls_cuda_conv2d_make_plan(const struct ls_conv2d_shape *shape, struct ls_cuda_conv2d_plan *plan);

size_t ls_cuda_conv2d_workspace_nbytes(const struct ls_conv2d_shape *shape);

#endif
