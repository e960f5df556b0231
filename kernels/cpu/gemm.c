/* gemm — c = op(a) op(b) + beta c by oneDNN's sgemm, on the calling thread (ls_device_bind_thread limits it to one).
 *   cost  : 2 m n k flops
 *   order : oneDNN's; it is the same at every call of the same shape on the same processor */
#include <oneapi/dnnl/dnnl.h>

#include "common/base/log.h"
#include "kernels/cpu/cpu.h"

ls_status ls_cpu_matmul(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, const float *a,
                        const float *b, float beta, float *c) {
    dnnl_status_t status =
        dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, 1.0f,
                   a, (dnnl_dim_t)(transpose_a ? m : k), b, (dnnl_dim_t)(transpose_b ? k : n), beta, c, (dnnl_dim_t)n);
    if (status == dnnl_success) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "oneDNN refuses a matrix product of %zu x %zu x %zu (status %d)", m, n, k,
                   (int)status);
}

size_t ls_cpu_gemm_workspace_nbytes(ls_dtype dtype, size_t m, size_t n, size_t k) {
    (void)dtype, (void)m, (void)n, (void)k;
    return 0;
}

ls_status ls_cpu_gemm(const struct ls_gemm_arguments *a) {
    if (a->dtype != LS_FP32) return ls_fail(LS_ERR_UNSUPPORTED, "gemm of %s", ls_dtype_name(a->dtype));
    return ls_cpu_matmul(a->transpose_a, a->transpose_b, a->m, a->n, a->k, a->a, a->b, a->beta, a->c);
}
