/* Test data for collectives: values that every rank can compute for every rank, and the serial reduction of them
 * (orders.h). */
#ifndef TESTS_COMM_VALUES_H
#define TESTS_COMM_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/comm/comm.h"

/* The period of the values, which makes large buffers cheap; a prime, so that no two slices or shares begin alike. */
#define LS_VALUES_PERIOD ((size_t)5003)

/* A number of any type: of LS_INT32 and LS_INT64 the whole one, of other types the real one. */
union element {
    double real;
    int64_t whole;
};

static inline bool is_whole(ls_dtype dtype) { return dtype == LS_INT32 || dtype == LS_INT64; }

/* Element `index` of `rank`: a random number of the type (integers: of the whole range; floats: in -2..2). */
union element element_at(ls_dtype dtype, int rank, size_t index);
void element_store(void *buffer, ls_dtype dtype, size_t index, union element e);

/* Elements from `first` on; whether a buffer has exactly their bits. */
void fill_values(void *buffer, ls_dtype dtype, int rank, size_t first, size_t count);
bool has_values(const void *buffer, ls_dtype dtype, int rank, size_t first, size_t count);

/* Continues the first `period` elements of a buffer to its end. */
void repeat_elements(void *buffer, ls_dtype dtype, size_t period, size_t count);

/* The same with small integers, whose sums are exact in every type; and whether a buffer has their sums over all
 * ranks. */
void fill_small_integers(void *buffer, ls_dtype dtype, int rank, size_t count);
bool has_small_sums(const void *buffer, ls_dtype dtype, int world_size, size_t count);

/* A NaN in every tenth element from the rank's on, the rank in the others; and whether a reduction over all ranks has a
 * NaN exactly where a rank has one. */
void fill_some_nans(void *buffer, ls_dtype dtype, int rank, size_t count);
bool has_all_nans(const void *buffer, ls_dtype dtype, int world_size, size_t count);

/* Reduces two elements of a floating-point type, in fp32 unless it is fp64. */
double reduce_real(double a, double b, ls_dtype dtype, ls_reduce_op op);

/* The element as a double, and back. */
double value_get(const void *buffer, ls_dtype dtype, size_t index);
void value_set(void *buffer, ls_dtype dtype, size_t index, double value);

/* For comparing bits over ranks. */
uint64_t hash_bytes(const void *memory, size_t nbytes);

#endif
