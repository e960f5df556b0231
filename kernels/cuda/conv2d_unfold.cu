/* conv2d_unfold — the passes around the matrix multiplies of conv2d.cu: they move and add numbers, but multiply none.
 *   unfold       a block for each (image, channel, tile of output pixels): a thread takes one pixel, computes its
 *   position
 *                in the input once, and writes all kernel_h x kernel_w rows of the channel there. A warp writes 128
 *                contiguous bytes; the input is read kernel_h x kernel_w times, all but once from the L1 cache. bytes:
 *                4 (half precision: 2) x rows x out_plane written for each image; no flops
 *   fold         the transposed pass as a gather, so that no element is written twice: a thread for each input value
 *   adds
 *                up to kernel_h x kernel_w floats, and rounds the sum. bytes: 4 x taps x out_plane read, 4 (half
 *                precision: 2) x in_plane x channels written for each image; flops: one for each float read
 *   add_partials a block for 32 neighbouring weights: warp g adds the g-th sixteenth of the samples, n ascending, then
 *                the warps' sums are added in that order. bytes: 4 x samples x out_channels x rows; flops: a quarter of
 *                that
 * Kernels of 5x5 and 3x3 have loops of constant length, so that all their reads are in flight at once. */
#include "kernels/cuda/conv2d.cuh"

namespace {

using namespace ls_cuda;

/* The division of a plane: tiles of equal length, a multiple of a warp, at most THREADS. */
struct Tiles {
    unsigned count, threads;
};

Tiles make_tiles(int plane) {
    size_t count = divide_up((size_t)plane, THREADS), threads = divide_up(divide_up((size_t)plane, count), WARP) * WARP;
    return {(unsigned)count, (unsigned)threads};
}

/* The position of a block's work. */
struct Place {
    int in_plane, channel;
    size_t sample;
};

__device__ Place place_of_thread(unsigned tiles, int channels) {
    unsigned plane = blockIdx.x / tiles, sample = plane / (unsigned)channels;
    Place p;
    p.in_plane = (int)((blockIdx.x - plane * tiles) * blockDim.x + threadIdx.x);
    p.channel = (int)(plane - sample * (unsigned)channels);
    p.sample = sample;
    return p;
}

/* --- unfold ------------------------------------------------------------------------------------------------------- */

template <class T> struct Packing {
    const T *w, *bias;
    T *packed;
    unsigned first_block; /* blocks from this one on pack the weights */
};

template <class T> __device__ void pack(const Conv2d &c, const Packing<T> &p) {
    unsigned i = (blockIdx.x - p.first_block) * blockDim.x + threadIdx.x, rows = (unsigned)c.rows;
    unsigned o = i / rows, row = i - o * rows, taps = (unsigned)c.taps;
    if (o >= (unsigned)c.out_channels) return;
    T value = from_float<T>(0);
    if (row < taps) value = p.w[o * taps + row];
    if (row == taps && p.bias) value = p.bias[o];
    p.packed[i] = value;
}

/* The rows after the taps. */
template <class T> __device__ void unfold_ones(const Conv2d &c, T *to) {
    for (int row = c.taps; row < c.rows; row++, to += c.out_plane) *to = from_float<T>(row == c.taps ? 1 : 0);
}

/* K: the kernel is K x K; 0: of any size */
template <int K, class T>
__global__ void unfold_kernel(Conv2d c, unsigned tiles, const T *__restrict__ x, T *__restrict__ unfolded,
                              Packing<T> packing) {
    if (blockIdx.x >= packing.first_block) {
        pack(c, packing);
        return;
    }
    Place p = place_of_thread(tiles, c.channels + 1); /* one more channel: of ones */
    if (p.in_plane >= c.out_plane) return;
    const int kernel_h = K > 0 ? K : c.kernel_h, kernel_w = K > 0 ? K : c.kernel_w;
    T *to = unfolded + p.sample * (size_t)c.rows * (size_t)c.out_plane + (size_t)p.in_plane;
    to += (size_t)(p.channel * kernel_h * kernel_w) * (size_t)c.out_plane;
    if (p.channel == c.channels) {
        unfold_ones(c, to);
        return;
    }
    const T *from = x + p.sample * in_image(c) + (size_t)p.channel * (size_t)c.in_plane;
    int oh = p.in_plane / c.out_width, ow = p.in_plane - oh * c.out_width;
    int top = oh * c.stride - c.padding, left = ow * c.stride - c.padding;
    for (int kh = 0; kh < kernel_h; kh++) {
        bool line = is_inside(top + kh, c.height);
        for (int kw = 0; kw < kernel_w; kw++, to += c.out_plane) {
            bool inside = line && is_inside(left + kw, c.width);
            *to = inside ? from[(top + kh) * c.width + left + kw] : from_float<T>(0);
        }
    }
}

/* --- fold --------------------------------------------------------------------------------------------------------- */

/* K as above; with K, the stride is 1. */
template <int K, class T> __global__ void fold_kernel(Conv2d c, unsigned tiles, const float *gradients, T *dx) {
    Place p = place_of_thread(tiles, c.channels);
    if (p.in_plane >= c.in_plane) return;
    const int kernel_h = K > 0 ? K : c.kernel_h, kernel_w = K > 0 ? K : c.kernel_w, stride = K > 0 ? 1 : c.stride;
    const float *from =
        gradients + (p.sample * (size_t)c.taps + (size_t)(p.channel * kernel_h * kernel_w)) * (size_t)c.out_plane;
    int h = p.in_plane / c.width + c.padding, v = p.in_plane % c.width + c.padding;
    float sum = 0;
    for (int kh = 0; kh < kernel_h; kh++) {
        int oh = (h - kh) / stride;
        bool line = h >= kh && oh * stride == h - kh && oh < c.out_height;
        for (int kw = 0; kw < kernel_w; kw++, from += c.out_plane) {
            int ow = (v - kw) / stride;
            if (line && v >= kw && ow * stride == v - kw && ow < c.out_width) sum += from[oh * c.out_width + ow];
        }
    }
    dx[p.sample * in_image(c) + (size_t)p.channel * (size_t)c.in_plane + (size_t)p.in_plane] = from_float<T>(sum);
}

/* --- adding the samples' weight gradients ------------------------------------------------------------------------- */

constexpr unsigned PARTS = 16;
constexpr size_t IN_FLIGHT = 4; /* samples that a thread reads at once */

__global__ void add_partials_kernel(Conv2d c, size_t samples, const float *partial, float *dw, float *dbias,
                                    bool accumulate) {
    __shared__ float sums[PARTS][WARP];
    unsigned lane = threadIdx.x % WARP, part = threadIdx.x / WARP;
    size_t each = (size_t)c.out_channels * (size_t)c.rows, i = (size_t)blockIdx.x * WARP + lane;
    size_t share = (samples + PARTS - 1) / PARTS, begin = part * share;
    size_t end = begin + share < samples ? begin + share : samples;
    float sum = 0;
    if (i < each) {
        for (size_t n = begin; n < end; n += IN_FLIGHT) {
            float value[IN_FLIGHT];
            for (size_t k = 0; k < IN_FLIGHT; k++) value[k] = n + k < end ? partial[(n + k) * each + i] : 0;
            for (size_t k = 0; k < IN_FLIGHT; k++) sum += value[k];
        }
    }
    sums[part][lane] = sum;
    __syncthreads();
    if (part > 0 || i >= each) return;
    for (unsigned other = 1; other < PARTS; other++) sum += sums[other][lane];
    int o = (int)i / c.rows, row = (int)i - o * c.rows;
    float *to = row < c.taps ? &dw[o * c.taps + row] : row == c.taps && dbias ? &dbias[o] : nullptr;
    if (to) *to = accumulate ? *to + sum : sum;
}

} // namespace

