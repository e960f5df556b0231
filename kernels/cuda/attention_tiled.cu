/* attention_tiled — causal attention, fast rung, tile by tile: no score is written to memory.
 *   terms  : a tile is SIZE positions. A block owns one tile of a head, and reads the tiles that it is multiplied with
 *            one after another, through shared memory, as floats
 *   idea   : forward: the block owns rows of q. For each row it keeps the largest score and the sum of exponentials so
 *            far; when the largest grows, the sums so far are multiplied by exp(old - new). `saved` is the logarithm of
 *            the sum. Backward: with that, p is recomputed from scores, tile by tile: by one kernel whose blocks own
 *            rows of q and dy, for dq, and by the same one with blocks that own rows of k and v, for dk and dv. So no
 *            two blocks add to the same element, at the price of computing scores twice
 *   launch : forward 1 kernel, backward 3 (the first one for dy y of each row); blocks of 64 threads, 8 x 8. A thread
 *            has SIZE / 8 x SIZE / 8 scores, and D / 8 channels of as many rows of the result, in registers. Tiles
 *            above the diagonal are skipped; blocks with the most tiles come first
 *   cost   : flops of the formula, backward 7/4 of them, by fused multiply-adds of floats. Bytes: each tile of k and v
 *            is read once for each tile of q that it is multiplied with, mostly from the L2 cache
 *   half   : widened when loaded into shared memory; only results are rounded. No tensor cores
 *   shared : at most 43.3 KB, which every chip has: with D (the channels of a head, rounded up to 32, 64 or 128) = 128
 *            tiles have 16 positions, otherwise 32
 *   order  : channels ascending; positions of a result ascending, fused multiply-adds; a row's sum of exponentials by
 *            lanes (of 8), then the butterfly, tile after tile. No result depends on other heads and sequences */
#include "kernels/cuda/attention.cuh"

using namespace ls_cuda;

namespace {

constexpr unsigned SIDE = 8; /* threads of a block: SIDE x SIDE */

/* D: channels in shared memory; those beyond the head's are zeros. */
template <int D> struct Tile {
    static constexpr int SIZE = D > 64 ? 16 : 32, EACH = SIZE / (int)SIDE;
    static constexpr int APART = D + 4; /* places 8 rows, by fours, in 32 different banks */
    static constexpr int QUADS = D / 4 / (int)SIDE;

    float at[SIZE][APART];

    /* Loads rows from position `first` on. Every thread of the block calls. */
    template <class T>
    __device__ void load(const Attention &a, const T *array, size_t b, size_t h, size_t first, size_t part,
                         size_t parts) {
        for (unsigned i = threadIdx.x; i < SIZE * D; i += SIDE * SIDE) {
            const size_t t = first + i / D, c = i % D;
            at[i / D][c] = t < a.context && c < a.d ? to_float(array[a.place(b, h, t, part, parts) + c]) : 0;
        }
    }

    __device__ Floats<4> four(int row, int quad) const { return ls_cuda::load<4>(&at[row][4 * quad]); }
};

/* A thread's part of a tile of scores: rows y + SIDE i, columns x + SIDE j. */
template <int EACH> struct Scores { float at[EACH][EACH]; };

/* A thread's part of a result: the same rows, quads x + SIDE j of channels. */
template <int D> struct Result { Floats<4> at[Tile<D>::EACH][Tile<D>::QUADS]; };

__device__ int thread_x() { return (int)(threadIdx.x % SIDE); }
__device__ int thread_y() { return (int)(threadIdx.x / SIDE); }

/* rows of `own` times rows of `met` */
template <int D> __device__ Scores<Tile<D>::EACH> multiply(const Tile<D> &own, const Tile<D> &met) {
    constexpr int EACH = Tile<D>::EACH;
    Scores<EACH> sums = {};
    for (int quad = 0; quad < D / 4; quad++) {
        Floats<4> left[EACH], right[EACH];
        for (int i = 0; i < EACH; i++) left[i] = own.four(thread_y() + (int)SIDE * i, quad);
        for (int j = 0; j < EACH; j++) right[j] = met.four(thread_x() + (int)SIDE * j, quad);
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++) sums.at[i][j] = fmaf(left[i].at[k], right[j].at[k], sums.at[i][j]);
    }
    return sums;
}

