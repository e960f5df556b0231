/* conv2d_naive — convolutions, naive rung: a thread for each element of the result, directly from the formula. No
 * workspace.
 *   launch : blocks of 256 threads, one element each: the output, the input's gradient, the weights' gradient
 *   bytes  : every multiplication reads two elements, from the cache at best; flops of ls_conv2d_flops. The
 *            weights' gradient of a small layer keeps few threads busy for long: 400 weights are 400 threads, each over
 *            all pixels of the batch
 *   order  : that of kernels/cpu, and its bits: one chain of fused multiply-adds for each sum. Forward it runs over
 *            (kh, channel, kw); for the input's gradient the same, with the kernel rotated; for weights and bias over
 *            each image's pixels, and images are added in batch order */
#include "kernels/cuda/conv2d.cuh"

using namespace ls_cuda;

namespace {

template <class T>
__global__ void forward_element(Conv2d c, const T *x, const T *w, const T *bias, T *y, size_t count) {
    size_t i = global_thread();
    if (i >= count) return;
    size_t n = i / out_image(c);
    int in_sample = (int)(i - n * out_image(c)), o = in_sample / c.out_plane, pixel = in_sample - o * c.out_plane;
    int top = pixel / c.out_width * c.stride - c.padding, left = pixel % c.out_width * c.stride - c.padding;
    float sum = bias ? to_float(bias[o]) : 0;
    for (int kh = 0; kh < c.kernel_h; kh++) {
        if (!is_inside(top + kh, c.height)) continue;
        for (int channel = 0; channel < c.channels; channel++) {
            const T *line = x + n * in_image(c) + (size_t)(channel * c.height + top + kh) * (size_t)c.width;
            const T *weights = w + (size_t)((o * c.channels + channel) * c.kernel_h + kh) * (size_t)c.kernel_w;
            for (int kw = 0; kw < c.kernel_w; kw++) {
                if (is_inside(left + kw, c.width)) sum = fmaf(to_float(line[left + kw]), to_float(weights[kw]), sum);
            }
        }
    }
    y[i] = from_float<T>(sum);
}

/* The output line (or column) that uses this input line at position k of the kernel; -1 if there is none. */
__device__ int met_by(const Conv2d &c, int place, int k, int end) {
    int from = place + c.padding - k;
    return from >= 0 && from % c.stride == 0 && from / c.stride < end ? from / c.stride : -1;
}

template <class T> __global__ void backward_data_element(Conv2d c, const T *dy, const T *w, T *dx, size_t count) {
    size_t i = global_thread();
    if (i >= count) return;
    size_t n = i / in_image(c);
    int in_sample = (int)(i - n * in_image(c)), channel = in_sample / c.in_plane, place = in_sample % c.in_plane;
    float sum = 0;
    for (int kh = c.kernel_h - 1; kh >= 0; kh--) {
        int oh = met_by(c, place / c.width, kh, c.out_height);
        for (int o = 0; oh >= 0 && o < c.out_channels; o++) {
            const T *line = dy + n * out_image(c) + (size_t)(o * c.out_height + oh) * (size_t)c.out_width;
            const T *weights = w + (size_t)((o * c.channels + channel) * c.kernel_h + kh) * (size_t)c.kernel_w;
            for (int kw = c.kernel_w - 1; kw >= 0; kw--) {
                int ow = met_by(c, place % c.width, kw, c.out_width);
                if (ow >= 0) sum = fmaf(to_float(line[ow]), to_float(weights[kw]), sum);
            }
        }
    }
    dx[i] = from_float<T>(sum);
}

/* The gradient of one image. */
template <class T> __device__ float weight_gradient(const Conv2d &c, const T *x, const T *dy, int kh, int kw) {
    float sum = 0;
    for (int oh = 0; oh < c.out_height; oh++) {
        int h = oh * c.stride - c.padding + kh;
        for (int ow = 0; ow < c.out_width && is_inside(h, c.height); ow++) {
            int v = ow * c.stride - c.padding + kw;
            if (is_inside(v, c.width))
                sum = fmaf(to_float(x[h * c.width + v]), to_float(dy[oh * c.out_width + ow]), sum);
        }
    }
    return sum;
}

template <class T>
__global__ void backward_weights_element(Conv2d c, int batch, const T *x, const T *dy, float *dw, bool accumulate,
                                         size_t count) {
    size_t i = global_thread();
    if (i >= count) return;
    int o = (int)i / c.taps, tap = (int)i % c.taps, kw = tap % c.kernel_w, kh = tap / c.kernel_w % c.kernel_h;
    int channel = tap / (c.kernel_w * c.kernel_h);
    float total = 0;
    for (int n = 0; n < batch; n++) {
        const T *image = x + (size_t)n * in_image(c) + (size_t)channel * (size_t)c.in_plane;
        total += weight_gradient(c, image, dy + (size_t)n * out_image(c) + (size_t)o * (size_t)c.out_plane, kh, kw);
    }
    dw[i] = accumulate ? dw[i] + total : total;
}

template <class T>
__global__ void bias_gradient_element(Conv2d c, int batch, const T *dy, float *dbias, bool accumulate) {
    int o = (int)global_thread();
    if (o >= c.out_channels) return;
    float total = 0;
    for (int n = 0; n < batch; n++) {
        const T *plane = dy + (size_t)n * out_image(c) + (size_t)o * (size_t)c.out_plane;
        float sum = 0;
        for (int pixel = 0; pixel < c.out_plane; pixel++) sum += to_float(plane[pixel]);
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
    return with_element(c.dtype, "conv2d_forward", [&](auto zero) {
        using T = decltype(zero);
        return launch_each(lane, "conv2d_forward", count, forward_element<T>, c, static_cast<const T *>(a->x),
                           static_cast<const T *>(a->w), static_cast<const T *>(a->bias), static_cast<T *>(a->y),
                           count);
    });
}

ls_status ls_cuda_naive_conv2d_backward_data(const ls_conv2d_backward_data_arguments *a, const ls_cuda_lane *lane) {
    ls_cuda_conv2d_plan plan;
    Conv2d c;
    ls_status status = make_conv2d(a->shape, &plan, &c);
    if (status != LS_OK) return status;
    size_t count = (size_t)a->shape.batch * in_image(c);
    return with_element(c.dtype, "conv2d_backward_data", [&](auto zero) {
        using T = decltype(zero);
        return launch_each(lane, "conv2d_backward_data", count, backward_data_element<T>, c,
                           static_cast<const T *>(a->dy), static_cast<const T *>(a->w), static_cast<T *>(a->dx), count);
    });
}

ls_status ls_cuda_naive_conv2d_backward_weights(const ls_conv2d_backward_weights_arguments *a,
                                                const ls_cuda_lane *lane) {
    const char *op = "conv2d_backward_weights";
    ls_cuda_conv2d_plan plan;
    Conv2d c;
    ls_status status = make_conv2d(a->shape, &plan, &c);
    if (status != LS_OK) return status;
    size_t count = (size_t)c.out_channels * (size_t)c.taps;
    return with_element(c.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        const T *x = static_cast<const T *>(a->x), *dy = static_cast<const T *>(a->dy);
        ls_status done = launch_each(lane, op, count, backward_weights_element<T>, c, a->shape.batch, x, dy, a->dw,
                                     a->accumulate, count);
        if (done != LS_OK || a->dbias == nullptr) return done;
        return launch_each(lane, op, (size_t)c.out_channels, bias_gradient_element<T>, c, a->shape.batch, dy, a->dbias,
                           a->accumulate);
    });
}
