#include "tests/comm/orders.h"

#include <string.h>

#include "common/comm/comm_internal.h"
#include "tests/comm/values.h"

typedef union element element;

/* One element of each rank. */
struct values {
    int world_size;
    ls_dtype dtype;
    ls_reduce_op op;
    element of[LS_COMM_MAX_RANKS];
};

static int64_t reduce_whole(int64_t a, int64_t b, ls_reduce_op op) {
    if (op == LS_REDUCE_SUM) return (int64_t)((uint64_t)a + (uint64_t)b);
    return op == LS_REDUCE_MIN ? (a < b ? a : b) : (a > b ? a : b);
}

/* From the left in fp32 (or the integer type, or fp64), rounded to the type at the end. */
static element reduce(const struct values *v, const element *in, int count) {
    element result = in[0];
    for (int i = 1; i < count; i++) {
        if (is_whole(v->dtype)) result.whole = reduce_whole(result.whole, in[i].whole, v->op);
        if (!is_whole(v->dtype)) result.real = reduce_real(result.real, in[i].real, v->dtype, v->op);
    }
    int64_t rounded;
    if (is_whole(v->dtype)) {
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

static element by_rank(const struct values *v, size_t index, size_t count) {
    (void)index, (void)count;
    return reduce(v, v->of, v->world_size);
}

/* Chunks are a multiple of 64 bytes. */
static element by_ring(const struct values *v, size_t index, size_t count) {
    size_t ranks = (size_t)v->world_size, line = 64 / ls_dtype_nbytes(v->dtype);
    size_t lines = ((count + ranks - 1) / ranks + line - 1) / line, chunk = index / (lines * line);
    element sum = v->of[chunk];
    for (size_t k = 1; k < ranks; k++) sum = reduce_two(v, sum, v->of[(chunk + k) % ranks]);
    return sum;
}

static element tree_from(const struct values *v, int rank) {
    element family[3] = {v->of[rank]};
    int count = 1;
    if (2 * rank + 1 < v->world_size) family[count++] = tree_from(v, 2 * rank + 1);
    if (2 * rank + 2 < v->world_size) family[count++] = tree_from(v, 2 * rank + 2);
    return count > 1 ? reduce(v, family, count) : family[0];
}

static element by_tree(const struct values *v, size_t index, size_t count) {
    (void)index, (void)count;
    return tree_from(v, 0);
}

static element by_halves(const struct values *v, size_t index, size_t count) {
    (void)index, (void)count;
    struct values sums = *v;
    int ranks = 64;
    while (ranks > v->world_size) ranks /= 2;
    for (int r = 0; r + ranks < v->world_size; r++) sums.of[r] = reduce_two(v, v->of[r], v->of[r + ranks]);
    for (int d = ranks / 2; d >= 1; d /= 2)
        for (int r = 0; r < d; r++) sums.of[r] = reduce_two(v, sums.of[r], sums.of[r + d]);
    return sums.of[0];
}

/* The nodes' sums, in the order of the nodes. */
static element by_nodes(const struct values *v, size_t index, size_t count) {
    (void)index;
    int size = count * ls_dtype_nbytes(v->dtype) > LS_EAGER_BYTES ? ls_ranks_per_node(v->world_size) : v->world_size;
    element sums[LS_COMM_MAX_RANKS];
    for (int node = 0; node < v->world_size / size; node++) sums[node] = reduce(v, v->of + node * size, size);
    return reduce(v, sums, v->world_size / size);
}

typedef element (*order)(const struct values *v, size_t index, size_t count);

static order order_of(const char *algorithm) {
    static const struct {
        const char *algorithm;
        order by;
    } orders[] = {
        {"ring", by_ring},
        {"tree", by_tree},
        {"halving-doubling", by_halves},
        {"hierarchical", by_nodes},
    };
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (strcmp(orders[i].algorithm, algorithm) == 0) return orders[i].by;
    return by_rank;
}

/* Only the ring's order depends on the place in the message. */
static void fill(order by, void *buffer, struct values *v, size_t first, size_t count) {
    size_t different = by == by_ring || count < LS_VALUES_PERIOD ? count : LS_VALUES_PERIOD;
    for (size_t i = 0; i < different; i++) {
        for (int r = 0; r < v->world_size; r++) v->of[r] = element_at(v->dtype, r, first + i);
        element_store(buffer, v->dtype, i, by(v, i, count));
    }
    repeat_elements(buffer, v->dtype, different, count);
}

void fill_reduced_by(const char *algorithm, void *buffer, ls_dtype dtype, ls_reduce_op op, int world_size,
                     size_t count) {
    struct values v = {.world_size = world_size, .dtype = dtype, .op = op};
    fill(order_of(algorithm), buffer, &v, 0, count);
}

void fill_reduced(void *buffer, ls_dtype dtype, ls_reduce_op op, int world_size, size_t first, size_t count) {
    struct values v = {.world_size = world_size, .dtype = dtype, .op = op};
    fill(by_rank, buffer, &v, first, count);
}
