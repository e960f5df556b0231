/* Results and traffic of the collective operations, on every back-end: exact against a serial loop over the ranks, and
 * against the formulas of collectives.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/comm/comm_internal.h"
#include "tests/comm/buffers.h"
#include "tests/comm/values.h"

#define TIMEOUT_S 60.0

/* One call of one operation. */
struct problem {
    struct rank *rank;
    struct buffers *b;
    enum place place;
    size_t count, nbytes; /* elements; bytes of as many */
    ls_dtype dtype;
    ls_reduce_op op;
    int root;
    bool in_place;
};

static size_t world_of(const struct problem *p) { return (size_t)p->rank->world_size; }
static size_t rank_of(const struct problem *p) { return (size_t)p->rank->rank; }
static bool is_root(const struct problem *p) { return p->rank->rank == p->root; }

/* A guarded buffer with `parts` times count of this rank's values; and the check that a buffer holds some rank's. */
static char *filled(const struct problem *p, size_t parts) {
    char *buffer = guarded(p->rank, p->b, p->place, parts * p->nbytes);
    fill_values(buffer, p->dtype, p->rank->rank, 0, parts * p->count);
    return buffer;
}

static void check_values(const struct problem *p, const char *buffer, int of, size_t first, size_t count) {
    struct rank *rank = p->rank;
    fill_values(p->b->expected, p->dtype, of, first, count);
    CHECK(memcmp(buffer, p->b->expected, count * ls_dtype_nbytes(p->dtype)) == 0);
}

static void check_reduced(const struct problem *p, const char *buffer, size_t first) {
    struct rank *rank = p->rank;
    fill_reduced(p->b->expected, p->dtype, p->op, rank->world_size, first, p->count);
    CHECK(memcmp(buffer, p->b->expected, p->nbytes) == 0);
}

/* --- one function per operation: runs it and checks what it wrote, and that it wrote nothing else ----------------- */

static void check_all_reduce(const struct problem *p) {
    struct rank *rank = p->rank;
    char *buffer = filled(p, 1);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, p->count, p->dtype, p->op) == LS_OK);
    check_reduced(p, buffer, 0);
    check_guards(rank, buffer, p->nbytes);
}

static void check_broadcast(const struct problem *p) {
    struct rank *rank = p->rank;
    char *buffer = filled(p, 1);
    CHECK(ls_comm_broadcast(rank->comm, rank->stream, buffer, p->count, p->dtype, p->root) == LS_OK);
    check_values(p, buffer, p->root, 0, p->count);
    check_guards(rank, buffer, p->nbytes);
}

static void check_reduce(const struct problem *p) {
    struct rank *rank = p->rank;
    char *buffer = filled(p, 1);
    CHECK(ls_comm_reduce(rank->comm, rank->stream, buffer, p->count, p->dtype, p->op, p->root) == LS_OK);
    if (is_root(p)) check_reduced(p, buffer, 0);
    if (!is_root(p)) check_values(p, buffer, rank->rank, 0, p->count);
    check_guards(rank, buffer, p->nbytes);
}

/* Where a gather or all_gather in place sends from: the rank's own place in the buffer that it receives in. */
static char *filled_in_place(const struct problem *p) {
    char *whole = guarded(p->rank, p->b, p->place, world_of(p) * p->nbytes);
    memset(whole, 0, world_of(p) * p->nbytes);
    fill_values(whole + rank_of(p) * p->nbytes, p->dtype, p->rank->rank, 0, p->count);
    return whole;
}

static void check_gathered(const struct problem *p, const char *receive) {
    for (size_t r = 0; r < world_of(p); r++) check_values(p, receive + r * p->nbytes, (int)r, 0, p->count);
    check_guards(p->rank, receive, world_of(p) * p->nbytes);
}

static void check_all_gather(const struct problem *p) {
    struct rank *rank = p->rank;
    char *receive = p->in_place ? filled_in_place(p) : guarded_second(rank, p->b, world_of(p) * p->nbytes);
    char *send = p->in_place ? receive + rank_of(p) * p->nbytes : filled(p, 1);
    CHECK(ls_comm_all_gather(rank->comm, rank->stream, send, receive, p->count, p->dtype) == LS_OK);
    check_gathered(p, receive);
    check_values(p, send, rank->rank, 0, p->count);
    if (!p->in_place) check_guards(rank, send, p->nbytes);
}

