/* entries — top_k, fill_entries, sum_entries: the largest elements of an array, as a list; and sums of such lists.
 *   idea   : that of kernels/cpu/variant/entries.c: the bits of |x| are ordered as the values, and the k-th largest,
 *            the border, is found digit by digit
 *   launch : top_k, naive: one thread, which halves the range of bits until the border is left. Fast: at most PARTS
 *            blocks, each with a range of the array. For each of 8 digits of 4 bits they count how often each value
 *            occurs, in registers, and one more block adds up the counts and chooses the digit. Then the blocks count
 *            their elements above the border and at it, and each writes its entries after those of the blocks before
 *            it. sum_entries: naive, a thread for each element of y, which searches all lists; fast, y is cleared, and
 *            a launch for each list has a thread for each entry: a list has no index twice, so no two threads write one
 *            element
 *   cost   : top_k reads the array ten times, in 19 launches
 *   order  : of the sums: list after list, the bits of kernels/cpu on both rungs
 *   fails  : never: all floats are ordered, and counts are integers */
#include "kernels/cuda/launch.cuh"

using namespace ls_cuda;

namespace {

/* --- the largest elements ----------------------------------------------------------------------------------------- */

constexpr unsigned FIRST_NAN = 0x7f800001u;

/* Larger for a larger |x|; the same for all NaNs. */
__device__ unsigned key_of(float x) {
    unsigned bits = __float_as_uint(x) & 0x7fffffffu;
    return bits < FIRST_NAN ? bits : FIRST_NAN;
}

__global__ void top_k_naive(ls_entry *entries, const float *x, size_t count, size_t k) {
    unsigned border = 0;
    for (unsigned bit = 1u << 30; bit > 0; bit /= 2) {
        size_t reached = 0;
        for (size_t i = 0; i < count; i++) reached += key_of(x[i]) >= (border | bit);
        if (reached >= k) border |= bit;
    }
    size_t equal = k;
    for (size_t i = 0; i < count; i++) equal -= key_of(x[i]) > border;
    for (size_t i = 0; i < count; i++) {
        unsigned key = key_of(x[i]);
        if (key < border || (key == border && equal == 0)) continue;
        equal -= key == border;
        *entries++ = {(int32_t)i, x[i]};
    }
}

constexpr size_t PARTS = 512, LEAST_PART = 16 * THREADS;
constexpr unsigned DIGIT_BITS = 4, VALUES = 1u << DIGIT_BITS, HIGHEST = 28;

/* In scratch memory. */
struct Search {
    unsigned key;   /* the known digits of the border */
    unsigned equal; /* elements with these digits that are among the k */
    unsigned counts[PARTS][VALUES];
    unsigned above[PARTS], at[PARTS];
};
static_assert(sizeof(Search) <= LS_CUDA_SCRATCH_NBYTES, "counts of each block");

/* Elements begin .. end - 1 of a block. */
struct Part {
    size_t begin, end;
    __device__ Part(size_t count, size_t size) {
        begin = blockIdx.x * size;
        end = begin + size < count ? begin + size : count;
    }
};

__global__ void begin_search(Search *search, size_t k) {
    search->key = 0;
    search->equal = (unsigned)k;
}

/* Each value has GROUPS consecutive threads: adds up theirs; thread v gets the sum of value v. Every thread calls. */
constexpr unsigned GROUPS = THREADS / VALUES;

__device__ unsigned sum_of_value(unsigned mine) {
    __shared__ unsigned sums[THREADS];
    unsigned sum = 0;
    sums[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x < VALUES) {
        for (unsigned g = 0; g < GROUPS; g++) sum += sums[threadIdx.x * GROUPS + g];
    }
    return sum;
}

__global__ void count_values(Search *search, const float *x, size_t count, size_t size, unsigned shift) {
    __shared__ unsigned of_threads[VALUES][THREADS];
    unsigned counts[VALUES] = {}, known = shift == HIGHEST ? 0 : ~0u << (shift + DIGIT_BITS), border = search->key;
    Part part(count, size);
    for (size_t i = part.begin + threadIdx.x; i < part.end; i += THREADS) {
        unsigned key = key_of(x[i]), value = key >> shift & (VALUES - 1);
        for (unsigned v = 0; v < VALUES; v++) counts[v] += (key & known) == border && value == v;
    }
    for (unsigned v = 0; v < VALUES; v++) of_threads[v][threadIdx.x] = counts[v];
    __syncthreads();
    unsigned sum = 0;
    for (unsigned t = threadIdx.x % GROUPS; t < THREADS; t += GROUPS) sum += of_threads[threadIdx.x / GROUPS][t];
    sum = sum_of_value(sum);
    if (threadIdx.x < VALUES) search->counts[blockIdx.x][threadIdx.x] = sum;
}

/* Runs in one block. */
__global__ void choose_value(Search *search, unsigned parts, unsigned shift) {
    __shared__ unsigned found[VALUES];
    unsigned sum = 0;
    for (unsigned p = threadIdx.x % GROUPS; p < parts; p += GROUPS) sum += search->counts[p][threadIdx.x / GROUPS];
    sum = sum_of_value(sum);
    if (threadIdx.x < VALUES) found[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    unsigned equal = search->equal, value = VALUES - 1;
    while (value > 0 && found[value] < equal) equal -= found[value--];
    search->key |= value << shift;
    search->equal = equal;
}

__global__ void count_chosen(Search *search, const float *x, size_t count, size_t size) {
    unsigned above = 0, at = 0, border = search->key;
    Part part(count, size);
    for (size_t i = part.begin + threadIdx.x; i < part.end; i += THREADS) {
        unsigned key = key_of(x[i]);
        above += key > border;
        at += key == border;
    }
    above = block_sum(above);
    at = block_sum(at);
    if (threadIdx.x > 0) return;
    search->above[blockIdx.x] = above;
    search->at[blockIdx.x] = at;
}

/* The sum of `mine` of threads 0 .. threadIdx.x - 1 of the block; *all: of all threads. Every thread calls. */
__device__ unsigned sum_before(unsigned mine, unsigned *all) {
    __shared__ unsigned warps[THREADS / WARP];
    unsigned sum = mine, warp = threadIdx.x / WARP, before = 0;
    for (unsigned distance = 1; distance < WARP; distance *= 2) {
        unsigned left = __shfl_up_sync(FULL_WARP, sum, distance);
        if (threadIdx.x % WARP >= distance) sum += left;
    }
    __syncthreads(); /* threads may still read the last call's sums */
    if (threadIdx.x % WARP == WARP - 1) warps[warp] = sum;
    __syncthreads();
    *all = 0;
    for (unsigned w = 0; w < THREADS / WARP; w++) {
        if (w == warp) before = *all;
        *all += warps[w];
    }
    return before + sum - mine;
}

/* Two numbers of at most THREADS in one. */
constexpr unsigned HALF = 1u << 16;

__global__ void write_chosen(ls_entry *entries, const Search *search, const float *x, size_t count, size_t size) {
    unsigned above = 0, at = 0, border = search->key, equal = search->equal;
    for (unsigned p = threadIdx.x; p < blockIdx.x; p += THREADS) {
        above += search->above[p];
        at += search->at[p];
    }
    above = block_sum(above);
    at = block_sum(at);
    Part part(count, size);
    for (size_t first = part.begin; first < part.end; first += THREADS) {
        size_t i = first + threadIdx.x;
        unsigned key = i < part.end ? key_of(x[i]) : 0, all;
        bool is_above = i < part.end && key > border, is_at = i < part.end && key == border;
        unsigned before = sum_before(is_above + is_at * HALF, &all);
        unsigned above_before = above + before % HALF, at_before = at + before / HALF;
        if (is_above || (is_at && at_before < equal))
            entries[above_before + (at_before < equal ? at_before : equal)] = {(int32_t)i, x[i]};
        above += all % HALF;
        at += all / HALF;
    }
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

__global__ void fill_entries(float *y, const ls_entry *entries, size_t k, float value) {
    size_t j = global_thread();
    if (j < k) y[entries[j].index] = value;
}

__global__ void sum_naive(float *y, const ls_entry *lists, size_t list_count, size_t stride, size_t k, size_t count) {
    size_t i = global_thread();
    if (i >= count) return;
    float sum = 0;
    for (size_t l = 0; l < list_count; l++)
        for (const ls_entry *e = lists + l * stride; e < lists + l * stride + k; e++)
            if ((size_t)e->index == i) sum += e->value;
    y[i] = sum;
}

__global__ void clear(float *y, size_t count) {
    size_t i = global_thread();
    if (i < count) y[i] = 0;
}

__global__ void add_list(float *y, const ls_entry *list, size_t k) {
    size_t j = global_thread();
    if (j < k) y[list[j].index] += list[j].value;
}

} // namespace

ls_status ls_cuda_naive_top_k(const ls_top_k_arguments *a, const ls_cuda_lane *lane) {
    if (a->k == 0) return LS_OK;
    return launch(lane, "top_k", dim3(1), 1, top_k_naive, a->entries, a->x, a->count, a->k);
}

ls_status ls_cuda_top_k(const ls_top_k_arguments *a, const ls_cuda_lane *lane) {
    const char *op = "top_k";
    if (a->k == 0) return LS_OK;
    size_t size = divide_up(a->count, PARTS) > LEAST_PART ? divide_up(a->count, PARTS) : LEAST_PART;
    dim3 parts((unsigned)divide_up(a->count, size));
    Search *search = static_cast<Search *>(lane->scratch);
    ls_status status = launch(lane, op, dim3(1), 1, begin_search, search, a->k);
    for (unsigned d = 0; status == LS_OK && d <= HIGHEST / DIGIT_BITS; d++) {
        unsigned shift = HIGHEST - d * DIGIT_BITS;
        status = launch(lane, op, parts, THREADS, count_values, search, a->x, a->count, size, shift);
        if (status == LS_OK) status = launch(lane, op, dim3(1), THREADS, choose_value, search, parts.x, shift);
    }
    if (status == LS_OK) status = launch(lane, op, parts, THREADS, count_chosen, search, a->x, a->count, size);
    if (status != LS_OK) return status;
    return launch(lane, op, parts, THREADS, write_chosen, a->entries, search, a->x, a->count, size);
}

ls_status ls_cuda_naive_fill_entries(const ls_fill_entries_arguments *a, const ls_cuda_lane *lane) {
    return launch_each(lane, "fill_entries", a->k, fill_entries, a->y, a->entries, a->k, a->value);
}

ls_status ls_cuda_fill_entries(const ls_fill_entries_arguments *a, const ls_cuda_lane *lane) {
    return ls_cuda_naive_fill_entries(a, lane);
}

ls_status ls_cuda_naive_sum_entries(const ls_sum_entries_arguments *a, const ls_cuda_lane *lane) {
    return launch_each(lane, "sum_entries", a->count, sum_naive, a->y, a->lists, a->list_count, a->stride, a->k,
                       a->count);
}

ls_status ls_cuda_sum_entries(const ls_sum_entries_arguments *a, const ls_cuda_lane *lane) {
    ls_status status = launch_each(lane, "sum_entries", a->count, clear, a->y, a->count);
    for (size_t l = 0; status == LS_OK && l < a->list_count; l++)
        status = launch_each(lane, "sum_entries", a->k, add_list, a->y, a->lists + l * a->stride, a->k);
    return status;
}