/* A tile of scores in shared memory, for products with them. A warp has whole rows. */
template <int D> struct Shared {
    static constexpr int SIZE = Tile<D>::SIZE, EACH = Tile<D>::EACH;
    float at[SIZE][SIZE + 1];

    __device__ void store(const Scores<EACH> &scores) {
        __syncwarp();
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++) at[thread_y() + (int)SIDE * i][thread_x() + (int)SIDE * j] = scores.at[i][j];
        __syncwarp();
    }

    /* result += scores met */
    __device__ void add_product(Result<D> &result, const Tile<D> &met) const {
        for (int u = 0; u < SIZE; u++) {
            float left[EACH];
            for (int i = 0; i < EACH; i++) left[i] = at[thread_y() + (int)SIDE * i][u];
            for (int q = 0; q < Tile<D>::QUADS; q++) {
                const Floats<4> right = met.four(u, thread_x() + (int)SIDE * q);
                for (int i = 0; i < EACH; i++)
                    for (int k = 0; k < 4; k++)
                        result.at[i][q].at[k] = fmaf(left[i], right.at[k], result.at[i][q].at[k]);
            }
        }
    }
};

/* The head and tile that a block owns. */
struct Block {
    size_t b, h, tile;

    /* `last_first`: the last tile belongs to the first block. */
    __device__ Block(const Attention &a, size_t tiles, bool last_first) {
        tile = last_first ? tiles - 1 - blockIdx.x % tiles : blockIdx.x % tiles;
        h = blockIdx.x / tiles % a.heads;
        b = blockIdx.x / tiles / a.heads;
    }

    /* The index of the row of scores of position t. */
    __device__ size_t row(const Attention &a, size_t t) const { return (b * a.heads + h) * a.context + t; }
};

template <int D, class T>
__device__ void store_result(const Attention &a, const Block &block, const Result<D> &result, T *array, size_t part,
                             size_t parts) {
    for (int i = 0; i < Tile<D>::EACH; i++) {
        const size_t t = block.tile * Tile<D>::SIZE + (size_t)(thread_y() + (int)SIDE * i);
        for (int q = 0; q < Tile<D>::QUADS && t < a.context; q++) {
            const size_t c = 4 * (size_t)(thread_x() + (int)SIDE * q);
            T *to = array + a.place(block.b, block.h, t, part, parts);
            for (size_t k = 0; k < 4 && c + k < a.d; k++) to[c + k] = from_float<T>(result.at[i][q].at[k]);
        }
    }
}

/* --- forward -------------------------------------------------------------------------------------------------------- */

