/* Process groups whose ranks have GPUs: every operation, type, reduction and root, staged and by NCCL, for ranks that
 * are processes and ranks that are threads, on small whole numbers, whose sums are exact whatever the order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/test.h"
#include "tests/comm/values.h"
#include "tests/cuda/gpu_ranks.h"

#define TIMEOUT_S 20.0
#define MAX_WORLD 4
#define GUARD_NBYTES 72 /* around every buffer; buffers are then not aligned to cache lines */
#define GUARD 0xa5

static const size_t counts[] = {0, 1, 5, 700, 40001};
#define MAX_COUNT 40001

enum kind { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, GATHER, SCATTER, RING, BARRIER, KINDS };

struct trial {
    enum kind kind;
    ls_dtype dtype;
    ls_reduce_op op;
    int root;
    size_t count;
    bool in_place; /* of operations with two buffers */
};

/* --- what should come out ----------------------------------------------------------------------------------------- */

static double input(int rank, size_t i) { return (double)((i * 7 + (size_t)rank * 3) % 23); }

static double reduced(const struct trial *t, int world, size_t i) {
    double value = input(0, i);
    for (int r = 1; r < world; r++) {
        double next = input(r, i);
        if (t->op == LS_REDUCE_SUM) value += next;
        if (t->op == LS_REDUCE_MIN && next < value) value = next;
        if (t->op == LS_REDUCE_MAX && next > value) value = next;
    }
    return value;
}

/* Element i of a rank's result; what it had before where the operation leaves that alone. */
static double expected(const struct trial *t, const struct rank *rank, size_t i) {
    int world = rank->world_size, self = rank->rank;
    switch (t->kind) {
    case ALL_REDUCE: return reduced(t, world, i);
    case BROADCAST: return input(t->root, i);
    case REDUCE: return self == t->root ? reduced(t, world, i) : input(self, i);
    case ALL_GATHER:
    case GATHER: return input((int)(i / t->count), i % t->count);
    case REDUCE_SCATTER: return reduced(t, world, (size_t)self * t->count + i);
    case SCATTER: return input(t->root, (size_t)self * t->count + i);
    default: return input((self + world - 1) % world, i);
    }
}

/* --- buffers with guards ------------------------------------------------------------------------------------------ */

struct arena {
    const struct rank *rank;
    char *host, *gpu[2]; /* gpu[0]: for what is sent, or for both; [1]: for what is received */
    size_t nbytes;
};

static char *begin_of(char *memory) { return memory + GUARD_NBYTES; }

/* A buffer of the rank's numbers from `first` on, guards around it. */
static void *fill(const struct arena *a, int which, const struct trial *t, size_t count) {
    size_t nbytes = count * ls_dtype_nbytes(t->dtype);
    memset(a->host, GUARD, nbytes + 2 * GUARD_NBYTES);
    for (size_t i = 0; i < count; i++) value_set(begin_of(a->host), t->dtype, i, input(a->rank->rank, i));
    const struct rank *rank = a->rank;
    CHECK(ls_copy_now(rank->stream, a->gpu[which], a->host, nbytes + 2 * GUARD_NBYTES) == LS_OK);
    return begin_of(a->gpu[which]);
}

/* Compares `count` elements from `first` on of a buffer that was filled with `filled` of them. */
static void check(const struct arena *a, int which, const struct trial *t, size_t first, size_t count, size_t filled) {
    const struct rank *rank = a->rank;
    size_t nbytes = filled * ls_dtype_nbytes(t->dtype);
    gpu_rank_download(rank, a->host, a->gpu[which], nbytes + 2 * GUARD_NBYTES);
    for (size_t i = 0; i < GUARD_NBYTES; i++) {
        CHECK((unsigned char)a->host[i] == GUARD);
        CHECK((unsigned char)begin_of(a->host)[nbytes + i] == GUARD);
    }
    for (size_t i = 0; i < count; i++) {
        double value = value_get(begin_of(a->host), t->dtype, first + i);
        if (value == expected(t, rank, i)) continue;
        fprintf(stderr, "kind %d %s %d root %d count %zu: element %zu is %g, not %g\n", (int)t->kind,
                ls_dtype_name(t->dtype), (int)t->op, t->root, t->count, i, value, expected(t, rank, i));
        CHECK(value == expected(t, rank, i));
    }
}

