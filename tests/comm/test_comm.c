/* Results of the collective operations: exact against a serial loop over the ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/comm/allreduce.h"
#include "tests/comm/ranks.h"
#include "tests/comm/values.h"

#define GUARD_BYTES 72 /* so that buffers are not aligned to cache lines */
#define TIMEOUT_S 60.0

enum kind { PRIVATE, SHARED, MIXED, KIND_COUNT };

/* Two buffers with guards: one of the rank's own, one in the group's memory. */
struct buffers {
    char *own, *shared, *expected;
    size_t capacity;
};

static void buffers_open(struct rank *rank, struct buffers *b, size_t capacity) {
    b->capacity = capacity;
    b->own = malloc(capacity + 2 * GUARD_BYTES);
    b->expected = malloc(capacity + 2 * GUARD_BYTES);
    CHECK(b->own && b->expected);
    CHECK(ls_comm_alloc_shared(rank->comm, capacity + 2 * GUARD_BYTES, (void **)&b->shared) == LS_OK);
}

static void buffers_close(struct buffers *b) {
    free(b->own);
    free(b->expected);
}

/* The rank's buffer of `nbytes` for this kind; the bytes around it hold a pattern. */
static char *guarded(const struct rank *rank, const struct buffers *b, enum kind kind, size_t nbytes) {
    bool shared = kind == SHARED || (kind == MIXED && rank->rank % 2 == 1);
    char *whole = shared ? b->shared : b->own;
    CHECK(nbytes <= b->capacity);
    memset(whole, 0xa5, GUARD_BYTES);
    memset(whole + GUARD_BYTES + nbytes, 0xa5, GUARD_BYTES);
    return whole + GUARD_BYTES;
}

static void check_guards(const struct rank *rank, const char *buffer, size_t nbytes) {
    for (int i = 1; i <= GUARD_BYTES; i++) {
        CHECK(buffer[-i] == (char)0xa5);
        CHECK(buffer[nbytes + (size_t)i - 1] == (char)0xa5);
    }
}

/* --- all_reduce --------------------------------------------------------------------------------------------------- */

/* b->expected holds what must come out. */
static void check_all_reduce_kind(struct rank *rank, struct buffers *b, enum kind kind, size_t count, ls_dtype dtype,
                                  ls_reduce_op op) {
    size_t nbytes = count * ls_dtype_nbytes(dtype);
    char *buffer = guarded(rank, b, kind, nbytes);
    fill_values(buffer, dtype, rank->rank, 0, count);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, count, dtype, op) == LS_OK);
    CHECK(memcmp(buffer, b->expected, nbytes) == 0);
    check_guards(rank, buffer, nbytes);
}

static void check_all_reduce(struct rank *rank, struct buffers *b, size_t count, ls_dtype dtype, ls_reduce_op op) {
    fill_reduced(b->expected, dtype, op, rank->world_size, 0, count);
    for (enum kind kind = PRIVATE; kind < KIND_COUNT; kind++) check_all_reduce_kind(rank, b, kind, count, dtype, op);
}

static void check_small_integers(struct rank *rank, struct buffers *b, ls_dtype dtype) {
    char *buffer = guarded(rank, b, MIXED, 1000 * ls_dtype_nbytes(dtype));
    fill_small_integers(buffer, dtype, rank->rank, 1000);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, 1000, dtype, LS_REDUCE_SUM) == LS_OK);
    for (size_t i = 0; i < 1000; i++) {
        double sum = 0;
        for (int r = 0; r < rank->world_size; r++) sum += (double)((i * 7 + (size_t)r * 3) % 23);
        CHECK(value_get(buffer, dtype, i) == sum);
    }
}

