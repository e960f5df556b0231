/* maxpool — the largest value of each window, and where it was; windows do not overlap (stride = size).
 *   naive  : forward a thread for each window; backward a thread for each input value, which looks whether its window
 *            chose it. Nothing is added up, and nothing is written twice
 *   fast   : windows of 2x2 that cover the input, the usual ones: a thread takes two neighbours of a row of windows
 *            (one, where rows have an odd number), so that it reads and writes rows of the input 16 (8) bytes at a
 *            time. Everything else goes the naive way, which is right for it too: its reads are shared within a warp
 *   launch : blocks of 256 threads, one window, pair of windows or input value each
 *   bytes  : forward 4 per input value read, 5 per window written; backward 5 per window read, 4 per input value
 *            written. For windows of 2x2, 21 a window each way. flops: 4 comparisons a window
 *   order  : within a window, row by row: the first of equal values wins; a NaN always wins, the last one if there
 *            are several. The bits are those of kernels/cpu */
#include "kernels/cuda/launch.cuh"

using namespace ls_cuda;

namespace {

struct Windows {
    size_t height, width; /* of a plane of windows */
    size_t count;         /* of all planes */
};

Windows windows_of(const ls_pool_shape &s) {
    Windows w = {(size_t)(s.in_height / s.size), (size_t)(s.in_width / s.size), 0};
    w.count = (size_t)s.planes * w.height * w.width;
    return w;
}

struct Best {
    float value;
    int at;

    __device__ void challenge(float other, int k) {
        if (other > value || other != other) {
            value = other;
            at = k;
        }
    }
};

/* --- naive -------------------------------------------------------------------------------------------------------- */

__global__ void forward_window(ls_pool_shape s, Windows windows, float *y, uint8_t *choice, const float *x) {
    size_t i = global_thread();
    if (i >= windows.count) return;
    size_t row = i / windows.width, column = i - row * windows.width, plane = row / windows.height;
    size_t line = plane * (size_t)s.in_height + (row - plane * windows.height) * (size_t)s.size;
    const float *window = x + line * (size_t)s.in_width + column * (size_t)s.size;
    Best best = {-INFINITY, 0};
    for (int r = 0; r < s.size; r++) {
        for (int c = 0; c < s.size; c++)
            best.challenge(window[(size_t)r * (size_t)s.in_width + (size_t)c], r * s.size + c);
    }
    y[i] = best.value;
    choice[i] = (uint8_t)best.at;
}

__global__ void backward_value(ls_pool_shape s, Windows windows, float *dx, const float *dy, const uint8_t *choice,
                               size_t count) {
    size_t i = global_thread();
    if (i >= count) return;
    size_t size = (size_t)s.size, line = i / (size_t)s.in_width, plane = line / (size_t)s.in_height;
    size_t h = line - plane * (size_t)s.in_height, w = i - line * (size_t)s.in_width, row = h / size, column = w / size;
    float gradient = 0;
    if (row < windows.height && column < windows.width) {
        size_t window = (plane * windows.height + row) * windows.width + column;
        if (choice[window] == (h - row * size) * size + w - column * size) gradient = dy[window];
    }
    dx[i] = gradient;
}

/* --- fast: 2x2, N windows a thread -------------------------------------------------------------------------------- */

/* The values of a window's row are where they can be read together. */
template <int N> struct alignas(N * 8) Pairs { float at[2 * N]; };

template <int N> struct alignas(N * 4) Singles { float at[N]; };

template <int N> struct alignas(N) Choices { uint8_t at[N]; };

/* Place of the first input value of window i: rows of windows are two rows of the input. `width`: windows in a row. */
__device__ size_t input_place(unsigned i, unsigned width) { return 2 * ((size_t)i + (size_t)(i / width) * width); }

template <int N>
__global__ void forward_2x2(unsigned width, unsigned count, float *y, uint8_t *choice, const float *x) {
    unsigned i = (unsigned)global_thread() * N;
    if (i >= count) return;
    const float *from = x + input_place(i, width);
    Pairs<N> upper = *reinterpret_cast<const Pairs<N> *>(from);
    Pairs<N> lower = *reinterpret_cast<const Pairs<N> *>(from + 2 * (size_t)width);
    Singles<N> values;
    Choices<N> choices;
    for (int k = 0; k < N; k++) {
        Best best = {-INFINITY, 0};
        best.challenge(upper.at[2 * k], 0);
        best.challenge(upper.at[2 * k + 1], 1);
        best.challenge(lower.at[2 * k], 2);
        best.challenge(lower.at[2 * k + 1], 3);
        values.at[k] = best.value;
        choices.at[k] = (uint8_t)best.at;
    }
    *reinterpret_cast<Singles<N> *>(y + i) = values;
    *reinterpret_cast<Choices<N> *>(choice + i) = choices;
}

template <int N>
__global__ void backward_2x2(unsigned width, unsigned count, float *dx, const float *dy, const uint8_t *choice) {
    unsigned i = (unsigned)global_thread() * N;
    if (i >= count) return;
    Singles<N> gradients = *reinterpret_cast<const Singles<N> *>(dy + i);
    Choices<N> choices = *reinterpret_cast<const Choices<N> *>(choice + i);
    Pairs<N> upper, lower;
    for (int k = 0; k < N; k++) {
        for (int c = 0; c < 2; c++) {
            upper.at[2 * k + c] = choices.at[k] == c ? gradients.at[k] : 0;
            lower.at[2 * k + c] = choices.at[k] == 2 + c ? gradients.at[k] : 0;
        }
    }
    float *to = dx + input_place(i, width);
    *reinterpret_cast<Pairs<N> *>(to) = upper;
    *reinterpret_cast<Pairs<N> *>(to + 2 * (size_t)width) = lower;
}

/* How many windows a thread takes on the fast rung; 0: not this way. */
int windows_a_thread(const ls_pool_shape &s, const Windows &w, const float *input, const float *output,
                     const uint8_t *choice) {
    bool covers = s.size == 2 && s.in_height == 2 * (int)w.height && s.in_width == 2 * (int)w.width;
    if (!covers || w.count > INT32_MAX) return 0;
    auto lies = [](const void *memory, size_t nbytes) { return reinterpret_cast<uintptr_t>(memory) % nbytes == 0; };
    if (w.width % 2 == 0 && lies(input, 16) && lies(output, 8) && lies(choice, 2)) return 2;
    return lies(input, 8) ? 1 : 0;
}

} // namespace

