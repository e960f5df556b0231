/* loss — cross_entropy and squared_error, each with its gradient in one launch, and count_correct.
 *   formula : kernels.h. cross_entropy of a row: s = largest logit, e[c] = exp(logits[c] - s), loss log(sum e) -
 *             (logits[label] - s), gradient scale (e[c] / sum e - [c = label])
 *   launch  : fast: a thread for each row of up to 32 classes (short_rows.cuh), a warp for longer rows, a block from
 *             WIDE classes on. A thread of a warp (block) takes every 32nd (256th) class, writes e to the gradient's
 *             memory, and scales it when the sum is known; the row stays in cache. Each block adds up its rows' losses;
 *             if there are several blocks, a second launch adds up theirs. Naive: one thread for the sum, and a thread
 *             for each row (squared_error: element) of the gradient
 *   cost    : bytes and flops of ops.def; bound by bandwidth
 *   order   : a row's sum: each thread's classes ascending, then (more than 32 classes) the butterfly of launch.cuh.
 *             The loss is summed in double: a thread's or group's rows ascending, then those of a block, then the
 *             blocks. Numbers of blocks depend on the arguments alone
 *   fails   : a label outside [0, classes) goes to lane->fault, its row's loss is NaN, its gradient is not written */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/short_rows.cuh"

using namespace ls_cuda;

namespace {

constexpr size_t WIDE = 1024;       /* classes from which a row has a block */
constexpr size_t FEW_ROWS = 64;     /* up to these, one large block saves a launch */
constexpr unsigned LARGE = 1024;    /* threads of that block */
constexpr size_t MOST_PARTS = 1024; /* blocks in other cases */

/* --- sums in two stages ------------------------------------------------------------------------------------------- */

/* The results of blocks: several blocks store sums in `parts`; the only or last block (parts NULL) stores *loss. */
struct Loss {
    float *loss;
    float scale;
    double *parts;
};

__device__ void put_loss(const Loss &out, double total) {
    total = block_sum(total);
    if (threadIdx.x != 0) return;
    if (out.parts) {
        out.parts[blockIdx.x] = total;
    } else {
        *out.loss = (float)(total * (double)out.scale);
    }
}

__global__ void add_losses(Loss out, const double *parts, size_t count) {
    double total = 0;
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) total += parts[i];
    put_loss(out, total);
}

unsigned parts_for(size_t wanted) { return (unsigned)(wanted < MOST_PARTS ? (wanted > 0 ? wanted : 1) : MOST_PARTS); }

/* Memory for the sums of the first stage's `blocks` blocks. */
double *parts_of(const ls_cuda_lane *lane, unsigned blocks) {
    return blocks > 1 ? static_cast<double *>(lane->scratch) : nullptr;
}

ls_status second_stage(const ls_cuda_lane *lane, const char *op, Loss first, unsigned blocks) {
    if (!first.parts) return LS_OK;
    Loss out = {first.loss, first.scale, nullptr};
    return launch(lane, op, dim3(1), THREADS, add_losses, out, first.parts, blocks);
}

/* --- cross-entropy ------------------------------------------------------------------------------------------------ */

struct Rows {
    float *dlogits;
    const float *logits;
    const int64_t *labels;
    size_t rows, classes;
    ls_cuda_fault *fault;
};

__device__ bool is_label(const Rows &a, int64_t label) { return label >= 0 && (uint64_t)label < a.classes; }

__device__ void report_label(const Rows &a, int64_t label) {
    a.fault->limit = (int32_t)a.classes;
    a.fault->value = label;
    a.fault->kind = LS_CUDA_FAULT_LABEL;
}

__device__ float largest_logit(const float *logits, size_t classes) {
    float best = logits[0];
    for (size_t c = 1; c < classes; c++) best = logits[c] > best ? logits[c] : best;
    return best;
}

__device__ float sum_of_exponentials(const float *logits, size_t classes, float shift) {
    float sum = 0;
    for (size_t c = 0; c < classes; c++) sum += expf(logits[c] - shift);
    return sum;
}

__global__ void cross_entropy_loss_naive(Rows a, Loss out) {
    double total = 0;
    for (size_t r = 0; r < a.rows; r++) {
        const float *logits = a.logits + r * a.classes;
        int64_t label = a.labels[r];
        if (!is_label(a, label)) {
            report_label(a, label);
            total += (double)NAN;
            continue;
        }
        float shift = largest_logit(logits, a.classes), sum = sum_of_exponentials(logits, a.classes, shift);
        total += (double)(logf(sum) - (logits[label] - shift));
    }
    *out.loss = (float)(total * (double)out.scale);
}

