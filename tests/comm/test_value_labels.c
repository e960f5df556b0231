/* Labels of values: which labels each operation accepts, which it gives its result, on which axes, and which values are
 * compared bit by bit. */
#include <string.h>

#include "common/comm/values.h"
#include "tests/base/test.h"
#include "tests/comm/ranks.h"

enum { RANKS = 2, COUNT = 4, TIMEOUT_S = 20 };

struct place {
    struct rank *rank;
    float own[RANKS * COUNT], other[RANKS * COUNT];
};

static ls_status sum(struct place *p) {
    return ls_comm_all_reduce(p->rank->comm, p->rank->stream, p->own, COUNT, LS_FP32, LS_REDUCE_SUM);
}
static ls_status largest(struct place *p) {
    return ls_comm_all_reduce(p->rank->comm, p->rank->stream, p->own, COUNT, LS_FP32, LS_REDUCE_MAX);
}
static ls_status scatter(struct place *p) {
    return ls_comm_reduce_scatter(p->rank->comm, p->rank->stream, p->own, p->other, COUNT, LS_FP32, LS_REDUCE_SUM);
}
static ls_status gather(struct place *p) {
    return ls_comm_all_gather(p->rank->comm, p->rank->stream, p->own, p->other, COUNT, LS_FP32);
}
static ls_status broadcast(struct place *p) {
    return ls_comm_broadcast(p->rank->comm, p->rank->stream, p->own, COUNT, LS_FP32, 0);
}

/* docs/failures.md has the same table. */
static const struct row {
    ls_status (*run)(struct place *p);
    bool takes[LS_SPLIT + 1]; /* replicated, varying, partial, split */
    ls_value after;
    bool elsewhere; /* the output lies in other memory */
} rows[] = {
    {sum, {false, false, true, false}, LS_REPLICATED, false},
    {largest, {true, true, false, false}, LS_REPLICATED, false},
    {scatter, {false, false, true, false}, LS_SPLIT, true},
    {gather, {false, true, false, true}, LS_REPLICATED, true},
    {broadcast, {true, true, false, false}, LS_REPLICATED, false},
};

/* The group is the tensor axis, or the data axis. */
static void begin(struct rank *rank, ls_mesh_axis axis) {
    int sizes[LS_MESH_AXES] = {1, 1, 1};
    ls_comm *groups[LS_MESH_AXES] = {NULL};
    sizes[axis] = RANKS;
    groups[axis] = rank->comm;
    CHECK(ls_values_begin(sizes, groups) == LS_OK);
}

static void takes_rank(struct rank *rank) {
    CHECK(rank_open(rank, "inline", "direct", TIMEOUT_S) == LS_OK);
    begin(rank, LS_MESH_TENSOR);
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        for (int label = 0; label <= LS_SPLIT; label++) {
            struct place p = {.rank = rank};
            const struct row *row = &rows[i];
            ls_values_enter();
            ls_values_at("forward", 3);
            ls_values_set(p.own, sizeof p.own, ls_labels_of((ls_value)label, LS_PARTIAL), false, "the value");
            ls_status status = row->run(&p);
            CHECK(status == (row->takes[label] ? LS_OK : LS_ERR_INVALID));
            if (status == LS_OK) {
                const struct ls_labels *after = ls_values_find(row->elsewhere ? p.other : p.own);
                CHECK(after && after->on[LS_MESH_TENSOR] == row->after);
                CHECK(after->on[LS_MESH_DATA] == LS_PARTIAL); /* an axis that the group does not span */
            }
            CHECK(ls_values_leave(rank->device, LS_OK) == LS_OK);
            CHECK(!ls_values_on());
        }
    CHECK(strstr(rank->message, "the value, tensor axis, block 3, forward: found replicated, but all_reduce in group "
                                "direct needs partial"));
    ls_values_end();
    rank_close(rank);
}

TEST(each_operation_takes_its_labels) { run_good_ranks(RANKS, takes_rank, NULL); }

/* All values in the range of an operation are checked, and keep their names when they move. */
static void ranges_rank(struct rank *rank) {
    CHECK(rank_open(rank, "inline", "direct", TIMEOUT_S) == LS_OK);
    begin(rank, LS_MESH_DATA);
    struct place p = {.rank = rank};
    ls_values_enter();
    ls_values_at("backward", 0);
    const struct ls_labels partial = ls_labels_of(LS_REPLICATED, LS_PARTIAL);
    ls_values_set(p.own, 2 * sizeof *p.own, partial, true, "first");
    ls_values_set(p.own + 2, 2 * sizeof *p.own, ls_labels_of(LS_REPLICATED, LS_VARYING), true, "second");
    CHECK(sum(&p) == LS_ERR_INVALID && strstr(rank->message, "second, data axis, block 0, backward: found varying"));
    ls_values_set(p.other, 2 * sizeof *p.other, partial, true, "second");
    ls_values_set(p.own, 2 * sizeof *p.own, partial, true, "first");
    CHECK(sum(&p) == LS_OK); /* second has moved */
    CHECK(ls_values_named("first")->on[LS_MESH_DATA] == LS_REPLICATED);
    CHECK(ls_values_named("second")->on[LS_MESH_DATA] == LS_PARTIAL);
    CHECK(scatter(&(struct place){.rank = rank}) == LS_OK); /* memory without a label */
    CHECK(ls_values_leave(rank->device, LS_OK) == LS_OK);
    ls_values_end();
    rank_close(rank);
}

TEST(operations_see_all_values_in_their_range) { run_good_ranks(RANKS, ranges_rank, NULL); }

static void bits_rank(struct rank *rank) {
    CHECK(rank_open(rank, "inline", "direct", TIMEOUT_S) == LS_OK);
    begin(rank, LS_MESH_DATA);
    float own[COUNT] = {1, 2, 3, 4}, mine = (float)rank->rank;
    ls_values_enter();
    ls_values_set(&mine, sizeof mine, ls_labels_of(LS_REPLICATED, LS_VARYING), true, "its own");
    ls_values_set(own, sizeof own, ls_labels_of(LS_REPLICATED, LS_REPLICATED), true, rank->rank ? "b" : "a");
    CHECK(ls_values_leave(rank->device, LS_OK) == LS_OK); /* no other rank has it */
    ls_values_enter();
    ls_values_set(own, sizeof own, ls_labels_of(LS_REPLICATED, LS_REPLICATED), true, "the weight");
    CHECK(ls_values_leave(rank->device, LS_OK) == LS_OK);
    if (rank->rank == 1) own[2] = 0x1.800002p+1f;
    ls_values_enter();
    CHECK(ls_values_leave(rank->device, LS_OK) == LS_ERR_INVALID);
    CHECK(strstr(rank->message, "the weight, data axis, after the update: expected replicated, but rank 1 has other "
                                "bits than rank 0"));
    ls_values_end();
    rank_close(rank);
}

TEST(what_is_replicated_is_compared_in_bits) { run_good_ranks(RANKS, bits_rank, NULL); }

/* Without a table, labels are switched off. */
TEST(without_a_table_there_are_no_labels) {
    ls_values_enter();
    assert_false(ls_values_on());
    assert_int_equal(ls_values_leave(NULL, LS_ERR_PEER), LS_ERR_PEER);
    ls_values_end();
}
