/* The operations of bench_comm: the meaning of a size for each, the bytes they must send by formula, and the contents
 * they must produce; wrong contents are synthetic. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/bench/comm/bench_comm.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

/* --- sizes ------------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, test_what_a_size_means) {
    const comm_operation *gather = comm_operation_find("all_gather"), *reduce = comm_operation_find("all_reduce");
    assert_int_equal(comm_part_count(reduce, 4, 4096, LS_FP32), 1024);
    assert_int_equal(comm_part_count(gather, 4, 4096, LS_FP32), 256); /* all parts together */
    assert_int_equal(comm_part_count(gather, 4, 8, LS_FP32), 1);
    assert_int_equal(comm_part_count(reduce, 4, 4096, LS_INT64), 512);
    assert_int_equal(comm_part_count(comm_operation_find("barrier"), 4, 4096, LS_FP32), 0);
    comm_settings settings = {.dtype = LS_FP32, .cache_bytes = 1 << 20};
    comm_slots slots = comm_slots_of(gather, 2, 3, &settings);
    assert_int_equal(slots.receive_offset, 64);
    assert_int_equal(slots.stride_bytes, 128);
    assert_int_equal(slots.count * slots.stride_bytes * 2, 2 << 20); /* twice the cache, over both ranks */
    slots = comm_slots_of(reduce, 2, 4 << 20, &settings);
    assert_int_equal(slots.count, 1);
    assert_int_equal(slots.receive_offset, 0);
}

/* --- formulas ---------------------------------------------------------------------------------------------------- */

static void expect_cost(const char *name, int n, int rank, size_t count, const size_t expected[4]) {
    struct ls_allreduce_cost cost = {.steps = 9, .sent_messages = 9, .received_bytes = 9};
    comm_operation_find(name)->cost(&cost, n, rank, count, 4);
    const size_t found[] = {cost.sent_messages, cost.sent_bytes, cost.received_messages, cost.received_bytes};
    for (int i = 0; i < 4; i++)
        if (found[i] != expected[i])
            fail_msg("%s, rank %d: number %d is %zu, not %zu", name, rank, i, found[i], expected[i]);
}

TEST_IN(scratch, test_formulas) {
    expect_cost("broadcast", 4, 0, 100, (size_t[]){3, 1200, 0, 0});
    expect_cost("broadcast", 4, 2, 100, (size_t[]){0, 0, 1, 400});
    expect_cost("gather", 4, 0, 100, (size_t[]){0, 0, 3, 1200});
    expect_cost("gather", 4, 3, 100, (size_t[]){1, 400, 0, 0});
    expect_cost("scatter", 4, 0, 100, (size_t[]){3, 1200, 0, 0});
    expect_cost("all_gather", 4, 1, 100, (size_t[]){3, 1200, 3, 1200});
    expect_cost("reduce_scatter", 4, 0, 100, (size_t[]){3, 1200, 3, 1200});
    expect_cost("send_recv", 4, 1, 100, (size_t[]){1, 400, 1, 400});
    expect_cost("barrier", 4, 1, 0, (size_t[]){0, 0, 0, 0});
    /* small: the root reduces; large: it receives shares of 2032 elements, the last one of 2004 */
    expect_cost("reduce", 4, 0, 100, (size_t[]){0, 0, 3, 1200});
    expect_cost("reduce", 4, 1, 100, (size_t[]){1, 400, 0, 0});
    expect_cost("reduce", 4, 0, 8100, (size_t[]){3, 4 * 6068, 6, 4 * (3 * 2032 + 6068)});
    expect_cost("reduce", 4, 3, 8100, (size_t[]){4, 4 * 8100, 3, 4 * 3 * 2004});
}

/* --- exact contents ---------------------------------------------------------------------------------------------- */

enum { RANKS = 3, COUNT = 5100, SALT = 7 };

static float memory[RANKS][2 * RANKS * COUNT], before[RANKS][2 * RANKS * COUNT];

static comm_slot slot_of(const comm_operation *operation, int rank) {
    return (comm_slot){.operation = operation,
                       .n = RANKS,
                       .rank = rank,
                       .count = COUNT,
                       .salt = SALT,
                       .send = (char *)memory[rank],
                       .receive = (char *)(memory[rank] + RANKS * COUNT)};
}

static float sum_of(size_t index) {
    float sum = 0;
    for (int r = 0; r < RANKS; r++) sum += before[r][index];
    return sum;
}