__global__ void cross_entropy_gradient_naive(Rows a, float scale) {
    size_t r = global_thread();
    if (r >= a.rows || !is_label(a, a.labels[r])) return;
    const float *logits = a.logits + r * a.classes;
    float *d = a.dlogits + r * a.classes;
    float shift = largest_logit(logits, a.classes), sum = sum_of_exponentials(logits, a.classes, shift);
    float factor = scale / sum;
    for (size_t c = 0; c < a.classes; c++) d[c] = expf(logits[c] - shift) * factor;
    d[a.labels[r]] -= scale;
}

template <unsigned GROUP, class T> __device__ T group_sum(T value) {
    if constexpr (GROUP == WARP) {
        return warp_sum(value);
    } else {
        return block_sum(value);
    }
}

template <unsigned GROUP> __device__ float group_max(float value) {
    if constexpr (GROUP == WARP) {
        return warp_max(value);
    } else {
        return block_max(value);
    }
}

/* Row r by GROUP threads, of which this is number `lane`. Each thread reads and writes its own classes only, so that
 * dlogits may be logits. Returns the loss in the thread that has the label's class, 0 in the others. */
template <unsigned GROUP> __device__ float cross_entropy_row(const Rows &a, size_t r, unsigned lane, float scale) {
    const float *logits = a.logits + r * a.classes;
    float *d = a.dlogits + r * a.classes;
    const size_t label = (size_t)a.labels[r];
    float shift = -INFINITY, of_label = 0, sum = 0;
    for (size_t c = lane; c < a.classes; c += GROUP) {
        shift = fmaxf(shift, logits[c]);
        if (c == label) of_label = logits[c];
    }
    shift = group_max<GROUP>(shift);
    for (size_t c = lane; c < a.classes; c += GROUP) {
        float e = expf(logits[c] - shift);
        d[c] = e;
        sum += e;
    }
    sum = group_sum<GROUP>(sum);
    float factor = scale / sum;
    for (size_t c = lane; c < a.classes; c += GROUP) d[c] = d[c] * factor - (c == label ? scale : 0);
    return lane == label % GROUP ? logf(sum) - (of_label - shift) : 0;
}

template <unsigned GROUP> __global__ void cross_entropy_fast(Rows a, Loss out) {
    const unsigned groups = blockDim.x / GROUP, lane = threadIdx.x % GROUP;
    double total = 0;
    for (size_t r = (size_t)blockIdx.x * groups + threadIdx.x / GROUP; r < a.rows; r += (size_t)gridDim.x * groups) {
        int64_t label = a.labels[r];
        if (is_label(a, label)) {
            total += (double)cross_entropy_row<GROUP>(a, r, lane, out.scale);
        } else if (lane == 0) {
            report_label(a, label);
            total += (double)NAN;
        }
    }
    put_loss(out, total);
}

/* Replaces a row, which only this thread uses, by its gradient; returns its loss. */
__device__ float cross_entropy_short_row(float *row, unsigned classes, unsigned label, float scale) {
    const float shift = largest_logit(row, classes), of_label = row[label];
    float sum = 0;
    for (unsigned c = 0; c < classes; c++) {
        row[c] = expf(row[c] - shift);
        sum += row[c];
    }
    const float factor = scale / sum;
    for (unsigned c = 0; c < classes; c++) row[c] = row[c] * factor - (c == label ? scale : 0);
    return logf(sum) - (of_label - shift);
}

__global__ void cross_entropy_short(Rows a, Loss out) {
    __shared__ ShortRows tile;
    __shared__ bool is_good[THREADS]; /* its gradient is to be written */
    const unsigned classes = (unsigned)a.classes;
    double total = 0;
    for (size_t first = (size_t)blockIdx.x * THREADS; first < a.rows; first += (size_t)gridDim.x * THREADS) {
        const unsigned count = (unsigned)(a.rows - first < THREADS ? a.rows - first : THREADS);
        tile.load(a.logits + first * classes, count, classes);
        if (threadIdx.x < count) {
            const int64_t label = a.labels[first + threadIdx.x];
            const bool good = is_good[threadIdx.x] = is_label(a, label);
            if (good) {
                float *row = tile.row(threadIdx.x, classes);
                total += (double)cross_entropy_short_row(row, classes, (unsigned)label, out.scale);
            } else {
                report_label(a, label);
                total += (double)NAN;
            }
        }
        tile.store(a.dlogits + first * classes, count, classes, is_good);
    }
    put_loss(out, total);
}

