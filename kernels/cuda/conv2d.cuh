/* Shared by both rungs of the convolutions. C++ only. */
#ifndef LS_KERNELS_CUDA_CONV2D_CUH
#define LS_KERNELS_CUDA_CONV2D_CUH

#include "kernels/cuda/conv2d_plan.h"
#include "kernels/cuda/launch.cuh"

namespace ls_cuda {

/* A convolution's sizes, as kernels use them; those of one sample fit into an int. */
struct Conv2d {
    int channels, height, width;             /* of the input */
    int out_channels, out_height, out_width; /* of the output */
    int kernel_h, kernel_w, stride, padding;
    int in_plane, out_plane, taps, rows; /* taps and rows as in struct ls_cuda_conv2d_plan */
    ls_dtype dtype;                      /* of images, weights and bias */
};

/* LS_ERR_INVALID if the shape has no output or is too large, with the message of kernels/cpu. */
inline ls_status make_conv2d(const ls_conv2d_shape &s, ls_cuda_conv2d_plan *plan, Conv2d *c) {
    if (!ls_cuda_conv2d_make_plan(&s, LS_CUDA_CONV2D_UNFOLDED_NBYTES, plan)) {
        return ls_fail(
            LS_ERR_INVALID,
            "conv2d of a %dx%d image with a %dx%d kernel, stride %d and padding %d (%d to %d channels) has no "
            "output or is too large for one image's workspace",
            s.in_height, s.in_width, s.kernel_h, s.kernel_w, s.stride, s.padding, s.in_channels, s.out_channels);
    }
    *c = {
        s.in_channels,   s.in_height,     s.in_width, s.out_channels, ls_conv2d_out_height(&s), ls_conv2d_out_width(&s),
        s.kernel_h,      s.kernel_w,      s.stride,   s.padding,      s.in_height * s.in_width, (int)plan->out_plane,
        (int)plan->taps, (int)plan->rows, s.dtype};
    return LS_OK;
}

__host__ __device__ inline size_t in_image(const Conv2d &c) { return (size_t)c.channels * (size_t)c.in_plane; }
__host__ __device__ inline size_t out_image(const Conv2d &c) { return (size_t)c.out_channels * (size_t)c.out_plane; }

/* 0 <= place < end, in one comparison */
__device__ inline bool is_inside(int place, int end) { return (unsigned)place < (unsigned)end; }

/* --- conv2d_direct.cu: for small kernels and few channels --------------------------------------------------------- */

ls_status direct_forward(const ls_cuda_lane *lane, const Conv2d &c, const ls_conv2d_forward_arguments *a);
ls_status direct_backward_data(const ls_cuda_lane *lane, const Conv2d &c, const ls_conv2d_backward_data_arguments *a);

/* --- conv2d_direct_weights.cu: for the same; `partial` has room for plan.partial_count floats ---------------------- */

ls_status direct_backward_weights(const ls_cuda_lane *lane, const Conv2d &c, const ls_cuda_conv2d_plan &plan,
                                  const ls_conv2d_backward_weights_arguments *a, float *partial);

/* --- conv2d_unfold.cu: the passes around the matrix products; void: elements of c.dtype ---------------------------- */

/* unfolded[n][row][pixel] of `samples` images. Row (channel, kh, kw) has the input value under position (kh, kw) of the
 * kernel at that output pixel, 0 in the padding. A row of ones and rows of zeros follow. With `packed`, also
 * packed[o][row]: the weights, then the bias (0 if NULL), then zeros. */
ls_status unfold(const ls_cuda_lane *lane, const char *op, const Conv2d &c, size_t samples, const void *x,
                 void *unfolded, const void *w = nullptr, const void *bias = nullptr, void *packed = nullptr);

/* dx[n][channel][pixel] = sum of gradients[n][(channel, kh, kw)][out pixel] over all (kh, kw), ascending, and out
 * pixels to which unfold copies that pixel */
ls_status fold(const ls_cuda_lane *lane, const char *op, const Conv2d &c, size_t samples, const float *gradients,
               void *dx);

/* dw[o][tap] = sum over n of partial[n][o][tap]; dbias[o] (may be NULL) likewise of the row after the taps */
ls_status add_partials(const ls_cuda_lane *lane, const char *op, const Conv2d &c, size_t samples, const float *partial,
                       float *dw, float *dbias, bool accumulate);

} // namespace ls_cuda

#endif