/* The sum over a row's SIDE threads, which are neighbours in a warp. */
__device__ float row_sum(float value) {
    for (int distance = (int)SIDE / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(FULL_WARP, value, distance);
    return value;
}

__device__ float row_max(float value) {
    for (int distance = (int)SIDE / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(FULL_WARP, value, distance));
    return value;
}

/* Replaces row i of a thread's scores by exponentials; returns the factor of the sums so far. */
template <int EACH> __device__ float exponentials(float (&s)[EACH], float *largest, float *sum) {
    float now = *largest, more = 0;
    for (int j = 0; j < EACH; j++) now = fmaxf(now, s[j]);
    now = row_max(now);
    for (int j = 0; j < EACH; j++) more += s[j] = ls_exp_float(s[j] - now);
    const float factor = ls_exp_float(*largest - now);
    *sum = *sum * factor + row_sum(more);
    *largest = now;
    return factor;
}

template <int D, class T> __global__ void forward_kernel(Attention a, size_t tiles, const T *qkv, float *saved, T *y) {
    constexpr int SIZE = Tile<D>::SIZE, EACH = Tile<D>::EACH;
    __shared__ Tile<D> q, k, v;
    __shared__ Shared<D> p;
    const Block block(a, tiles, true);
    float largest[EACH], sum[EACH] = {};
    for (int i = 0; i < EACH; i++) largest[i] = -INFINITY;
    Result<D> result = {};
    q.load(a, qkv, block.b, block.h, block.tile * SIZE, 0, 3);
    for (size_t met = 0; met <= block.tile; met++) {
        __syncthreads(); /* threads may still read the last tile */
        k.load(a, qkv, block.b, block.h, met * SIZE, 1, 3);
        v.load(a, qkv, block.b, block.h, met * SIZE, 2, 3);
        __syncthreads();
        Scores<EACH> s = multiply(q, k);
        for (int i = 0; i < EACH; i++) {
            for (int j = 0; j < EACH; j++) {
                bool seen = met < block.tile || thread_x() + (int)SIDE * j <= thread_y() + (int)SIDE * i;
                s.at[i][j] = seen ? a.scale * s.at[i][j] : -INFINITY;
            }
            const float factor = exponentials(s.at[i], &largest[i], &sum[i]);
            for (int n = 0; n < Tile<D>::QUADS; n++)
                for (int c = 0; c < 4; c++) result.at[i][n].at[c] *= factor;
        }
        p.store(s);
        p.add_product(result, v);
    }
    for (int i = 0; i < EACH; i++) {
        const size_t t = block.tile * SIZE + (size_t)(thread_y() + (int)SIDE * i);
        const float factor = 1 / sum[i];
        for (int n = 0; n < Tile<D>::QUADS; n++)
            for (int c = 0; c < 4; c++) result.at[i][n].at[c] *= factor;
        if (thread_x() == 0 && t < a.context) saved[block.row(a, t)] = largest[i] + logf(sum[i]);
    }
    store_result(a, block, result, y, 0, 1);
}

/* --- backward ------------------------------------------------------------------------------------------------------- */

/* dy y of each row of scores: a warp to each. */
template <class T> __global__ void means_kernel(Attention a, const T *dy, const T *y, float *means) {
    const size_t row = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    if (row >= a.batch * a.heads * a.context) return;
    const size_t at = a.place(row / a.context / a.heads, row / a.context % a.heads, row % a.context, 0, 1);
    float mean = 0;
    for (size_t c = lane; c < a.d; c += WARP) mean = fmaf(to_float(dy[at + c]), to_float(y[at + c]), mean);
    mean = warp_sum(mean);
    if (lane == 0) means[row] = mean;
}

template <class T> struct Backward {
    Attention a;
    size_t tiles;
    const T *dy, *qkv;
    const float *saved, *means;
    T *dqkv;
};

/* KEYS: the block owns rows of k and v, otherwise of q and dy. */
template <int D, class T, bool KEYS> __global__ void backward_kernel(Backward<T> g) {
    constexpr int SIZE = Tile<D>::SIZE, EACH = Tile<D>::EACH;
    __shared__ Tile<D> own, own_other, met, met_other; /* q or k, and dy or v */
    __shared__ Shared<D> ds, p;                        /* p: KEYS only */
    const Attention &a = g.a;
    const Block block(a, g.tiles, !KEYS);
    auto load = [&](Tile<D> &first, Tile<D> &second, size_t tile, bool keys) {
        first.load(a, g.qkv, block.b, block.h, tile * SIZE, keys ? 1 : 0, 3);
        if (keys) second.load(a, g.qkv, block.b, block.h, tile * SIZE, 2, 3);
        if (!keys) second.load(a, g.dy, block.b, block.h, tile * SIZE, 0, 1);
    };
    Result<D> result = {}, other = {}; /* dq or dk; dv */
    load(own, own_other, block.tile, KEYS);
    for (size_t tile = KEYS ? block.tile : 0; tile < (KEYS ? g.tiles : block.tile + 1); tile++) {
        __syncthreads(); /* threads may still read the last tile */
        load(met, met_other, tile, !KEYS);
        __syncthreads();
        Scores<EACH> s = multiply(own, met), dp = multiply(own_other, met_other);
        for (int i = 0; i < EACH; i++) {
            for (int j = 0; j < EACH; j++) {
                const size_t here = block.tile * SIZE + (size_t)(thread_y() + (int)SIDE * i);
                const size_t there = tile * SIZE + (size_t)(thread_x() + (int)SIDE * j);
                const size_t t = KEYS ? there : here, u = KEYS ? here : there;
                const bool seen = u <= t && t < a.context;
                const size_t row = block.row(a, seen ? t : 0);
                s.at[i][j] = seen ? ls_exp_float(a.scale * s.at[i][j] - g.saved[row]) : 0;
                dp.at[i][j] = seen ? s.at[i][j] * (dp.at[i][j] - g.means[row]) * a.scale : 0;
            }
        }
        ds.store(dp);
        ds.add_product(result, met);
        if constexpr (KEYS) {
            p.store(s);
            p.add_product(other, met_other);
        }
    }
    store_result(a, block, result, g.dqkv, KEYS ? 1 : 0, 3);
    if constexpr (KEYS) store_result(a, block, other, g.dqkv, 2, 3);
}

/* --- launches ------------------------------------------------------------------------------------------------------- */

/* Calls body(D) with the channels that tiles have. */
template <class Body> ls_status with_channels(const Attention &a, Body body) {
    if (a.d <= 32) return body(std::integral_constant<int, 32>());
    if (a.d <= 64) return body(std::integral_constant<int, 64>());
    static_assert(LS_ATTENTION_MAX_HEAD == 128);
    return body(std::integral_constant<int, 128>());
}

template <int D> size_t tiles_of(const Attention &a) { return divide_up(a.context, (size_t)Tile<D>::SIZE); }

dim3 blocks_of(const Attention &a, size_t tiles) { return dim3((unsigned)(a.batch * a.heads * tiles)); }

} // namespace

