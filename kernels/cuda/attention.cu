/* attention — causal attention, fast rung: not there yet; the naive kernels run. */
#include "kernels/cuda/attention.cuh"

ls_status ls_cuda_attention_forward(const ls_attention_forward_arguments *a, const ls_cuda_lane *lane) {
    return ls_cuda_naive_attention_forward(a, lane);
}

ls_status ls_cuda_attention_backward(const ls_attention_backward_arguments *a, const ls_cuda_lane *lane) {
    return ls_cuda_naive_attention_backward(a, lane);
}