ls_status ls_cuda_naive_maxpool_forward(const ls_maxpool_forward_arguments *a, const ls_cuda_lane *lane) {
    Windows w = windows_of(a->shape);
    return launch_each(lane, "maxpool_forward", w.count, forward_window, a->shape, w, a->y, a->choice, a->x);
}

ls_status ls_cuda_naive_maxpool_backward(const ls_maxpool_backward_arguments *a, const ls_cuda_lane *lane) {
    size_t count = ls_pool_count(&a->shape);
    return launch_each(lane, "maxpool_backward", count, backward_value, a->shape, windows_of(a->shape), a->dx, a->dy,
                       a->choice, count);
}

ls_status ls_cuda_maxpool_forward(const ls_maxpool_forward_arguments *a, const ls_cuda_lane *lane) {
    Windows w = windows_of(a->shape);
    int each = windows_a_thread(a->shape, w, a->x, a->y, a->choice);
    if (each == 0) return ls_cuda_naive_maxpool_forward(a, lane);
    return launch_each(lane, "maxpool_forward", w.count / (size_t)each, each == 2 ? forward_2x2<2> : forward_2x2<1>,
                       (unsigned)w.width, (unsigned)w.count, a->y, a->choice, a->x);
}

ls_status ls_cuda_maxpool_backward(const ls_maxpool_backward_arguments *a, const ls_cuda_lane *lane) {
    Windows w = windows_of(a->shape);
    int each = windows_a_thread(a->shape, w, a->dx, a->dy, a->choice);
    if (each == 0) return ls_cuda_naive_maxpool_backward(a, lane);
    return launch_each(lane, "maxpool_backward", w.count / (size_t)each, each == 2 ? backward_2x2<2> : backward_2x2<1>,
                       (unsigned)w.width, (unsigned)w.count, a->dx, a->dy, a->choice);
}