/* --- the operations ----------------------------------------------------------------------------------------------- */

static void run_in_one_buffer(const struct arena *a, const struct trial *t) {
    const struct rank *rank = a->rank;
    void *buffer = fill(a, 0, t, t->count);
    ls_status status = LS_ERR_INVALID;
    if (t->kind == ALL_REDUCE) status = ls_comm_all_reduce(rank->comm, rank->stream, buffer, t->count, t->dtype, t->op);
    if (t->kind == BROADCAST) status = ls_comm_broadcast(rank->comm, rank->stream, buffer, t->count, t->dtype, t->root);
    if (t->kind == REDUCE)
        status = ls_comm_reduce(rank->comm, rank->stream, buffer, t->count, t->dtype, t->op, t->root);
    CHECK(status == LS_OK);
    check(a, 0, t, 0, t->count, t->count);
}

/* Each rank has one part, and one of the buffers holds the parts of all. */
static void run_in_parts(const struct arena *a, const struct trial *t) {
    const struct rank *rank = a->rank;
    bool gathers = t->kind == ALL_GATHER || t->kind == GATHER, self_has_all = true;
    if (t->kind == GATHER || t->kind == SCATTER) self_has_all = rank->rank == t->root;
    bool in_place = t->in_place && self_has_all;
    size_t whole = t->count * (size_t)rank->world_size, part_nbytes = t->count * ls_dtype_nbytes(t->dtype);
    int all = gathers ? 1 : 0, part = 1 - all;
    char *parts = fill(a, all, t, whole), *own = parts + (size_t)rank->rank * part_nbytes;
    if (in_place && gathers) { /* the part lies where the others' will be put beside it */
        fill(a, part, t, t->count);
        CHECK(ls_copy_now(rank->stream, own, begin_of(a->gpu[part]), part_nbytes) == LS_OK);
    } else if (!in_place) {
        own = fill(a, part, t, t->count);
    }
    void *nothing = NULL, *sent = gathers ? own : parts, *received = gathers ? parts : own;
    ls_status status = LS_ERR_INVALID;
    if (t->kind == ALL_GATHER)
        status = ls_comm_all_gather(rank->comm, rank->stream, sent, received, t->count, t->dtype);
    if (t->kind == REDUCE_SCATTER)
        status = ls_comm_reduce_scatter(rank->comm, rank->stream, sent, received, t->count, t->dtype, t->op);
    if (t->kind == GATHER)
        status = ls_comm_gather(rank->comm, rank->stream, sent, self_has_all ? received : nothing, t->count, t->dtype,
                                t->root);
    if (t->kind == SCATTER)
        status = ls_comm_scatter(rank->comm, rank->stream, self_has_all ? sent : nothing, received, t->count, t->dtype,
                                 t->root);
    CHECK(status == LS_OK);
    if (gathers) {
        if (self_has_all) check(a, all, t, 0, whole, whole);
    } else if (in_place) {
        check(a, all, t, (size_t)rank->rank * t->count, t->count, whole);
    } else {
        check(a, part, t, 0, t->count, t->count);
    }
}

/* To the right, from the left; odd ranks receive first, so that no two wait for one another. */
static void run_ring(const struct arena *a, const struct trial *t) {
    const struct rank *rank = a->rank;
    int world = rank->world_size, right = (rank->rank + 1) % world, left = (rank->rank + world - 1) % world;
    if (world == 1) return;
    void *sent = fill(a, 0, t, t->count), *received = fill(a, 1, t, t->count);
    for (int turn = 0; turn < 2; turn++) {
        bool sends = turn == rank->rank % 2;
        if (sends) CHECK(ls_comm_send(rank->comm, rank->stream, sent, t->count, t->dtype, right) == LS_OK);
        if (!sends) CHECK(ls_comm_recv(rank->comm, rank->stream, received, t->count, t->dtype, left) == LS_OK);
    }
    check(a, 1, t, 0, t->count, t->count);
}