/* A NaN of any rank must come out of every reduction. */
static void check_nan(struct rank *rank, struct buffers *b, ls_dtype dtype, ls_reduce_op op) {
    for (size_t count = 100; count <= 100000; count *= 1000) {
        char *buffer = guarded(rank, b, PRIVATE, count * ls_dtype_nbytes(dtype));
        for (size_t i = 0; i < count; i++)
            value_set(buffer, dtype, i, (int)(i % 10) == rank->rank ? (double)NAN : (double)rank->rank);
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, count, dtype, op) == LS_OK);
        for (size_t i = 0; i < count; i++) {
            bool some_nan = (int)(i % 10) < rank->world_size;
            CHECK(isnan(value_get(buffer, dtype, i)) == some_nan);
        }
    }
}

/* The ranks' results, compared as bits by means of an operation that is tested above. */
static void check_same_on_all_ranks(struct rank *rank, const void *memory, size_t nbytes) {
    int64_t mine = (int64_t)hash_bytes(memory, nbytes), all[LS_COMM_MAX_RANKS];
    CHECK(ls_comm_all_gather(rank->comm, rank->stream, &mine, all, 1, LS_INT64) == LS_OK);
    for (int r = 0; r < rank->world_size; r++) CHECK(all[r] == mine);
}

static void large_all_reduces(struct rank *rank, struct buffers *b) {
    size_t mebi = (size_t)1 << 20;
    fill_reduced(b->expected, LS_FP32, LS_REDUCE_SUM, rank->world_size, 0, mebi);
    enum kind kind = (enum kind)(rank->world_size % KIND_COUNT);
    check_all_reduce_kind(rank, b, kind, mebi, LS_FP32, LS_REDUCE_SUM);
    check_all_reduce(rank, b, 131101, LS_FP32, LS_REDUCE_SUM);
    check_same_on_all_ranks(rank, (rank->rank % 2 == 1 ? b->shared : b->own) + GUARD_BYTES, 131101 * 4);
    const ls_dtype dtypes[] = {LS_INT64, LS_BF16, LS_FP16};
    for (int i = 0; i < 3; i++) {
        fill_reduced(b->expected, dtypes[i], LS_REDUCE_SUM, rank->world_size, 0, 131103);
        check_all_reduce_kind(rank, b, MIXED, 131103, dtypes[i], LS_REDUCE_SUM);
    }
}

static void all_reduce_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", rank->argument, TIMEOUT_S) == LS_OK);
    CHECK(strcmp(ls_comm_allreduce(rank->comm), rank->argument) == 0);
    struct buffers b;
    buffers_open(rank, &b, (size_t)4 << 20);
    size_t n = (size_t)rank->world_size, counts[] = {0, 1, n - 1, n, n + 1, 1000, 2100};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (ls_dtype dtype = LS_FP32; dtype < LS_DTYPE_COUNT; dtype++)
            for (ls_reduce_op op = LS_REDUCE_SUM; op < LS_REDUCE_OP_COUNT; op++)
                check_all_reduce(rank, &b, counts[c], dtype, op);
    for (ls_dtype dtype = LS_FP32; dtype < LS_DTYPE_COUNT; dtype++) check_small_integers(rank, &b, dtype);
    if (rank->world_size <= 3)
        for (ls_reduce_op op = LS_REDUCE_SUM; op < LS_REDUCE_OP_COUNT; op++)
            for (ls_dtype dtype = LS_FP32; dtype <= LS_BF16; dtype++) check_nan(rank, &b, dtype, op);
    large_all_reduces(rank, &b);
    buffers_close(&b);
    rank_close(rank);
}

static void test_all_reduce(void **state) {
    (void)state;
    for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; row->name; row++)
        for (int n = 1; n <= 9; n++) run_good_ranks(n, all_reduce_body, row->name);
}

/* --- the other operations ----------------------------------------------------------------------------------------- */

