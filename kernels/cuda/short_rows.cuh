/* short_rows — rows of at most SHORT numbers, one thread per row.
 *   idea  : a warp for each row would leave most of its lanes idle. A thread that read its row from global memory would
 *           touch a sector of 32 bytes for every number. So a block first copies THREADS consecutive rows into shared
 *           memory, by coalesced reads. Then each thread works on its own row, and the block writes the rows back,
 *           coalesced again
 *   banks : rows are an odd number of words apart, so that the threads of a warp, each at the same index of its row,
 *           use 32 different banks
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

    /* Loads `count` rows, at most THREADS, of `length` numbers; every thread of the block calls. No thread may still
     * use the previous rows. store() may still run: each thread overwrites only numbers that it stored itself. */
    __device__ void load(const float *from, unsigned count, unsigned length) {
        for (unsigned i = threadIdx.x; i < count * length; i += blockDim.x)
            row(i / length, length)[i % length] = from[i];
        __syncthreads();
    }

    /* Stores the rows whose `keep` is set. Every thread calls, when its own row is done. */
    __device__ void store(float *to, unsigned count, unsigned length, const bool *keep) {
        __syncthreads();
        for (unsigned i = threadIdx.x; i < count * length; i += blockDim.x)
            if (keep[i / length]) to[i] = row(i / length, length)[i % length];
    }
};

} // namespace ls_cuda

#endif
