/* All-reduce by every algorithm: to the bit in the order that its file guarantees, the same on all ranks, wherever the
 * buffers lie. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/comm/allreduce.h"
#include "tests/base/test.h"
#include "tests/comm/buffers.h"
#include "tests/comm/orders.h"
#include "tests/comm/values.h"

#define TIMEOUT_S 60.0
/* For 2100 elements, and for all others. */
#define SMALL_BYTES ((size_t)1 << 15)
#define LARGE_BYTES ((size_t)1 << 20)

static const char *algorithm_of(const struct rank *rank) { return rank->argument; }

static void open_all(struct rank *rank, struct buffers *b, const char *mode, size_t capacity_bytes) {
    CHECK(rank_open(rank, mode, algorithm_of(rank), TIMEOUT_S) == LS_OK);
    CHECK(strcmp(ls_comm_allreduce(rank->comm), algorithm_of(rank)) == 0);
    buffers_open(rank, b, capacity_bytes);
}

static void close_all(struct rank *rank, struct buffers *b) {
    buffers_close(rank, b);
    rank_close(rank);
}

/* The same ranks form a group for each algorithm. */
static void each_algorithm(struct rank *rank) {
    void (*const *body)(struct rank * rank) = rank->argument;
    for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; row->name; row++) {
        rank->argument = row->name;
        (*body)(rank);
    }
}

/* On every algorithm and back-end, in groups of these sizes. */
static void run_all(void (*body)(struct rank *rank), const int *world_sizes) {
    for (const int *n = world_sizes; *n > 0; n++) run_good_ranks_on_all(*n, each_algorithm, &body);
}

/* Compares by means of an operation that has its own test. */
static void check_same_on_all_ranks(struct rank *rank, const void *memory, size_t nbytes) {
    int64_t mine = (int64_t)hash_bytes(memory, nbytes), all[LS_COMM_MAX_RANKS];
    CHECK(ls_comm_all_gather(rank->comm, rank->stream, &mine, all, 1, LS_INT64) == LS_OK);
    for (int r = 0; r < rank->world_size; r++) CHECK(all[r] == mine);
}

/* --- the bits ----------------------------------------------------------------------------------------------------- */

/* All-reduces the values of each rank in a buffer at that place. */
static char *reduced(struct rank *rank, struct buffers *b, enum place place, size_t count, ls_dtype dtype,
                     ls_reduce_op op) {
    size_t nbytes = count * ls_dtype_nbytes(dtype);
    char *buffer = guarded(rank, b, place, nbytes);
    fill_values(buffer, dtype, rank->rank, 0, count);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, count, dtype, op) == LS_OK);
    check_guards(rank, buffer, nbytes);
    return buffer;
}

/* Messages of one slice: the guaranteed order, wherever the buffers lie. Rank 0 computes the expected result. */
static void check_order(struct rank *rank, struct buffers *b, size_t count, ls_dtype dtype, ls_reduce_op op) {
    size_t nbytes = count * ls_dtype_nbytes(dtype);
    if (rank->rank == 0) fill_reduced_by(algorithm_of(rank), b->expected, dtype, op, rank->world_size, count);
    CHECK(ls_comm_broadcast(rank->comm, rank->stream, b->expected, count, dtype, 0) == LS_OK);
    enum place first = count < 1000 ? (enum place)((count + dtype) % PLACE_COUNT) : PRIVATE;
    enum place end = count < 1000 ? first + 1 : PLACE_COUNT;
    for (enum place place = first; place < end; place++)
        CHECK(memcmp(reduced(rank, b, place, count, dtype, op), b->expected, nbytes) == 0);
}

static void order_body(struct rank *rank) {
    struct buffers b;
    open_all(rank, &b, "inline", SMALL_BYTES);
    size_t n = (size_t)rank->world_size, counts[] = {0, 1, n - 1, n + 1, 2100};
    for (ls_dtype dtype = LS_FP32; dtype < LS_DTYPE_COUNT; dtype++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            check_order(rank, &b, counts[c], dtype, LS_REDUCE_SUM);
        for (ls_reduce_op op = LS_REDUCE_MIN; op < LS_REDUCE_OP_COUNT; op++) check_order(rank, &b, 100, dtype, op);
    }
    close_all(rank, &b);
}

TEST(test_order) {
    const int world_sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 0};
    run_all(order_body, world_sizes);
}

/* --- large messages ----------------------------------------------------------------------------------------------- */

/* In shared memory a message of any size is one slice. Otherwise it is sent in several, and the ring then sums in a
 * different order, which is still the same on all ranks and in every run. */
static void check_large(struct rank *rank, struct buffers *b, size_t count, ls_dtype dtype) {
    size_t nbytes = count * ls_dtype_nbytes(dtype);
    uint64_t hash[PLACE_COUNT];
    for (enum place place = PRIVATE; place < PLACE_COUNT; place++) {
        memcpy(b->expected, reduced(rank, b, place, count, dtype, LS_REDUCE_SUM), nbytes);
        CHECK(memcmp(reduced(rank, b, place, count, dtype, LS_REDUCE_SUM), b->expected, nbytes) == 0);
        hash[place] = hash_bytes(b->expected, nbytes);
    }
    check_same_on_all_ranks(rank, hash, sizeof hash);
    if (strcmp(algorithm_of(rank), "ring") != 0) CHECK(hash[PRIVATE] == hash[SHARED] && hash[MIXED] == hash[SHARED]);
    if (rank->rank > 0) return;
    fill_reduced_by(algorithm_of(rank), b->expected, dtype, LS_REDUCE_SUM, rank->world_size, count);
    CHECK(hash_bytes(b->expected, nbytes) == hash[SHARED]);
}

