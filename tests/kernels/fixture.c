#define _GNU_SOURCE
#include <math.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/safetensors.h"
#include "tests/base/test.h"
#include "tests/kernels/fixture.h"

struct block {
    unsigned char *begin;
    size_t nbytes;
    void *raw;
};

/* A tree of blocks, since kernel_find is called for every word of every operation's arguments, most of which are not
 * addresses. */
static void *blocks;

/* Two blocks that overlap compare equal; an empty block occupies its first address. */
static int compare_blocks(const void *left, const void *right) {
    const struct block *a = left, *b = right;
    uintptr_t a_begin = (uintptr_t)a->begin, b_begin = (uintptr_t)b->begin;
    if (a_begin + (a->nbytes ? a->nbytes : 1) <= b_begin) return -1;
    return b_begin + (b->nbytes ? b->nbytes : 1) <= a_begin;
}

static ls_safetensors *golden;

static void free_block(void *node) {
    struct block *block = node;
    free(block->raw);
    free(block);
}

void kernel_forget(void) {
    tdestroy(blocks, free_block);
    blocks = NULL;
    ls_safetensors_close(golden);
    golden = NULL;
}

/* --- arrays ------------------------------------------------------------------------------------------------------ */

static void *allocate(size_t nbytes, size_t offset_bytes) {
    struct block *block = malloc(sizeof *block);
    assert_non_null(block);
    block->raw = malloc(nbytes + 64 + offset_bytes);
    assert_non_null(block->raw);
    uintptr_t aligned = ((uintptr_t)block->raw + 63) / 64 * 64;
    block->begin = (unsigned char *)block->raw + (aligned - (uintptr_t)block->raw) + offset_bytes;
    block->nbytes = nbytes;
    memset(block->begin, 0xff, nbytes);
    assert_non_null(tsearch(block, &blocks, compare_blocks));
    return block->begin;
}

void *kernel_bytes(size_t nbytes) { return allocate(nbytes, 0); }

void *kernel_elements(ls_dtype dtype, size_t count) {
    return allocate(count * ls_dtype_nbytes(dtype), ls_dtype_nbytes(dtype));
}

float *kernel_floats(size_t count) { return kernel_elements(LS_FP32, count); }

float *kernel_random(size_t count, uint64_t seed) {
    float *values = kernel_floats(count);
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < count; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        values[i] = (float)(x >> 40) / 8388608.0f - 1;
    }
    return values;
}

float *kernel_integers(size_t count, uint64_t seed, int limit) {
    float *values = kernel_random(count, seed);
    for (size_t i = 0; i < count; i++) values[i] = floorf(values[i] * ((float)limit + 0.5f) + 0.5f);
    return values;
}

float *kernel_copy(const float *values, size_t count) {
    float *copy = kernel_floats(count);
    if (count > 0) memcpy(copy, values, count * sizeof *copy);
    return copy;
}

int64_t *kernel_labels(const int64_t *values, size_t count) {
    return memcpy(kernel_bytes(count * sizeof *values), values, count * sizeof *values);
}

void *kernel_rounded(ls_dtype dtype, const float *values, size_t count) {
    if (dtype == LS_FP32) return kernel_copy(values, count);
    uint16_t *rounded = kernel_elements(dtype, count);
    for (size_t i = 0; i < count; i++) {
        rounded[i] = dtype == LS_FP16 ? ls_fp16_from_float(values[i]) : ls_bf16_from_float(values[i]);
    }
    return rounded;
}

float *kernel_widened(ls_dtype dtype, const void *values, size_t count) {
    if (dtype == LS_FP32) return kernel_copy(values, count);
    const uint16_t *halves = values;
    float *wide = kernel_floats(count);
    for (size_t i = 0; i < count; i++) {
        wide[i] = dtype == LS_FP16 ? ls_fp16_to_float(halves[i]) : ls_bf16_to_float(halves[i]);
    }
    return wide;
}

float kernel_round(ls_dtype dtype, float value) {
    return dtype == LS_FP16   ? ls_fp16_to_float(ls_fp16_from_float(value))
           : dtype == LS_BF16 ? ls_bf16_to_float(ls_bf16_from_float(value))
                              : value;
}

bool kernel_find(const void *address, void **begin, size_t *nbytes) {
    const struct block wanted = {.begin = (unsigned char *)(uintptr_t)address, .nbytes = 1};
    struct block *const *found = tfind(&wanted, &blocks, compare_blocks);
    if (!found) return false;
    *begin = (*found)->begin;
    *nbytes = (*found)->nbytes;
    return true;
}

/* --- golden tensors ---------------------------------------------------------------------------------------------- */

void kernel_golden_open(const char *name) {
    char path[200];
    snprintf(path, sizeof path, "tests/golden/%s.safetensors", name);
    ls_safetensors_close(golden);
    assert_int_equal(ls_safetensors_open(&golden, path), LS_OK);
}

static const ls_safetensor *find(const char *tensor, ls_safetensor_dtype dtype, size_t count) {
    const ls_safetensor *found = ls_safetensors_find(golden, tensor);
    assert_non_null(found);
    assert_int_equal(found->dtype, dtype);
    if (count > 0) assert_int_equal(found->nbytes, count * ls_safetensor_dtype_nbytes(dtype));
    return found;
}

float *kernel_golden(const char *tensor, size_t count) {
    return kernel_copy(find(tensor, LS_SAFETENSOR_F32, count)->data, count);
}

int64_t *kernel_golden_labels(size_t count) {
    return kernel_labels(find("labels", LS_SAFETENSOR_I64, count)->data, count);
}

int32_t *kernel_golden_tokens(size_t count) {
    int32_t *tokens = kernel_bytes(count * sizeof *tokens);
    return memcpy(tokens, find("tokens", LS_SAFETENSOR_I32, count)->data, count * sizeof *tokens);
}

/* --- comparisons ------------------------------------------------------------------------------------------------- */

static void expect(const char *what, size_t index, double got, double want, double tolerance) {
    if (fabs(got - want) <= tolerance) return;
    fail_msg("%s[%zu] is %.9g, not %.9g +- %.3g", what, index, got, want, tolerance);
}

void kernel_expect_close(const char *what, const float *got, const float *want, size_t count, double rtol,
                         double atol) {
    for (size_t i = 0; i < count; i++) expect(what, i, got[i], want[i], atol + rtol * fabs((double)want[i]));
}

void kernel_expect_close_to_largest(const char *what, const float *got, const float *want, size_t count, double rtol) {
    double largest = 0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)want[i]));
    for (size_t i = 0; i < count; i++) expect(what, i, got[i], want[i], rtol * largest);
}

void kernel_expect_sum(const char *what, const float *got, const double *want, size_t count, double terms) {
    for (size_t i = 0; i < count; i++) expect(what, i, got[i], want[i], 1e-6 * (1 + sqrt(terms)));
}

void kernel_expect_same(const char *what, const void *got, const void *want, size_t nbytes) {
    const unsigned char *a = got, *b = want;
    if (memcmp(a, b, nbytes) == 0) return;
    for (size_t i = 0; i < nbytes; i++) {
        if (a[i] != b[i]) fail_msg("%s differs at byte %zu of %zu", what, i, nbytes);
    }
}
