/* Small kernels with known results, for tests of the code that runs kernels. Each function launches one on a stream and
 * returns the result of cudaLaunchKernelEx. Arrays are device memory. */
#ifndef CUDA_ON_CPU_SELFTEST_H
#define CUDA_ON_CPU_SELFTEST_H

#include <stdbool.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct selftest_geometry {
    unsigned grid[3], block[3];
};

/* A thread's view of its own position. */
struct selftest_place {
    unsigned thread[3], block[3], block_dim[3], grid_dim[3];
    unsigned turn; /* how many threads ran before it */
};

/* places[number of block * threads of a block + number of thread in it]; *turns must start as 0 */
cudaError_t selftest_places(cudaStream_t stream, struct selftest_geometry geometry, struct selftest_place *places,
                            unsigned *turns);

/* Does nothing. */
cudaError_t selftest_nothing(cudaStream_t stream, struct selftest_geometry geometry);

/* out[i] = in[threads - 1 - i], through shared memory, in one block; with the barrier that this needs, or without */
cudaError_t selftest_reverse(cudaStream_t stream, unsigned threads, bool with_barrier, const float *in, float *out);

/* `rounds` times, x[i] = x[i - 1] + 1 (of thread 0: itself + 1), through shared memory; needs two barriers a round, and
 * may lack the second */
cudaError_t selftest_rounds(cudaStream_t stream, unsigned threads, unsigned rounds, bool with_second_barrier, float *x);

/* out[i] = in[i ^ 1], through shared memory within a warp; with __syncwarp or without */
cudaError_t selftest_swap(cudaStream_t stream, unsigned threads, bool with_barrier, const float *in, float *out);

/* out[b] = the sum of the b-th `threads` values: per warp by __shfl_down_sync, then over the warps; threads must be
 * whole warps */
cudaError_t selftest_block_sums(cudaStream_t stream, unsigned blocks, unsigned threads, const double *in, double *out);

/* x[b + 1] = x[b] + 1 for each block b: correct only if blocks run in ascending order */
cudaError_t selftest_chain(cudaStream_t stream, unsigned blocks, int *x);

/* out[i] = the result of thread i of one block in a shuffle of the threads' numbers, after threads `from` and above
 * have left the kernel. kind: 'i'ndex, 'u'p, 'd'own, 'x'or. */
cudaError_t selftest_shuffle(cudaStream_t stream, unsigned threads, char kind, int argument, int width, unsigned from,
                             int *out);

/* The even and the odd lanes of a warp sum their numbers separately, with separate masks. */
cudaError_t selftest_halves(cudaStream_t stream, int *out);

/* Copies its by-value argument, which the caller changes afterwards. */
struct selftest_values {
    double number;
    int list[5];
};
cudaError_t selftest_by_value(cudaStream_t stream, struct selftest_values values, short narrow,
                              struct selftest_values *out);

/* Kernels of two warps that cannot end:
 *   "left"      thread 5 leaves before a __syncthreads that the others reach
 *   "apart"     the two warps are at different __syncthreads
 *   "lane"      lane 3 waits in __syncthreads while its warp shuffles
 *   "masks"     lanes shuffle with masks that overlap but differ
 *   "stranger"  lane 7 shuffles with a mask that does not name it
 *   "width"     the width of a shuffle is 12
 * Thread 0 of each block sets out[block] to 1 first. */
cudaError_t selftest_stuck(cudaStream_t stream, const char *what, unsigned blocks, int *out);

/* Each thread uses about `nbytes` of its stack in frames of 1 KiB; out[i] = i */
cudaError_t selftest_deep(cudaStream_t stream, unsigned threads, unsigned nbytes, int *out);

#ifdef __cplusplus
}
#endif
#endif
