/* workspace — the scratch memory of matrix multiplies, convolutions and attention, by kind of device. */
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/conv2d_plan.h"

size_t ls_conv2d_workspace_nbytes(ls_device_kind kind, const struct ls_conv2d_shape *shape) {
    return kind == LS_DEVICE_CUDA ? ls_cuda_conv2d_workspace_nbytes(shape) : ls_cpu_conv2d_workspace_nbytes(shape);
}

size_t ls_gemm_workspace_nbytes(ls_device_kind kind, ls_dtype dtype, size_t m, size_t n, size_t k) {
    return kind == LS_DEVICE_CUDA ? 0 : ls_cpu_gemm_workspace_nbytes(dtype, m, n, k);
}

/* Scores as floats, whose rows are reused for half-precision gradients, half as long; tiled: dy y of each row. */
static size_t cuda_attention_workspace_nbytes(const struct ls_attention_shape *s) {
    size_t rows = (size_t)s->batch * (size_t)s->heads * (size_t)s->context;
    return rows * (s->tiled ? 1 : (size_t)s->context) * sizeof(float);
}

size_t ls_attention_workspace_nbytes(ls_device_kind kind, const struct ls_attention_shape *shape) {
    return kind == LS_DEVICE_CUDA ? cuda_attention_workspace_nbytes(shape) : ls_cpu_attention_workspace_nbytes(shape);
}
