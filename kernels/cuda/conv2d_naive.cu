/* conv2d_naive — convolutions, naive rung: a thread for each element of the result, straight from the formula. No
 * workspace.
 *   launch : blocks of 256 threads, one element each: the output, the input's gradient, the weights' gradient
 *   bytes  : every multiplication reads two floats, from the cache at best; flops as ls_conv2d_flops says. The
 *            weights' gradient of a small layer keeps few threads busy for long: 400 weights walk through all pixels
 *            of the batch
 *   order  : that of kernels/cpu, and its bits: one chain of fused multiply-adds for each sum, over (kh, channel, kw)
 *            forward, the same with the kernel turned for the input's gradient; the weights' and the bias's a chain
 *            over each image's pixels, images added in batch order */
#include "kernels/cuda/conv2d.cuh"

using namespace ls_cuda;

namespace {

__global__ void forward_element(Conv2d c, const float *x, const float *w, const float *bias, float *y, size_t count) {
    size_t i = global_thread();
    if (i >= count) return;
    size_t n = i / out_image(c);
    int in_sample = (int)(i - n * out_image(c)), o = in_sample / c.out_plane, pixel = in_sample - o * c.out_plane;
    int top = pixel / c.out_width * c.stride - c.padding, left = pixel % c.out_width * c.stride - c.padding;
    float sum = bias ? bias[o] : 0;
    for (int kh = 0; kh < c.kernel_h; kh++) {
        if (!is_inside(top + kh, c.height)) continue;
        for (int channel = 0; channel < c.channels; channel++) {
            const float *line = x + n * in_image(c) + (size_t)(channel * c.height + top + kh) * (size_t)c.width;
            const float *weights = w + (size_t)((o * c.channels + channel) * c.kernel_h + kh) * (size_t)c.kernel_w;
            for (int kw = 0; kw < c.kernel_w; kw++) {
                if (is_inside(left + kw, c.width)) sum = fmaf(line[left + kw], weights[kw], sum);
            }
        }
    }
    y[i] = sum;
}

/* The output line or column that meets an input place with place k of the kernel; -1: none does. */
__device__ int met_by(const Conv2d &c, int place, int k, int end) {
    int from = place + c.padding - k;
    return from >= 0 && from % c.stride == 0 && from / c.stride < end ? from / c.stride : -1;
}

__global__ void backward_data_element(Conv2d c, const float *dy, const float *w, float *dx, size_t count) {
    size_t i = global_thread();
    if (i >= count) return;
    size_t n = i / in_image(c);
    int in_sample = (int)(i - n * in_image(c)), channel = in_sample / c.in_plane, place = in_sample % c.in_plane;
    float sum = 0;
    for (int kh = c.kernel_h - 1; kh >= 0; kh--) {
        int oh = met_by(c, place / c.width, kh, c.out_height);
        for (int o = 0; oh >= 0 && o < c.out_channels; o++) {
            const float *line = dy + n * out_image(c) + (size_t)(o * c.out_height + oh) * (size_t)c.out_width;
            const float *weights = w + (size_t)((o * c.channels + channel) * c.kernel_h + kh) * (size_t)c.kernel_w;
            for (int kw = c.kernel_w - 1; kw >= 0; kw--) {
                int ow = met_by(c, place % c.width, kw, c.out_width);
                if (ow >= 0) sum = fmaf(line[ow], weights[kw], sum);
            }
        }
    }
    dx[i] = sum;
}

/* Of one image. */
__device__ float weight_gradient(const Conv2d &c, const float *x, const float *dy, int kh, int kw) {
    float sum = 0;
    for (int oh = 0; oh < c.out_height; oh++) {
        int h = oh * c.stride - c.padding + kh;
        for (int ow = 0; ow < c.out_width && is_inside(h, c.height); ow++) {
            int v = ow * c.stride - c.padding + kw;
            if (is_inside(v, c.width)) sum = fmaf(x[h * c.width + v], dy[oh * c.out_width + ow], sum);
        }
    }
    return sum;
}

__global__ void backward_weights_element(Conv2d c, int batch, const float *x, const float *dy, float *dw,
                                         bool accumulate, size_t count) {
    size_t i = global_thread();
    if (i >= count) return;
    int o = (int)i / c.taps, tap = (int)i % c.taps, kw = tap % c.kernel_w, kh = tap / c.kernel_w % c.kernel_h;
    int channel = tap / (c.kernel_w * c.kernel_h);
    float total = 0;
    for (int n = 0; n < batch; n++) {
        const float *image = x + (size_t)n * in_image(c) + (size_t)channel * (size_t)c.in_plane;
        total += weight_gradient(c, image, dy + (size_t)n * out_image(c) + (size_t)o * (size_t)c.out_plane, kh, kw);
    }
    dw[i] = accumulate ? dw[i] + total : total;
}

__global__ void bias_gradient_element(Conv2d c, int batch, const float *dy, float *dbias, bool accumulate) {
    int o = (int)global_thread();
    if (o >= c.out_channels) return;
    float total = 0;
    for (int n = 0; n < batch; n++) {
        const float *plane = dy + (size_t)n * out_image(c) + (size_t)o * (size_t)c.out_plane;
        float sum = 0;
        for (int pixel = 0; pixel < c.out_plane; pixel++) sum += plane[pixel];
        total += sum;
    }
    dbias[o] = accumulate ? dbias[o] + total : total;
}

} // namespace

ls_status ls_cuda_naive_conv2d_forward(const ls_conv2d_forward_arguments *a, const ls_cuda_lane *lane) {
    ls_cuda_conv2d_plan plan;
    Conv2d c;
    ls_status status = make_conv2d(a->shape, &plan, &c);
    if (status != LS_OK) return status;
    size_t count = (size_t)a->shape.batch * out_image(c);
    return launch_each(lane, "conv2d_forward", count, forward_element, c, a->x, a->w, a->bias, a->y, count);
}

ls_status ls_cuda_naive_conv2d_backward_data(const ls_conv2d_backward_data_arguments *a, const ls_cuda_lane *lane) {
    ls_cuda_conv2d_plan plan;
    Conv2d c;
    ls_status status = make_conv2d(a->shape, &plan, &c);
    if (status != LS_OK) return status;
    size_t count = (size_t)a->shape.batch * in_image(c);
    return launch_each(lane, "conv2d_backward_data", count, backward_data_element, c, a->dy, a->w, a->dx, count);
}

ls_status ls_cuda_naive_conv2d_backward_weights(const ls_conv2d_backward_weights_arguments *a,
                                                const ls_cuda_lane *lane) {
    ls_cuda_conv2d_plan plan;
    Conv2d c;
    ls_status status = make_conv2d(a->shape, &plan, &c);
    if (status != LS_OK) return status;
    size_t count = (size_t)c.out_channels * (size_t)c.taps;
    status = launch_each(lane, "conv2d_backward_weights", count, backward_weights_element, c, a->shape.batch, a->x,
                         a->dy, a->dw, a->accumulate, count);
    if (status != LS_OK || a->dbias == nullptr) return status;
    return launch_each(lane, "conv2d_backward_weights", (size_t)c.out_channels, bias_gradient_element, c,
                       a->shape.batch, a->dy, a->dbias, a->accumulate);
}