namespace ls_cuda {

ls_status unfold(const ls_cuda_lane *lane, const char *op, const Conv2d &c, size_t samples, const void *x,
                 void *unfolded, const void *w, const void *bias, void *packed) {
    Tiles tiles = make_tiles(c.out_plane);
    size_t blocks = samples * (size_t)(c.channels + 1) * tiles.count;
    size_t packing = packed ? divide_up((size_t)c.out_channels * (size_t)c.rows, tiles.threads) : 0;
    bool square = c.kernel_h == c.kernel_w;
    return with_element(c.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        auto kernel = square && c.kernel_h == 5   ? unfold_kernel<5, T>
                      : square && c.kernel_h == 3 ? unfold_kernel<3, T>
                                                  : unfold_kernel<0, T>;
        Packing<T> weights = {static_cast<const T *>(w), static_cast<const T *>(bias), static_cast<T *>(packed),
                              (unsigned)blocks};
        return launch(lane, op, dim3((unsigned)(blocks + packing)), tiles.threads, kernel, c, tiles.count,
                      static_cast<const T *>(x), static_cast<T *>(unfolded), weights);
    });
}

ls_status fold(const ls_cuda_lane *lane, const char *op, const Conv2d &c, size_t samples, const float *gradients,
               void *dx) {
    Tiles tiles = make_tiles(c.in_plane);
    bool square = c.kernel_h == c.kernel_w && c.stride == 1;
    return with_element(c.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        auto kernel = square && c.kernel_h == 5   ? fold_kernel<5, T>
                      : square && c.kernel_h == 3 ? fold_kernel<3, T>
                                                  : fold_kernel<0, T>;
        return launch(lane, op, dim3((unsigned)(samples * (size_t)c.channels * tiles.count)), tiles.threads, kernel, c,
                      tiles.count, gradients, static_cast<T *>(dx));
    });
}

ls_status add_partials(const ls_cuda_lane *lane, const char *op, const Conv2d &c, size_t samples, const float *partial,
                       float *dw, float *dbias, bool accumulate) {
    size_t each = (size_t)c.out_channels * (size_t)c.rows;
    return launch(lane, op, dim3((unsigned)divide_up(each, WARP)), PARTS * WARP, add_partials_kernel, c, samples,
                  partial, dw, dbias, accumulate);
}

} // namespace ls_cuda
