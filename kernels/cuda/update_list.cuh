/* update_list — finds a chunk in a list of tensors (struct ls_update_tensor), which a launch cuts into chunks of
 * LS_UPDATE_CHUNK elements. For optimizer.cu and clipping.cu. C++ only. */
#ifndef LS_KERNELS_CUDA_UPDATE_LIST_CUH
#define LS_KERNELS_CUDA_UPDATE_LIST_CUH

#include "kernels/cuda/launch.cuh"

namespace ls_cuda {

/* Elements begin .. begin + count - 1 of a tensor. */
struct Chunk {
    ls_update_tensor tensor;
    size_t begin, count;
};

/* Chunk number `index` of the tensor. */
__device__ inline Chunk chunk_of(const ls_update_tensor &tensor, size_t index) {
    size_t begin = index * LS_UPDATE_CHUNK, left = tensor.count - begin;
    return {tensor, begin, left < LS_UPDATE_CHUNK ? left : LS_UPDATE_CHUNK};
}

/* Chunk number `index` of the list, by binary search. It is in the last tensor whose first_chunk is not larger; tensors
 * without elements have no chunk and are never found. */
__device__ inline Chunk find_chunk(const ls_update_tensor *tensors, size_t tensor_count, size_t index) {
    size_t low = 0, high = tensor_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (tensors[middle].first_chunk <= index) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return chunk_of(tensors[low], index - tensors[low].first_chunk);
}

} // namespace ls_cuda

#endif