static void check_broadcast(struct rank *rank, struct buffers *b, enum kind kind, size_t count, int root) {
    char *buffer = guarded(rank, b, kind, count * 4);
    fill_values(buffer, LS_FP32, rank->rank, 0, count);
    CHECK(ls_comm_broadcast(rank->comm, rank->stream, buffer, count, LS_FP32, root) == LS_OK);
    fill_values(b->expected, LS_FP32, root, 0, count);
    CHECK(memcmp(buffer, b->expected, count * 4) == 0);
    check_guards(rank, buffer, count * 4);
}

static void check_reduce(struct rank *rank, struct buffers *b, enum kind kind, size_t count, int root) {
    char *buffer = guarded(rank, b, kind, count * 4);
    fill_values(buffer, LS_FP32, rank->rank, 0, count);
    CHECK(ls_comm_reduce(rank->comm, rank->stream, buffer, count, LS_FP32, LS_REDUCE_SUM, root) == LS_OK);
    if (rank->rank == root) fill_reduced(b->expected, LS_FP32, LS_REDUCE_SUM, rank->world_size, 0, count);
    if (rank->rank != root) fill_values(b->expected, LS_FP32, rank->rank, 0, count);
    CHECK(memcmp(buffer, b->expected, count * 4) == 0);
    check_guards(rank, buffer, count * 4);
}

/* Sends from the kind's buffer into memory of the rank's own, which is `expected`'s neighbour. */
static void check_gathers(struct rank *rank, struct buffers *b, enum kind kind, size_t count, int root) {
    size_t n = (size_t)rank->world_size;
    char *send = guarded(rank, b, kind, count * 4), *receive = calloc(n * count + 1, 4);
    CHECK(receive != NULL);
    fill_values(send, LS_FP32, rank->rank, 0, count);
    for (size_t r = 0; r < n; r++) fill_values(b->expected + r * count * 4, LS_FP32, (int)r, 0, count);
    CHECK(ls_comm_gather(rank->comm, rank->stream, send, rank->rank == root ? receive : NULL, count, LS_FP32, root) ==
          LS_OK);
    if (rank->rank == root) CHECK(memcmp(receive, b->expected, n * count * 4) == 0);
    memset(receive, 0, n * count * 4);
    CHECK(ls_comm_all_gather(rank->comm, rank->stream, send, receive, count, LS_FP32) == LS_OK);
    CHECK(memcmp(receive, b->expected, n * count * 4) == 0);
    memset(receive, 0, n * count * 4); /* in place */
    memcpy(receive + (size_t)rank->rank * count * 4, send, count * 4);
    CHECK(ls_comm_all_gather(rank->comm, rank->stream, receive + (size_t)rank->rank * count * 4, receive, count,
                             LS_FP32) == LS_OK);
    CHECK(memcmp(receive, b->expected, n * count * 4) == 0);
    check_guards(rank, send, count * 4);
    free(receive);
}

