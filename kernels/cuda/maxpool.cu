/* maxpool — the largest value of each window, and its index; windows do not overlap (stride = size).
 *   naive  : forward a thread for each window; backward a thread for each input value, which checks whether its window
 *            chose it. Nothing is added up, and nothing is written twice
 *   fast   : windows of 2x2 that cover the input, the usual ones: a thread takes two neighbouring windows, so that it
 *            reads and writes four input elements at a time; one window, and two elements, if rows have an odd number
 *            or the arrays are not aligned. In all other cases the naive kernels run: they suffice, since a warp shares
 *            its reads
 *   types  : elements are compared as floats; each result is an element of the input, so nothing is rounded
 *   launch : blocks of 256 threads, one window, pair of windows or input value each
 *   bytes  : forward reads an element per input value, and writes an element and a byte per window; backward the
 *            reverse. For windows of 2x2, 21 a window each way (half precision: 11). flops: 4 comparisons a window
 *   order  : within a window, row by row: the first of equal values wins; a NaN always wins, the last one if there are
 *            several. The bits are those of kernels/cpu (except a NaN's) */
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

template <class T> struct Best {
    T element;
    float value;
    int at = 0;

    __device__ explicit Best(T first) : element(first), value(to_float(first)) {}

    __device__ void challenge(T other, int k) {
        float number = to_float(other);
        if (number > value || number != number) {
            element = other;
            value = number;
            at = k;
        }
    }
};

/* --- naive -------------------------------------------------------------------------------------------------------- */

template <class T> __global__ void forward_window(ls_pool_shape s, Windows windows, T *y, uint8_t *choice, const T *x) {
    size_t i = global_thread();
    if (i >= windows.count) return;
    size_t row = i / windows.width, column = i - row * windows.width, plane = row / windows.height;
    size_t line = plane * (size_t)s.in_height + (row - plane * windows.height) * (size_t)s.size;
    const T *window = x + line * (size_t)s.in_width + column * (size_t)s.size;
    Best<T> best(*window);
    for (int r = 0; r < s.size; r++) {
        for (int c = 0; c < s.size; c++)
            best.challenge(window[(size_t)r * (size_t)s.in_width + (size_t)c], r * s.size + c);
    }
    y[i] = best.element;
    choice[i] = (uint8_t)best.at;
}

template <class T>
__global__ void backward_value(ls_pool_shape s, Windows windows, T *dx, const T *dy, const uint8_t *choice,
                               size_t count) {
    size_t i = global_thread();
    if (i >= count) return;
    size_t size = (size_t)s.size, line = i / (size_t)s.in_width, plane = line / (size_t)s.in_height;
    size_t h = line - plane * (size_t)s.in_height, w = i - line * (size_t)s.in_width, row = h / size, column = w / size;
    T gradient = from_float<T>(0);
    if (row < windows.height && column < windows.width) {
        size_t window = (plane * windows.height + row) * windows.width + column;
        if (choice[window] == (h - row * size) * size + w - column * size) gradient = dy[window];
    }
    dx[i] = gradient;
}

/* --- fast: 2x2, N windows a thread -------------------------------------------------------------------------------- */

/* COUNT values that are accessed together. */
template <class T, int COUNT> struct alignas(COUNT * sizeof(T)) Together { T at[COUNT]; };

/* The input values of N windows are two of these, in consecutive rows. */
template <class T, int N> using Row = Together<T, 2 * N>;

/* The index of the upper one; the lower is `width` further on. i, width: counted in N windows. */
__device__ size_t upper_row(unsigned i, unsigned width) { return (size_t)i + (size_t)(i / width) * width; }

template <class T, int N>
__global__ void forward_2x2(unsigned width, unsigned count, T *y, uint8_t *choice, const T *x) {
    unsigned i = (unsigned)global_thread();
    if (i >= count) return;
    auto *rows = reinterpret_cast<const Row<T, N> *>(x) + upper_row(i, width);
    Row<T, N> upper = rows[0], lower = rows[width];
    Together<T, N> values;
    Together<uint8_t, N> choices;
    for (int k = 0; k < N; k++) {
        Best<T> best(upper.at[2 * k]);
        best.challenge(upper.at[2 * k + 1], 1);
        best.challenge(lower.at[2 * k], 2);
        best.challenge(lower.at[2 * k + 1], 3);
        values.at[k] = best.element;
        choices.at[k] = (uint8_t)best.at;
    }
    reinterpret_cast<Together<T, N> *>(y)[i] = values;
    reinterpret_cast<Together<uint8_t, N> *>(choice)[i] = choices;
}

