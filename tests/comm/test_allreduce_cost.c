/* The cost formulas: against the traffic that a group counts, against each other, and against known values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/comm/allreduce.h"
#include "tests/base/test.h"
#include "tests/comm/ranks.h"

#define TIMEOUT_S 60.0
#define LARGEST 40009

typedef struct ls_allreduce_cost cost;

static const ls_dtype dtypes[] = {LS_FP32, LS_FP16, LS_INT64};
#define DTYPES (sizeof dtypes / sizeof *dtypes)

/* Around the ends of chunks, of one round, of the tree's segments, and counts that leave some ranks' chunks empty. */
static const size_t counts[] = {0, 1, 15, 16, 17, 33, 129, 500, 1024, 1025, 2047, 2049, 4099, 16384, 16385, LARGEST};
#define COUNTS (sizeof counts / sizeof *counts)

static cost cost_of(const char *algorithm, int world_size, int rank, size_t count, size_t element_nbytes) {
    cost result;
    memset(&result, 0xa5, sizeof result);
    ls_allreduce_find(algorithm)->cost(&result, world_size, rank, count, element_nbytes);
    return result;
}

/* --- measured traffic --------------------------------------------------------------------------------------------- */

static void check_traffic(struct rank *rank, const char *algorithm, void *buffer, size_t count, ls_dtype dtype) {
    ls_comm_traffic before, after;
    ls_comm_traffic_read(rank->comm, &before);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, count, dtype, LS_REDUCE_SUM) == LS_OK);
    ls_comm_traffic_read(rank->comm, &after);
    cost expected = cost_of(algorithm, rank->world_size, rank->rank, count, ls_dtype_nbytes(dtype));
    CHECK(after.operations - before.operations == 1);
    CHECK(after.sent_messages - before.sent_messages == expected.sent_messages);
    CHECK(after.sent_bytes - before.sent_bytes == expected.sent_bytes);
    CHECK(after.received_messages - before.received_messages == expected.received_messages);
    CHECK(after.received_bytes - before.received_bytes == expected.received_bytes);
}

static void check_algorithm(struct rank *rank, const char *algorithm) {
    void *buffer;
    CHECK(rank_open(rank, "inline", algorithm, TIMEOUT_S) == LS_OK);
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, LARGEST * 8, &buffer) == LS_OK);
    for (size_t c = 0; c < COUNTS; c++)
        check_traffic(rank, algorithm, buffer, counts[c], dtypes[(c + (size_t)rank->world_size) % DTYPES]);
    rank_close(rank);
}

static void traffic_body(struct rank *rank) {
    for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; row->name; row++)
        check_algorithm(rank, row->name);
}

TEST(test_counted_traffic) {
    for (int n = 1; n <= 16; n = n == 9 ? 16 : n + 1) run_good_ranks_on_all(n, traffic_body, NULL);
}

/* --- invariants --------------------------------------------------------------------------------------------------- */

/* Every byte sent is received, and the total is 2 (W - 1) times the array, or W (W - 1) times in one round. */
static void check_sums(const char *algorithm, int world_size, size_t count, size_t element_nbytes) {
    cost sum = {0};
    for (int rank = 0; rank < world_size; rank++) {
        cost one = cost_of(algorithm, world_size, rank, count, element_nbytes);
        sum.sent_messages += one.sent_messages;
        sum.sent_bytes += one.sent_bytes;
        sum.received_messages += one.received_messages;
        sum.received_bytes += one.received_bytes;
    }
    assert_int_equal(sum.sent_messages, sum.received_messages);
    assert_int_equal(sum.sent_bytes, sum.received_bytes);
    size_t least = 2 * (size_t)(world_size - 1) * count * element_nbytes;
    bool one_round = count * element_nbytes <= ls_allreduce_find(algorithm)->one_round_bytes;
    if (one_round) assert_int_equal(sum.sent_bytes, least / 2 * (size_t)world_size);
    if (!one_round) assert_int_equal(sum.sent_bytes, least);
}

TEST(test_sums) {
    for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; row->name; row++)
        for (int n = 1; n <= LS_COMM_MAX_RANKS; n++)
            for (size_t c = 0; c < COUNTS; c++)
                for (size_t d = 0; d < DTYPES; d++) check_sums(row->name, n, counts[c], ls_dtype_nbytes(dtypes[d]));
}

static void nodes_body(struct rank *rank) { check_algorithm(rank, "hierarchical"); }