/* --- squared error ------------------------------------------------------------------------------------------------ */

struct Squares {
    float *dprediction;
    const float *prediction, *target;
    size_t count;
};

__global__ void squared_error_loss_naive(Squares a, Loss out) {
    double total = 0;
    for (size_t i = 0; i < a.count; i++) {
        float difference = a.prediction[i] - a.target[i];
        total += (double)(difference * difference);
    }
    *out.loss = (float)(total * (double)out.scale);
}

__global__ void squared_error_gradient_naive(Squares a, float twice_scale) {
    size_t i = global_thread();
    if (i < a.count) a.dprediction[i] = twice_scale * (a.prediction[i] - a.target[i]);
}

__global__ void squared_error_fast(Squares a, Loss out) {
    const bool aligned = is_aligned(a.dprediction, a.prediction, a.target);
    const float twice_scale = 2 * out.scale;
    double total = 0;
    for (size_t i = 4 * global_thread(); i < a.count; i += 4 * global_threads()) {
        size_t left = a.count - i;
        Floats<4> p = load_four(a.prediction + i, left, aligned), t = load_four(a.target + i, left, aligned);
        float square = 0;
        for (int k = 0; k < 4; k++) {
            p.at[k] -= t.at[k];
            square += p.at[k] * p.at[k];
            p.at[k] *= twice_scale;
        }
        total += (double)square;
        store_four(a.dprediction + i, p, left, aligned);
    }
    put_loss(out, total);
}

/* --- correct answers ---------------------------------------------------------------------------------------------- */

__device__ bool is_correct(const float *logits, size_t classes, int64_t label) {
    size_t best = 0;
    for (size_t c = 1; c < classes; c++) best = logits[c] > logits[best] ? c : best;
    return (int64_t)best == label;
}

__global__ void count_correct_naive(Rows a, int64_t *correct) {
    for (size_t r = 0; r < a.rows; r++) *correct += is_correct(a.logits + r * a.classes, a.classes, a.labels[r]);
}

/* The largest logit that is not NaN, and its first index; at = SIZE_MAX: none so far. */
struct Best {
    float value;
    unsigned long long at;
};

__device__ Best better(Best a, Best b) {
    bool second = b.value > a.value || (b.value == a.value && b.at < a.at);
    return second ? b : a;
}

__device__ size_t first_largest(const float *logits, size_t classes, unsigned lane) {
    Best best = {-INFINITY, SIZE_MAX};
    for (size_t c = lane; c < classes; c += WARP) best = better(best, {logits[c], c});
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        Best other = {__shfl_xor_sync(FULL_WARP, best.value, distance), __shfl_xor_sync(FULL_WARP, best.at, distance)};
        best = better(best, other);
    }
    /* a NaN at index 0 stays the best, as in is_correct: no value compares larger */
    return isnan(logits[0]) || best.at == SIZE_MAX ? 0 : (size_t)best.at;
}

/* Stores a block's count: in `parts`, or in *correct without them. */
__device__ void put_count(int64_t *correct, long long *parts, long long total) {
    total = block_sum(total);
    if (threadIdx.x == 0 && parts) parts[blockIdx.x] = total;
    if (threadIdx.x == 0 && !parts) *correct += total;
}

__global__ void count_correct_short(Rows a, int64_t *correct, long long *parts) {
    __shared__ ShortRows tile;
    const unsigned classes = (unsigned)a.classes, r = threadIdx.x;
    long long total = 0;
    for (size_t first = (size_t)blockIdx.x * THREADS; first < a.rows; first += (size_t)gridDim.x * THREADS) {
        const unsigned count = (unsigned)(a.rows - first < THREADS ? a.rows - first : THREADS);
        __syncthreads(); /* threads may still read the last rows */
        tile.load(a.logits + first * classes, count, classes);
        total += r < count && is_correct(tile.row(r, classes), classes, a.labels[first + r]);
    }
    put_count(correct, parts, total);
}

__global__ void count_correct_fast(Rows a, int64_t *correct, long long *parts) {
    const unsigned warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
    long long total = 0;
    for (size_t r = (size_t)blockIdx.x * warps + threadIdx.x / WARP; r < a.rows; r += (size_t)gridDim.x * warps) {
        size_t best = first_largest(a.logits + r * a.classes, a.classes, lane);
        total += lane == 0 && (int64_t)best == a.labels[r];
    }
    put_count(correct, parts, total);
}

