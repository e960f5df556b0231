/* conv2d_direct_weights — the weights' gradient of the convolutions that need no unfolding (conv2d_direct.cu): both
 * factors are in shared memory, and the sums in registers.
 *     dw[o][c][kh][kw] = sum over n, h, v of dy[n][o][h][v] x[n][c][h + kh - padding][v + kw - padding]
 *   terms  : quad = four neighbouring pixels of a line of dy. strip = up to 8 quads of columns, over all lines of an
 *            image; images of 32 columns or less are one strip. share = the lines, of consecutive strips, that a block
 *            adds up. chunk = the lines of a share, all of one strip, that are in shared memory at a time. group = the
 *            input channels of a block
 *   idea   : a thread has the sums of 4 output channels x 1 line of K weights: 20 for K = 5. For each quad it reads 4
 *            quads of dy and the 4 values of x that it does not have yet: 5 reads of 16 bytes for 80 multiplications.
 *            All channels of dy and the group's of x pass through shared memory, x with K - 1 more lines and 4 more
 *            columns
 *   slices : if that makes fewer than 640 threads, several threads have the same sums, each over other lines of the
 *            chunk (a slice). In the end the slices are added up, and written by coalesced stores
 *   launch : shares x groups blocks, about one for each of 132 multiprocessors, of up to 640 threads. The plan
 *            (conv2d_plan.h) cuts lines, not images, so that all blocks have the same amount of work. It does not query
 *            the GPU
 *   bytes  : dy is read once for each group, x once plus K - 1 lines for each chunk. Every share writes, and
 *            add_partials reads, the floats of all weights: 132 x 51 KB for 16 to 32 channels of 5x5. flops of
 *            ls_conv2d_flops, for widths that are multiples of 4
 *   half   : widened when loaded into shared memory; from there on everything is as for fp32
 *   order  : a slice's sum is one chain of fused multiply-adds over its lines, then columns, ascending; then slices are
 *            added, then shares (add_partials). dbias: chunks ascending, a warp's sum for each. So bits depend only on
 *            the shape and the batch */
#include "kernels/cuda/conv2d.cuh"

using namespace ls_cuda;

namespace {

constexpr int QUAD = 4;
constexpr int BAND = 4;            /* output channels of a thread */
constexpr int MOST_CHANNELS = 32;  /* of the output */
constexpr int MOST_THREADS = 640;  /* of a block: 8 bands x 16 channels x 5 lines of weights */
constexpr int LEAST_THREADS = 128; /* enough to load a chunk */
constexpr int IN_FLIGHT = 6;       /* values that a thread loads before it stores any */
constexpr int FLOATS = 12160;      /* of shared memory for a chunk: with the sums of dbias, not quite 48 KB */

/* The division of work into blocks. */
struct Cut {
    size_t lines, share; /* of the batch; of a block */
    int strips, quads;   /* of an image; of a strip's line */
    int groups, group;   /* groups; input channels of each */
    int bands;           /* of output channels */
    int most_lines;      /* of a chunk */
    int slices;
    int dy_stride;         /* floats between channels of dy, in shared memory */
    int x_width, x_stride; /* of x: between lines, and between channels */
    int dy_lanes, x_lanes; /* threads that load a line together: a power of two, up to a warp */
    int sums_stride;       /* between output channels' sums, in shared memory */
};

/* The chunk's position in the batch. */
struct Chunk {
    size_t image;
    int strip, top, lines;

    __device__ Chunk(const Conv2d &c, const Cut &cut, size_t line) {
        size_t strip_of_batch = line / (size_t)c.out_height;
        top = (int)(line - strip_of_batch * (size_t)c.out_height);
        image = strip_of_batch / (size_t)cut.strips;
        strip = (int)(strip_of_batch - image * (size_t)cut.strips);
        lines = 0;
    }

