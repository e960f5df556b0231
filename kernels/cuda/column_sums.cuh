/* column_sums — sums over the rows of a matrix, for gradients of biases and of layer norm's parameters.
 *   idea  : a block sums a tile of 32 (by fours: 128) columns over a part of the rows, 8 rows at a time, each by a warp's
 *           coalesced access. If there are several parts, their sums go to scratch memory, and a second launch adds them
 *           up
 *   body  : defines the sums; it is in an anonymous namespace, so that its kernels belong to its file:
 *               static constexpr int SUMS = 1;                 sums of each column
 *               template <int N> __device__ void add(size_t row, size_t column, Floats<N> (&sum)[SUMS]) const;
 *                                                              adds the row's terms of N columns from this one on
 *   cost  : the reads of the body, and the parts' sums, less than 2 % of that (two sums: 4 %)
 *   order : of a column: 8 sums over every 8th row of a part, ascending; these 8 in order; then the parts' sums in the
 *           same manner. Parts depend on the number of rows and columns alone */
#ifndef LS_KERNELS_CUDA_COLUMN_SUMS_CUH
#define LS_KERNELS_CUDA_COLUMN_SUMS_CUH

#include "kernels/cuda/launch.cuh"

namespace ls_cuda {

constexpr unsigned ROW_LANES = THREADS / WARP;

/* The destination of the sums. */
template <int SUMS> struct Columns {
    float *out[SUMS];
    size_t rows, columns;
    bool accumulate;
};

/* Block (x, y) sums tile x of the columns over part y of the rows, into row y of each `out`. */
template <int N, class Body> __global__ void sum_part(Body body, Columns<Body::SUMS> c, size_t rows_per_part) {
    __shared__ float sums[ROW_LANES][WARP][Body::SUMS][N];
    unsigned lane = threadIdx.x % WARP, row_lane = threadIdx.x / WARP;
    size_t column = ((size_t)blockIdx.x * WARP + lane) * N, begin = blockIdx.y * rows_per_part;
    size_t end = begin + rows_per_part < c.rows ? begin + rows_per_part : c.rows;
    Floats<N> sum[Body::SUMS] = {};
    if (column < c.columns) {
        for (size_t r = begin + row_lane; r < end; r += ROW_LANES) body.template add<N>(r, column, sum);
    }
    for (int s = 0; s < Body::SUMS; s++) {
        for (int k = 0; k < N; k++) sums[row_lane][lane][s][k] = sum[s].at[k];
    }
    __syncthreads();
    if (row_lane != 0 || column >= c.columns) return;
    for (int s = 0; s < Body::SUMS; s++) {
        for (unsigned l = 1; l < ROW_LANES; l++) {
            for (int k = 0; k < N; k++) sum[s].at[k] += sums[l][lane][s][k];
        }
        float *out = c.out[s] + blockIdx.y * c.columns + column;
        for (int k = 0; k < N; k++) out[k] = c.accumulate ? out[k] + sum[s].at[k] : sum[s].at[k];
    }
}

/* At least 128 rows, and at least as many rows as parts, so that no thread of either launch has a long loop; more if
 * the parts' sums would not fit into scratch memory. `columns`: of all sums. */
inline size_t choose_rows_per_part(size_t rows, size_t columns) {
    size_t part = 128;
    while (part * part < rows) part *= 2;
    while (part < rows && divide_up(rows, part) * columns * sizeof(float) > LS_CUDA_SCRATCH_NBYTES) part *= 2;
    return part;
}

/* The second launch's: the sums of parts, one row for each part. */
template <int SUMS_> struct PartSums {
    static constexpr int SUMS = SUMS_;
    const float *parts[SUMS];
    size_t columns;
    template <int N> __device__ void add(size_t row, size_t column, Floats<N> (&sum)[SUMS]) const {
        for (int s = 0; s < SUMS; s++) {
            Floats<N> more = load<N>(parts[s] + row * columns + column);
            for (int k = 0; k < N; k++) sum[s].at[k] += more.at[k];
        }
    }
};

/* N: 4 if the body can access its arrays, and the number of columns can be cut, by fours; else 1. */
template <int N, class Body>
ls_status sum_columns(const ls_cuda_lane *lane, const char *op, const Body &body, const Columns<Body::SUMS> &c) {
    unsigned tiles = (unsigned)divide_up(c.columns, WARP * N);
    size_t part = choose_rows_per_part(c.rows, Body::SUMS * c.columns), parts = divide_up(c.rows, part);
    if (parts <= 1) return launch(lane, op, dim3(tiles), THREADS, sum_part<N, Body>, body, c, part);
    Columns<Body::SUMS> first = {{}, c.rows, c.columns, false}, second = {{}, parts, c.columns, c.accumulate};
    PartSums<Body::SUMS> of_parts = {{}, c.columns};
    for (int s = 0; s < Body::SUMS; s++) {
        of_parts.parts[s] = first.out[s] = static_cast<float *>(lane->scratch) + (size_t)s * parts * c.columns;
        second.out[s] = c.out[s];
    }
    ls_status status = launch(lane, op, dim3(tiles, (unsigned)parts), THREADS, sum_part<N, Body>, body, first, part);
    if (status != LS_OK) return status;
    return launch(lane, op, dim3(tiles), THREADS, sum_part<N, PartSums<Body::SUMS>>, of_parts, second, parts);
}

} // namespace ls_cuda

#endif
