/* gemm — c = op(a) op(b) + beta c by oneDNN's sgemm, on the calling thread (ls_device_bind_thread limits it to one).
 *   half  : c is cut into tiles. A tile's rows of op(a) and columns of op(b) are widened to fp32 in the workspace, over
 *           the whole of k, and multiplied there. If c is fp16 or bf16, the tile is rounded into it; if c is fp32, the
 *           product is written directly to c. (oneDNN's own half-precision GEMMs need instructions that few processors
 *           have, and their rounding depends on the processor.)
 *   cost  : 2 m n k flops. In half precision op(b) is widened once, op(a) once for every TILE_COLUMNS columns; the
 *           workspace takes (TILE_ROWS + TILE_COLUMNS) k + TILE_ROWS TILE_COLUMNS floats, independent of m and n
 *   order : oneDNN's; it is the same at every call of the same shape on the same processor
 *   fails : LS_ERR_INVALID if oneDNN refuses the shape */
#include <oneapi/dnnl/dnnl.h>
#include <stdint.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/room.h"
#include "kernels/cpu/cpu.h"

enum { TILE_ROWS = 128, TILE_COLUMNS = 256 };

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

/* A matrix as it is stored, with rows `stride` floats apart. */
struct operand {
    const float *values;
    bool transposed;
    size_t stride;
};

static ls_status check_room(void) {
    size_t left = ls_address_space_left();
    if (left >= LS_ROOM_FOR_LIBRARIES) return LS_OK;
    return ls_fail(LS_ERR_NO_MEMORY,
                   "the limit on address space (ulimit -v) leaves %zu MiB, and oneDNN may need %zu MiB; allow more, or "
                   "use a smaller model or batch",
                   left >> 20, LS_ROOM_FOR_LIBRARIES >> 20);
}

static ls_status multiply(size_t m, size_t n, size_t k, struct operand a, struct operand b, float beta, float *c,
                          size_t c_stride) {
    dnnl_status_t status =
        dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k,
                   1.0f, a.values, (dnnl_dim_t)a.stride, b.values, (dnnl_dim_t)b.stride, beta, c, (dnnl_dim_t)c_stride);
    if (status == dnnl_success) return LS_OK;
    if (status == dnnl_out_of_memory)
        return ls_fail(LS_ERR_NO_MEMORY,
                       "cannot allocate memory for a matrix multiply of %zu x %zu x %zu: use a smaller model or batch",
                       m, n, k);
    return ls_fail(LS_ERR_INVALID, "oneDNN refuses a matrix multiply of %zu x %zu x %zu (status %d)", m, n, k,
                   (int)status);
}

ls_status ls_cpu_gemm_prepare(void) {
    enum { LARGE = 64, SMALL = 10 };
    static float a[LARGE * LARGE], b[LARGE * LARGE], c[LARGE * LARGE];
    if (ls_address_space_left() == SIZE_MAX) return LS_OK;
    ls_status status = check_room();
    for (int i = 0; status == LS_OK && i < 32; i++) { /* each bit selects one option */
        size_t m = i & 1 ? LARGE : SMALL, n = i & 2 ? LARGE : SMALL;
        struct operand left = {a, (i & 4) != 0, LARGE}, right = {b, (i & 8) != 0, LARGE};
        status = multiply(m, n, LARGE, left, right, i & 16 ? 1 : 0, c, LARGE);
    }
    return status;
}

/* --- half precision ----------------------------------------------------------------------------------------------- */

size_t ls_cpu_gemm_workspace_nbytes(ls_dtype dtype, size_t m, size_t n, size_t k) {
    if (dtype == LS_FP32) return 0;
    size_t rows = min_size(m, TILE_ROWS), columns = min_size(n, TILE_COLUMNS);
    return ((rows + columns) * k + rows * columns) * sizeof(float);
}

/* Rows of a stored matrix, `stride` elements apart. */
struct lines {
    ls_dtype dtype;
    void *first;
    size_t stride;
};

/* to = from, converted: `count` lines of `length` elements; contiguous lines are converted in one call. A cast between
 * fp32 and fp16 or bf16 cannot fail. */
static void convert(struct lines to, struct lines from, size_t count, size_t length) {
    if (to.stride == length && from.stride == length) length *= count, count = 1;
    size_t to_nbytes = to.stride * ls_dtype_nbytes(to.dtype), from_nbytes = from.stride * ls_dtype_nbytes(from.dtype);
    for (size_t i = 0; i < count; i++) {
        (void)ls_cpu_kernels()->cast(&(struct ls_cast_arguments){to.dtype, (char *)to.first + i * to_nbytes, from.dtype,
                                                                 (char *)from.first + i * from_nbytes, length});
    }
}