static void check_gather(const struct problem *p) {
    struct rank *rank = p->rank;
    bool in_place = p->in_place && is_root(p);
    char *receive = in_place ? filled_in_place(p) : guarded_second(rank, p->b, world_of(p) * p->nbytes);
    char *send = in_place ? receive + rank_of(p) * p->nbytes : filled(p, 1);
    CHECK(ls_comm_gather(rank->comm, rank->stream, send, is_root(p) ? receive : NULL, p->count, p->dtype, p->root) ==
          LS_OK);
    if (is_root(p)) check_gathered(p, receive);
    check_values(p, send, rank->rank, 0, p->count);
    if (!in_place) check_guards(rank, send, p->nbytes);
}

/* `part` of the send buffer has become the result, if in place; the rest is as it was. */
static void check_sent_parts(const struct problem *p, const char *send, bool in_place) {
    for (size_t part = 0; part < world_of(p); part++)
        if (!in_place || part != rank_of(p))
            check_values(p, send + part * p->nbytes, p->rank->rank, part * p->count, p->count);
    check_guards(p->rank, send, world_of(p) * p->nbytes);
}

static void check_scatter(const struct problem *p) {
    struct rank *rank = p->rank;
    char *send = filled(p, world_of(p));
    bool in_place = p->in_place && is_root(p);
    char *receive = in_place ? send + rank_of(p) * p->nbytes : guarded_second(rank, p->b, p->nbytes);
    CHECK(ls_comm_scatter(rank->comm, rank->stream, is_root(p) ? send : NULL, receive, p->count, p->dtype, p->root) ==
          LS_OK);
    check_values(p, receive, p->root, rank_of(p) * p->count, p->count);
    if (!in_place) check_guards(rank, receive, p->nbytes);
    check_sent_parts(p, send, false); /* in place, the result is what was there */
}

static void check_reduce_scatter(const struct problem *p) {
    struct rank *rank = p->rank;
    char *send = filled(p, world_of(p));
    char *receive = p->in_place ? send + rank_of(p) * p->nbytes : guarded_second(rank, p->b, p->nbytes);
    CHECK(ls_comm_reduce_scatter(rank->comm, rank->stream, send, receive, p->count, p->dtype, p->op) == LS_OK);
    check_reduced(p, receive, rank_of(p) * p->count);
    if (!p->in_place) check_guards(rank, receive, p->nbytes);
    check_sent_parts(p, send, p->in_place);
}

static void check_barrier(const struct problem *p) {
    struct rank *rank = p->rank;
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
}

/* --- what each slice of them moves: the formulas at the top of collectives.c -------------------------------------- */

/* `n` bytes to or from each of the other ranks. */
static void all_send_to_all(const struct problem *p, struct ls_comm_traffic *t, size_t n, bool one_round) {
    (void)one_round;
    size_t others = world_of(p) - 1;
    t->sent_messages += others;
    t->received_messages += others;
    t->sent_bytes += others * n;
    t->received_bytes += others * n;
}

static void root_sends(const struct problem *p, struct ls_comm_traffic *t, size_t n, bool one_round) {
    (void)one_round;
    size_t others = world_of(p) - 1;
    t->sent_messages += is_root(p) ? others : 0;
    t->sent_bytes += is_root(p) ? others * n : 0;
    t->received_messages += is_root(p) ? 0 : 1;
    t->received_bytes += is_root(p) ? 0 : n;
}

static void root_receives(const struct problem *p, struct ls_comm_traffic *t, size_t n, bool one_round) {
    (void)one_round;
    size_t others = world_of(p) - 1;
    t->received_messages += is_root(p) ? others : 0;
    t->received_bytes += is_root(p) ? others * n : 0;
    t->sent_messages += is_root(p) ? 0 : 1;
    t->sent_bytes += is_root(p) ? 0 : n;
}

/* Message by message: `from` sends `n` bytes to `to`. */
static void moves(const struct problem *p, struct ls_comm_traffic *t, size_t from, size_t to, size_t n) {
    if (from == to || n == 0) return;
    t->sent_messages += from == rank_of(p);
    t->sent_bytes += from == rank_of(p) ? n : 0;
    t->received_messages += to == rank_of(p);
    t->received_bytes += to == rank_of(p) ? n : 0;
}