/* Sums of small integers are exact in every order and type. */
static void check_exact(struct rank *rank, struct buffers *b, enum place place, size_t count, ls_dtype dtype) {
    size_t nbytes = count * ls_dtype_nbytes(dtype);
    char *buffer = guarded(rank, b, place, nbytes);
    fill_small_integers(buffer, dtype, rank->rank, count);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, count, dtype, LS_REDUCE_SUM) == LS_OK);
    check_guards(rank, buffer, nbytes);
    CHECK(has_small_sums(buffer, dtype, rank->world_size, count));
}

static void large_body(struct rank *rank) {
    struct buffers b;
    open_all(rank, &b, "inline", LARGE_BYTES);
    check_large(rank, &b, 80001, LS_FP32);
    check_large(rank, &b, 20001, LS_BF16);
    for (enum place place = PRIVATE; place < PLACE_COUNT; place++) {
        check_exact(rank, &b, place, 65536, LS_FP32); /* exactly one slice */
        check_exact(rank, &b, place, 98307, LS_INT64);
    }
    close_all(rank, &b);
}

TEST(test_large_messages) {
    const int world_sizes[] = {2, 3, 6, 9, 0};
    run_all(large_body, world_sizes);
}

/* Two or more nodes: numbers of ranks that LS_RANKS_PER_NODE divides. */
TEST(test_nodes) {
    static const int nodes[][2] = {{2, 4}, {2, 6}, {3, 6}, {1, 3}, {2, 5}};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        char text[12];
        snprintf(text, sizeof text, "%d", nodes[i][0]);
        setenv("LS_RANKS_PER_NODE", text, 1);
        run_good_ranks_on_all(nodes[i][1], order_body, "hierarchical");
        run_good_ranks_on_all(nodes[i][1], large_body, "hierarchical");
    }
    unsetenv("LS_RANKS_PER_NODE");
}

/* --- consecutive operations --------------------------------------------------------------------------------------- */

#define IN_A_ROW 12

/* All-reduces of several sizes are enqueued at once; the host waits at the end. */
static void in_a_row_body(struct rank *rank) {
    static const char *const modes[] = {"threads", "inline", "shuffle:7"};
    struct buffers b;
    open_all(rank, &b, modes[rank->world_size % 3], LARGE_BYTES);
    for (int i = 0; i < IN_A_ROW; i++) {
        size_t at = (size_t)i * 20000, count = (size_t)(i * i * 131 + i % 3);
        int32_t *buffer = (int32_t *)(void *)(i % 2 ? b.own : b.shared) + at;
        for (size_t k = 0; k < count; k++) buffer[k] = rank->rank * 1000 + (int32_t)k;
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, count, LS_INT32, LS_REDUCE_SUM) == LS_OK);
    }
    CHECK(ls_device_synchronize(rank->device) == LS_OK);
    int32_t n = rank->world_size;
    for (int i = 0; i < IN_A_ROW; i++) {
        const int32_t *buffer = (int32_t *)(void *)(i % 2 ? b.own : b.shared) + (size_t)i * 20000;
        for (int32_t k = 0; k < i * i * 131 + i % 3; k++)
            if (buffer[k] != n * (n - 1) / 2 * 1000 + n * k) CHECK(!"each all-reduce has its own sum");
    }
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    CHECK(ls_device_synchronize(rank->device) == LS_OK);
    close_all(rank, &b);
}

TEST(test_in_a_row) {
    const int world_sizes[] = {2, 3, 4, 7, 0}; /* every mode of the streams */
    run_all(in_a_row_body, world_sizes);
}

/* --- NaN ---------------------------------------------------------------------------------------------------------- */

/* A NaN of any rank must appear in the result of every reduction. */
static void check_nan(struct rank *rank, struct buffers *b, ls_dtype dtype, ls_reduce_op op, size_t count) {
    char *buffer = guarded(rank, b, SHARED, count * ls_dtype_nbytes(dtype));
    fill_some_nans(buffer, dtype, rank->rank, count);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, count, dtype, op) == LS_OK);
    check_same_on_all_ranks(rank, buffer, count * ls_dtype_nbytes(dtype));
    CHECK(has_all_nans(buffer, dtype, rank->world_size, count));
}

static void nan_body(struct rank *rank) {
    struct buffers b;
    open_all(rank, &b, "inline", LARGE_BYTES);
    for (ls_reduce_op op = LS_REDUCE_SUM; op < LS_REDUCE_OP_COUNT; op++)
        for (ls_dtype dtype = LS_FP32; dtype <= LS_BF16; dtype++) {
            check_nan(rank, &b, dtype, op, 100);
            check_nan(rank, &b, dtype, op, 10000);
        }
    close_all(rank, &b);
}

TEST(test_nan) {
    const int world_sizes[] = {2, 3, 5, 0};
    run_all(nan_body, world_sizes);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

TEST(test_table) {
    static const char *const names[] = {"direct", "ring", "halving-doubling", "hierarchical", "tree", "naive"};
    size_t rows = 0;
    for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; row->name; row++, rows++) {
        assert_true(rows < sizeof names / sizeof *names);
        assert_string_equal(row->name, names[rows]);
        assert_ptr_equal(ls_allreduce_find(row->name), row);
        assert_true(strlen(row->description) > 0 && row->run && row->cost);
    }
    assert_int_equal(rows, sizeof names / sizeof *names);
    assert_null(ls_allreduce_find("none such"));
    assert_null(ls_allreduce_find(""));
}
