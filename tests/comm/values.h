/* Test data for collectives: values that every rank can compute for every rank, and the serial reduction of them. */
#ifndef TESTS_COMM_VALUES_H
#define TESTS_COMM_VALUES_H

#include <stdint.h>

#include "common/comm/comm.h"

/* The period of the values, which makes large buffers cheap; a prime, so that no two slices or shares begin alike. */
#define LS_VALUES_PERIOD ((size_t)5003)

/* Element `index` of `rank`: a random number of the type (integers: of the whole range; floats: in -2..2). */
void value_at(void *element, ls_dtype dtype, int rank, size_t index);
void fill_values(void *buffer, ls_dtype dtype, int rank, size_t first, size_t count);

/* The same with small integers, whose sums are exact in every type. */
void fill_small_integers(void *buffer, ls_dtype dtype, int rank, size_t count);

/* accumulates value_at of ranks 0 .. world_size - 1 in that order, as comm.h guarantees */
void fill_reduced(void *buffer, ls_dtype dtype, ls_reduce_op op, int world_size, size_t first, size_t count);

/* Reduces two elements of a floating-point type, in fp32 unless it is fp64. */
double reduce_real(double a, double b, ls_dtype dtype, ls_reduce_op op);

/* The element as a double, and back. */
double value_get(const void *buffer, ls_dtype dtype, size_t index);
void value_set(void *buffer, ls_dtype dtype, size_t index, double value);

/* FNV-1a, for comparing bits over ranks. */
uint64_t hash_bytes(const void *memory, size_t nbytes);

#endif