template <class T, int N>
__global__ void backward_2x2(unsigned width, unsigned count, T *dx, const T *dy, const uint8_t *choice) {
    unsigned i = (unsigned)global_thread();
    if (i >= count) return;
    const T zero = from_float<T>(0);
    Together<T, N> gradients = reinterpret_cast<const Together<T, N> *>(dy)[i];
    Together<uint8_t, N> choices = reinterpret_cast<const Together<uint8_t, N> *>(choice)[i];
    Row<T, N> upper, lower;
    for (int k = 0; k < N; k++) {
        for (int c = 0; c < 2; c++) {
            upper.at[2 * k + c] = choices.at[k] == c ? gradients.at[k] : zero;
            lower.at[2 * k + c] = choices.at[k] == 2 + c ? gradients.at[k] : zero;
        }
    }
    auto *rows = reinterpret_cast<Row<T, N> *>(dx) + upper_row(i, width);
    rows[0] = upper;
    rows[width] = lower;
}

/* Number of windows per thread on the fast rung; 0: the naive kernels run. */
template <class T>
size_t windows_a_thread(const ls_pool_shape &s, const Windows &w, const void *input, const void *output,
                        const uint8_t *choice) {
    bool covers = s.size == 2 && s.in_height == 2 * (int)w.height && s.in_width == 2 * (int)w.width;
    if (!covers || w.count > INT32_MAX) return 0;
    auto lies = [](const void *memory, size_t nbytes) { return reinterpret_cast<uintptr_t>(memory) % nbytes == 0; };
    size_t pair = 2 * sizeof(T);
    if (w.width % 2 == 0 && lies(input, 2 * pair) && lies(output, pair) && lies(choice, 2)) return 2;
    return lies(input, pair) ? 1 : 0;
}

} // namespace

ls_status ls_cuda_naive_maxpool_forward(const ls_maxpool_forward_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "maxpool_forward";
    Windows w = windows_of(a->shape);
    return with_element(a->shape.dtype, op, [&](auto zero) {
        return launch_each(lane, op, w.count, forward_window<decltype(zero)>, a->shape, w, a->y, a->choice, a->x);
    });
}

ls_status ls_cuda_naive_maxpool_backward(const ls_maxpool_backward_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "maxpool_backward";
    size_t count = ls_pool_count(&a->shape);
    return with_element(a->shape.dtype, op, [&](auto zero) {
        return launch_each(lane, op, count, backward_value<decltype(zero)>, a->shape, windows_of(a->shape), a->dx,
                           a->dy, a->choice, count);
    });
}

ls_status ls_cuda_maxpool_forward(const ls_maxpool_forward_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "maxpool_forward";
    Windows w = windows_of(a->shape);
    return with_element(a->shape.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        size_t each = windows_a_thread<T>(a->shape, w, a->x, a->y, a->choice);
        if (each == 0) return ls_cuda_naive_maxpool_forward(a, lane);
        auto kernel = each == 2 ? forward_2x2<T, 2> : forward_2x2<T, 1>;
        size_t width = w.width / each, count = w.count / each;
        return launch_each(lane, op, count, kernel, (unsigned)width, (unsigned)count, a->y, a->choice, a->x);
    });
}

ls_status ls_cuda_maxpool_backward(const ls_maxpool_backward_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "maxpool_backward";
    Windows w = windows_of(a->shape);
    return with_element(a->shape.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        size_t each = windows_a_thread<T>(a->shape, w, a->dx, a->dy, a->choice);
        if (each == 0) return ls_cuda_naive_maxpool_backward(a, lane);
        auto kernel = each == 2 ? backward_2x2<T, 2> : backward_2x2<T, 1>;
        size_t width = w.width / each, count = w.count / each;
        return launch_each(lane, op, count, kernel, (unsigned)width, (unsigned)count, a->dx, a->dy, a->choice);
    });
}
