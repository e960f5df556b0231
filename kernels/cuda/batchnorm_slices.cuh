/* The division of a channel in the fast rung of batch normalisation: slices for blocks, groups of values for threads.
 * batchnorm.cu has the reasons. C++ only. */
#ifndef LS_KERNELS_CUDA_BATCHNORM_SLICES_CUH
#define LS_KERNELS_CUDA_BATCHNORM_SLICES_CUH

#include "kernels/cuda/batchnorm.cuh"

namespace ls_cuda {

constexpr size_t SLICE_VALUES = 2048;
constexpr size_t MOST_SLICES = 512;  /* of a channel */
constexpr size_t MANY_BLOCKS = 2048; /* of all channels: enough for any GPU */

struct Slices {
    unsigned count; /* of each channel */
    size_t values;  /* of each slice but the last: a multiple of 4 */
    bool aligned;   /* the operation's arrays can be accessed by fours */
};

/* `arrays`: the arrays to be visited, of elements of type T */
template <class T, class... Voids> Slices make_slices(const ls_batchnorm_shape &s, const Voids *...arrays) {
    size_t most = MANY_BLOCKS / (s.channels > 0 ? (size_t)s.channels : 1),
           count = divide_up(values_of(s), SLICE_VALUES);
    if (most > MOST_SLICES) most = MOST_SLICES;
    if (count > most) count = most;
    if (count < 1) count = 1;
    return {(unsigned)count, divide_up(divide_up(values_of(s), count), 4) * 4,
            is_aligned(static_cast<const T *>(arrays)...)};
}

inline unsigned blocks_of(const ls_batchnorm_shape &s, const Slices &slices) {
    return (unsigned)s.channels * slices.count;
}

/* One thread's walk through its block's slice: N neighbouring values at a time, then THREADS x N values on. */
template <int N> class Walk {
  public:
    __device__ Walk(const ls_batchnorm_shape &s, const Slices &slices) : plane((unsigned)s.plane) {
        channel = (int)(blockIdx.x / slices.count);
        slice = blockIdx.x % slices.count;
        size_t all = values_of(s), first = slice * slices.values;
        begin = first < all ? first : all;
        end = begin + slices.values < all ? begin + slices.values : all;
        next_value = begin + (size_t)threadIdx.x * N;
        size_t image = image_of(s), n = plane > 0 ? next_value / plane : 0;
        place = (unsigned)(next_value - n * plane);
        next_at = channel_begin(s, channel) + n * image + place;
        size_t step = (size_t)THREADS * N, step_n = plane > 0 ? step / plane : 0;
        step_place = (unsigned)(step - step_n * plane);
        step_at = step_n * image + step_place;
        to_next_plane = image - plane;
    }

    /* Moves to the thread's next values, which begin at *at; false: the slice has no more. */
    __device__ bool next(size_t *at) {
        bool there = next_value < end;
        *at = next_at;
        next_value += (size_t)THREADS * N;
        next_at += step_at;
        place += step_place;
        if (place >= plane) {
            place -= plane;
            next_at += to_next_plane;
        }
        return there;
    }

    int channel;
    unsigned slice;
    size_t begin, end; /* of the slice */

  private:
    unsigned plane, place, step_place;
    size_t next_value, next_at, step_at, to_next_plane;
};

/* N x STEPS values that a thread reads before it uses any, so that the reads overlap. `aligned`: fours can be read in
 * one instruction. */
template <int N, int STEPS> struct Group {
    size_t at[STEPS];
    bool there[STEPS], aligned;

    __device__ Group(Walk<N> &walk, bool arrays_aligned) : aligned(arrays_aligned) {
        for (int k = 0; k < STEPS; k++) there[k] = walk.next(&at[k]);
    }

    template <class T> __device__ void read(Floats<N> (&values)[STEPS], const T *from) const {
        for (int k = 0; k < STEPS; k++) {
            values[k] = Floats<N>{};
            if (!there[k]) continue;
            if constexpr (N == 4) {
                values[k] = load_four(from + at[k], 4, aligned);
            } else {
                values[k] = load<N>(from + at[k]);
            }
        }
    }

    template <class T> __device__ void write(T *to, const Floats<N> (&values)[STEPS]) const {
        for (int k = 0; k < STEPS; k++) {
            if (!there[k]) continue;
            if constexpr (N == 4) {
                store_four(to + at[k], values[k], 4, aligned);
            } else {
                store<N>(to + at[k], values[k]);
            }
        }
    }

    static constexpr size_t BLOCK_VALUES = (size_t)THREADS * N * STEPS;
};

} // namespace ls_cuda

#endif
