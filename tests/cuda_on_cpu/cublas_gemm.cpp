/* The GEMM of the fake cuBLAS.
 *
 *   sums      fp32 in oneDNN's order, by the same call as in kernels/cpu/gemm.c: a column-major GEMM is the row-major
 *             GEMM of the transposed matrices. So an fp32 GEMM here has the bits of the CPU back-end.
 *   fp16      inputs are widened to fp32, which is exact, and each result is rounded once, to the nearest, ties to
 *             even. bf16 likewise. Unless CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION is set, both halves of a sum
 *             and their total are rounded to the output type, the worst that cuBLAS may do.
 *   TF32      inputs are rounded to 10 bits of mantissa, products and sums are fp32
 *   beta 0    C is not read: it may hold NaN. alpha 0 or k 0: A and B are not read.
 *   GPUs'     with CUDA_ON_CPU_ROUNDING different orders, truncated inputs and sums, zeros for subnormal numbers:
 *             rounding.cpp
 *   cost      one more pass over A, B and C if types differ from fp32 or TF32 rounds; one thread
 *   fails     never; cublas.cpp has checked all arguments */
#include "tests/cuda_on_cpu/cublas_gemm.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_on_cpu_halves.h>
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>

#include "tests/cuda_on_cpu/rounding.h"
#include "tests/cuda_on_cpu/state.h"

