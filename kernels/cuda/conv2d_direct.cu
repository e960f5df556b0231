/* conv2d_direct — convolutions of 3x3 and 5x5 kernels with stride 1 and few channels, without unfolding: a tile of the
 * input is in shared memory, and the kernel slides over it.
 *   terms  : the source image has `source` channels, the result `result`: y from x; or dx from dy, with the kernel
 *            rotated by 180 degrees and a padding of K - 1 - padding. quad = four neighbouring pixels of a line. tile =
 *            lines of quads
 *   idea   : a thread has BAND result channels x 1 quad of sums in registers. For each line of the kernel it reads 8
 *            source values, in 2 reads of 16 bytes, and for each of the line's K columns BAND weights in one read, the
 *            same for most of its warp. With BAND = 4 and K = 5 that is 7 reads for 80 multiplications. Source channels
 *            are loaded into shared memory 8 at a time; a warp issues all its loads of a line before it stores any
 *   launch : images x blocks of 16 result channels x tiles, of up to 256 threads. Tiles have fewer lines if that
 *            keeps more multiprocessors busy: 28x28 and 16 channels make 4 tiles of 196 threads. BAND is 4, or 2 if
 *            4 would make too few threads to hide the latency of reads
 *   bytes  : the source is read once for each 16 result channels, and (rows + K - 1) / rows times for the lines that
 *            tiles share; the result is written once. Unfolding would write and read K x K times the source. flops of
 *            ls_conv2d_flops
 *   when   : unfolding moves 8 bytes for every 2 x out_channels flops, that is out_channels / 4 flops a byte. It is
 *            bound by memory if the GPU can do more than that in the time of a byte (roofline); GPUs do 15 or more.
 *            Hence the direct method for up to 32 channels, with TF32 or without
 *   half   : widened when loaded into shared memory; from there on everything is as for fp32, and the result is rounded
 *            once. In half precision, unfolding moves half the bytes and its products run on tensor cores. So the limit
 *            may be below 32 channels; it has not been measured
 *   order  : bias (or 0), then one chain of fused multiply-adds over (source channel, kh, kw): no bits depend on tiles
 *            or the batch */
#include "kernels/cuda/conv2d.cuh"

using namespace ls_cuda;

namespace {

constexpr int QUAD = 4;           /* pixels of a thread */
constexpr int CHANNELS = 16;      /* result channels of a block; BAND of them are a thread's */
constexpr int ENOUGH_WARPS = 16;  /* for each multiprocessor, to hide the latency of memory */
constexpr int CHUNK = 8;          /* source channels in shared memory */
constexpr int MOST_QUADS = 8;     /* of a tile's line */
constexpr int MOST_ROWS = 16;     /* of a tile */
constexpr int BORDER = 4;         /* K - 1 at most */
constexpr int WEIGHT_STRIDE = 20; /* CHANNELS, and 4 more for fewer bank conflicts between writes */
constexpr int PATCH = (MOST_ROWS + BORDER) * (MOST_QUADS * QUAD + BORDER);

struct Direct {
    int source_channels, source_height, source_width;
    int channels, height, width; /* of the result */
    int padding;
    int quads, rows, bands;                       /* of a tile */
    int tiles_across, tiles_down, channel_blocks; /* of an image */
};

/* The part of the result that one block computes. */
struct Block {
    size_t image;
    int first_channel, top, left;