    /* Moves to the next chunk, if `left` lines of the share are left. */
    __device__ void move(const Conv2d &c, const Cut &cut, size_t left) {
        top += lines;
        if (top == c.out_height) {
            top = 0;
            strip++;
        }
        if (strip == cut.strips) {
            strip = 0;
            image++;
        }
        lines = c.out_height - top < cut.most_lines ? c.out_height - top : cut.most_lines;
        if (left < (size_t)lines) lines = (int)left;
    }
};

/* The part of an array of `end` planes to load: `planes` planes from `first` on, and `lines` x `columns` values of
 * each, from (top, left) on, 0 outside the plane. In shared memory, planes are shared_stride apart, and lines
 * shared_width. */
struct Window {
    int first, planes, end;
    int height, width, top, left; /* of a plane; of the window in it */
    int lines, columns;           /* of the window */
    int shared_width, shared_stride;
    int lanes; /* threads for a line, a power of two */
};

/* `lanes` threads load a line. If there are more threads than planes need, several such groups take the lines of one
 * plane in turn. IN_FLIGHT loads precede their stores, so that they overlap. */
template <class T> __device__ void load_window(const Window &w, const T *from, float *to) {
    const int slots = (int)blockDim.x / w.lanes, slot = (int)threadIdx.x / w.lanes;
    const int turns = slots > w.planes ? slots / w.planes : 1;
    const int first_plane = slot / turns, first_line = slot - first_plane * turns;
    for (int plane = first_plane; plane < w.planes; plane += slots / turns) {
        const int top = w.top + first_line;
        const bool is_plane = w.first + plane < w.end;
        for (int column = (int)threadIdx.x & (w.lanes - 1); column < w.columns; column += w.lanes) {
            const bool is_column = is_plane && is_inside(w.left + column, w.width);
            const T *const origin = from + (((w.first + plane) * w.height + top) * w.width + w.left + column);
            float *const place = to + plane * w.shared_stride + first_line * w.shared_width + column;
            for (int begin = 0; begin < w.lines - first_line; begin += IN_FLIGHT * turns) {
                T value[IN_FLIGHT];
                for (int k = 0; k < IN_FLIGHT; k++) {
                    int line = begin + k * turns;
                    value[k] = from_float<T>(0);
                    if (is_column && is_inside(top + line, w.height)) value[k] = origin[line * w.width];
                }
                for (int k = 0; k < IN_FLIGHT; k++) {
                    int line = begin + k * turns;
                    if (line < w.lines - first_line) place[line * w.shared_width] = to_float(value[k]);
                }
            }
        }
    }
}

/* The sums of a thread. Two neighbours have the same band and two lines of weights; the next two have the next band.
 * So with 8 bands, half a warp reads at most 8 different quads of dy and 2 of x. */
struct Role {
    int band, slice, channel, kh;
    bool has_work; /* false: a surplus thread of the block */

