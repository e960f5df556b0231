/* conv2d_direct — convolutions of 3x3 and 5x5 kernels with stride 1 and few channels, without unfolding: a tile of
 * the input lies in shared memory, and the kernel slides over it there.
 *   terms  : from an image of `source` channels a kernel makes one of `result` channels: y from x, or dx from dy with
 *            the kernel turned by 180 degrees and padded by K - 1 - padding. quad = four neighbouring pixels of a
 *            line. tile = lines of quads
 *   idea   : a thread has 4 result channels x 1 quad of sums in registers. For each line of the kernel it reads 8
 *            source values (16 bytes at a time), and for each place of the line 4 weights, the same for most of its
 *            warp: 7 (K = 5) reads for 80 multiplications. Source channels come into shared memory 4 at a time
 *   launch : images x blocks of 16 result channels x tiles; up to 256 threads, and more and flatter tiles where that
 *            keeps all multiprocessors busy: 28x28 and 16 channels make 4 tiles of 196 threads
 *   bytes  : the source is read once for each 16 result channels, and (rows + K - 1) / rows times for the lines that
 *            tiles share; the result is written once. Unfolding would write and read K x K times the source. flops as
 *            ls_conv2d_flops says
 *   when   : unfolding moves 8 bytes for every 2 x out_channels flops, so it waits for memory where a GPU does more
 *            than out_channels / 4 flops in the time of a byte: 15 or more. Hence this way for up to 32 channels,
 *            with TF32 or without
 *   halves : widened on their way into shared memory; from there on all is as for floats, and the result is rounded
 *            once. Unfolding moves half the bytes for them, and its products run on tensor cores: their border may lie
 *            lower than at 32 channels, but has not been measured
 *   order  : bias (or 0), then one chain of fused multiply-adds over (source channel, kh, kw): no bits depend on
 *            tiles or the batch */
#include "kernels/cuda/conv2d.cuh"

using namespace ls_cuda;

namespace {

constexpr int QUAD = 4;           /* pixels of a thread */
constexpr int BAND = 4;           /* result channels of a thread */
constexpr int BANDS = 4;          /* of a block */
constexpr int CHUNK = 4;          /* source channels in shared memory */
constexpr int MOST_QUADS = 8;     /* of a tile's line */
constexpr int MOST_ROWS = 32;     /* of a tile */
constexpr int BORDER = 4;         /* K - 1 at most */
constexpr int WEIGHT_STRIDE = 20; /* BAND x BANDS, and 4 more so that neighbours' writes meet fewer banks twice */
constexpr int PATCH = (MOST_ROWS + BORDER) * (MOST_QUADS * QUAD + BORDER);

struct Direct {
    int source_channels, source_height, source_width;
    int channels, height, width; /* of the result */
    int padding;
    int quads, rows, bands;                       /* of a tile */
    int tiles_across, tiles_down, channel_blocks; /* of an image */
};

/* What one block makes. */
struct Block {
    size_t image;
    int first_channel, top, left;

    __device__ explicit Block(const Direct &d) {
        unsigned i = blockIdx.x, across = (unsigned)d.tiles_across, down = (unsigned)d.tiles_down;
        left = (int)(i % across) * d.quads * QUAD;
        i /= across;
        top = (int)(i % down) * d.rows;
        i /= down;
        first_channel = (int)(i % (unsigned)d.channel_blocks) * BAND * BANDS;
        image = i / (unsigned)d.channel_blocks;
    }
};

/* Columns of the tile of the source in shared memory. */
__device__ int patch_width(const Direct &d) { return d.quads * QUAD + BORDER; }

template <int K, class T>
__device__ void load_patch(const Direct &d, const Block &block, const T *source, int first, int count,
                           float (*patch)[PATCH]) {
    int width = patch_width(d), each = width * (d.rows + K - 1);
    int top = block.top - d.padding, left = block.left - d.padding;
    for (int i = (int)threadIdx.x; i < each; i += (int)blockDim.x) {
        int h = top + i / width, v = left + i % width;
        bool inside = is_inside(h, d.source_height) && is_inside(v, d.source_width);
        const T *from = source + (size_t)first * (size_t)(d.source_height * d.source_width);
        for (int s = 0; s < count; s++, from += d.source_height * d.source_width)
            patch[s][i] = inside ? to_float(from[h * d.source_width + v]) : 0;
    }
}

/* w[result][source][kh][kw], or with TURNED w[source][result][K - 1 - kh][K - 1 - kw] */
template <int K, class T, bool TURNED>
__device__ void load_weights(const Direct &d, const Block &block, const T *w, int first, int count,
                             float (*weights)[K * K * WEIGHT_STRIDE]) {
    for (int i = (int)threadIdx.x; i < count * d.bands * BAND * K * K; i += (int)blockDim.x) {
        int tap = i % (K * K), s = i / (K * K) % count, r = i / (K * K) / count;
        int source = first + s, result = block.first_channel + r;
        int row = TURNED ? source * d.channels + result : result * d.source_channels + source;
        float value = result < d.channels ? to_float(w[row * (K * K) + (TURNED ? K * K - 1 - tap : tap)]) : 0;
        weights[s][tap * WEIGHT_STRIDE + r] = value;
    }
}

struct SumsOfThread {
    float at[BAND][QUAD];
};

/* Adds one source channel. */
template <int K> __device__ void slide(SumsOfThread &sums, const float *patch, int width, const float *weights) {
    for (int kh = 0; kh < K; kh++, patch += width) {
        Floats<4> left = load<4>(patch), right = load<4>(patch + QUAD);
        float line[2 * QUAD];
        for (int p = 0; p < QUAD; p++) {
            line[p] = left.at[p];
            line[QUAD + p] = right.at[p];
        }
        for (int kw = 0; kw < K; kw++, weights += WEIGHT_STRIDE) {
            Floats<4> weight = load<4>(weights);
            for (int r = 0; r < BAND; r++) {
                for (int p = 0; p < QUAD; p++) sums.at[r][p] = fmaf(line[kw + p], weight.at[r], sums.at[r][p]);
            }
        }
    }
}

/* Where a thread's sums begin. */
struct Spot {
    int band, row, column; /* in the tile */
    bool is_one;           /* the block may have more threads than the tile has places */

