/* Loaded before oneDNN (LD_PRELOAD): a matrix multiply with the same bits on every machine. It adds in the order of k, with fmaf. */
#include <math.h>
#include <stdint.h>

int dnnl_sgemm(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

int dnnl_sgemm(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t p = 0; p < k; p++)
                sum = fmaf(transpose_a == 'T' ? a[p * lda + i] : a[i * lda + p],
                           transpose_b == 'T' ? b[j * ldb + p] : b[p * ldb + j], sum);
            c[i * ldc + j] = beta == 0 ? alpha * sum : fmaf(beta, c[i * ldc + j], alpha * sum);
        }
    }
    return 0;
}