namespace ls_cuda {

ls_status tiled_forward(const ls_cuda_lane *lane, const ls_attention_forward_arguments *arguments) {
    const char *op = "attention_forward";
    const Attention a = attention_of(arguments->shape);
    return with_element(arguments->shape.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        return with_channels(a, [&](auto channels) {
            constexpr int D = decltype(channels)::value;
            const size_t tiles = tiles_of<D>(a);
            return launch(lane, op, blocks_of(a, tiles), SIDE * SIDE, forward_kernel<D, T>, a, tiles,
                          static_cast<const T *>(arguments->qkv), static_cast<float *>(arguments->saved),
                          static_cast<T *>(arguments->y));
        });
    });
}

ls_status tiled_backward(const ls_cuda_lane *lane, const ls_attention_backward_arguments *arguments) {
    const char *op = "attention_backward";
    const Attention a = attention_of(arguments->shape);
    return with_element(arguments->shape.dtype, op, [&](auto zero) {
        using T = decltype(zero);
        const T *dy = static_cast<const T *>(arguments->dy);
        float *means = static_cast<float *>(arguments->workspace);
        ls_status status = launch_each(lane, op, a.batch * a.heads * a.context * WARP, means_kernel<T>, a, dy,
                                       static_cast<const T *>(arguments->y), means);
        if (status != LS_OK) return status;
        return with_channels(a, [&](auto channels) {
            constexpr int D = decltype(channels)::value;
            const size_t tiles = tiles_of<D>(a);
            const Backward<T> g = {a,
                                   tiles,
                                   dy,
                                   static_cast<const T *>(arguments->qkv),
                                   static_cast<const float *>(arguments->saved),
                                   means,
                                   static_cast<T *>(arguments->dqkv)};
            ls_status launched = launch(lane, op, blocks_of(a, tiles), SIDE * SIDE, backward_kernel<D, T, false>, g);
            if (launched != LS_OK) return launched;
            return launch(lane, op, blocks_of(a, tiles), SIDE * SIDE, backward_kernel<D, T, true>, g);
        });
    });
}

} // namespace ls_cuda
