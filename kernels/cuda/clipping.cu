/* clipping — square_sum and clip_coefficient.
 *   formula : *sum += sum of x[i]^2; *norm = sqrt(*square_sum), *coefficient = min(1, max_norm / (*norm + 1e-6))
 *   launch  : fast: a grid-stride loop over fours by PARTS blocks at most, each with a sum in scratch memory, and one
 *             block that adds these to *sum. Naive: one thread goes through all elements. The coefficient takes one
 *             thread in any case
 *   cost    : 4 bytes and 2 flops an element, in double: a square of a float is exact there
 *   order   : of a thread, ascending; of a block as block_sum says; of the blocks in the same manner. The number of
 *             blocks follows from the count alone, and arrays off 16 bytes are added up in the same order as others */
#include "kernels/cuda/launch.cuh"

using namespace ls_cuda;

namespace {

constexpr size_t PARTS = 1024;

__global__ void square_sum_naive(double *sum, const float *x, size_t count) {
    double total = 0;
    for (size_t i = 0; i < count; i++) total += (double)x[i] * (double)x[i];
    *sum += total;
}

__global__ void square_sum_parts(double *parts, const float *x, size_t count) {
    bool aligned = is_aligned(x);
    double total = 0;
    for (size_t i = 4 * global_thread(); i < count; i += 4 * global_threads()) {
        Floats<4> x4 = load_four(x + i, count - i, aligned);
        for (int k = 0; k < 4; k++) total += (double)x4.at[k] * (double)x4.at[k];
    }
    total = block_sum(total);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

__global__ void add_parts(double *sum, const double *parts, size_t count) {
    double total = 0;
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) total += parts[i];
    total = block_sum(total);
    if (threadIdx.x == 0) *sum += total;
}

/* A NaN norm makes every gradient NaN, as in PyTorch. */
__global__ void clip(float *coefficient, float *norm, const double *square_sum, float max_norm) {
    float root = (float)sqrt(*square_sum), limit = max_norm / (root + 1e-6f);
    *norm = root;
    *coefficient = limit > 1 ? 1 : limit;
}

} // namespace

ls_status ls_cuda_naive_square_sum(const ls_square_sum_arguments *a, const ls_cuda_lane *lane) {
    return launch(lane, "square_sum", dim3(1), 1, square_sum_naive, a->sum, a->x, a->count);
}

ls_status ls_cuda_square_sum(const ls_square_sum_arguments *a, const ls_cuda_lane *lane) {
    if (a->count == 0) return LS_OK;
    size_t wanted = divide_up(a->count, 4 * THREADS), parts = wanted < PARTS ? wanted : PARTS;
    double *sums = static_cast<double *>(lane->scratch);
    ls_status status =
        launch(lane, "square_sum", dim3((unsigned)parts), THREADS, square_sum_parts, sums, a->x, a->count);
    if (status != LS_OK) return status;
    return launch(lane, "square_sum", dim3(1), THREADS, add_parts, a->sum, sums, parts);
}

ls_status ls_cuda_naive_clip_coefficient(const ls_clip_coefficient_arguments *a, const ls_cuda_lane *lane) {
    return launch(lane, "clip_coefficient", dim3(1), 1, clip, a->coefficient, a->norm, a->square_sum, a->max_norm);
}

ls_status ls_cuda_clip_coefficient(const ls_clip_coefficient_arguments *a, const ls_cuda_lane *lane) {
    return ls_cuda_naive_clip_coefficient(a, lane);
}
