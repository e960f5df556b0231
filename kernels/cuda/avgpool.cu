/* avgpool — the mean of each plane.
 *   naive  : a thread for each plane, which adds its elements one after another; backward a thread for each element
 *   fast   : forward a warp for each plane, so that a warp reads neighbouring elements; backward is the naive rung's
 *   bytes  : each element is read or written once
 *   order  : naive: ascending, the bits of kernels/cpu. fast: each lane adds every 32nd element, then a butterfly over
 *            the lanes (warp_sum) */
#include "kernels/cuda/launch.cuh"

using namespace ls_cuda;

namespace {

template <class T> __global__ void forward_plane(size_t planes, size_t plane, T *y, const T *x) {
    size_t p = global_thread();
    if (p >= planes) return;
    float sum = 0;
    for (size_t i = 0; i < plane; i++) sum += to_float(x[p * plane + i]);
    y[p] = from_float<T>(sum / (float)plane);
}

template <class T> __global__ void forward_warp(size_t planes, size_t plane, T *y, const T *x) {
    size_t p = global_thread() / WARP, lane = threadIdx.x % WARP;
    if (p >= planes) return;
    float sum = 0;
    for (size_t i = lane; i < plane; i += WARP) sum += to_float(x[p * plane + i]);
    sum = warp_sum(sum);
    if (lane == 0) y[p] = from_float<T>(sum / (float)plane);
}

template <class T> __global__ void backward_element(size_t count, size_t plane, T *dx, const T *dy) {
    size_t i = global_thread();
    if (i < count) dx[i] = from_float<T>(to_float(dy[i / plane]) / (float)plane);
}

} // namespace

ls_status ls_cuda_naive_avgpool_forward(const ls_avgpool_forward_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "avgpool_forward";
    return with_element(a->dtype, op, [&](auto zero) {
        using T = decltype(zero);
        return launch_each(lane, op, a->planes, forward_plane<T>, a->planes, a->plane, a->y, a->x);
    });
}

ls_status ls_cuda_avgpool_forward(const ls_avgpool_forward_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "avgpool_forward";
    return with_element(a->dtype, op, [&](auto zero) {
        using T = decltype(zero);
        return launch_each(lane, op, a->planes * WARP, forward_warp<T>, a->planes, a->plane, a->y, a->x);
    });
}

ls_status ls_cuda_naive_avgpool_backward(const ls_avgpool_backward_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "avgpool_backward";
    size_t count = a->planes * a->plane;
    return with_element(a->dtype, op, [&](auto zero) {
        using T = decltype(zero);
        return launch_each(lane, op, count, backward_element<T>, count, a->plane, a->dx, a->dy);
    });
}

ls_status ls_cuda_avgpool_backward(const ls_avgpool_backward_arguments *a, const ls_cuda_lane *lane) {
    return ls_cuda_naive_avgpool_backward(a, lane);
}
