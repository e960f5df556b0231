/* gemm — c = op(a) op(b) + beta c, row-major, and the products of convolutions.
 *   idea  : fast: cuBLAS, which reads matrices column by column: row-major c[m,n] is column-major c^T[n,m] = op(b)^T
 *           op(a)^T. So a and b are swapped, and nothing is transposed. Naive: a thread for each element of c
 *   cost  : 2 m n k flops; the naive rung reads 8 m n k bytes (in half precision 4 m n k), cuBLAS little more than each
 *           matrix once
 *   half  : multiplied by tensor cores, summed in fp32, rounded once when c is stored, or not at all if c is fp32
 *   order : cuBLAS's; the same at every call of a shape on a kind of GPU, since its workspace is the lane's own. Naive:
 *           k ascending, fused multiply-adds
 *   fails : LS_ERR_INVALID if a size does not fit into cuBLAS's int, and for types that it does not multiply */
#include <limits.h>

#include "kernels/cuda/launch.cuh"

using namespace ls_cuda;

namespace {

ls_status check_types(const char *op, ls_dtype dtype, ls_dtype c_dtype) {
    if (!is_element(dtype))
        return ls_fail(LS_ERR_INVALID, "%s has no matrix multiplies of %s", op, ls_dtype_name(dtype));
    if (c_dtype == dtype || c_dtype == LS_FP32) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "%s: a product of %s cannot be stored as %s", op, ls_dtype_name(dtype),
                   ls_dtype_name(c_dtype));
}

ls_status check_gemm(const ls_gemm_arguments *g) {
    if (g->beta != 0 && g->c_dtype != LS_FP32)
        return ls_fail(LS_ERR_INVALID, "gemm adds only to fp32, not to %s", ls_dtype_name(g->c_dtype));
    return check_types("gemm", g->dtype, g->c_dtype);
}

/* --- naive -------------------------------------------------------------------------------------------------------- */

template <class T, class C> __global__ void gemm_naive(ls_gemm_arguments g, const T *a, const T *b, C *c) {
    size_t i = global_thread();
    if (i >= g.m * g.n) return;
    size_t row = i / g.n, column = i % g.n;
    float sum = 0;
    for (size_t t = 0; t < g.k; t++) {
        float left = to_float(a[g.transpose_a ? t * g.m + row : row * g.k + t]);
        float right = to_float(b[g.transpose_b ? column * g.k + t : t * g.n + column]);
        sum = fmaf(left, right, sum);
    }
    c[i] = from_float<C>(g.beta == 0 ? sum : fmaf(g.beta, to_float(c[i]), sum));
}

/* --- cuBLAS ------------------------------------------------------------------------------------------------------- */

cudaDataType_t type_of(ls_dtype dtype) {
    return dtype == LS_FP16 ? CUDA_R_16F : dtype == LS_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Half-precision values are summed in fp32, too. */
cublasComputeType_t arithmetic_of(const ls_cuda_lane *lane, ls_dtype dtype) {
    return dtype == LS_FP32 && lane->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

ls_status check_product(const ls_cuda_lane *lane, const char *op, const ls_cuda_product *p) {
    const size_t most = INT_MAX;
    if (!lane->blas) return ls_fail(LS_ERR_INVALID, "%s: matrix multiplies run on the compute stream only", op);
    ls_status status = check_types(op, p->dtype, p->c_dtype);
    if (status != LS_OK) return status;
    const size_t row = p->row_a > p->row_b ? p->row_a : p->row_b;
    if (p->m <= most && p->n <= most && p->k <= most && p->batch <= most && row <= most && p->row_c <= most)
        return LS_OK;
    return ls_fail(LS_ERR_INVALID, "%s: products of %zu x %zu x %zu (%zu of them) exceed what cuBLAS can take", op,
                   p->m, p->n, p->k, p->batch);
}

int row_of(size_t row, int dense) { return row > 0 ? (int)row : dense; }

/* c = beta c: the product for k = 0, without cuBLAS. Several matrices are contiguous. */
ls_status scale_result(const ls_cuda_lane *lane, const char *op, const ls_cuda_product *p) {
    size_t count = p->m * p->n * p->batch, nbytes = count * ls_dtype_nbytes(p->c_dtype);
    if (p->beta == 1) return LS_OK;
    if (p->beta == 0) return ls_cuda_check(cudaMemsetAsync(p->c, 0, nbytes, lane->stream), lane->gpu, op);
    if (p->c_dtype != LS_FP32)
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: scale factors other than 0 and 1 need fp32, not %s", op,
                       ls_dtype_name(p->c_dtype));
    ls_scale_arguments scale = {static_cast<float *>(p->c), p->beta, count};
    return ls_cuda_scale(&scale, lane);
}

} // namespace

