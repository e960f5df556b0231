/* The table of operations: the result of each, against a serial loop over the ranks, and its traffic, against the
 * formulas of collectives.c. */
#include "tests/comm/operations.h"

#include <string.h>

#include "common/comm/comm_internal.h"
#include "tests/comm/orders.h"
#include "tests/comm/values.h"

/* One call of one operation. */
struct problem {
    struct rank *rank;
    struct buffers *b;
    enum place place;
    size_t count, nbytes; /* the message in elements, and in bytes */
    ls_dtype dtype;
    ls_reduce_op op;
    int root;
    bool in_place;
};

static size_t world_of(const struct problem *p) { return (size_t)p->rank->world_size; }
static size_t rank_of(const struct problem *p) { return (size_t)p->rank->rank; }
static bool is_root(const struct problem *p) { return p->rank->rank == p->root; }

/* A guarded buffer with `parts` times count of this rank's values; and the check that a buffer contains the values of a
 * given rank. */
static char *filled(const struct problem *p, size_t parts) {
    char *buffer = guarded(p->rank, p->b, p->place, parts * p->nbytes);
    fill_values(buffer, p->dtype, p->rank->rank, 0, parts * p->count);
    return buffer;
}

static void check_values(const struct problem *p, const char *buffer, int of, size_t first, size_t count) {
    struct rank *rank = p->rank;
    CHECK(has_values(buffer, p->dtype, of, first, count));
}

/* run_operation has computed what is expected. */
static void check_reduced(const struct problem *p, const char *buffer) {
    struct rank *rank = p->rank;
    CHECK(memcmp(buffer, p->b->expected, p->nbytes) == 0);
}

/* The address to pass to the group for a buffer; and whether the operation succeeded. */
static void *given(const struct problem *p, void *buffer) { return buffer_to_group(p->rank, p->b, buffer); }

static bool done(const struct problem *p, ls_status status) {
    if (status == LS_OK) buffers_from_group(p->rank, p->b);
    return status == LS_OK;
}

/* --- one function per operation: runs it and checks its output, and that it writes nothing else ------------------- */

static void check_all_reduce(const struct problem *p) {
    struct rank *rank = p->rank;
    char *buffer = filled(p, 1);
    CHECK(done(p, ls_comm_all_reduce(rank->comm, rank->stream, given(p, buffer), p->count, p->dtype, p->op)));
    check_reduced(p, buffer);
    check_guards(rank, buffer, p->nbytes);
}

static void check_broadcast(const struct problem *p) {
    struct rank *rank = p->rank;
    char *buffer = filled(p, 1);
    CHECK(done(p, ls_comm_broadcast(rank->comm, rank->stream, given(p, buffer), p->count, p->dtype, p->root)));
    check_values(p, buffer, p->root, 0, p->count);
    check_guards(rank, buffer, p->nbytes);
}

static void check_reduce(const struct problem *p) {
    struct rank *rank = p->rank;
    char *buffer = filled(p, 1);
    CHECK(done(p, ls_comm_reduce(rank->comm, rank->stream, given(p, buffer), p->count, p->dtype, p->op, p->root)));
    if (is_root(p)) check_reduced(p, buffer);
    if (!is_root(p)) check_values(p, buffer, rank->rank, 0, p->count);
    check_guards(rank, buffer, p->nbytes);
}

/* The send buffer of a gather or all_gather in place: the rank's own part of the receive buffer. */
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
    CHECK(done(p, ls_comm_all_gather(rank->comm, rank->stream, given(p, send), given(p, receive), p->count, p->dtype)));
    check_gathered(p, receive);
    check_values(p, send, rank->rank, 0, p->count);
    if (!p->in_place) check_guards(rank, send, p->nbytes);
}

static void check_gather(const struct problem *p) {
    struct rank *rank = p->rank;
    bool in_place = p->in_place && is_root(p);
    char *receive = in_place ? filled_in_place(p) : guarded_second(rank, p->b, world_of(p) * p->nbytes);
    char *send = in_place ? receive + rank_of(p) * p->nbytes : filled(p, 1);
    CHECK(done(p, ls_comm_gather(rank->comm, rank->stream, given(p, send), given(p, is_root(p) ? receive : NULL),
                                 p->count, p->dtype, p->root)));
    if (is_root(p)) check_gathered(p, receive);
    check_values(p, send, rank->rank, 0, p->count);
    if (!in_place) check_guards(rank, send, p->nbytes);
}

