/* clipping — square_sum_list, weigh_gradients, update_scale: gradient norm, clipping and loss scaling, without the
 * host.
 *   idea    : one sum of squares answers both questions before an update. For clipping, it is the square of the norm.
 *             For loss scaling, it is finite if, and only if, all gradients are: squares of floats are exact in double,
 *             and no sum of them overflows. So gradients are read once and never written: weigh_gradients stores a
 *             factor by which the update multiplies them
 *   formula : kernels.h
 *   launch  : fast: at most PARTS blocks. Each takes every PARTS-th chunk of the list, four floats a thread at a time,
 *             and stores a sum in scratch memory; one more block adds these up. Naive: one thread visits all elements.
 *             The other two operations take one thread in any case
 *   cost    : 4 bytes and 2 flops an element, in double
 *   order   : a thread's elements ascending; a block's in the order of block_sum; the blocks' likewise. The number of
 *             blocks depends on the list alone, and alignment does not change the order
 *   fails   : infinities and NaNs among the gradients are not a failure: found_inf reports them */
#include "kernels/cuda/update_list.cuh"

using namespace ls_cuda;

namespace {

/* --- the sum of squares ------------------------------------------------------------------------------------------- */

constexpr size_t PARTS = 4096; /* several waves of blocks on any GPU */
static_assert(PARTS * sizeof(double) <= LS_CUDA_SCRATCH_NBYTES, "a sum of each block");

__global__ void square_sum_naive(double *sum, const ls_update_tensor *tensors, size_t tensor_count) {
    double total = 0;
    for (size_t t = 0; t < tensor_count; t++) {
        const float *gradient = tensors[t].gradient;
        for (size_t i = 0; i < tensors[t].count; i++) total += (double)gradient[i] * (double)gradient[i];
    }
    *sum = total;
}

__global__ void square_sum_parts(double *parts, const ls_update_tensor *tensors, size_t tensor_count,
                                 size_t chunk_count) {
    double total = 0;
    for (size_t index = blockIdx.x; index < chunk_count; index += gridDim.x) {
        Chunk chunk = find_chunk(tensors, tensor_count, index);
        const float *gradient = chunk.tensor.gradient + chunk.begin;
        bool aligned = is_aligned(gradient);
        for (size_t i = 4 * threadIdx.x; i < chunk.count; i += 4 * THREADS) {
            Floats<4> four = load_four(gradient + i, chunk.count - i, aligned);
            for (int k = 0; k < 4; k++) total += (double)four.at[k] * (double)four.at[k];
        }
    }
    total = block_sum(total);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

__global__ void add_parts(double *sum, const double *parts, size_t count) {
    double total = 0;
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) total += parts[i];
    total = block_sum(total);
    if (threadIdx.x == 0) *sum = total;
}

/* --- the other operations: one thread ----------------------------------------------------------------------------- */

__global__ void weigh_gradients(ls_update_state *states, size_t state_count, const ls_scaler_state *scaler,
                                const double *square_sum, float max_norm) {
    float scale = scaler ? scaler->scale : 1, inverse = (float)(1 / (double)scale);
    float norm = (float)(sqrt(*square_sum) * (double)inverse), limit = max_norm / (norm + 1e-6f);
    float coefficient = max_norm > 0 && !(limit > 1) ? limit : 1; /* a NaN stays */
    for (size_t s = 0; s < state_count; s++) {
        states[s].found_inf = scaler && !isfinite(*square_sum);
        states[s].gradient_factor = inverse * coefficient;
        states[s].norm = norm;
        states[s].scale = scale;
    }
}

__global__ void update_scale(ls_scaler_state *scaler, const ls_update_state *state, ls_scaler_rule rule) {
    if (state->found_inf != 0) {
        scaler->scale = (float)((double)scaler->scale * rule.backoff_factor);
        scaler->growth_tracker = 0;
        scaler->skipped++;
    } else if (++scaler->growth_tracker == rule.growth_interval) {
        float grown = (float)((double)scaler->scale * rule.growth_factor);
        if (isfinite(grown)) scaler->scale = grown;
        scaler->growth_tracker = 0;
    }
}

} // namespace

ls_status ls_cuda_naive_square_sum_list(const ls_square_sum_list_arguments *a, const ls_cuda_lane *lane) {
    return launch(lane, "square_sum_list", dim3(1), 1, square_sum_naive, a->sum, a->tensors, a->tensor_count);
}

ls_status ls_cuda_square_sum_list(const ls_square_sum_list_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "square_sum_list";
    size_t parts = a->chunk_count < PARTS ? a->chunk_count : PARTS;
    double *sums = static_cast<double *>(lane->scratch);
    ls_status status = launch(lane, op, dim3((unsigned)parts), THREADS, square_sum_parts, sums, a->tensors,
                              a->tensor_count, a->chunk_count);
    if (status != LS_OK) return status;
    return launch(lane, op, dim3(1), THREADS, add_parts, a->sum, sums, parts);
}

ls_status ls_cuda_naive_weigh_gradients(const ls_weigh_gradients_arguments *a, const ls_cuda_lane *lane) {
    return launch(lane, "weigh_gradients", dim3(1), 1, weigh_gradients, a->states, a->state_count, a->scaler,
                  a->square_sum, a->max_norm);
}

ls_status ls_cuda_weigh_gradients(const ls_weigh_gradients_arguments *a, const ls_cuda_lane *lane) {
    return ls_cuda_naive_weigh_gradients(a, lane);
}

ls_status ls_cuda_naive_update_scale(const ls_update_scale_arguments *a, const ls_cuda_lane *lane) {
    return launch(lane, "update_scale", dim3(1), 1, update_scale, a->scaler, a->state, a->rule);
}

ls_status ls_cuda_update_scale(const ls_update_scale_arguments *a, const ls_cuda_lane *lane) {
    return ls_cuda_naive_update_scale(a, lane);
}