ls_status ls_cuda_matmul(const ls_cuda_lane *lane, const char *op, const ls_cuda_product *p) {
    ls_status status = check_product(lane, op, p);
    if (status != LS_OK || p->m == 0 || p->n == 0 || p->batch == 0) return status;
    if (p->k == 0) return scale_result(lane, op, p);
    const cublasOperation_t a = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                            b = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int m = (int)p->m, n = (int)p->n, k = (int)p->k, row_a = row_of(p->row_a, p->transpose_a ? m : k),
              row_b = row_of(p->row_b, p->transpose_b ? k : n), row_c = row_of(p->row_c, n);
    const cudaDataType_t type = type_of(p->dtype), c_type = type_of(p->c_dtype);
    const cublasComputeType_t arithmetic = arithmetic_of(lane, p->dtype);
    const float one = 1;
    if (p->batch == 1) {
        return ls_cublas_check(cublasGemmEx(lane->blas, b, a, n, m, k, &one, p->b, type, row_b, p->a, type, row_a,
                                            &p->beta, p->c, c_type, row_c, arithmetic, CUBLAS_GEMM_DEFAULT),
                               lane->gpu, op);
    }
    return ls_cublas_check(cublasGemmStridedBatchedEx(lane->blas, b, a, n, m, k, &one, p->b, type, row_b,
                                                      (long long)p->stride_b, p->a, type, row_a, (long long)p->stride_a,
                                                      &p->beta, p->c, c_type, row_c, (long long)p->stride_c,
                                                      (int)p->batch, arithmetic, CUBLAS_GEMM_DEFAULT),
                           lane->gpu, op);
}

ls_status ls_cuda_gemm(const ls_gemm_arguments *a, const ls_cuda_lane *lane) {
    ls_status status = check_gemm(a);
    if (status != LS_OK) return status;
    ls_cuda_product product = {};
    product.dtype = a->dtype, product.c_dtype = a->c_dtype;
    product.transpose_a = a->transpose_a, product.transpose_b = a->transpose_b;
    product.m = a->m, product.n = a->n, product.k = a->k;
    product.a = a->a, product.b = a->b, product.c = a->c;
    product.beta = a->beta;
    product.batch = 1;
    return ls_cuda_matmul(lane, "gemm", &product);
}

ls_status ls_cuda_naive_gemm(const ls_gemm_arguments *a, const ls_cuda_lane *lane) {
    ls_status status = check_gemm(a);
    if (status != LS_OK) return status;
    return with_element(a->dtype, "gemm", [&](auto zero) {
        using T = decltype(zero);
        const T *left = static_cast<const T *>(a->a), *right = static_cast<const T *>(a->b);
        size_t count = a->m * a->n;
        if (a->c_dtype == LS_FP32)
            return launch_each(lane, "gemm", count, gemm_naive<T, float>, *a, left, right, static_cast<float *>(a->c));
        return launch_each(lane, "gemm", count, gemm_naive<T, T>, *a, left, right, static_cast<T *>(a->c));
    });
}
