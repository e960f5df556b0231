/* Arrays for tests of the kernels, golden tensors and comparisons. backends.h runs the tests. */
#ifndef TESTS_KERNELS_FIXTURE_H
#define TESTS_KERNELS_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* The test's back-end runs the operations on this stream (backends.h). */
ls_stream *kernel_stream(void);

/* Asserts that the enqueued call, and the work itself, succeeded. */
void kernel_done(void);

/* Memory until the end of the test; operations read and write only such memory. Bytes are aligned to 64 and all 0xff;
 * floats, and elements of other types, begin one element after that alignment, which every kernel must support, and are
 * NaN. */
void *kernel_bytes(size_t nbytes);
float *kernel_floats(size_t count);
void *kernel_elements(ls_dtype dtype, size_t count);
/* Uniform in [-1, 1), the same for equal seeds. */
float *kernel_random(size_t count, uint64_t seed);
/* Integers from -limit to limit, likewise: their products and sums are exact, in any order, below 2^24. */
float *kernel_integers(size_t count, uint64_t seed, int limit);
float *kernel_copy(const float *values, size_t count);
int64_t *kernel_labels(const int64_t *values, size_t count);
/* Arrays of LS_FP32, LS_FP16 or LS_BF16: floats rounded to that type, and the values of such an array as floats. */
void *kernel_rounded(ls_dtype dtype, const float *values, size_t count);
float *kernel_widened(ls_dtype dtype, const void *values, size_t count);
/* One value. */
float kernel_round(ls_dtype dtype, float value);
/* True if the address is in one of these arrays; sets the array's begin and size. */
bool kernel_find(const void *address, void **begin, size_t *nbytes);

void kernel_forget(void); /* frees all of it; for backends.c */

/* Opens tests/golden/NAME.safetensors until the end of the test or the next call. */
void kernel_golden_open(const char *name);
/* A copy of a tensor of that file, which must exist, with type fp32 and `count` elements. */
float *kernel_golden(const char *tensor, size_t count);
int64_t *kernel_golden_labels(size_t count);
int32_t *kernel_golden_tokens(size_t count);

/* Asserts |got - want| <= atol + rtol |want| for every element; a NaN fails. */
void kernel_expect_close(const char *what, const float *got, const float *want, size_t count, double rtol, double atol);
/* The same with atol = rtol times the largest |want|. */
void kernel_expect_close_to_largest(const char *what, const float *got, const float *want, size_t count, double rtol);
/* Against sums in double: asserts |got - want| <= 1e-6 (1 + sqrt(terms)), for terms of the order of 1. */
void kernel_expect_sum(const char *what, const float *got, const double *want, size_t count, double terms);
/* Asserts equal bits; NaNs included. */
void kernel_expect_same(const char *what, const void *got, const void *want, size_t nbytes);

#endif