namespace cuda_on_cpu {

float round_to_tf32(float x) { return float_of(drop_bits(x, 13)); }

size_t element_nbytes(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

size_t extent_nbytes(const Matrix &matrix, int64_t rows, int64_t columns, int64_t batch) {
    if (rows == 0 || columns == 0 || batch == 0) return 0;
    int64_t last = (batch - 1) * matrix.stride + (columns - 1) * matrix.leading + rows - 1;
    return (static_cast<size_t>(last) + 1) * element_nbytes(matrix.type);
}

namespace {

float load(const Matrix &matrix, int64_t index) {
    if (matrix.type == CUDA_R_32F) return static_cast<const float *>(matrix.data)[index];
    uint16_t bits = static_cast<const uint16_t *>(matrix.data)[index];
    return matrix.type == CUDA_R_16F ? half_to_float(bits) : bfloat_to_float(bits);
}

void store(const Matrix &matrix, int64_t index, float value) {
    if (matrix.type == CUDA_R_32F) {
        static_cast<float *>(matrix.data)[index] = value;
    } else {
        static_cast<uint16_t *>(matrix.data)[index] =
            matrix.type == CUDA_R_16F ? float_to_half(value) : float_to_bfloat(value);
    }
}

float rounded_input(float value, const Matrix &matrix, bool tf32) {
    bool floats = matrix.type == CUDA_R_32F;
    if (tf32 && floats) value = rounding().cut ? cut_to_tf32(value) : round_to_tf32(value);
    return rounding().flush ? flushed(value) : value;
}

/* One matrix of a batch as fp32: the matrix itself, or a dense copy. */
struct Operand {
    const float *data;
    int64_t leading;
    std::vector<float> copy;

    Operand(const Matrix &matrix, int64_t which, int64_t rows, int64_t columns, bool tf32) {
        int64_t first = which * matrix.stride;
        if (matrix.type == CUDA_R_32F && !tf32 && !rounding().flush) {
            data = static_cast<const float *>(matrix.data) + first;
            leading = matrix.leading;
            return;
        }
        copy.resize(static_cast<size_t>(rows * columns));
        for (int64_t c = 0; c < columns; c++) {
            for (int64_t r = 0; r < rows; r++) {
                copy[static_cast<size_t>(c * rows + r)] =
                    rounded_input(load(matrix, first + c * matrix.leading + r), matrix, tf32);
            }
        }
        data = copy.data();
        leading = rows;
    }
};

/* By default oneDNN uses as many threads as its calling thread would start. */
void one_thread() {
    static thread_local bool told;
    if (told) return;
    told = true;
    void (*set_num_threads)(int);
    *reinterpret_cast<void **>(&set_num_threads) = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set_num_threads) set_num_threads(1);
}

/* Elements [begin, begin + count) of the inner dimension. */
struct Slice {
    int64_t begin, count;
};

void sgemm(const Gemm &gemm, Slice slice, float alpha, float beta, const Operand &a, const Operand &b, float *c,
           int64_t leading) {
    const float *a_data = a.data + slice.begin * (gemm.transpose_a ? 1 : a.leading);
    const float *b_data = b.data + slice.begin * (gemm.transpose_b ? b.leading : 1);
    one_thread();
    dnnl_status_t status = dnnl_sgemm(gemm.transpose_b ? 'T' : 'N', gemm.transpose_a ? 'T' : 'N', gemm.n, gemm.m,
                                      slice.count, alpha, b_data, b.leading, a_data, a.leading, beta, c, leading);
    if (status == dnnl_success) return;
    std::fprintf(stderr, "cuda_on_cpu: dnnl_sgemm failed: status %d\n", static_cast<int>(status));
    std::abort();
}

/* The slice of each row of op(A), or of each column of op(B), as a dense array. */
std::vector<float> lines_of(const Operand &operand, bool lines_are_dense, int64_t lines, Slice slice) {
    std::vector<float> dense(static_cast<size_t>(lines * slice.count));
    for (int64_t line = 0; line < lines; line++) {
        for (int64_t i = 0; i < slice.count; i++) {
            int64_t at = slice.begin + i,
                    place = lines_are_dense ? line * operand.leading + at : at * operand.leading + line;
            dense[static_cast<size_t>(line * slice.count + i)] = operand.data[place];
        }
    }
    return dense;
}

/* sums[column * m + row], as computed by tensor cores. */
void multiply_on_tensor_cores(const Gemm &gemm, Slice slice, const Operand &a, const Operand &b, float *sums) {
    std::vector<float> rows = lines_of(a, gemm.transpose_a, gemm.m, slice);
    std::vector<float> columns = lines_of(b, !gemm.transpose_b, gemm.n, slice);
    for (int64_t i = 0; i < gemm.m * gemm.n; i++) {
        sums[i] = tensor_core_sum(rows.data() + i % gemm.m * slice.count, columns.data() + i / gemm.m * slice.count,
                                  slice.count);
    }
}

bool lie_evenly(const Gemm &gemm) {
    auto places = reinterpret_cast<uintptr_t>(gemm.a.data) | reinterpret_cast<uintptr_t>(gemm.b.data) |
                  reinterpret_cast<uintptr_t>(gemm.c.data);
    return places % 16 == 0;
}

/* The same GEMM as a GPU may compute it: rounding.cpp. */
void multiply_as_a_gpu(const Gemm &gemm, float alpha, float beta, int64_t first, const Operand &a, const Operand &b) {
    bool on_tensor_cores = rounding().cut && (gemm.tf32 || gemm.a.type != CUDA_R_32F);
    std::vector<float> sums(static_cast<size_t>(gemm.m * gemm.n)), slice_sums(sums.size());
    int slices = rounding().slices + (rounding().place && !lie_evenly(gemm) ? 1 : 0);
    for (int64_t s = 0; s < slices; s++) {
        int64_t begin = gemm.k * s / slices, end = gemm.k * (s + 1) / slices;
        if (begin == end) continue;
        if (on_tensor_cores) {
            multiply_on_tensor_cores(gemm, {begin, end - begin}, a, b, slice_sums.data());
        } else {
            sgemm(gemm, {begin, end - begin}, 1, 0, a, b, slice_sums.data(), gemm.m);
        }
        for (size_t i = 0; i < sums.size(); i++) sums[i] += slice_sums[i];
    }
    for (int64_t i = 0; i < gemm.m * gemm.n; i++) {
        int64_t at = first + i / gemm.m * gemm.c.leading + i % gemm.m;
        float before = beta == 0 ? 0 : rounded_input(load(gemm.c, at), gemm.c, false);
        float sum = alpha * sums[static_cast<size_t>(i)] + beta * before;
        store(gemm.c, at, rounding().flush ? flushed(sum) : sum);
    }
}

void scale(const Gemm &gemm, float beta, int64_t first) {
    for (int64_t c = 0; c < gemm.n; c++) {
        for (int64_t r = 0; r < gemm.m; r++) {
            int64_t at = first + c * gemm.c.leading + r;
            store(gemm.c, at, beta == 0 ? 0.0f : beta * load(gemm.c, at));
        }
    }
}

void multiply(const Gemm &gemm, float alpha, float beta, int64_t which) {
    int64_t first = which * gemm.c.stride;
    if (alpha == 0 || gemm.k == 0) {
        scale(gemm, beta, first);
        return;
    }
    Operand a(gemm.a, which, gemm.transpose_a ? gemm.k : gemm.m, gemm.transpose_a ? gemm.m : gemm.k, gemm.tf32);
    Operand b(gemm.b, which, gemm.transpose_b ? gemm.n : gemm.k, gemm.transpose_b ? gemm.k : gemm.n, gemm.tf32);
    if (rounding().slices > 1 || rounding().place || rounding().cut || rounding().flush) {
        multiply_as_a_gpu(gemm, alpha, beta, first, a, b);
        return;
    }
    Slice all = {0, gemm.k};
    if (gemm.c.type == CUDA_R_32F) {
        sgemm(gemm, all, alpha, beta, a, b, static_cast<float *>(gemm.c.data) + first, gemm.c.leading);
        return;
    }
    std::vector<float> sums(static_cast<size_t>(gemm.m * gemm.n));
    if (beta != 0) {
        for (int64_t i = 0; i < gemm.m * gemm.n; i++) {
            sums[static_cast<size_t>(i)] = load(gemm.c, first + i / gemm.m * gemm.c.leading + i % gemm.m);
        }
    }
    sgemm(gemm, all, alpha, beta, a, b, sums.data(), gemm.m);
    for (int64_t i = 0; i < gemm.m * gemm.n; i++) {
        store(gemm.c, first + i / gemm.m * gemm.c.leading + i % gemm.m, sums[static_cast<size_t>(i)]);
    }
}

/* The first `k` terms of the sums, or the rest, which is added to C. */
Gemm part_of(const Gemm &gemm, int64_t k, bool first) {
    Gemm part = gemm;
    part.k = first ? k : gemm.k - k;
    if (first) return part;
    auto skip = [k](Matrix &matrix, bool along) {
        matrix.data = static_cast<char *>(matrix.data) +
                      static_cast<size_t>(along ? k : k * matrix.leading) * element_nbytes(matrix.type);
    };
    skip(part.a, gemm.transpose_a);
    skip(part.b, !gemm.transpose_b);
    return part;
}

void multiply_in_two(const Gemm &gemm, float alpha, float beta, int64_t which) {
    if (!gemm.adds_in_output || gemm.c.type == CUDA_R_32F || gemm.k < 2 || alpha == 0) {
        multiply(gemm, alpha, beta, which);
        return;
    }
    multiply(part_of(gemm, gemm.k / 2, true), alpha, beta, which);
    multiply(part_of(gemm, gemm.k / 2, false), alpha, 1, which);
}

} // namespace

void compute_gemm(const Gemm &gemm) {
    float alpha = gemm.alpha_on_device ? *gemm.alpha_on_device : gemm.alpha;
    float beta = gemm.beta_on_device ? *gemm.beta_on_device : gemm.beta;
    /* cuBLAS owns the workspace while it runs: data that a caller keeps there is lost. */
    if (gemm.workspace) std::memset(gemm.workspace, 0xff, gemm.workspace_nbytes < 4096 ? gemm.workspace_nbytes : 4096);
    for (int64_t i = 0; i < gemm.batch; i++) multiply_in_two(gemm, alpha, beta, i);
}

} // namespace cuda_on_cpu