    __device__ explicit Block(const Direct &d) {
        unsigned i = blockIdx.x, across = (unsigned)d.tiles_across, down = (unsigned)d.tiles_down;
        left = (int)(i % across) * d.quads * QUAD;
        i /= across;
        top = (int)(i % down) * d.rows;
        i /= down;
        first_channel = (int)(i % (unsigned)d.channel_blocks) * CHANNELS;
        image = i / (unsigned)d.channel_blocks;
    }
};

/* Columns of the tile of the source in shared memory. */
__device__ int patch_width(const Direct &d) { return d.quads * QUAD + BORDER; }

/* Warps take the lines in turn. A warp reads a line of all channels of the chunk before it stores any. */
template <int K, class T>
__device__ void load_patch(const Direct &d, const Block &block, const T *source, int first, int count,
                           float (*patch)[PATCH]) {
    const int warps = (int)(blockDim.x / WARP), lane = (int)(threadIdx.x % WARP), width = patch_width(d);
    const int plane = d.source_height * d.source_width, top = block.top - d.padding, left = block.left - d.padding;
    for (int row = (int)(threadIdx.x / WARP); row < d.rows + K - 1; row += warps) {
        for (int column = lane; column < width; column += (int)WARP) {
            bool inside = is_inside(top + row, d.source_height) && is_inside(left + column, d.source_width);
            const T *from = source + (size_t)first * (size_t)plane + (top + row) * d.source_width + left + column;
            float values[CHUNK];
            for (int s = 0; s < CHUNK; s++) values[s] = inside && s < count ? to_float(from[s * plane]) : 0;
            for (int s = 0; s < CHUNK && s < count; s++) patch[s][row * width + column] = values[s];
        }
    }
}

/* w[result][source][kh][kw], or with TURNED w[source][result][K - 1 - kh][K - 1 - kw]. Warps take the result channels
 * in turn, two at a time. The weights of a result channel are contiguous; with TURNED, only those for one source
 * channel are. */
template <int K, class T, bool TURNED>
__device__ void load_weights(const Direct &d, const Block &block, const T *w, int first, int count,
                             float (*weights)[K * K * WEIGHT_STRIDE]) {
    constexpr int AREA = K * K, LOADS = (CHUNK * AREA + (int)WARP - 1) / (int)WARP;
    const int warps = (int)(blockDim.x / WARP), lane = (int)(threadIdx.x % WARP);
    for (int r = (int)(threadIdx.x / WARP); r < CHANNELS; r += 2 * warps) {
        float values[2][LOADS];
        for (int two = 0; two < 2; two++) {
            int result = block.first_channel + r + two * warps;
            for (int l = 0; l < LOADS; l++) {
                int i = lane + l * (int)WARP, s = i / AREA, tap = i % AREA, source = first + s;
                int row = TURNED ? source * d.channels + result : result * d.source_channels + source;
                bool inside = s < count && result < d.channels;
                values[two][l] = inside ? to_float(w[row * AREA + (TURNED ? AREA - 1 - tap : tap)]) : 0;
            }
        }
        for (int two = 0; two < 2 && r + two * warps < CHANNELS; two++) {
            for (int l = 0; l < LOADS; l++) {
                int i = lane + l * (int)WARP;
                if (i < count * AREA) weights[i / AREA][i % AREA * WEIGHT_STRIDE + r + two * warps] = values[two][l];
            }
        }
    }
}

template <int BAND> struct SumsOfThread { float at[BAND][QUAD]; };

/* Weights of BAND result channels, read at once. */
template <int BAND> struct alignas(BAND * sizeof(float)) Weights { float at[BAND]; };

/* Adds one source channel. */
template <int K, int BAND>
__device__ void slide(SumsOfThread<BAND> &sums, const float *patch, int width, const float *weights) {
    for (int kh = 0; kh < K; kh++, patch += width) {
        Floats<4> left = load<4>(patch), right = load<4>(patch + QUAD);
        float line[2 * QUAD];
        for (int p = 0; p < QUAD; p++) {
            line[p] = left.at[p];
            line[QUAD + p] = right.at[p];
        }
        for (int kw = 0; kw < K; kw++, weights += WEIGHT_STRIDE) {
            Weights<BAND> weight = *reinterpret_cast<const Weights<BAND> *>(weights);
            for (int r = 0; r < BAND; r++) {
                for (int p = 0; p < QUAD; p++) sums.at[r][p] = fmaf(line[kw + p], weight.at[r], sums.at[r][p]);
            }
        }
    }
}

/* The position of a thread's sums. */
struct Spot {
    int band, row, column; /* in the tile */
    bool has_work;         /* false: a surplus thread of the block */