static void check_scatters(struct rank *rank, struct buffers *b, enum kind kind, size_t count, int root) {
    size_t n = (size_t)rank->world_size, mine = (size_t)rank->rank * count;
    char *send = guarded(rank, b, kind, n * count * 4), *receive = calloc(count + 1, 4);
    CHECK(receive != NULL);
    fill_values(send, LS_FP32, rank->rank, 0, n * count);
    fill_values(b->expected, LS_FP32, root, mine, count);
    CHECK(ls_comm_scatter(rank->comm, rank->stream, rank->rank == root ? send : NULL, receive, count, LS_FP32, root) ==
          LS_OK);
    CHECK(memcmp(receive, b->expected, count * 4) == 0);
    fill_reduced(b->expected, LS_FP32, LS_REDUCE_SUM, rank->world_size, mine, count);
    CHECK(ls_comm_reduce_scatter(rank->comm, rank->stream, send, receive, count, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    CHECK(memcmp(receive, b->expected, count * 4) == 0);
    check_guards(rank, send, n * count * 4);
    CHECK(ls_comm_reduce_scatter(rank->comm, rank->stream, send, send + mine * 4, count, LS_FP32, LS_REDUCE_SUM) ==
          LS_OK); /* in place */
    CHECK(memcmp(send + mine * 4, b->expected, count * 4) == 0);
    check_guards(rank, send, n * count * 4);
    free(receive);
}

static void others_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    struct buffers b;
    buffers_open(rank, &b, (size_t)4 << 20);
    const size_t counts[] = {0, 1, 7, 1000, 70001};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (int root = 0; root < rank->world_size; root++)
            for (enum kind kind = PRIVATE; kind < KIND_COUNT; kind++) {
                check_broadcast(rank, &b, kind, counts[c], root);
                check_reduce(rank, &b, kind, counts[c], root);
                check_gathers(rank, &b, kind, counts[c], root);
                check_scatters(rank, &b, kind, counts[c], root);
                CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
            }
    buffers_close(&b);
    rank_close(rank);
}

static void test_other_operations(void **state) {
    (void)state;
    for (int n = 1; n <= 5; n++) run_good_ranks(n, others_body, NULL);
}

static void send_to(struct rank *rank, char *buffer, size_t count, int peer) {
    fill_values(buffer, LS_FP32, rank->rank, (size_t)peer, count);
    CHECK(ls_comm_send(rank->comm, rank->stream, buffer, count, LS_FP32, peer) == LS_OK);
}

static void receive_from(struct rank *rank, struct buffers *b, char *buffer, size_t count, int peer) {
    memset(buffer, 0, count * 4);
    CHECK(ls_comm_recv(rank->comm, rank->stream, buffer, count, LS_FP32, peer) == LS_OK);
    fill_values(b->expected, LS_FP32, peer, (size_t)rank->rank, count);
    CHECK(memcmp(buffer, b->expected, count * 4) == 0);
}

/* Every pair exchanges messages both ways, the lower rank first; groups of pairs run at the same time. */
static void point_to_point_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    struct buffers b;
    buffers_open(rank, &b, (size_t)1 << 20);
    const size_t counts[] = {0, 1, 1000, 65536, 65537, 200003, 3, 4, 5, 6};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (enum kind kind = PRIVATE; kind < KIND_COUNT; kind++)
            for (int peer = 0; peer < rank->world_size; peer++) {
                if (peer == rank->rank) continue;
                char *buffer = guarded(rank, &b, kind, counts[c] * 4);
                if (rank->rank < peer) send_to(rank, buffer, counts[c], peer);
                receive_from(rank, &b, buffer, counts[c], peer);
                if (rank->rank > peer) send_to(rank, buffer, counts[c], peer);
                check_guards(rank, buffer, counts[c] * 4);
            }
    int32_t number = 0; /* many small messages in a row, one way: the receiver may run ahead of the sender's checks */
    for (int32_t i = 0; i < 2000 && rank->rank < 2; i++) {
        int32_t sent = i;
        if (rank->rank == 0) CHECK(ls_comm_send(rank->comm, rank->stream, &sent, 1, LS_INT32, 1) == LS_OK);
        if (rank->rank == 1) CHECK(ls_comm_recv(rank->comm, rank->stream, &number, 1, LS_INT32, 0) == LS_OK);
        CHECK(rank->rank == 0 || number == i);
    }
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    buffers_close(&b);
    rank_close(rank);
}

static void test_point_to_point(void **state) {
    (void)state;
    for (int n = 2; n <= 5; n++) run_good_ranks(n, point_to_point_body, NULL);
}

static void test_table(void **state) {
    (void)state;
    assert_ptr_equal(ls_allreduce_find(NULL), &ls_allreduce_algorithms[0]);
    for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; row->name; row++) {
        assert_ptr_equal(ls_allreduce_find(row->name), row);
        assert_true(strlen(row->description) > 0 && row->run);
    }
    assert_null(ls_allreduce_find("none such"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_all_reduce),
        cmocka_unit_test(test_other_operations),
        cmocka_unit_test(test_point_to_point),
    };
    return cmocka_run_group_tests_name("comm", tests, NULL, NULL);
}