static void run_trial(const struct arena *a, const struct trial *t) {
    const struct rank *rank = a->rank;
    if (t->kind <= REDUCE) {
        run_in_one_buffer(a, t);
    } else if (t->kind <= SCATTER) {
        run_in_parts(a, t);
    } else if (t->kind == RING) {
        run_ring(a, t);
    } else {
        CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    }
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

static bool has_reduction(enum kind kind) { return kind == ALL_REDUCE || kind == REDUCE || kind == REDUCE_SCATTER; }
static bool has_root(enum kind kind) {
    return kind == BROADCAST || kind == REDUCE || kind == GATHER || kind == SCATTER;
}

/* Types, reductions and roots take turns, so that every pair of kind and type, and of kind and reduction or root, is
 * there, but not every combination at every count. */
static uint64_t run_kind(const struct arena *a, enum kind kind, size_t turn) {
    uint64_t operations = 0;
    for (int dtype = 0; dtype < LS_DTYPE_COUNT; dtype++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++, turn++) {
            struct trial t = {.kind = kind, .dtype = (ls_dtype)dtype, .count = counts[c], .in_place = turn % 2};
            if (has_root(kind)) t.root = (int)(turn % (size_t)a->rank->world_size);
            int reductions = has_reduction(kind) ? LS_REDUCE_OP_COUNT : 1;
            if (counts[c] > 10000 && (dtype + (int)kind) % 3) continue; /* large ones cost time */
            for (int op = 0; op < reductions; op++, operations += kind == RING ? 2 : 1) {
                t.op = (ls_reduce_op)op;
                run_trial(a, &t);
            }
            if (kind == RING && a->rank->world_size == 1) operations -= 2;
            if (kind == BARRIER) return operations;
        }
    }
    return operations;
}

static void operations_body(struct rank *rank) {
    const struct gpu_path *path = rank->argument;
    ls_comm_traffic before, after;
    gpu_rank_attach(rank, path, "direct", TIMEOUT_S);
    struct arena a = {.rank = rank, .nbytes = (size_t)MAX_COUNT * MAX_WORLD * 8 + 2 * GUARD_NBYTES};
    a.host = malloc(a.nbytes);
    CHECK(a.host != NULL);
    /* what is sent lies in the group's memory, what is received in the rank's own; at the next turn the other way round
     */
    void *shared, *own = gpu_rank_upload(rank, NULL, a.nbytes);
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, a.nbytes, &shared) == LS_OK);
    for (size_t turn = 0; turn < 2; turn++) {
        a.gpu[turn] = shared;
        a.gpu[1 - turn] = own;
        ls_comm_traffic_read(rank->comm, &before);
        uint64_t operations = 0;
        for (int kind = 0; kind < KINDS; kind++) operations += run_kind(&a, (enum kind)kind, turn);
        ls_comm_traffic_read(rank->comm, &after);
        CHECK(after.operations - before.operations == operations);
        if (path->path == LS_COMM_NCCL) CHECK(after.sent_bytes == 0 && after.received_messages == 0);
    }
    free(a.host);
    ls_device_free(rank->device, own);
    rank_close(rank);
    CHECK(rank->message[0] == '\0');
}

static void on_all_paths(void (*body)(struct rank *rank), int from_world, int to_world) {
    for (const struct gpu_path *path = gpu_paths; path->name; path++)
        for (int world = from_world; world <= to_world; world++) run_good_ranks_on(path->backend, world, body, path);
}

static void every_operation_is_exact(NO_STATE) { on_all_paths(operations_body, 1, MAX_WORLD); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