/* The bytes of rank r's share of n: cut at cache lines. */
static size_t share_of(const struct problem *p, size_t n, size_t r) {
    size_t elements = n / ls_dtype_nbytes(p->dtype), share = (elements + world_of(p) - 1) / world_of(p);
    size_t lines = (share * ls_dtype_nbytes(p->dtype) + 63) / 64, begin = r * lines * 64;
    return begin >= n ? 0 : n - begin < lines * 64 ? n - begin : lines * 64;
}

static void reduced_on_root(const struct problem *p, struct ls_comm_traffic *t, size_t n, bool one_round) {
    if (one_round) {
        root_receives(p, t, n, one_round);
        return;
    }
    for (size_t owner = 0; owner < world_of(p); owner++) {
        for (size_t from = 0; from < world_of(p); from++) moves(p, t, from, owner, share_of(p, n, owner));
        moves(p, t, owner, (size_t)p->root, share_of(p, n, owner));
    }
}

static void reduced_on_all(const struct problem *p, struct ls_comm_traffic *t, size_t n, bool one_round) {
    if (one_round) {
        all_send_to_all(p, t, n, one_round);
        return;
    }
    for (size_t owner = 0; owner < world_of(p); owner++)
        for (size_t other = 0; other < world_of(p); other++) {
            moves(p, t, other, owner, share_of(p, n, owner));
            moves(p, t, owner, other, share_of(p, n, owner));
        }
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const struct operation {
    const char *name;
    void (*check)(const struct problem *p);
    void (*moved)(const struct problem *p, struct ls_comm_traffic *t, size_t slice_nbytes, bool one_round);
    bool reduces, rooted, can_be_in_place;
    bool root_publishes; /* root alone; else all do */
    bool whole;          /* publishes a part for each rank */
} operations[] = {
    {.name = "all_reduce", .check = check_all_reduce, .moved = reduced_on_all, .reduces = true},
    {.name = "broadcast", .check = check_broadcast, .moved = root_sends, .rooted = true, .root_publishes = true},
    {.name = "reduce", .check = check_reduce, .moved = reduced_on_root, .reduces = true, .rooted = true},
    {.name = "all_gather", .check = check_all_gather, .moved = all_send_to_all, .can_be_in_place = true},
    {.name = "reduce_scatter",
     .check = check_reduce_scatter,
     .moved = all_send_to_all,
     .reduces = true,
     .can_be_in_place = true,
     .whole = true},
    {.name = "gather", .check = check_gather, .moved = root_receives, .rooted = true, .can_be_in_place = true},
    {.name = "scatter",
     .check = check_scatter,
     .moved = root_sends,
     .rooted = true,
     .can_be_in_place = true,
     .root_publishes = true,
     .whole = true},
    {.name = "barrier", .check = check_barrier},
};

static size_t parts_of(const struct operation *operation, int world_size) {
    return operation->whole ? (size_t)world_size : 1;
}

/* Columns of one staged slice, or 0 if nothing is staged. */
static size_t staged_columns(const struct operation *operation, const struct problem *p) {
    bool staged = false;
    for (int r = 0; r < p->rank->world_size; r++)
        if (!operation->root_publishes || r == p->root) staged = staged || !is_shared(p->place, r);
    if (p->rank->crew) staged = false; /* threads see every buffer where it lies */
    size_t line = LS_CACHE_LINE_BYTES / ls_dtype_nbytes(p->dtype);
    size_t columns = LS_STAGE_BYTES / parts_of(operation, p->rank->world_size) / ls_dtype_nbytes(p->dtype);
    return staged ? columns / line * line : 0;
}

static void expect_traffic(const struct operation *operation, const struct problem *p, struct ls_comm_traffic *t) {
    t->operations++;
    if (p->count == 0 || p->rank->world_size == 1 || !operation->moved) return;
    bool one_round = parts_of(operation, p->rank->world_size) * p->nbytes <= LS_EAGER_BYTES;
    size_t columns = one_round ? 0 : staged_columns(operation, p);
    if (columns == 0) columns = p->count;
    for (size_t first = 0; first < p->count; first += columns) {
        size_t count = p->count - first < columns ? p->count - first : columns;
        operation->moved(p, t, count * ls_dtype_nbytes(p->dtype), one_round);
    }
}

static void run_problem(const struct operation *operation, const struct problem *p) {
    struct rank *rank = p->rank;
    struct ls_comm_traffic expected, traffic;
    ls_comm_traffic_read(rank->comm, &expected);
    expect_traffic(operation, p, &expected);
    operation->check(p);
    ls_comm_traffic_read(rank->comm, &traffic);
    CHECK(traffic.operations == expected.operations);
    CHECK(traffic.sent_messages == expected.sent_messages && traffic.received_messages == expected.received_messages);
    CHECK(traffic.sent_bytes == expected.sent_bytes && traffic.received_bytes == expected.received_bytes);
}

/* Nothing, one, odd, the most that goes in one round, one more, several slices. */
enum { COUNTS = 6 };
static void choose_counts(size_t counts[COUNTS], const struct operation *operation, int world_size, ls_dtype dtype) {
    size_t unit = parts_of(operation, world_size) * ls_dtype_nbytes(dtype);
    size_t limit = LS_EAGER_BYTES / unit, slices = 2 * LS_STAGE_BYTES / unit + 5;
    const size_t chosen[COUNTS] = {0, 1, 7, limit, limit + 1, slices};
    memcpy(counts, chosen, sizeof chosen);
}

/* Every place in and out of place; the root goes round. */
static void run_problems(const struct operation *operation, struct problem *p) {
    for (enum place place = PRIVATE; place < PLACE_COUNT; place++)
        for (int in_place = 0; in_place <= operation->can_be_in_place; in_place++) {
            p->place = place;
            p->in_place = in_place;
            p->root = operation->rooted ? (p->root + 1) % p->rank->world_size : 0;
            run_problem(operation, p);
        }
}

/* Several slices take long, so not every type goes through with every number of ranks. */
static bool is_chosen(const struct operation *operation, int world_size, size_t c, ls_dtype dtype, ls_reduce_op op) {
    if (!operation->reduces && op != LS_REDUCE_SUM) return false;
    if (c < COUNTS - 1) return true;
    bool typed = dtype == LS_FP32 || (int)dtype == 1 + world_size % (LS_DTYPE_COUNT - 1);
    return typed && (!operation->reduces || op == (ls_reduce_op)((world_size + (int)dtype) % LS_REDUCE_OP_COUNT));
}

static void run_operation(struct rank *rank, struct buffers *b, const struct operation *operation) {
    struct problem p = {.rank = rank, .b = b};
    size_t counts[COUNTS];
    for (ls_dtype dtype = LS_FP32; dtype < LS_DTYPE_COUNT; dtype++) {
        choose_counts(counts, operation, rank->world_size, dtype);
        for (size_t c = 0; c < COUNTS; c++)
            for (ls_reduce_op op = LS_REDUCE_SUM; op < LS_REDUCE_OP_COUNT; op++) {
                if (!is_chosen(operation, rank->world_size, c, dtype, op)) continue;
                p.count = counts[c];
                p.nbytes = counts[c] * ls_dtype_nbytes(dtype);
                p.dtype = dtype;
                p.op = op;
                run_problems(operation, &p);
            }
    }
}

/* "direct" sums in the order of the ranks, as the other reductions do: the bits are those of the serial loop. */
static void operations_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", "direct", TIMEOUT_S) == LS_OK);
    struct buffers b;
    buffers_open(rank, &b, (size_t)rank->world_size * (2 * LS_STAGE_BYTES + 1024));
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) run_operation(rank, &b, &operations[i]);
    buffers_close(&b);
    rank_close(rank);
}

static void test_operations(void **state) {
    (void)state;
    for (int n = 1; n <= 8; n++) run_good_ranks_on_all(n, operations_body, NULL);
}

/* --- special values ----------------------------------------------------------------------------------------------- */

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

static void nan_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    struct buffers b;
    buffers_open(rank, &b, 400000);
    for (ls_reduce_op op = LS_REDUCE_SUM; op < LS_REDUCE_OP_COUNT; op++)
        for (ls_dtype dtype = LS_FP32; dtype <= LS_BF16; dtype++) check_nan(rank, &b, dtype, op);
    buffers_close(&b);
    rank_close(rank);
}

static void test_nan(void **state) {
    (void)state;
    for (int n = 1; n <= 3; n++) run_good_ranks_on_all(n, nan_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_nan),
    };
    return cmocka_run_group_tests_name("comm", tests, NULL, NULL);
}
