/* Which way the convolutions of GPUs go, and how they cut a batch so that what they unfold fits in bounded scratch
 * memory. Plain C that knows nothing of CUDA: the model asks before anything is allocated. kernels/cuda/conv2d.cu says
 * what the parts hold. */
#ifndef LS_KERNELS_CUDA_CONV2D_PLAN_H
#define LS_KERNELS_CUDA_CONV2D_PLAN_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/kernels.h"

#define LS_CUDA_CONV2D_UNFOLDED_NBYTES ((size_t)64 << 20) /* at most, but for a single sample that needs more */

struct ls_cuda_conv2d_plan {
    bool is_direct;   /* all three operations go without unfolding; the rule is in cuda_conv2d_plan.c */
    size_t taps;      /* in_channels x kernel_h x kernel_w */
    size_t rows;      /* of an unfolded sample: the taps, one of ones for the bias, and zeros up to 16 bytes */
    size_t out_plane; /* columns of an unfolded sample */
    size_t samples;   /* of the batch that are unfolded at a time, at least 1; direct: 0 */
    /* direct: how kernels/cuda/conv2d_direct_weights.cu cuts the weights' gradient. An output image is `strips` strips
     * of strip_quads x 4 columns; a share is share_lines lines of the batch's strips, the last one may be smaller. */
    size_t strips, strip_quads, shares, share_lines;
    size_t group_channels; /* input channels of a block */
    /* floats of the workspace's parts, in this order, each beginning on a 64-byte line; no less for a larger batch */
    size_t unfolded_count; /* room for samples x rows x out_plane elements, or floats, which are folded; direct: 0 */
    size_t partial_count;  /* at least samples (direct: shares) x out_channels x rows, the weight gradients of each */
    size_t weight_count;   /* room for out_channels x rows elements, the weights beside their bias; direct: 0 */
};

/* `unfolded_nbytes` bounds the unfolded samples (LS_CUDA_CONV2D_UNFOLDED_NBYTES; tests take less). false: the shape
 * has no output, or one sample is more than kernels can count in an int. */
bool ls_cuda_conv2d_make_plan(const struct ls_conv2d_shape *shape, size_t unfolded_nbytes,
                              struct ls_cuda_conv2d_plan *plan);

/* Bytes of the whole workspace; 0 if there is no plan: the operations themselves report that. */
size_t ls_cuda_conv2d_workspace_nbytes(const struct ls_conv2d_shape *shape);

#ifdef __cplusplus
}
#endif
#endif
