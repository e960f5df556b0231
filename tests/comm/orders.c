#include "tests/comm/orders.h"

#include <stdbool.h>
#include <string.h>

#include "common/comm/comm_internal.h"
#include "tests/comm/values.h"

/* One element of each rank. */
struct values {
    int world_size;
    ls_dtype dtype;
    ls_reduce_op op;
    union element {
        double real;
        int64_t whole;
    } of[LS_COMM_MAX_RANKS];
};

typedef union element element;

static bool is_whole(const struct values *v) { return v->dtype == LS_INT32 || v->dtype == LS_INT64; }

static int64_t reduce_whole(int64_t a, int64_t b, ls_reduce_op op) {
    if (op == LS_REDUCE_SUM) return (int64_t)((uint64_t)a + (uint64_t)b);
    return op == LS_REDUCE_MIN ? (a < b ? a : b) : (a > b ? a : b);
}

/* From the left in fp32 (or the integer type, or fp64), rounded to the type at the end. */
static element reduce(const struct values *v, const element *in, int count) {
    element result = in[0];
    for (int i = 1; i < count; i++) {
        if (is_whole(v)) result.whole = reduce_whole(result.whole, in[i].whole, v->op);
        if (!is_whole(v)) result.real = reduce_real(result.real, in[i].real, v->dtype, v->op);
    }
    int64_t rounded;
    if (is_whole(v)) {
        if (v->dtype == LS_INT32) result.whole = (int32_t)(uint32_t)result.whole;
    } else {
        value_set(&rounded, v->dtype, 0, result.real);
        result.real = value_get(&rounded, v->dtype, 0);
    }
    return result;
}

static element reduce_two(const struct values *v, element a, element b) {
    const element both[] = {a, b};
    return reduce(v, both, 2);
}

static element by_rank(const struct values *v) { return reduce(v, v->of, v->world_size); }

/* Chunks are a multiple of 64 bytes. */
static element by_ring(const struct values *v, size_t index, size_t count) {
    size_t ranks = (size_t)v->world_size, line = 64 / ls_dtype_nbytes(v->dtype);
    size_t lines = ((count + ranks - 1) / ranks + line - 1) / line, chunk = index / (lines * line);
    element sum = v->of[chunk];
    for (size_t k = 1; k < ranks; k++) sum = reduce_two(v, sum, v->of[(chunk + k) % ranks]);
    return sum;
}

static element by_tree(const struct values *v, int rank) {
    element family[3] = {v->of[rank]};
    int count = 1;
    if (2 * rank + 1 < v->world_size) family[count++] = by_tree(v, 2 * rank + 1);
    if (2 * rank + 2 < v->world_size) family[count++] = by_tree(v, 2 * rank + 2);
    return count > 1 ? reduce(v, family, count) : family[0];
}

static element by_halves(const struct values *v) {
    struct values sums = *v;
    int ranks = 64;
    while (ranks > v->world_size) ranks /= 2;
    for (int r = 0; r + ranks < v->world_size; r++) sums.of[r] = reduce_two(v, v->of[r], v->of[r + ranks]);
    for (int d = ranks / 2; d >= 1; d /= 2)
        for (int r = 0; r < d; r++) sums.of[r] = reduce_two(v, sums.of[r], sums.of[r + d]);
    return sums.of[0];
}

/* The nodes' sums, in the order of the nodes. */
static element by_nodes(const struct values *v, size_t count) {
    int size = count * ls_dtype_nbytes(v->dtype) > LS_EAGER_BYTES ? ls_ranks_per_node(v->world_size) : v->world_size;
    element sums[LS_COMM_MAX_RANKS];
    for (int node = 0; node < v->world_size / size; node++) sums[node] = reduce(v, v->of + node * size, size);
    return reduce(v, sums, v->world_size / size);
}

void fill_reduced_by(const char *algorithm, void *buffer, ls_dtype dtype, ls_reduce_op op, int world_size,
                     size_t count) {
    struct values v = {.world_size = world_size, .dtype = dtype, .op = op};
    size_t nbytes = ls_dtype_nbytes(dtype);
    for (size_t i = 0; i < count; i++) {
        for (int r = 0; r < world_size; r++) {
            int64_t bits = 0;
            value_at(&bits, dtype, r, i);
            if (!is_whole(&v)) v.of[r].real = value_get(&bits, dtype, 0);
            if (is_whole(&v)) v.of[r].whole = dtype == LS_INT32 ? (int32_t)(uint32_t)bits : bits;
        }
        element sum = by_rank(&v);
        if (strcmp(algorithm, "ring") == 0) sum = by_ring(&v, i, count);
        if (strcmp(algorithm, "tree") == 0) sum = by_tree(&v, 0);
        if (strcmp(algorithm, "halving-doubling") == 0) sum = by_halves(&v);
        if (strcmp(algorithm, "hierarchical") == 0) sum = by_nodes(&v, count);
        if (is_whole(&v)) memcpy((char *)buffer + i * nbytes, &sum.whole, nbytes);
        if (!is_whole(&v)) value_set(buffer, dtype, i, sum.real);
    }
}
