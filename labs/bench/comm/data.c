/* data: exact contents.
 *   idea  : each rank's values are small integers, 0 to 3, that look random and repeat after PERIOD elements, a prime,
 *           so that no two parts, shares or slices begin with the same values. Their sums over 64 ranks are exact even
 *           in bf16, so whatever the order of summation, a result is right in every bit or wrong. Contents are copied
 *           from, and compared with, one period that is prepared in advance: that costs no more than memcpy and memcmp.
 *   terms : element `first` of an operation is element (first + salt) % PERIOD of the period */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/bench/comm/bench_comm.h"

enum { PERIOD = 5003 };

struct comm_patterns {
    int n;
    ls_dtype dtype;
    size_t element_nbytes;
    char *memory; /* a period of each rank's values, then one of the reduction */
};

static int value_of(int rank, size_t place) {
    uint64_t x = ((uint64_t)rank + 1) * 0x9e3779b97f4a7c15u + (place + 1) * 0xd1342543de82ef95u;
    x ^= x >> 32;
    x *= 0xbf58476d1ce4e5b9u;
    return (int)(x >> 62);
}

static int reduced_of(int n, size_t place, ls_reduce_op reduce) {
    int result = value_of(0, place);
    for (int r = 1; r < n; r++) {
        int value = value_of(r, place);
        if (reduce == LS_REDUCE_SUM) result += value;
        if (reduce == LS_REDUCE_MIN && value < result) result = value;
        if (reduce == LS_REDUCE_MAX && value > result) result = value;
    }
    return result;
}

static void put(void *element, ls_dtype dtype, int value) {
    float real = (float)value;
    int32_t narrow = value;
    int64_t wide = value;
    double precise = value;
    uint16_t half = dtype == LS_FP16 ? ls_fp16_from_float(real) : ls_bf16_from_float(real);
    const void *const sources[LS_DTYPE_COUNT] = {[LS_FP32] = &real,    [LS_FP16] = &half,  [LS_BF16] = &half,
                                                 [LS_INT32] = &narrow, [LS_INT64] = &wide, [LS_FP64] = &precise};
    memcpy(element, sources[dtype], ls_dtype_nbytes(dtype));
}

static double get(const void *element, ls_dtype dtype) {
    float real;
    uint16_t half;
    int32_t narrow;
    int64_t wide;
    double precise;
    switch (dtype) {
    case LS_FP32: memcpy(&real, element, sizeof real); return (double)real;
    case LS_INT32: memcpy(&narrow, element, sizeof narrow); return narrow;
    case LS_INT64: memcpy(&wide, element, sizeof wide); return (double)wide;
    case LS_FP64: memcpy(&precise, element, sizeof precise); return precise;
    default: memcpy(&half, element, sizeof half);
    }
    return (double)(dtype == LS_FP16 ? ls_fp16_to_float(half) : ls_bf16_to_float(half));
}

/* Row n is the reduction. */
static char *period_of(const comm_patterns *patterns, int row) {
    return patterns->memory + (size_t)row * PERIOD * patterns->element_nbytes;
}

ls_status comm_patterns_create(comm_patterns **out, int n, ls_dtype dtype, ls_reduce_op reduce) {
    *out = NULL;
    comm_patterns *patterns = malloc(sizeof *patterns);
    if (!patterns) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the test data");
    *patterns = (comm_patterns){.n = n, .dtype = dtype, .element_nbytes = ls_dtype_nbytes(dtype)};
    patterns->memory = malloc(((size_t)n + 1) * PERIOD * patterns->element_nbytes);
    if (!patterns->memory) {
        free(patterns);
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the test data");
    }
    for (size_t place = 0; place < PERIOD; place++) {
        size_t at = place * patterns->element_nbytes;
        for (int r = 0; r < n; r++) put(period_of(patterns, r) + at, dtype, value_of(r, place));
        put(period_of(patterns, n) + at, dtype, reduced_of(n, place, reduce));
    }
    *out = patterns;
    return LS_OK;
}

void comm_patterns_destroy(comm_patterns *patterns) {
    if (!patterns) return;
    free(patterns->memory);
    free(patterns);
}

/* --- parts ----------------------------------------------------------------------------------------------------------- */

/* Walks a part in pieces that are contiguous in the period. */
typedef struct walk {
    const char *pattern;
    size_t place, done, count, element_nbytes;
} walk;

static walk walk_begin(const comm_patterns *patterns, int row, size_t first, size_t count) {
    return (walk){.pattern = period_of(patterns, row),
                  .place = first % PERIOD,
                  .count = count,
                  .element_nbytes = patterns->element_nbytes};
}