    __device__ Role(const Cut &cut, int kernel) {
        int pair = (int)threadIdx.x / 2, line = pair / cut.bands;
        band = pair - line * cut.bands;
        line = 2 * line + (int)threadIdx.x % 2;
        int lines = cut.group * kernel;
        slice = line / lines;
        line -= slice * lines;
        channel = line / kernel;
        kh = line - channel * kernel;
        has_work = slice < cut.slices;
    }
};

template <int K> struct SumsOfThread { float at[BAND][K]; };

/* Adds a line of dy. The output channels of a thread are `bands` apart. */
template <int K> __device__ void add_line(const Cut &cut, const float *dy, const float *x, SumsOfThread<K> &sums) {
    const int apart = cut.bands * cut.dy_stride;
    const float *const end = dy + cut.quads * QUAD;
    Floats<4> left = load<4>(x);
    for (; dy < end; dy += QUAD) {
        x += QUAD;
        Floats<4> right = load<4>(x);
        float line[2 * QUAD];
        for (int p = 0; p < QUAD; p++) {
            line[p] = left.at[p];
            line[QUAD + p] = right.at[p];
        }
        Floats<4> gradient[BAND];
        for (int r = 0; r < BAND; r++) gradient[r] = load<4>(dy + r * apart);
        for (int p = 0; p < QUAD; p++) {
            for (int r = 0; r < BAND; r++) {
                for (int kw = 0; kw < K; kw++) sums.at[r][kw] = fmaf(gradient[r].at[p], line[p + kw], sums.at[r][kw]);
            }
        }
        left = right;
    }
}

/* bias[o] += the sum of the chunk's dy: a warp for each channel; columns beyond the image are 0. */
__device__ void add_bias(const Cut &cut, int lines, const float *dy, float *bias) {
    int lane = (int)(threadIdx.x % WARP);
    for (int o = (int)(threadIdx.x / WARP); o < cut.bands * BAND; o += (int)(blockDim.x / WARP)) {
        float sum = 0;
        for (int i = lane; i < lines * cut.quads * QUAD; i += (int)WARP) sum += dy[o * cut.dy_stride + i];
        sum = warp_sum(sum);
        if (lane == 0) bias[o] += sum;
    }
}

/* Adds up the slices and writes partial[o][channel][kh][kw] of the group's channels, half of the output channels at a
 * time, which are contiguous. */
template <int K>
__device__ void write_sums(const Conv2d &c, const Cut &cut, const Role &role, int first_channel,
                           const SumsOfThread<K> &sums, float *shared, float *partial) {
    constexpr int HALF = BAND / 2;
    const int taps = cut.group * K * K, slice = HALF * cut.bands * cut.sums_stride;
    const int inside = taps < c.taps - first_channel * K * K ? taps : c.taps - first_channel * K * K;
    for (int half = 0; half < BAND; half += HALF) {
        __syncthreads(); /* threads may still read the last chunk, or the previous half */
        for (int r = 0; r < HALF && role.has_work; r++) {
            float *to = shared + role.slice * slice + (r * cut.bands + role.band) * cut.sums_stride +
                        (role.channel * K + role.kh) * K;
            for (int kw = 0; kw < K; kw++) to[kw] = half == 0 ? sums.at[r][kw] : sums.at[HALF + r][kw];
        }
        __syncthreads();
        for (int i = (int)(threadIdx.x / WARP); i < HALF * cut.bands; i += (int)(blockDim.x / WARP)) {
            int o = half * cut.bands + i;
            for (int tap = (int)(threadIdx.x % WARP); o < c.out_channels && tap < inside; tap += (int)WARP) {
                const float *from = shared + i * cut.sums_stride + tap;
                float sum = *from;
                for (int s = 1; s < cut.slices; s++) sum += from[s * slice];
                partial[o * c.rows + first_channel * K * K + tap] = sum;
            }
        }
    }
}

template <int K, class T>
__global__ void __launch_bounds__(MOST_THREADS, 1)
    direct_weights_kernel(Conv2d c, Cut cut, const T *x, const T *dy, float *partial) {
    __shared__ __align__(16) float shared[FLOATS];
    __shared__ float bias[MOST_CHANNELS];
    const unsigned share = blockIdx.x / (unsigned)cut.groups, group = blockIdx.x - share * (unsigned)cut.groups;
    const int first_channel = (int)group * cut.group;
    const Role role(cut, K);
    float *const x_tile = shared + cut.bands * BAND * cut.dy_stride;
    const float *const x_line = x_tile + role.channel * cut.x_stride + role.kh * cut.x_width;
    SumsOfThread<K> sums = {};
    if (threadIdx.x < MOST_CHANNELS) bias[threadIdx.x] = 0;

    size_t line = share * cut.share, left = cut.lines - line < cut.share ? cut.lines - line : cut.share;
    Chunk chunk(c, cut, line);
    for (; left > 0; left -= (size_t)chunk.lines) {
        chunk.move(c, cut, left);
        int column = chunk.strip * cut.quads * QUAD;
        __syncthreads(); /* threads may still read the previous chunk */
        Window w = {};
        w.planes = cut.bands * BAND, w.end = c.out_channels;
        w.height = c.out_height, w.width = c.out_width, w.top = chunk.top, w.left = column;
        w.lines = chunk.lines, w.columns = cut.quads * QUAD, w.lanes = cut.dy_lanes;
        w.shared_width = w.columns, w.shared_stride = cut.dy_stride;
        load_window(w, dy + chunk.image * out_image(c), shared);
        w.first = first_channel, w.planes = cut.group, w.end = c.channels;
        w.height = c.height, w.width = c.width, w.top = chunk.top - c.padding, w.left = column - c.padding;
        w.lines = chunk.lines + K - 1, w.columns = (cut.quads + 1) * QUAD, w.lanes = cut.x_lanes;
        w.shared_width = cut.x_width, w.shared_stride = cut.x_stride;
        load_window(w, x + chunk.image * in_image(c), x_tile);
        __syncthreads();
        for (int i = role.slice; i < chunk.lines && role.has_work; i += cut.slices)
            add_line(cut, shared + role.band * cut.dy_stride + i * cut.quads * QUAD, x_line + i * cut.x_width, sums);
        if (group == 0) add_bias(cut, chunk.lines, shared, bias);
    }

    partial += share * (size_t)c.out_channels * (size_t)c.rows;
    write_sums(c, cut, role, first_channel, sums, shared, partial); /* also synchronises for dbias */
    const int o = (int)threadIdx.x;
    if (group > 0 || o >= c.out_channels) return;
    for (int row = c.taps; row < c.rows; row++) partial[o * c.rows + row] = row == c.taps ? bias[o] : 0;
}

int at_most(int value, int limit) { return value < limit ? value : limit; }
int pieces(int length, int piece) { return (length + piece - 1) / piece; }

/* Number of threads, a power of two, for a line of `columns` columns. */
int lanes_for(int columns) {
    int lanes = QUAD;
    while (lanes < columns && lanes < (int)WARP) lanes *= 2;
    return lanes;
}

/* Planes begin at an odd multiple of 16 bytes, so that bands read from different banks. */
int plane_stride(int lines, int width) { return (lines * width / QUAD | 1) * QUAD; }

int floats_of(const Conv2d &c, const Cut &cut, int lines) {
    return cut.bands * BAND * plane_stride(lines, cut.quads * QUAD) +
           cut.group * plane_stride(lines + c.kernel_h - 1, cut.x_width);
}

Cut make_cut(const Conv2d &c, const ls_cuda_conv2d_plan &plan, size_t batch) {
    Cut cut = {};
    cut.lines = batch * plan.strips * (size_t)c.out_height, cut.share = plan.share_lines;
    cut.strips = (int)plan.strips, cut.quads = (int)plan.strip_quads;
    cut.group = (int)plan.group_channels, cut.groups = pieces(c.channels, cut.group);
    cut.bands = pieces(c.out_channels, BAND);
    cut.x_width = ((cut.quads + 1) | 1) * QUAD;
    cut.most_lines = at_most(c.out_height, FLOATS / (BAND * QUAD));
    if (cut.share < (size_t)cut.most_lines) cut.most_lines = (int)cut.share;
    while (cut.most_lines > 1 && floats_of(c, cut, cut.most_lines) > FLOATS) cut.most_lines--;
    cut.dy_stride = plane_stride(cut.most_lines, cut.quads * QUAD);
    cut.x_stride = plane_stride(cut.most_lines + c.kernel_h - 1, cut.x_width);
    cut.dy_lanes = lanes_for(cut.quads * QUAD), cut.x_lanes = lanes_for((cut.quads + 1) * QUAD);
    cut.slices = at_most(MOST_THREADS / cut.bands / 2 * 2 / (cut.group * c.kernel_h), cut.most_lines);
    cut.sums_stride = (cut.group * c.kernel_h * c.kernel_h) | 1;
    return cut;
}

} // namespace

namespace ls_cuda {

ls_status direct_backward_weights(const ls_cuda_lane *lane, const Conv2d &c, const ls_cuda_conv2d_plan &plan,
                                  const ls_conv2d_backward_weights_arguments *a, float *partial) {
    const char *op = "conv2d_backward_weights";
    Cut cut = make_cut(c, plan, (size_t)a->shape.batch);
    int threads = cut.bands * pieces(cut.slices * cut.group * c.kernel_h, 2) * 2;
    if (threads < LEAST_THREADS) threads = LEAST_THREADS;
    ls_status status = with_element(c.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        auto kernel = c.kernel_h == 5 ? direct_weights_kernel<5, T> : direct_weights_kernel<3, T>;
        return launch(lane, op, dim3((unsigned)(plan.shares * (size_t)cut.groups)),
                      (unsigned)(divide_up((size_t)threads, WARP) * WARP), kernel, c, cut, static_cast<const T *>(a->x),
                      static_cast<const T *>(a->dy), partial);
    });
    if (status != LS_OK) return status;
    return add_partials(lane, op, c, plan.shares, partial, a->dw, a->dbias, a->accumulate);
}

} // namespace ls_cuda