/* Widens `count` of `vectors` vectors of k elements, from number `first` on: rows of op(a) or columns of op(b). If
 * `dense`, each vector is contiguous; otherwise the i-th elements of all vectors are. The copy keeps that layout;
 * returns its stride. */
static size_t widen(ls_dtype dtype, const void *x, bool dense, size_t vectors, size_t k, size_t first, size_t count,
                    float *to) {
    uint16_t *from = (uint16_t *)(uintptr_t)x + first * (dense ? k : 1);
    if (dense) {
        convert((struct lines){LS_FP32, to, k}, (struct lines){dtype, from, k}, count, k);
    } else {
        convert((struct lines){LS_FP32, to, count}, (struct lines){dtype, from, vectors}, k, count);
    }
    return dense ? k : count;
}

/* One tile of c. b: the columns of op(b) that it needs; a_floats and c_floats: scratch. */
static ls_status multiply_tile(const struct ls_gemm_arguments *g, size_t row, size_t rows, size_t column,
                               size_t columns, struct operand b, float *a_floats, float *c_floats) {
    struct operand a = {a_floats, g->transpose_a,
                        widen(g->dtype, g->a, !g->transpose_a, g->m, g->k, row, rows, a_floats)};
    size_t at = row * g->n + column;
    if (g->c_dtype == LS_FP32) return multiply(rows, columns, g->k, a, b, g->beta, (float *)g->c + at, g->n);
    ls_status status = multiply(rows, columns, g->k, a, b, 0, c_floats, columns);
    if (status == LS_OK) {
        convert((struct lines){g->c_dtype, (uint16_t *)g->c + at, g->n}, (struct lines){LS_FP32, c_floats, columns},
                rows, columns);
    }
    return status;
}

static ls_status multiply_halves(const struct ls_gemm_arguments *g) {
    float *b_floats = g->workspace, *a_floats = b_floats + min_size(g->n, TILE_COLUMNS) * g->k;
    float *c_floats = a_floats + min_size(g->m, TILE_ROWS) * g->k;
    ls_status status = LS_OK;
    for (size_t column = 0; column < g->n; column += TILE_COLUMNS) {
        size_t columns = min_size(g->n - column, TILE_COLUMNS);
        struct operand b = {b_floats, g->transpose_b,
                            widen(g->dtype, g->b, g->transpose_b, g->n, g->k, column, columns, b_floats)};
        for (size_t row = 0; status == LS_OK && row < g->m; row += TILE_ROWS) {
            size_t rows = min_size(g->m - row, TILE_ROWS);
            status = multiply_tile(g, row, rows, column, columns, b, a_floats, c_floats);
        }
    }
    return status;
}

/* --- the operation ----------------------------------------------------------------------------------------------- */

static ls_status check_types(const struct ls_gemm_arguments *g) {
    if (g->dtype != LS_FP32 && g->dtype != LS_FP16 && g->dtype != LS_BF16) {
        return ls_fail(LS_ERR_INVALID, "matrix multiplies of %s do not exist; expected fp32, fp16 or bf16",
                       ls_dtype_name(g->dtype));
    }
    if (g->c_dtype != LS_FP32 && g->c_dtype != g->dtype) {
        return ls_fail(LS_ERR_INVALID, "a matrix multiply of %s cannot have a result in %s", ls_dtype_name(g->dtype),
                       ls_dtype_name(g->c_dtype));
    }
    if (g->beta != 0 && g->c_dtype != LS_FP32) {
        return ls_fail(LS_ERR_INVALID, "gemm adds only to fp32, not to %s", ls_dtype_name(g->c_dtype));
    }
    return LS_OK;
}

/* c = beta c: the product for k = 0, which oneDNN does not support. */
static void scale_result(const struct ls_gemm_arguments *g) {
    if (g->beta == 0) memset(g->c, 0, g->m * g->n * ls_dtype_nbytes(g->c_dtype));
    for (size_t i = 0; g->beta != 0 && i < g->m * g->n; i++) ((float *)g->c)[i] *= g->beta;
}

ls_status ls_cpu_gemm(const struct ls_gemm_arguments *g) {
    ls_status status = check_types(g);
    if (status != LS_OK) return status;
    if (g->k == 0) {
        scale_result(g);
        return LS_OK;
    }
    if (g->dtype != LS_FP32) return multiply_halves(g);
    struct operand a = {g->a, g->transpose_a, g->transpose_a ? g->m : g->k};
    struct operand b = {g->b, g->transpose_b, g->transpose_b ? g->k : g->n};
    return multiply(g->m, g->n, g->k, a, b, g->beta, g->c, g->n);
}
