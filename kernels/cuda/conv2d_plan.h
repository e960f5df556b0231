/* Whether a GPU's convolution unfolds its input or works directly, and how it cuts a batch so that unfolded images fit
 * into bounded scratch memory. Plain C without CUDA, since the model calls this before anything is allocated.
 * kernels/cuda/conv2d.cu describes the parts. */
#ifndef LS_KERNELS_CUDA_CONV2D_PLAN_H
#define LS_KERNELS_CUDA_CONV2D_PLAN_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/kernels.h"

#define LS_CUDA_CONV2D_UNFOLDED_NBYTES ((size_t)64 << 20) /* a single sample may need more */

struct ls_cuda_conv2d_plan {
    bool is_direct;   /* no operation unfolds; the rule is in cuda_conv2d_plan.c */
    size_t taps;      /* in_channels x kernel_h x kernel_w */
    size_t rows;      /* of an unfolded sample: the taps, one of ones for the bias, zeros up to 16 bytes */
    size_t out_plane; /* columns of an unfolded sample */
    size_t samples;   /* samples that are unfolded at a time, at least 1; direct: 0 */
    /* direct: how kernels/cuda/conv2d_direct_weights.cu cuts the weights' gradient. An output image has `strips` strips
     * of strip_quads x 4 columns. A share is share_lines lines of the batch's strips; the last one may be smaller. */
    size_t strips, strip_quads, shares, share_lines;
    size_t group_channels; /* input channels of a block */
    /* sizes of the workspace's parts in floats, in this order; each begins on a 64-byte line. A larger batch never
     * needs less */
    size_t unfolded_count; /* samples x rows x out_plane elements (floats where they are folded); direct: 0 */
    size_t partial_count;  /* each sample's (direct: share's) weight gradients, out_channels x rows */
    size_t weight_count;   /* out_channels x rows elements: the weights and the bias; direct: 0 */
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