/* Emulates an operation element by element; the send buffer begins at 0, followed by the receive buffer. */
static void emulate(const char *name) {
    const size_t receive = (size_t)RANKS * COUNT;
    for (size_t rank = 0; rank < RANKS; rank++) {
        float *to = memory[rank] + receive;
        for (size_t i = 0; i < COUNT; i++) {
            if (strcmp(name, "all_reduce") == 0 || (strcmp(name, "reduce") == 0 && rank == 0))
                to[i] = sum_of(receive + i);
            if (strcmp(name, "broadcast") == 0) to[i] = before[0][receive + i];
            if (strcmp(name, "reduce_scatter") == 0) to[i] = sum_of(rank * COUNT + i);
            if (strcmp(name, "scatter") == 0) to[i] = before[0][rank * COUNT + i];
            if (strcmp(name, "send_recv") == 0) to[i] = before[(rank + RANKS - 1) % RANKS][i];
            bool gathers = strcmp(name, "all_gather") == 0 || (strcmp(name, "gather") == 0 && rank == 0);
            for (size_t part = 0; gathers && part < RANKS; part++) to[part * COUNT + i] = before[part][i];
        }
    }
}

static void expect_caught(const comm_patterns *patterns, const comm_operation *operation, int rank, float *element,
                          float value, const char *text) {
    float right = *element;
    *element = value;
    comm_slot slot = slot_of(operation, rank);
    if (comm_check(patterns, &slot, "the test") != LS_ERR_INVALID) fail_msg("%s: not caught", operation->name);
    scratch_expect_error("the test", text);
    *element = right;
    assert_int_equal(comm_check(patterns, &slot, "the test"), LS_OK);
}

TEST_IN(scratch, test_wrong_results_are_caught) {
    comm_patterns *patterns;
    assert_int_equal(comm_patterns_create(&patterns, RANKS, LS_FP32, LS_REDUCE_SUM), LS_OK);
    for (const comm_operation *operation = comm_operations; operation->name; operation++) {
        if (operation->latency_only) continue;
        for (int rank = 0; rank < RANKS; rank++) {
            comm_slot slot = slot_of(operation, rank);
            comm_fill(patterns, &slot);
        }
        memcpy(before, memory, sizeof memory);
        emulate(operation->name);
        for (int rank = 0; rank < RANKS; rank++) {
            comm_slot slot = slot_of(operation, rank);
            assert_int_equal(comm_check(patterns, &slot, operation->name), LS_OK);
            float *received = memory[rank] + RANKS * COUNT, *sent = memory[rank];
            size_t last = comm_receive_parts(operation, RANKS) * COUNT - 1;
            bool none = operation->result(RANKS, rank, 0).kind == COMM_UNTOUCHED;
            char text[80];
            snprintf(text, sizeof text,
                     none ? "rank %d gets no result, but element %zu"
                          : "on rank %d: element %zu of the result is 99; expected %g",
                     rank, last, (double)received[last]);
            expect_caught(patterns, operation, rank, &received[last], 99, text);
            expect_caught(patterns, operation, rank, &received[0], none ? 0 : NAN, "element 0");
            if (!operation->in_place)
                expect_caught(patterns, operation, rank, &sent[COUNT - 1], 5, "element 5099 of the send buffer is 5");
        }
    }
    comm_patterns_destroy(patterns);
}

/* An operation that leaves every buffer unchanged must be detected, on any rank that gets a result. */
TEST_IN(scratch, test_nothing_done_is_caught) {
    comm_patterns *patterns;
    assert_int_equal(comm_patterns_create(&patterns, RANKS, LS_FP32, LS_REDUCE_MAX), LS_OK);
    for (const comm_operation *operation = comm_operations; operation->name; operation++) {
        for (int rank = 0; rank < RANKS && !operation->latency_only; rank++) {
            comm_slot slot = slot_of(operation, rank);
            comm_fill(patterns, &slot);
            comm_content content = operation->result(RANKS, rank, 0);
            bool none = content.kind == COMM_UNTOUCHED ||
                        (operation->in_place && content.kind == COMM_OF_RANK && content.rank == rank);
            if ((comm_check(patterns, &slot, "") == LS_OK) != none) fail_msg("%s on rank %d", operation->name, rank);
            if (!none) scratch_expect_error("wrong result on rank", NULL);
        }
    }
    comm_patterns_destroy(patterns);
}
