/* conv2d — convolutions, fast rung. Small kernels over few channels are computed by conv2d_direct.cu and
 * conv2d_direct_weights.cu. For all others, the input values under the kernel at each output pixel become a column
 * of a matrix ("unfolded", im2col). The rest is matrix multiplies, one for each image; one call of cuBLAS computes all
 * images of a piece of the batch.
 *
 *     forward            y[n] = [w bias 0] unfolded[n]       (out_channels x rows) (rows x out_plane)
 *     backward data      folded from w^T dy[n]               (taps x out_channels) (out_channels x out_plane)
 *     backward weights   [dw dbias .] =
 *                            sum of dy[n] unfolded[n]^T      (out_channels x out_plane) (out_plane x rows)
 *
 *   terms : taps = in_channels x kernel_h x kernel_w. rows = the taps, a row of ones, and rows of zeros up to a
 *           multiple of 16 bytes, so that matrices begin where cuBLAS reads them fastest. With the row of ones, the
 *           products also add the bias and sum its gradient, which saves a pass over y and one over dy. With TF32, the
 *           bias and the terms of its gradient are then rounded as the weights are
 *   cost  : flops of ls_conv2d_flops, by cuBLAS. Bytes: an unfolded image is written and read once, kernel_h x
 *           kernel_w times the size of the image (25 for 5x5): 78 KB for 1x28x28, 313 KB for 16x14x14. For a batch of
 *           64, that fits into the L2 cache
 *   half  : x is unfolded in its type, and the products run on tensor cores with fp32 sums. The products for backward
 *           data and the weights' gradients are stored as fp32, so that every result is rounded once, or not at all
 *   memory: the workspace (conv2d_plan.h) bounds the unfolded images; a larger batch is computed piece by piece
 *   order : within a product cuBLAS's: not that of kernels/cpu, but the same at every call on arrays of the same
 *           alignment (an H100 adds half-precision values in another order at another multiple of 16 bytes). Weight
 *           gradients: the product itself adds image i of each piece to image i of the pieces before it; then the sum
 *           over i, in the order of conv2d_unfold.cu */
#include "kernels/cuda/conv2d.cuh"

using namespace ls_cuda;

namespace {

/* An operation's sizes, and the parts of its workspace. */
struct Job {
    ls_cuda_conv2d_plan plan;
    Conv2d c;
    size_t batch;
    void *unfolded; /* elements; in backward data floats to be folded */
    float *partial;
    void *packed;

    /* Number of images of the piece that begins at image n. */
    size_t piece(size_t n) const { return batch - n < plan.samples ? batch - n : plan.samples; }

    /* Image n of an array of images of `elements` elements. */
    const void *image(const void *images, size_t n, size_t elements) const {
        return static_cast<const char *>(images) + n * elements * ls_dtype_nbytes(c.dtype);
    }
    void *image(void *images, size_t n, size_t elements) const {
        return static_cast<char *>(images) + n * elements * ls_dtype_nbytes(c.dtype);
    }
};

ls_status make_job(const ls_conv2d_shape &s, void *workspace, Job *job) {
    ls_status status = make_conv2d(s, &job->plan, &job->c);
    if (status != LS_OK) return status;
    job->batch = (size_t)s.batch;
    job->unfolded = workspace;
    job->partial = static_cast<float *>(workspace) + ls_aligned_floats(job->plan.unfolded_count);
    job->packed = job->partial + ls_aligned_floats(job->plan.partial_count);
    return LS_OK;
}

} // namespace

ls_status ls_cuda_conv2d_forward(const ls_conv2d_forward_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "conv2d_forward";
    Job job;
    ls_status status = make_job(a->shape, a->workspace, &job);
    const Conv2d &c = job.c;
    if (status == LS_OK && job.plan.is_direct) return direct_forward(lane, c, a);
    for (size_t n = 0; status == LS_OK && n < job.batch; n += job.plan.samples) {
        size_t samples = job.piece(n);
        status = unfold(lane, op, c, samples, job.image(a->x, n, in_image(c)), job.unfolded, a->w, a->bias,
                        n == 0 ? job.packed : nullptr);
        if (status != LS_OK) break;
        ls_cuda_product product = {};
        product.dtype = product.c_dtype = c.dtype;
        product.m = (size_t)c.out_channels, product.n = (size_t)c.out_plane, product.k = (size_t)c.rows;
        product.a = job.packed;
        product.b = job.unfolded, product.stride_b = product.k * product.n;
        product.c = job.image(a->y, n, out_image(c)), product.stride_c = out_image(c);
        product.batch = samples;
        status = ls_cuda_matmul(lane, op, &product);
    }
    return status;
}

ls_status ls_cuda_conv2d_backward_data(const ls_conv2d_backward_data_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "conv2d_backward_data";
    Job job;
    ls_status status = make_job(a->shape, a->workspace, &job);
    const Conv2d &c = job.c;
    if (status == LS_OK && job.plan.is_direct) return direct_backward_data(lane, c, a);
    for (size_t n = 0; status == LS_OK && n < job.batch; n += job.plan.samples) {
        size_t samples = job.piece(n);
        ls_cuda_product product = {};
        product.dtype = c.dtype, product.c_dtype = LS_FP32;
        product.transpose_a = true;
        product.m = (size_t)c.taps, product.n = (size_t)c.out_plane, product.k = (size_t)c.out_channels;
        product.a = a->w;
        product.b = job.image(a->dy, n, out_image(c)), product.stride_b = out_image(c);
        product.c = job.unfolded, product.stride_c = product.m * product.n;
        product.batch = samples;
        status = ls_cuda_matmul(lane, op, &product);
        if (status == LS_OK)
            status =
                fold(lane, op, c, samples, static_cast<const float *>(job.unfolded), job.image(a->dx, n, in_image(c)));
    }
    return status;
}

ls_status ls_cuda_conv2d_backward_weights(const ls_conv2d_backward_weights_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "conv2d_backward_weights";
    Job job;
    ls_status status = make_job(a->shape, a->workspace, &job);
    const Conv2d &c = job.c;
    if (status == LS_OK && job.plan.is_direct) return direct_backward_weights(lane, c, job.plan, a, job.partial);
    for (size_t n = 0; status == LS_OK && n < job.batch; n += job.plan.samples) {
        size_t samples = job.piece(n);
        status = unfold(lane, op, c, samples, job.image(a->x, n, in_image(c)), job.unfolded);
        if (status != LS_OK) break;
        ls_cuda_product product = {};
        product.dtype = c.dtype, product.c_dtype = LS_FP32;
        product.transpose_b = true;
        product.m = (size_t)c.out_channels, product.n = (size_t)c.rows, product.k = (size_t)c.out_plane;
        product.a = job.image(a->dy, n, out_image(c)), product.stride_a = out_image(c);
        product.b = job.unfolded, product.stride_b = product.n * product.k;
        product.beta = n > 0 ? 1 : 0;
        product.c = job.partial, product.stride_c = product.m * product.n;
        product.batch = samples;
        status = ls_cuda_matmul(lane, op, &product);
    }
    if (status != LS_OK) return status;
    return add_partials(lane, op, c, job.piece(0), job.partial, a->dw, a->dbias, a->accumulate);
}
