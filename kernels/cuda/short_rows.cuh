/* short_rows — rows of at most SHORT numbers, a thread to each.
 *   idea  : a warp would leave most of its lanes idle on them. But threads that walked their own rows in global memory
 *           would touch a sector of 32 bytes for every number; so a block takes the numbers of THREADS rows, which
 *           follow one another, into shared memory first, neighbours by neighbouring threads, and writes them back
 *           likewise. In between each thread has a row for itself
 *   banks : rows lie an odd number of words apart, so that the threads of a warp, each at the same place of its row,
 *           meet 32 different banks
 *   cost  : 33 KiB of shared memory a block; two synchronisations, and three if rows are written back */
#ifndef LS_KERNELS_CUDA_SHORT_ROWS_CUH
#define LS_KERNELS_CUDA_SHORT_ROWS_CUH

#include "kernels/cuda/launch.cuh"

namespace ls_cuda {

constexpr unsigned SHORT = 32;

struct ShortRows {
    float at[THREADS * (SHORT + 1)];

    __device__ static unsigned apart(unsigned length) { return length | 1; }

    __device__ float *row(unsigned r, unsigned length) { return at + r * apart(length); }

    /* `count` rows of `length` numbers, at most THREADS; every thread of the block calls. Nobody may read the last
     * ones any more, but store() may be under way: each thread writes over the numbers that it stored itself. */
    __device__ void load(const float *from, unsigned count, unsigned length) {
        for (unsigned i = threadIdx.x; i < count * length; i += blockDim.x)
            row(i / length, length)[i % length] = from[i];
        __syncthreads();
    }

    /* Those for which `keep` is set. Every thread calls, when its own row is done. */
    __device__ void store(float *to, unsigned count, unsigned length, const bool *keep) {
        __syncthreads();
        for (unsigned i = threadIdx.x; i < count * length; i += blockDim.x)
            if (keep[i / length]) to[i] = row(i / length, length)[i % length];
    }
};

} // namespace ls_cuda

#endif