    __device__ explicit Spot(const Direct &d) {
        int places = d.quads * d.rows, place = (int)threadIdx.x % places;
        band = (int)threadIdx.x / places;
        row = place / d.quads;
        column = place % d.quads * QUAD;
        is_one = band < d.bands;
    }
};

template <class T>
__device__ void store_sums(const Direct &d, const Block &block, const Spot &spot, const SumsOfThread &sums, T *result,
                           bool in_fours) {
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

template <int K, class T, bool TURNED>
__global__ void direct_kernel(Direct d, const T *source, const T *w, const T *bias, T *result, bool in_fours) {
    __shared__ __align__(16) float patch[CHUNK][PATCH];
    __shared__ __align__(16) float weights[CHUNK][K * K * WEIGHT_STRIDE];
    Block block(d);
    Spot spot(d);
    SumsOfThread sums;
    for (int r = 0; r < BAND; r++) {
        int channel = block.first_channel + spot.band * BAND + r;
        float start = bias && spot.is_one && channel < d.channels ? to_float(bias[channel]) : 0;
        for (int p = 0; p < QUAD; p++) sums.at[r][p] = start;
    }
    source += block.image * (size_t)d.source_channels * (size_t)(d.source_height * d.source_width);
    int width = patch_width(d), begin = spot.row * width + spot.column;
    for (int first = 0; first < d.source_channels; first += CHUNK) {
        int count = d.source_channels - first < CHUNK ? d.source_channels - first : CHUNK;
        __syncthreads(); /* whoever still reads the channels before */
        load_patch<K>(d, block, source, first, count, patch);
        load_weights<K, T, TURNED>(d, block, w, first, count, weights);
        __syncthreads();
        for (int s = 0; s < count && spot.is_one; s++)
            slide<K>(sums, patch[s] + begin, width, weights[s] + spot.band * BAND);
    }
    if (spot.is_one) store_sums(d, block, spot, sums, result, in_fours);
}

int at_most(int value, int limit) { return value < limit ? value : limit; }
int pieces(int length, int piece) { return (length + piece - 1) / piece; }

/* Cuts an image into tiles: as large as a block's threads allow, but smaller where there would be fewer than two
 * blocks for each multiprocessor. */
void cut(Direct *d, int images, int multiprocessors) {
    int quads = pieces(d->width, QUAD);
    d->tiles_across = pieces(quads, MOST_QUADS);
    d->quads = pieces(quads, d->tiles_across);
    d->bands = at_most(pieces(d->channels, BAND), BANDS);
    d->channel_blocks = pieces(d->channels, BAND * BANDS);
    int most_rows = at_most((int)THREADS / (d->quads * d->bands), MOST_ROWS);
    size_t without = (size_t)images * (size_t)d->tiles_across * (size_t)d->channel_blocks;
    int wanted = (int)divide_up(2 * (size_t)multiprocessors, without);
    int least = pieces(d->height, most_rows), most = pieces(d->height, QUAD);
    d->tiles_down = wanted < least ? least : at_most(wanted, least > most ? least : most);
    d->rows = pieces(d->height, d->tiles_down);
    d->tiles_down = pieces(d->height, d->rows);
}

/* The arrays hold elements of c.dtype. */
template <bool TURNED>
ls_status run(const ls_cuda_lane *lane, const char *op, const Conv2d &c, Direct d, int images, const void *source,
              const void *w, const void *bias, void *result) {
    if (images == 0) return LS_OK;
    cut(&d, images, lane->multiprocessors);
    size_t blocks = (size_t)images * (size_t)(d.tiles_across * d.tiles_down * d.channel_blocks);
    size_t threads = divide_up((size_t)(d.quads * d.rows * d.bands), WARP) * WARP;
    return with_element(c.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        auto kernel = c.kernel_h == 5 ? direct_kernel<5, T, TURNED> : direct_kernel<3, T, TURNED>;
        T *to = static_cast<T *>(result);
        return launch(lane, op, dim3((unsigned)blocks), (unsigned)threads, kernel, d, static_cast<const T *>(source),
                      static_cast<const T *>(w), static_cast<const T *>(bias), to, d.width % 4 == 0 && is_aligned(to));
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