TEST(test_nodes) {
    static const int sizes[] = {1, 2, 3, 4};
    char text[12];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(text, sizeof text, "%d", sizes[i]);
        setenv("LS_RANKS_PER_NODE", text, 1);
        for (int n = 1; n <= 12; n++)
            for (size_t c = 0; c < COUNTS; c++) check_sums("hierarchical", n, counts[c], 4);
        run_good_ranks_on_all(6, nodes_body, NULL);
    }
    /* two nodes of two: within a node, a share of 32 KiB is sent there and back; between nodes, 16 KiB twice */
    setenv("LS_RANKS_PER_NODE", "2", 1);
    cost got = cost_of("hierarchical", 4, 1, 64 * 256, 4);
    assert_int_equal(got.steps, 4);
    assert_int_equal(got.sent_messages, 4);
    assert_int_equal(got.sent_bytes, 96 << 10);
    setenv("LS_RANKS_PER_NODE", "4", 1); /* does not divide them: one node */
    assert_int_equal(cost_of("hierarchical", 6, 1, 64 * 256, 4).steps, 2);
    unsetenv("LS_RANKS_PER_NODE");
}

/* --- known values ------------------------------------------------------------------------------------------------- */

/* For messages of `kib` KiB: the traffic of rank `rank`, in KiB and messages. */
static const struct known {
    const char *algorithm;
    int world_size, rank;
    size_t kib, steps, sent, sent_kib, received, received_kib;
} knowns[] = {
    {"direct", 2, 0, 4, 1, 1, 4, 1, 4}, /* one round */
    {"direct", 5, 3, 4, 1, 4, 16, 4, 16},
    {"direct", 4, 1, 64, 1, 6, 96, 6, 96}, /* 3 shares of 16 KiB to the others, and back; 3 of theirs */
    {"direct", 1, 0, 64, 0, 0, 0, 0, 0},
    {"ring", 4, 2, 64, 6, 6, 96, 6, 96}, /* 2 n (W - 1) / W */
    {"ring", 2, 1, 64, 2, 2, 64, 2, 64},
    {"ring", 64, 5, 64, 126, 126, 126, 126, 126},
    {"ring", 1, 0, 64, 0, 0, 0, 0, 0},
    {"halving-doubling", 4, 2, 64, 4, 4, 96, 4, 96}, /* 32 + 16 + 16 + 32 */
    {"halving-doubling", 8, 2, 64, 6, 6, 112, 6, 112},
    {"halving-doubling", 6, 4, 64, 6, 1, 64, 1, 64}, /* an extra rank */
    {"halving-doubling", 6, 1, 64, 6, 5, 160, 5, 160},
    {"halving-doubling", 6, 3, 64, 6, 4, 96, 4, 96},
    {"hierarchical", 4, 1, 64, 2, 6, 96, 6, 96}, /* one node */
    {"hierarchical", 4, 1, 4, 1, 3, 12, 3, 12},  /* one round */
    {"tree", 2, 0, 64, 2, 1, 64, 1, 64},
    {"tree", 7, 0, 64, 4, 2, 128, 2, 128},
    {"tree", 7, 1, 64, 4, 3, 192, 3, 192},
    {"tree", 7, 6, 64, 4, 1, 64, 1, 64},
    {"tree", 8, 3, 640, 24, 20, 1280, 20, 1280}, /* 10 segments, 3 levels: 2 (3 + 10 - 1) */
    {"tree", 1, 0, 640, 0, 0, 0, 0, 0},
    {"naive", 5, 0, 64, 2, 4, 256, 4, 256},
    {"naive", 5, 4, 64, 2, 1, 64, 1, 64},
};

TEST(test_known_costs) {
    for (size_t i = 0; i < sizeof knowns / sizeof *knowns; i++) {
        const struct known *k = &knowns[i];
        cost got = cost_of(k->algorithm, k->world_size, k->rank, k->kib * 256, 4);
        if (got.steps != k->steps || got.sent_messages != k->sent || got.sent_bytes != k->sent_kib * 1024 ||
            got.received_messages != k->received || got.received_bytes != k->received_kib * 1024)
            fail_msg("%s, world size %d, rank %d: %zu steps, sent %zu of %zu bytes, received %zu of %zu bytes",
                     k->algorithm, k->world_size, k->rank, got.steps, got.sent_messages, got.sent_bytes,
                     got.received_messages, got.received_bytes);
    }
    /* shares of 32 elements: 33 ranks have one, the others have none */
    assert_int_equal(cost_of("direct", 64, 0, 1025, 4).sent_messages, 32 + 63);
    assert_int_equal(cost_of("direct", 64, 63, 1025, 4).sent_messages, 33);
}
