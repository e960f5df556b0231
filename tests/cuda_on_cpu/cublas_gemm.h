/* GEMMs of the fake cuBLAS: cublas.cpp checks the arguments, cublas_gemm.cpp computes the result. */
#ifndef CUDA_ON_CPU_CUBLAS_GEMM_H
#define CUDA_ON_CPU_CUBLAS_GEMM_H

#include <cstddef>
#include <cstdint>

#include <cublas_v2.h>

namespace cuda_on_cpu {

/* Column-major: element (row, column) of matrix b of a batch is at [b * stride + column * leading + row]. */
struct Matrix {
    void *data;
    cudaDataType type;
    int64_t leading, stride;
};

/* C = alpha op(A) op(B) + beta C for each matrix of a batch; op(A) is m x k, op(B) k x n. */
struct Gemm {
    bool transpose_a, transpose_b;
    int64_t m, n, k, batch;
    float alpha, beta;
    const float *alpha_on_device, *beta_on_device; /* instead, if not null */
    Matrix a, b, c;
    bool tf32;
    bool adds_in_output; /* parts of a sum may be rounded to the type of C and added there */
    void *workspace;
    size_t workspace_nbytes;
};

size_t element_nbytes(cudaDataType type);

/* Bytes from the first element of the first matrix to the last element of the last, for matrices of `rows` x `columns`
 * as stored. */
size_t extent_nbytes(const Matrix &matrix, int64_t rows, int64_t columns, int64_t batch);

/* Computes the GEMM, on the engine's thread. */
void compute_gemm(const Gemm &gemm);

/* A float with 10 bits of mantissa, as tensor cores read fp32 in TF32 mode; rounded to the nearest, ties to even. */
float round_to_tf32(float x);

} // namespace cuda_on_cpu

#endif