    __device__ explicit Spot(const Direct &d) {
        int places = d.quads * d.rows, place = (int)threadIdx.x % places;
        band = (int)threadIdx.x / places;
        row = place / d.quads;
        column = place % d.quads * QUAD;
        has_work = band < d.bands;
    }
};

template <int BAND, class T>
__device__ void store_sums(const Direct &d, const Block &block, const Spot &spot, const SumsOfThread<BAND> &sums,
                           T *result, bool in_fours) {
    int h = block.top + spot.row, v = block.left + spot.column;
    if (h >= d.height || v >= d.width) return;
    for (int r = 0; r < BAND; r++) {
        int channel = block.first_channel + spot.band * BAND + r;
        if (channel >= d.channels) return;
        T *to =
            result +
            ((block.image * (size_t)d.channels + (size_t)channel) * (size_t)d.height + (size_t)h) * (size_t)d.width +
            (size_t)v;
        Floats<4> values = {{sums.at[r][0], sums.at[r][1], sums.at[r][2], sums.at[r][3]}};
        store_four(to, values, (size_t)(d.width - v), in_fours);
    }
}

template <int K, int BAND, class T, bool TURNED>
__global__ void direct_kernel(Direct d, const T *source, const T *w, const T *bias, T *result, bool in_fours) {
    __shared__ __align__(16) float patch[CHUNK][PATCH];
    __shared__ __align__(16) float weights[CHUNK][K * K * WEIGHT_STRIDE];
    Block block(d);
    Spot spot(d);
    SumsOfThread<BAND> sums;
    for (int r = 0; r < BAND; r++) {
        int channel = block.first_channel + spot.band * BAND + r;
        float start = bias && spot.has_work && channel < d.channels ? to_float(bias[channel]) : 0;
        for (int p = 0; p < QUAD; p++) sums.at[r][p] = start;
    }
    source += block.image * (size_t)d.source_channels * (size_t)(d.source_height * d.source_width);
    int width = patch_width(d), begin = spot.row * width + spot.column;
    for (int first = 0; first < d.source_channels; first += CHUNK) {
        int count = d.source_channels - first < CHUNK ? d.source_channels - first : CHUNK;
        __syncthreads(); /* threads may still read the previous channels */
        load_patch<K>(d, block, source, first, count, patch);
        load_weights<K, T, TURNED>(d, block, w, first, count, weights);
        __syncthreads();
        for (int s = 0; s < count && spot.has_work; s++)
            slide<K, BAND>(sums, patch[s] + begin, width, weights[s] + spot.band * BAND);
    }
    if (spot.has_work) store_sums(d, block, spot, sums, result, in_fours);
}

int at_most(int value, int limit) { return value < limit ? value : limit; }
int pieces(int length, int piece) { return (length + piece - 1) / piece; }

size_t blocks_of(const Direct &d, int images) {
    return (size_t)images * (size_t)(d.tiles_across * d.tiles_down * d.channel_blocks);
}

size_t warps_of(const Direct &d) { return divide_up((size_t)(d.quads * d.rows * d.bands), WARP); }

/* Cuts an image into tiles, and channels into bands. Tiles are as large as a block's threads allow, but smaller if
 * there would be fewer than two blocks for each multiprocessor. */
void cut(Direct *d, int band, int images, int multiprocessors) {
    int quads = pieces(d->width, QUAD);
    d->tiles_across = pieces(quads, MOST_QUADS);
    d->quads = pieces(quads, d->tiles_across);
    d->bands = at_most(pieces(d->channels, band), CHANNELS / band);
    d->channel_blocks = pieces(d->channels, CHANNELS);
    int most_rows = at_most((int)THREADS / (d->quads * d->bands), MOST_ROWS);
    size_t without = (size_t)images * (size_t)d->tiles_across * (size_t)d->channel_blocks;
    int wanted = (int)divide_up(2 * (size_t)multiprocessors, without);
    int least = pieces(d->height, most_rows), most = pieces(d->height, QUAD);
    d->tiles_down = wanted < least ? least : at_most(wanted, least > most ? least : most);
    d->rows = pieces(d->height, d->tiles_down);
    d->tiles_down = pieces(d->height, d->rows);
}

template <int BAND, class T, bool TURNED>
ls_status launch_direct(const ls_cuda_lane *lane, const char *op, int kernel_size, const Direct &d, int images,
                        const T *source, const T *w, const T *bias, T *result) {
    auto kernel = kernel_size == 5 ? direct_kernel<5, BAND, T, TURNED> : direct_kernel<3, BAND, T, TURNED>;
    return launch(lane, op, dim3((unsigned)blocks_of(d, images)), (unsigned)(warps_of(d) * WARP), kernel, d, source, w,
                  bias, result, d.width % 4 == 0 && is_aligned(result));
}

/* The arrays hold elements of c.dtype. */
template <bool TURNED>
ls_status run(const ls_cuda_lane *lane, const char *op, const Conv2d &c, Direct d, int images, const void *source,
              const void *w, const void *bias, void *result) {
    if (images == 0) return LS_OK;
    cut(&d, 4, images, lane->multiprocessors);
    bool enough = blocks_of(d, images) * warps_of(d) >= (size_t)(ENOUGH_WARPS * lane->multiprocessors);
    if (!enough) cut(&d, 2, images, lane->multiprocessors);
    return with_element(c.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        auto start = enough ? launch_direct<4, T, TURNED> : launch_direct<2, T, TURNED>;
        return start(lane, op, c.kernel_h, d, images, static_cast<const T *>(source), static_cast<const T *>(w),
                     static_cast<const T *>(bias), static_cast<T *>(result));
    });
}

} // namespace

namespace ls_cuda {

ls_status direct_forward(const ls_cuda_lane *lane, const Conv2d &c, const ls_conv2d_forward_arguments *a) {
    Direct d = {};
    d.source_channels = c.channels, d.source_height = c.height, d.source_width = c.width;
    d.channels = c.out_channels, d.height = c.out_height, d.width = c.out_width;
    d.padding = c.padding;
    return run<false>(lane, "conv2d_forward", c, d, a->shape.batch, a->x, a->w, a->bias, a->y);
}

ls_status direct_backward_data(const ls_cuda_lane *lane, const Conv2d &c, const ls_conv2d_backward_data_arguments *a) {
    Direct d = {};
    d.source_channels = c.out_channels, d.source_height = c.out_height, d.source_width = c.out_width;
    d.channels = c.channels, d.height = c.height, d.width = c.width;
    d.padding = c.kernel_h - 1 - c.padding;
    return run<true>(lane, "conv2d_backward_data", c, d, a->shape.batch, a->dy, a->w, nullptr, a->dx);
}

} // namespace ls_cuda