__global__ void add_counts(int64_t *correct, const long long *parts, size_t count) {
    long long total = 0;
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) total += parts[i];
    put_count(correct, nullptr, total);
}

Rows rows_of(const ls_cross_entropy_arguments *a, const ls_cuda_lane *lane) {
    return {a->dlogits, a->logits, a->labels, a->rows, a->classes, lane->fault};
}

Rows rows_of(const ls_count_correct_arguments *a) {
    return {nullptr, a->logits, a->labels, a->rows, a->classes, nullptr};
}

Squares squares_of(const ls_squared_error_arguments *a) { return {a->dprediction, a->prediction, a->target, a->count}; }

} // namespace

/* --- naive -------------------------------------------------------------------------------------------------------- */

/* The loss first: the gradient may overwrite the logits. */
ls_status ls_cuda_naive_cross_entropy(const ls_cross_entropy_arguments *a, const ls_cuda_lane *lane) {
    Rows rows = rows_of(a, lane);
    Loss out = {a->loss, a->scale, nullptr};
    ls_status status = launch(lane, "cross_entropy", dim3(1), 1, cross_entropy_loss_naive, rows, out);
    if (status != LS_OK) return status;
    return launch_each(lane, "cross_entropy", a->rows, cross_entropy_gradient_naive, rows, a->scale);
}

ls_status ls_cuda_naive_squared_error(const ls_squared_error_arguments *a, const ls_cuda_lane *lane) {
    Squares squares = squares_of(a);
    Loss out = {a->loss, a->scale, nullptr};
    ls_status status = launch(lane, "squared_error", dim3(1), 1, squared_error_loss_naive, squares, out);
    if (status != LS_OK) return status;
    return launch_each(lane, "squared_error", a->count, squared_error_gradient_naive, squares, 2 * a->scale);
}

ls_status ls_cuda_naive_count_correct(const ls_count_correct_arguments *a, const ls_cuda_lane *lane) {
    return launch(lane, "count_correct", dim3(1), 1, count_correct_naive, rows_of(a), a->correct);
}

/* --- fast --------------------------------------------------------------------------------------------------------- */

ls_status ls_cuda_cross_entropy(const ls_cross_entropy_arguments *a, const ls_cuda_lane *lane) {
    const bool wide = a->classes >= WIDE, narrow = a->classes <= SHORT, few = !wide && !narrow && a->rows <= FEW_ROWS;
    const size_t rows_a_block = wide ? 1 : narrow ? THREADS : THREADS / WARP;
    const unsigned threads = few ? LARGE : THREADS;
    unsigned blocks = few ? 1 : parts_for(divide_up(a->rows, rows_a_block));
    Loss out = {a->loss, a->scale, parts_of(lane, blocks)};
    auto kernel = narrow ? cross_entropy_short : wide ? cross_entropy_fast<THREADS> : cross_entropy_fast<WARP>;
    ls_status status = launch(lane, "cross_entropy", dim3(blocks), threads, kernel, rows_of(a, lane), out);
    return status == LS_OK ? second_stage(lane, "cross_entropy", out, blocks) : status;
}

ls_status ls_cuda_squared_error(const ls_squared_error_arguments *a, const ls_cuda_lane *lane) {
    unsigned blocks = parts_for(divide_up(a->count, 4 * THREADS));
    Loss out = {a->loss, a->scale, parts_of(lane, blocks)};
    ls_status status = launch(lane, "squared_error", dim3(blocks), THREADS, squared_error_fast, squares_of(a), out);
    return status == LS_OK ? second_stage(lane, "squared_error", out, blocks) : status;
}

ls_status ls_cuda_count_correct(const ls_count_correct_arguments *a, const ls_cuda_lane *lane) {
    const bool narrow = a->classes <= SHORT;
    unsigned blocks = parts_for(divide_up(a->rows, narrow ? THREADS : THREADS / WARP));
    long long *parts = blocks > 1 ? static_cast<long long *>(lane->scratch) : nullptr;
    ls_status status = launch(lane, "count_correct", dim3(blocks), THREADS,
                              narrow ? count_correct_short : count_correct_fast, rows_of(a), a->correct, parts);
    if (status != LS_OK || !parts) return status;
    return launch(lane, "count_correct", dim3(1), THREADS, add_counts, a->correct, parts, blocks);
}