/* Checks that `part` of the send buffer has become the result, if in place, and that the rest is unchanged. */
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
    CHECK(done(p, ls_comm_scatter(rank->comm, rank->stream, given(p, is_root(p) ? send : NULL), given(p, receive),
                                  p->count, p->dtype, p->root)));
    check_values(p, receive, p->root, rank_of(p) * p->count, p->count);
    if (!in_place) check_guards(rank, receive, p->nbytes);
    check_sent_parts(p, send, false); /* in place, the result equals the input */
}

static void check_reduce_scatter(const struct problem *p) {
    struct rank *rank = p->rank;
    char *send = filled(p, world_of(p));
    char *receive = p->in_place ? send + rank_of(p) * p->nbytes : guarded_second(rank, p->b, p->nbytes);
    CHECK(done(p, ls_comm_reduce_scatter(rank->comm, rank->stream, given(p, send), given(p, receive), p->count,
                                         p->dtype, p->op)));
    check_reduced(p, receive);
    if (!p->in_place) check_guards(rank, receive, p->nbytes);
    check_sent_parts(p, send, p->in_place);
}

static void check_barrier(const struct problem *p) {
    struct rank *rank = p->rank;
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
}

static int partner_of(const struct rank *rank) { return (rank->rank ^ 1) < rank->world_size ? rank->rank ^ 1 : -1; }

/* To the right, from the left; odd ranks receive first, so that no two wait for each other. Then both directions at
 * once. */
static void check_ring(const struct problem *p) {
    struct rank *rank = p->rank;
    int world = rank->world_size, right = (rank->rank + 1) % world, left = (rank->rank + world - 1) % world;
    if (world == 1) return;
    char *send = filled(p, 1), *receive = guarded_second(rank, p->b, p->nbytes);
    for (int turn = 0; turn < 2; turn++) {
        if (turn == rank->rank % 2)
            CHECK(done(p, ls_comm_send(rank->comm, rank->stream, given(p, send), p->count, p->dtype, right)));
        else
            CHECK(done(p, ls_comm_recv(rank->comm, rank->stream, given(p, receive), p->count, p->dtype, left)));
    }
    check_values(p, receive, left, 0, p->count);
    check_values(p, send, rank->rank, 0, p->count);
    int partner = partner_of(rank);
    if (partner >= 0) {
        CHECK(done(p, ls_comm_send_recv(rank->comm, rank->stream, given(p, send), given(p, receive), p->count, p->dtype,
                                        partner)));
        check_values(p, receive, partner, 0, p->count);
    }
    check_guards(rank, receive, p->nbytes);
    check_guards(rank, send, p->nbytes);
}

/* --- the traffic of a slice of each: the formulas at the top of collectives.c ------------------------------------- */

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

/* The bytes of rank r's share of n, cut at cache lines. */
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
    bool root_publishes; /* only the root publishes; else all ranks do */
    bool whole;          /* publishes a part for each rank */
    bool for_gpus;       /* in host memory: test_send_recv.c */
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
    {.name = "send and recv", .check = check_ring, .for_gpus = true},
};

static size_t parts_of(const struct operation *operation, int world_size) {
    return operation->whole ? (size_t)world_size : 1;
}

static bool is_carried(const struct rank *rank) { return strcmp(ls_comm_backend(rank->comm), "mpi") == 0; }

/* Columns of one staged slice, or 0 if nothing is staged. */
static size_t staged_columns(const struct operation *operation, const struct problem *p) {
    bool staged = false;
    for (int r = 0; r < p->rank->world_size; r++)
        if (!operation->root_publishes || r == p->root) staged = staged || !is_shared(p->place, r);
    if (p->rank->crew || is_carried(p->rank)) staged = false; /* threads read every buffer directly */
    size_t line = LS_CACHE_LINE_BYTES / ls_dtype_nbytes(p->dtype);
    size_t columns = LS_STAGE_BYTES / parts_of(operation, p->rank->world_size) / ls_dtype_nbytes(p->dtype);
    return staged ? columns / line * line : 0;
}

static void expect_traffic(const struct operation *operation, const struct problem *p, struct ls_comm_traffic *t) {
    t->operations++;
    if (p->count == 0 || p->rank->world_size == 1 || !operation->moved) return;
    bool one_round = parts_of(operation, p->rank->world_size) * p->nbytes <= LS_EAGER_BYTES;
    if (is_carried(p->rank) && operation->moved == reduced_on_root) one_round = true; /* the root receives all of it */
    size_t columns = one_round ? 0 : staged_columns(operation, p);
    if (columns == 0) columns = p->count;
    for (size_t first = 0; first < p->count; first += columns) {
        size_t count = p->count - first < columns ? p->count - first : columns;
        operation->moved(p, t, count * ls_dtype_nbytes(p->dtype), one_round);
    }
}

