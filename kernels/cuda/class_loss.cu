/* class_loss — the three steps of a cross entropy whose classes are split over ranks, each on this rank's part.
 *   formula : kernels.h
 *   launch  : a warp for each row, whose threads take every 32nd class of the part. class_loss has two launches:
 *             one block adds up the rows' losses, then the gradients. Naive: a thread for each row, and one for the sum
 *   cost    : bytes and flops of ops.def; bound by bandwidth
 *   order   : a row's sum: each thread's classes ascending, then the butterfly of launch.cuh. The loss in double: each
 *             thread's rows ascending, then the block's
 *   fails   : a label outside [0, part.whole) goes to lane->fault, and its row's loss is NaN */
#include "kernels/cuda/launch.cuh"

using namespace ls_cuda;

namespace {

__device__ float larger(float a, float b) { return b > a || isnan(b) ? b : a; }

/* Over the threads of a row: a warp, or a single thread. */
template <unsigned GROUP> __device__ float group_max(float value) {
    for (unsigned distance = GROUP / 2; distance > 0; distance /= 2)
        value = larger(value, __shfl_xor_sync(FULL_WARP, value, (int)distance));
    return value;
}
template <unsigned GROUP> __device__ float group_sum(float value) {
    for (unsigned distance = GROUP / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(FULL_WARP, value, (int)distance);
    return value;
}

template <unsigned GROUP> __global__ void maxima(ls_class_maxima_arguments a) {
    const unsigned lane = threadIdx.x % GROUP;
    for (size_t r = global_thread() / GROUP; r < a.rows; r += global_threads() / GROUP) {
        const float *logits = a.logits + r * a.part.room;
        float best = -INFINITY;
        for (size_t c = lane; c < a.part.count; c += GROUP) best = larger(best, logits[c]);
        best = group_max<GROUP>(best);
        if (lane == 0) a.maxima[r] = best;
    }
}

__device__ bool is_here(int64_t label, ls_class_part part) {
    return (size_t)label >= part.first && (size_t)label - part.first < part.count;
}

template <unsigned GROUP> __global__ void sums(ls_class_sums_arguments a, ls_cuda_fault *fault) {
    const unsigned lane = threadIdx.x % GROUP;
    for (size_t r = global_thread() / GROUP; r < a.rows; r += global_threads() / GROUP) {
        const float *logits = a.logits + r * a.part.room;
        const int64_t label = a.labels[r];
        const bool good = label >= 0 && (uint64_t)label < a.part.whole;
        float shift = a.maxima[r], sum = 0, of_label = good ? 0 : NAN;
        for (size_t c = lane; c < a.part.count; c += GROUP) sum += expf(logits[c] - shift);
        sum = group_sum<GROUP>(sum);
        if (lane != 0) continue;
        if (!good) {
            fault->limit = (int32_t)a.part.whole;
            fault->value = label;
            fault->kind = LS_CUDA_FAULT_LABEL;
        } else if (is_here(label, a.part)) {
            of_label = logits[(size_t)label - a.part.first] - shift;
        }
        a.sums[r] = sum;
        a.sums[a.rows + r] = of_label;
    }
}

template <unsigned GROUP> __global__ void gradient(ls_class_loss_arguments a) {
    const unsigned lane = threadIdx.x % GROUP;
    for (size_t r = global_thread() / GROUP; r < a.rows; r += global_threads() / GROUP) {
        const float *logits = a.logits + r * a.part.room;
        float *d = a.dlogits + r * a.part.room, shift = a.maxima[r], factor = a.scale / a.sums[r];
        const size_t place = is_here(a.labels[r], a.part) ? (size_t)a.labels[r] - a.part.first : SIZE_MAX;
        for (size_t c = lane; c < a.part.room; c += GROUP) {
            float value = c < a.part.count ? expf(logits[c] - shift) * factor : 0;
            d[c] = c == place ? value - a.scale : value;
        }
    }
}

__global__ void add_losses(ls_class_loss_arguments a) {
    double total = 0;
    for (size_t r = threadIdx.x; r < a.rows; r += blockDim.x) total += (double)(logf(a.sums[r]) - a.sums[a.rows + r]);
    if (blockDim.x > 1) total = block_sum(total);
    if (threadIdx.x == 0) *a.loss = (float)(total * (double)a.scale);
}

template <unsigned GROUP> unsigned blocks_of(const ls_cuda_lane *lane, size_t rows) {
    return rows > 0 ? blocks_for(lane, rows, THREADS / GROUP) : 0;
}

template <unsigned GROUP> ls_status run_maxima(const ls_class_maxima_arguments *a, const ls_cuda_lane *lane) {
    return launch(lane, "class_maxima", dim3(blocks_of<GROUP>(lane, a->rows)), THREADS, maxima<GROUP>, *a);
}

template <unsigned GROUP> ls_status run_sums(const ls_class_sums_arguments *a, const ls_cuda_lane *lane) {
    return launch(lane, "class_sums", dim3(blocks_of<GROUP>(lane, a->rows)), THREADS, sums<GROUP>, *a, lane->fault);
}

template <unsigned GROUP> ls_status run_loss(const ls_class_loss_arguments *a, const ls_cuda_lane *lane) {
    ls_status status = launch(lane, "class_loss", dim3(1), GROUP > 1 ? THREADS : 1, add_losses, *a);
    if (status != LS_OK) return status;
    return launch(lane, "class_loss", dim3(blocks_of<GROUP>(lane, a->rows)), THREADS, gradient<GROUP>, *a);
}

} // namespace

ls_status ls_cuda_naive_class_maxima(const ls_class_maxima_arguments *a, const ls_cuda_lane *lane) {
    return run_maxima<1>(a, lane);
}
ls_status ls_cuda_naive_class_sums(const ls_class_sums_arguments *a, const ls_cuda_lane *lane) {
    return run_sums<1>(a, lane);
}
ls_status ls_cuda_naive_class_loss(const ls_class_loss_arguments *a, const ls_cuda_lane *lane) {
    return run_loss<1>(a, lane);
}

ls_status ls_cuda_class_maxima(const ls_class_maxima_arguments *a, const ls_cuda_lane *lane) {
    return run_maxima<WARP>(a, lane);
}
ls_status ls_cuda_class_sums(const ls_class_sums_arguments *a, const ls_cuda_lane *lane) {
    return run_sums<WARP>(a, lane);
}
ls_status ls_cuda_class_loss(const ls_class_loss_arguments *a, const ls_cuda_lane *lane) {
    return run_loss<WARP>(a, lane);
}
