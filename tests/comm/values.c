#include "tests/comm/values.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

typedef union element element;

static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void value_set(void *buffer, ls_dtype dtype, size_t index, double value) {
    switch (dtype) {
    case LS_FP32: ((float *)buffer)[index] = (float)value; break;
    case LS_FP16: ((uint16_t *)buffer)[index] = ls_fp16_from_float((float)value); break;
    case LS_BF16: ((uint16_t *)buffer)[index] = ls_bf16_from_float((float)value); break;
    case LS_INT32: ((int32_t *)buffer)[index] = (int32_t)value; break;
    case LS_INT64: ((int64_t *)buffer)[index] = (int64_t)value; break;
    case LS_FP64: ((double *)buffer)[index] = value; break;
    case LS_DTYPE_COUNT: break;
    }
}

double value_get(const void *buffer, ls_dtype dtype, size_t index) {
    switch (dtype) {
    case LS_FP32: return (double)((const float *)buffer)[index];
    case LS_FP16: return (double)ls_fp16_to_float(((const uint16_t *)buffer)[index]);
    case LS_BF16: return (double)ls_bf16_to_float(((const uint16_t *)buffer)[index]);
    case LS_INT32: return (double)((const int32_t *)buffer)[index];
    case LS_INT64: return (double)((const int64_t *)buffer)[index];
    case LS_FP64: return ((const double *)buffer)[index];
    case LS_DTYPE_COUNT: break;
    }
    return 0;
}

void element_store(void *buffer, ls_dtype dtype, size_t index, element e) {
    size_t nbytes = ls_dtype_nbytes(dtype);
    if (is_whole(dtype)) memcpy((char *)buffer + index * nbytes, &e.whole, nbytes); /* int32: modulo 2^32 */
    if (!is_whole(dtype)) value_set(buffer, dtype, index, e.real);
}

/* --- random numbers ----------------------------------------------------------------------------------------------- */

/* A list of numbers per type, as elements and as they are stored. Rank r's values begin at the list's element r APART,
 * so that all ranks have different ones at an index. */
#define APART ((size_t)71)
static struct list {
    element elements[LS_VALUES_PERIOD];
    int64_t stored[LS_VALUES_PERIOD]; /* room for any type */
} lists[LS_DTYPE_COUNT];

_Static_assert(LS_COMM_MAX_RANKS *APART < LS_VALUES_PERIOD, "no two ranks have the same values");

static void make_lists(void) {
    for (ls_dtype dtype = LS_FP32; dtype < LS_DTYPE_COUNT; dtype++)
        for (size_t i = 0; i < LS_VALUES_PERIOD; i++) {
            uint64_t random = mix((i + 1) * 0x9e3779b97f4a7c15u);
            element e = {.whole = dtype == LS_INT32 ? (int32_t)(uint32_t)random : (int64_t)random};
            if (!is_whole(dtype)) e.real = (double)(int64_t)random * 0x1p-62;
            element_store(lists[dtype].stored, dtype, i, e);
            if (!is_whole(dtype)) e.real = value_get(lists[dtype].stored, dtype, i);
            lists[dtype].elements[i] = e;
        }
}

static const struct list *list_of(ls_dtype dtype) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_lists);
    return &lists[dtype];
}

static size_t place_of(int rank, size_t index) { return ((size_t)rank * APART + index) % LS_VALUES_PERIOD; }

element element_at(ls_dtype dtype, int rank, size_t index) { return list_of(dtype)->elements[place_of(rank, index)]; }

/* A piece of the list from `place` on, at most to its end. */
static size_t piece_from(size_t place, size_t left) {
    return left < LS_VALUES_PERIOD - place ? left : LS_VALUES_PERIOD - place;
}

void fill_values(void *buffer, ls_dtype dtype, int rank, size_t first, size_t count) {
    const char *stored = (const char *)list_of(dtype)->stored;
    size_t nbytes = ls_dtype_nbytes(dtype), place = place_of(rank, first);
    for (size_t done = 0, now; done < count; done += now, place = 0) {
        now = piece_from(place, count - done);
        memcpy((char *)buffer + done * nbytes, stored + place * nbytes, now * nbytes);
    }
}

bool has_values(const void *buffer, ls_dtype dtype, int rank, size_t first, size_t count) {
    const char *stored = (const char *)list_of(dtype)->stored;
    size_t nbytes = ls_dtype_nbytes(dtype), place = place_of(rank, first);
    for (size_t done = 0, now; done < count; done += now, place = 0) {
        now = piece_from(place, count - done);
        if (memcmp((const char *)buffer + done * nbytes, stored + place * nbytes, now * nbytes) != 0) return false;
    }
    return true;
}

/* --- other numbers ------------------------------------------------------------------------------------------------ */

void repeat_elements(void *buffer, ls_dtype dtype, size_t period, size_t count) {
    size_t nbytes = ls_dtype_nbytes(dtype);
    for (size_t done = period; done < count; done *= 2) /* a multiple of the period */
        memcpy((char *)buffer + done * nbytes, buffer, (count - done < done ? count - done : done) * nbytes);
}

enum { SMALL_PERIOD = 23 };

static double small_integer(int rank, size_t i) { return (double)((i * 7 + (size_t)rank * 3) % SMALL_PERIOD); }

void fill_small_integers(void *buffer, ls_dtype dtype, int rank, size_t count) {
    for (size_t i = 0; i < count && i < SMALL_PERIOD; i++) value_set(buffer, dtype, i, small_integer(rank, i));
    repeat_elements(buffer, dtype, SMALL_PERIOD, count);
}

bool has_small_sums(const void *buffer, ls_dtype dtype, int world_size, size_t count) {
    size_t nbytes = ls_dtype_nbytes(dtype);
    for (size_t i = 0; i < count && i < SMALL_PERIOD; i++) {
        double sum = 0;
        for (int r = 0; r < world_size; r++) sum += small_integer(r, i);
        if (value_get(buffer, dtype, i) != sum) return false;
    }
    return count <= SMALL_PERIOD ||
           memcmp(buffer, (const char *)buffer + SMALL_PERIOD * nbytes, (count - SMALL_PERIOD) * nbytes) == 0;
}

void fill_some_nans(void *buffer, ls_dtype dtype, int rank, size_t count) {
    for (size_t i = 0; i < count && i < 10; i++)
        value_set(buffer, dtype, i, (int)i == rank ? (double)NAN : (double)rank);
    repeat_elements(buffer, dtype, 10, count);
}

bool has_all_nans(const void *buffer, ls_dtype dtype, int world_size, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!isnan(value_get(buffer, dtype, i)) == ((int)(i % 10) < world_size)) return false;
    return true;
}

/* The sum of two floats in double is exact or rounds to the same float (double has more than twice the bits). */
double reduce_real(double a, double b, ls_dtype dtype, ls_reduce_op op) {
    if (op == LS_REDUCE_SUM) return dtype == LS_FP64 ? a + b : (double)(float)(a + b);
    return op == LS_REDUCE_MIN ? (a < b ? a : b) : (a > b ? a : b);
}

uint64_t hash_bytes(const void *memory, size_t nbytes) {
    uint64_t hash = nbytes;
    for (size_t i = 0; i < nbytes; i += sizeof hash) {
        uint64_t word = 0;
        memcpy(&word, (const char *)memory + i, nbytes - i < sizeof word ? nbytes - i : sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}