/* On GPUs operations are counted, but not messages, which NCCL decides. */
static void run_on_gpu(const struct operation *operation, const struct problem *p) {
    struct rank *rank = p->rank;
    struct ls_comm_traffic before, after;
    ls_comm_traffic_read(rank->comm, &before);
    operation->check(p);
    ls_comm_traffic_read(rank->comm, &after);
    uint64_t pairs = rank->world_size == 1 ? 0 : partner_of(rank) >= 0 ? 3 : 2, calls = operation->for_gpus ? pairs : 1;
    CHECK(after.operations - before.operations == calls);
    if (strcmp(ls_comm_backend(rank->comm), "nccl") == 0) CHECK(after.sent_bytes == 0 && after.received_messages == 0);
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

/* Nothing, one, odd, the largest count for one round, one more, several slices (fewer on GPUs, whose work a CPU
 * does). */
enum { COUNTS = 6, GPU_COUNT = OPERATIONS_GPU_COUNT };
static void choose_counts(size_t counts[COUNTS], const struct operation *operation, const struct problem *p) {
    size_t unit = parts_of(operation, p->rank->world_size) * ls_dtype_nbytes(p->dtype);
    size_t limit = LS_EAGER_BYTES / unit, slices = p->b->on_gpu ? GPU_COUNT : 2 * LS_STAGE_BYTES / unit + 5;
    const size_t chosen[COUNTS] = {0, 1, 7, limit, limit + 1, slices};
    memcpy(counts, chosen, sizeof chosen);
}

/* Every operation in place and out of place, with each rank as the root in turn. On GPUs all ranks have the
 * same kind of memory, and each case is either in place or out of place. */
static void run_problems(const struct operation *operation, struct problem *p) {
    bool gpu = p->b->on_gpu;
    for (enum place place = PRIVATE; place < (gpu ? MIXED : PLACE_COUNT); place++)
        for (int in_place = 0; in_place <= operation->can_be_in_place; in_place++) {
            if (gpu && operation->can_be_in_place && in_place != (int)(p->count + place) % 2) continue;
            p->place = place;
            p->in_place = in_place;
            p->root = operation->rooted ? (p->root + 1) % p->rank->world_size : 0;
            (gpu ? run_on_gpu : run_problem)(operation, p);
        }
}

/* Several slices take long, so each number of ranks tests them with another type; on GPUs and over MPI everything takes
 * long, so one of three numbers of ranks tests a type and a reduction with a count. */
static bool is_chosen(const struct operation *operation, const struct problem *p, size_t c) {
    int world_size = p->rank->world_size, dtype = (int)p->dtype, op = (int)p->op;
    bool slow = p->b->on_gpu || is_carried(p->rank);
    if (!operation->reduces && p->op != LS_REDUCE_SUM) return false;
    if (c < COUNTS - 1) return !slow || (dtype + op + (int)c + world_size) % 3 == 0;
    if (dtype != world_size % LS_DTYPE_COUNT) return false;
    return !operation->reduces || op == (world_size + dtype) % LS_REDUCE_OP_COUNT;
}

static void run_operation(struct rank *rank, struct buffers *b, const struct operation *operation) {
    struct problem p = {.rank = rank, .b = b};
    size_t counts[COUNTS];
    for (ls_dtype dtype = LS_FP32; dtype < LS_DTYPE_COUNT; dtype++) {
        p.dtype = dtype;
        choose_counts(counts, operation, &p);
        for (size_t c = 0; c < COUNTS; c++)
            for (p.op = LS_REDUCE_SUM; p.op < LS_REDUCE_OP_COUNT; p.op++) {
                p.count = counts[c];
                p.nbytes = counts[c] * ls_dtype_nbytes(dtype);
                if (!is_chosen(operation, &p, c)) continue;
                size_t first = operation->whole ? rank_of(&p) * p.count : 0;
                if (operation->reduces) fill_reduced(b->expected, dtype, p.op, rank->world_size, first, p.count);
                run_problems(operation, &p);
            }
    }
}

void run_operations(struct rank *rank, struct buffers *b) {
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        if (b->on_gpu || !operations[i].for_gpus) run_operation(rank, b, &operations[i]);
}