/* The next piece's elements, 0 at the end; *pattern is where they begin. */
static size_t walk_next(walk *w, const char **pattern) {
    size_t left = w->count - w->done, piece = PERIOD - w->place < left ? PERIOD - w->place : left;
    *pattern = w->pattern + w->place * w->element_nbytes;
    w->done += piece;
    w->place = 0;
    return piece;
}

static void fill_part(const comm_patterns *patterns, char *part, int rank, size_t first, size_t count) {
    walk w = walk_begin(patterns, rank, first, count);
    const char *pattern;
    for (size_t piece; (piece = walk_next(&w, &pattern)) > 0; part += piece * w.element_nbytes)
        memcpy(part, pattern, piece * w.element_nbytes);
}

void comm_fill(const comm_patterns *patterns, const comm_slot *slot) {
    size_t part_bytes = slot->count * patterns->element_nbytes;
    size_t parts = comm_send_parts(slot->operation, slot->n);
    if (part_bytes == 0) return;
    if (slot->operation->in_place) {
        fill_part(patterns, slot->receive, slot->rank, slot->salt, slot->count);
    } else {
        memset(slot->receive, 0xff, comm_receive_parts(slot->operation, slot->n) * part_bytes);
    }
    for (size_t p = 0; p < parts; p++)
        fill_part(patterns, slot->send + p * part_bytes, slot->rank, slot->salt + p * slot->count, slot->count);
}

static ls_status report(const comm_slot *slot, const char *what, const char *buffer, size_t index, double got,
                        double want) {
    return ls_fail(LS_ERR_INVALID, "%s: wrong result on rank %d: element %zu of the %s is %g; expected %g", what,
                   slot->rank, index, buffer, got, want);
}

/* Checks the part of a buffer that begins at element part_index x count. */
static ls_status check_part(const comm_patterns *patterns, const comm_slot *slot, const char *what, const char *buffer,
                            const char *memory, size_t part_index, int row, size_t first) {
    const char *part = memory + part_index * slot->count * patterns->element_nbytes, *pattern;
    walk w = walk_begin(patterns, row, first, slot->count);
    for (size_t piece; (piece = walk_next(&w, &pattern)) > 0; part += piece * w.element_nbytes) {
        if (memcmp(part, pattern, piece * w.element_nbytes) == 0) continue;
        size_t i = 0;
        while (memcmp(part + i * w.element_nbytes, pattern + i * w.element_nbytes, w.element_nbytes) == 0) i++;
        return report(slot, what, buffer, part_index * slot->count + w.done - piece + i,
                      get(part + i * w.element_nbytes, patterns->dtype),
                      get(pattern + i * w.element_nbytes, patterns->dtype));
    }
    return LS_OK;
}

static ls_status check_untouched(const comm_patterns *patterns, const comm_slot *slot, const char *what, size_t part) {
    size_t nbytes = slot->count * patterns->element_nbytes;
    const unsigned char *memory = (const unsigned char *)slot->receive + part * nbytes;
    for (size_t i = 0; i < nbytes; i++) {
        if (memory[i] == 0xff) continue;
        return ls_fail(LS_ERR_INVALID, "%s: rank %d gets no result, but element %zu of its receive buffer has changed",
                       what, slot->rank, part * slot->count + i / patterns->element_nbytes);
    }
    return LS_OK;
}

ls_status comm_check(const comm_patterns *patterns, const comm_slot *slot, const char *what) {
    ls_status status = LS_OK;
    if (slot->count == 0) return LS_OK;
    size_t receive_parts = comm_receive_parts(slot->operation, slot->n);
    for (size_t p = 0; status == LS_OK && p < receive_parts; p++) {
        comm_content content = slot->operation->result(slot->n, slot->rank, (int)p);
        size_t first = slot->salt + (size_t)content.offset_parts * slot->count;
        if (content.kind == COMM_UNTOUCHED) {
            status = check_untouched(patterns, slot, what, p);
        } else {
            int row = content.kind == COMM_REDUCED ? slot->n : content.rank;
            status = check_part(patterns, slot, what, "result", slot->receive, p, row, first);
        }
    }
    size_t send_parts = comm_send_parts(slot->operation, slot->n);
    for (size_t p = 0; status == LS_OK && p < send_parts; p++)
        status =
            check_part(patterns, slot, what, "send buffer", slot->send, p, slot->rank, slot->salt + p * slot->count);
    return status;
}
