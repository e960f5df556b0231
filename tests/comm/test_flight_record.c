/* Flight records without ranks: files that are read back or refused, first differences, and tables of synthetic
 * jobs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/comm/comm.h"
#include "common/comm/flight.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"

/* --- synthetic records -------------------------------------------------------------------------------------------- */

/* All ranks in one group, with no operations. */
static ls_flight_record *make_record(int world_size, int groups) {
    ls_flight_record *record = ls_flight_create(world_size, 8);
    assert_non_null(record);
    record->group_count = groups;
    record->taken_ms = 10000;
    for (int r = 0; r < world_size; r++) record->ranks[r].looked_ms = 9990;
    record->groups[0] = (ls_flight_group){"group0", 0, 1, world_size};
    snprintf(record->program, sizeof record->program, "made_up");
    snprintf(record->reason, sizeof record->reason, "a \"reason\" with \\ and %%");
    return record;
}

static ls_flight_operation *add(ls_flight_record *record, int rank, ls_operation_kind kind, uint64_t sequence) {
    ls_flight_rank *r = &record->ranks[rank];
    ls_flight_operation *o = &r->operations[r->count++];
    *o = (ls_flight_operation){.number = (uint64_t)r->count,
                               .kind = kind,
                               .sequence = sequence,
                               .count = 10,
                               .root = -1,
                               .label_number = -1,
                               .state = LS_FLIGHT_STARTED,
                               .enqueued_ms = 5000};
    return o;
}

static ls_flight_operation *add_message(ls_flight_record *record, int rank, ls_operation_kind kind, uint64_t number,
                                        int peer) {
    ls_flight_operation *o = add(record, rank, kind, kind == LS_OPERATION_RECV ? 0 : number);
    o->received = kind == LS_OPERATION_SEND ? 0 : number;
    o->root = peer;
    return o;
}

static ls_flight_difference find(const ls_flight_record *record) { return ls_flight_find_difference(record, 0); }

/* --- the first difference ----------------------------------------------------------------------------------------- */

TEST(the_first_of_several_differences_is_found) {
    ls_flight_record *record = make_record(4, 1);
    for (int r = 0; r < 4; r++) {
        for (uint64_t s = 1; s < 9; s++) {
            ls_flight_operation *o = add(record, r, LS_OPERATION_ALL_REDUCE, s);
            if (r == 0 && s >= 5) o->count = 99;
            if (r == 3 && s >= 6) o->kind = LS_OPERATION_BARRIER;
            if (s < 8) o->state = LS_FLIGHT_DONE;
        }
    }
    ls_flight_difference d = find(record);
    assert_int_equal(d.kind, LS_FLIGHT_DIFFERS);
    assert_int_equal(d.expected->sequence, 5);
    assert_int_equal(d.expected->count, 10);
    assert_int_equal(d.found->count, 99);
    for (int r = 0; r < 4; r++) assert_int_equal(d.odd[r], r == 0);
    ls_flight_free(record);
}

/* Each attribute that makes two operations different. */
TEST(every_difference_counts) {
    for (int what = 0; what < 8; what++) {
        ls_flight_record *record = make_record(3, 1);
        for (int r = 0; r < 3; r++) {
            ls_flight_operation *o = add(record, r, LS_OPERATION_REDUCE, 1);
            if (r < 2) continue;
            if (what == 1) o->kind = LS_OPERATION_BROADCAST;
            if (what == 2) o->count++;
            if (what == 3) o->dtype = LS_INT32;
            if (what == 4) o->op = LS_REDUCE_MAX;
            if (what == 5) o->root = 1;
            if (what == 6) o->label[0] = 'x';
            if (what == 7) o->label_number = 4;
        }
        ls_flight_difference d = find(record);
        if ((d.kind == LS_FLIGHT_DIFFERS) != (what > 0) || d.odd[2] != (what > 0)) fail_msg("difference %d", what);
        ls_flight_free(record);
    }
}

/* Rings that reach back to different numbers are compared where they overlap. With two ranks that differ, rank 0's is
 * taken as right. */
TEST(only_what_is_kept_is_compared) {
    ls_flight_record *record = make_record(2, 1);
    for (uint64_t s = 1; s < 4; s++) add(record, 0, LS_OPERATION_ALL_REDUCE, s)->state = LS_FLIGHT_DONE;
    for (uint64_t s = 3; s < 5; s++) add(record, 1, LS_OPERATION_BARRIER, s);
    ls_flight_difference d = find(record);
    assert_int_equal(d.expected->sequence, 3);
    assert_int_equal(d.expected->kind, LS_OPERATION_ALL_REDUCE);
    assert_true(d.odd[1] && !d.odd[0]);
    ls_flight_free(record);
}

TEST(messages_are_matched_by_pair_and_number) {
    ls_flight_record *record = make_record(3, 1);
    add_message(record, 0, LS_OPERATION_SEND, 1, 1)->state = LS_FLIGHT_DONE;
    add_message(record, 1, LS_OPERATION_RECV, 1, 0)->state = LS_FLIGHT_DONE;
    add_message(record, 0, LS_OPERATION_SEND, 1, 2);
    assert_int_equal(find(record).kind, LS_FLIGHT_UNMATCHED);
    assert_true(find(record).odd[2]);
    ls_flight_operation *end = add_message(record, 2, LS_OPERATION_RECV, 1, 0);
    assert_int_equal(find(record).kind, LS_FLIGHT_SAME);
    end->count = 11;
    assert_int_equal(find(record).kind, LS_FLIGHT_DIFFERS);
    end->count = 10;
    end->kind = LS_OPERATION_SEND_RECV;
    end->sequence = 1;
    assert_int_equal(find(record).kind, LS_FLIGHT_DIFFERS);
    ls_flight_free(record);
}

/* Each rank waits for the next one, and the last for rank 3, which does not wait. */
TEST(of_a_chain_of_ranks_its_end_is_found) {
    ls_flight_record *record = make_record(4, 1);
    for (int r = 0; r < 3; r++) add_message(record, r, LS_OPERATION_RECV, 1, r + 1);
    ls_flight_difference d = find(record);
    assert_int_equal(d.kind, LS_FLIGHT_UNMATCHED);
    assert_ptr_equal(d.expected, record->ranks[2].operations);
    for (int r = 0; r < 4; r++) assert_int_equal(d.odd[r], r == 3);
    ls_flight_free(record);
}

TEST(a_message_that_its_rank_has_not_come_to_lacks_nothing) {
    ls_flight_record *record = make_record(4, 1);
    for (int r = 0; r < 3; r++) add(record, r, LS_OPERATION_ALL_REDUCE, 1);
    add_message(record, 0, LS_OPERATION_SEND, 1, 1)->state = LS_FLIGHT_ENQUEUED;
    ls_flight_difference d = find(record);
    assert_int_equal(d.kind, LS_FLIGHT_MISSING);
    assert_true(d.odd[3] && !d.odd[1]);
    ls_flight_free(record);
}

/* Rank 1 has run ahead of its stream; its ring may have dropped the operation that rank 0 waits for. */
TEST(the_other_end_of_a_message_may_be_lost) {
    ls_flight_record *record = make_record(2, 1);
    add_message(record, 0, LS_OPERATION_RECV, 7, 1);
    for (uint64_t n = 8; n < 8 + LS_FLIGHT_KEPT; n++)
        add_message(record, 1, LS_OPERATION_SEND, n, 0)->state = LS_FLIGHT_ENQUEUED;
    assert_int_equal(find(record).kind, LS_FLIGHT_UNKNOWN);
    assert_true(find(record).odd[1]);
    record->ranks[1].operations[0].sequence = 6;
    assert_int_equal(find(record).kind, LS_FLIGHT_UNMATCHED);
    record->ranks[1].operations[0].sequence = 8;
    record->ranks[1].count--;
    assert_int_equal(find(record).kind, LS_FLIGHT_UNMATCHED);
    ls_flight_free(record);
}

/* The others are so far ahead of rank 2 that no ring still has its next operation; later, rank 1's has. */
TEST(what_rings_no_longer_hold_is_not_known) {
    char table[LS_FLIGHT_TABLE];
    ls_flight_record *record = make_record(4, 1);
    for (int r = 0; r < 4; r++)
        for (uint64_t s = 101; r != 2 && s <= 100 + LS_FLIGHT_KEPT; s++)
            add(record, r, LS_OPERATION_ALL_REDUCE, s)->state = LS_FLIGHT_ENQUEUED;
    add(record, 2, LS_OPERATION_ALL_REDUCE, 50)->state = LS_FLIGHT_DONE;
    ls_flight_difference d = find(record);
    assert_int_equal(d.kind, LS_FLIGHT_UNKNOWN);
    for (int r = 0; r < 4; r++) assert_int_equal(d.odd[r], r == 2);
    ls_flight_table(table, record);
    assert_int_equal(
        strncmp(table,
                "rank 2 is behind all that the records of other ranks still hold: where they diverged is not "
                "known\n",
                97),
        0);
    record->ranks[1].count = 0;
    add(record, 1, LS_OPERATION_ALL_REDUCE, 50)->state = LS_FLIGHT_DONE;
    add(record, 1, LS_OPERATION_ALL_REDUCE, 51);
    d = find(record);
    assert_int_equal(d.kind, LS_FLIGHT_MISSING);
    assert_int_equal(d.expected->sequence, 51);
    for (int r = 0; r < 4; r++) assert_int_equal(d.odd[r], r == 2);
    ls_flight_free(record);
}

/* A grid: ranks 0 and 1 wait in group 0, the latter because of group 1, where rank 2 is missing. */
TEST(the_cause_may_lie_in_another_group) {
    char table[LS_FLIGHT_TABLE];
    ls_flight_record *record = make_record(3, 2);
    record->groups[0] = (ls_flight_group){"data0", 0, 1, 2};
    record->groups[1] = (ls_flight_group){"tensor1", 1, 1, 2};
    add(record, 0, LS_OPERATION_ALL_REDUCE, 7);
    add(record, 1, LS_OPERATION_ALL_GATHER, 3)->group = 1;
    ls_flight_operation *o = add(record, 2, LS_OPERATION_ALL_GATHER, 2);
    o->group = 1;
    o->state = LS_FLIGHT_DONE;
    o->done_ms = 6000;
    ls_flight_table(table, record);
    assert_string_equal(table, "rank 2 is missing at #3 all_gather (10 fp32) in tensor1\n"
                               "  rank 0          in         #7 all_reduce (10 fp32, sum) in data0, 5.0 s\n"
                               "  rank 1          in         #3 all_gather (10 fp32) in tensor1, 5.0 s\n"
                               "  rank 2          after      #2 all_gather (10 fp32) in tensor1, 4.0 s\n");
    ls_flight_free(record);
}

/* Rank 1 is in the receive that rank 0's send needs, and has stopped there. */
TEST(a_rank_may_be_late_in_a_message) {
    char table[LS_FLIGHT_TABLE];
    ls_flight_record *record = make_record(3, 1);
    add_message(record, 0, LS_OPERATION_SEND, 1, 1);
    add_message(record, 1, LS_OPERATION_RECV, 1, 0);
    add(record, 2, LS_OPERATION_BARRIER, 1);
    record->ranks[1].late = true;
    assert_string_equal(ls_flight_table(table, record),
                        "rank 1 is missing at #1 send to rank 1 (10 fp32)\n"
                        "  rank 0          in         #1 send to rank 1 (10 fp32), 5.0 s\n"
                        "  rank 1          late in    #1 recv from rank 0 (10 fp32), 5.0 s\n"
                        "  rank 2          in         #1 barrier, 5.0 s\n");
    ls_flight_free(record);
}

/* Small operations have no times: the last one before them has. */
TEST(a_small_operation_has_the_time_of_the_one_before) {
    ls_flight_record *record = make_record(1, 1);
    add(record, 0, LS_OPERATION_ALL_REDUCE, 1)->enqueued_ms = 0;
    assert_int_equal(ls_flight_since_ms(record, 0, ls_flight_last(record, 0)), 0);
    add(record, 0, LS_OPERATION_ALL_REDUCE, 2)->done_ms = 7000;
    add(record, 0, LS_OPERATION_BARRIER, 3)->enqueued_ms = 0;
    assert_int_equal(ls_flight_since_ms(record, 0, ls_flight_last(record, 0)), 7000);
    add(record, 0, LS_OPERATION_ALL_REDUCE, 4)->enqueued_ms = 8000;
    assert_int_equal(ls_flight_since_ms(record, 0, ls_flight_last(record, 0)), 8000);
    ls_flight_free(record);
}

/* Two ends of a message, each in a group that waits for it: the end that no longer polls is the cause. */
TEST(a_rank_that_does_not_look_any_more_is_stuck) {
    char table[LS_FLIGHT_TABLE];
    ls_flight_record *record = make_record(4, 2);
    record->groups[0] = (ls_flight_group){"tensor0", 0, 1, 2};
    record->groups[1] = (ls_flight_group){"tensor2", 2, 1, 2};
    add(record, 0, LS_OPERATION_ALL_REDUCE, 9);
    add_message(record, 1, LS_OPERATION_SEND, 4, 3);
    add(record, 2, LS_OPERATION_ALL_REDUCE, 5)->group = 1;
    add_message(record, 3, LS_OPERATION_RECV, 4, 1);
    record->ranks[3].looked_ms = 6000;
    assert_false(ls_flight_is_stuck(record, 1));
    assert_true(ls_flight_is_stuck(record, 3));
    assert_non_null(
        strstr(ls_flight_table(table, record), "rank 3 is missing at #5 all_reduce (10 fp32, sum) in tensor2\n"));
    assert_non_null(strstr(table, "  rank 3          late in    #4 recv from rank 1 (10 fp32) in tensor0, 5.0 s\n"));
    record->ranks[3].looked_ms = 0; /* never polled: it has just begun, or is busy */
    record->ranks[3].operations[0].started_ms = 9800;
    assert_false(ls_flight_is_stuck(record, 3));
    ls_flight_free(record);
}

/* A rank that has not waited for its NCCL operation does not know that it has ended, but another rank does. */
TEST(what_nccl_has_done_anywhere_is_done) {
    ls_flight_record *record = make_record(2, 1);
    add(record, 0, LS_OPERATION_ALL_REDUCE, 1)->state = LS_FLIGHT_DONE;
    add(record, 0, LS_OPERATION_ALL_REDUCE, 2);
    const ls_flight_operation *unseen = add(record, 1, LS_OPERATION_ALL_REDUCE, 1);
    assert_ptr_equal(ls_flight_pending(record, 1), unseen);
    snprintf(record->backend, sizeof record->backend, "nccl");
    assert_null(ls_flight_pending(record, 1));
    ls_flight_difference d = find(record);
    assert_true(d.kind == LS_FLIGHT_MISSING && d.expected->sequence == 2 && d.odd[1] && !d.odd[0]);
    ls_flight_free(record);
}

/* 64 ranks, each at a different operation, of a job with long names: the table fits on a screen. */
TEST(a_table_fits_on_a_screen) {
    char table[LS_FLIGHT_TABLE];
    ls_flight_record *record = make_record(LS_COMM_MAX_RANKS, 1);
    for (int r = 0; r < LS_COMM_MAX_RANKS; r++) {
        ls_flight_operation *o = add(record, r, LS_OPERATION_SEND_RECV, (uint64_t)r + (UINT64_C(1) << 52));
        o->count = UINT64_C(1) << 53;
        o->label_number = INT32_MAX;
        memset(o->label, 'x', LS_FLIGHT_LABEL - 1);
    }
    ls_flight_table(table, record);
    assert_true(count_text(table, "\n") <= 20);
    assert_true(strstr(table, "ranks 0") || strstr(table, "rank 0"));
    assert_non_null(strstr(table, "other ranks elsewhere; build/flight --last 1 shows each\n"));
    ls_flight_free(record);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static ls_flight_record *make_full_record(void) {
    ls_flight_record *record = make_record(3, 2);
    record->groups[1] = (ls_flight_group){"tensor1", 1, 1, 2};
    record->taken_by = 2;
    record->group = 1;
    snprintf(record->backend, sizeof record->backend, "shm");
    snprintf(record->status, sizeof record->status, "a peer failed");
    for (int k = 0; k < LS_OPERATION_COUNT; k++) {
        ls_flight_operation *o = add(record, k % 3, (ls_operation_kind)k, (uint64_t)k + 1);
        o->state = (ls_flight_state)(k % LS_FLIGHT_STATE_COUNT);
        o->dtype = k % LS_DTYPE_COUNT;
        o->op = k % LS_REDUCE_OP_COUNT;
        o->root = k % 3 - 1;
        o->group = k % 2;
        o->received = (uint64_t)k;
        o->label_number = k - 2;
        o->started_ms = 7 * k;
        o->done_ms = 9 * k;
        snprintf(o->label, sizeof o->label, "label \"%d\"", k);
    }
    for (int r = 0; r < 3; r++) {
        record->ranks[r].pid = 100 + r;
        record->ranks[r].presence = (ls_flight_presence)(r + 1);
        record->ranks[r].late = r == 1;
        record->ranks[r].looked_ms = 77 * r;
    }
    return record;
}

TEST_IN(scratch, what_is_written_is_read) {
    ls_flight_record *record = make_full_record(), *again;
    const char *path = scratch_path("flight.jsonl");
    assert_int_equal(ls_flight_write(record, path), LS_OK);
    assert_int_equal(ls_flight_read(&again, path), LS_OK);
    assert_string_equal(again->program, record->program);
    assert_string_equal(again->backend, record->backend);
    assert_string_equal(again->status, record->status);
    assert_string_equal(again->reason, record->reason);
    assert_int_equal(again->world_size, 3);
    assert_int_equal(again->taken_by, 2);
    assert_int_equal(again->taken_ms, record->taken_ms);
    assert_int_equal(again->group, 1);
    assert_int_equal(again->group_count, 2);
    assert_memory_equal(again->groups, record->groups, 2 * sizeof *again->groups);
    for (int r = 0; r < 3; r++) {
        ls_flight_rank *a = &again->ranks[r], *b = &record->ranks[r];
        assert_true(a->pid == b->pid && a->presence == b->presence && a->late == b->late &&
                    a->looked_ms == b->looked_ms && a->count == b->count);
        assert_memory_equal(a->operations, b->operations, (size_t)a->count * sizeof *a->operations);
    }
    ls_flight_free(again);
    snprintf(record->reason, sizeof record->reason, "\033[31mred\n");
    assert_int_equal(ls_flight_write(record, path), LS_OK);
    assert_int_equal(ls_flight_read(&again, path), LS_OK);
    assert_string_equal(again->reason, "?[31mred?"); /* control characters are replaced */
    ls_flight_free(again);
    ls_flight_free(record);
}

static void expect_refusal(const char *what, const char *text) {
    ls_flight_record *record;
    scratch_write("bad.jsonl", what, strlen(what));
    if (ls_flight_read(&record, scratch_path("bad.jsonl")) != LS_ERR_INVALID || record)
        fail_msg("was taken, not '%s':\n%s", text, what);
    scratch_expect_error("bad.jsonl", text);
}

TEST_IN(scratch, a_file_that_is_cut_is_refused) {
    ls_flight_record *record = make_full_record();
    assert_int_equal(ls_flight_write(record, scratch_path("flight.jsonl")), LS_OK);
    ls_flight_free(record);
    char *text = scratch_read_text("flight.jsonl");
    for (size_t nbytes = 0; nbytes + 1 < strlen(text); nbytes++) {
        char *part = strdup(text);
        part[nbytes] = '\0';
        expect_refusal(part, NULL);
        free(part);
    }
    free(text);
}

/* Replaces one part of the text, which must occur, by another. */
static void expect_refusal_with(const char *part, const char *other, const char *error) {
    char *text = scratch_read_text("flight.jsonl"), *at = strstr(text, part);
    char *changed = malloc(strlen(text) + strlen(other) + 1);
    assert_true(at && changed);
    sprintf(changed, "%.*s%s%s", (int)(at - text), text, other, at + strlen(part));
    expect_refusal(changed, error);
    free(changed);
    free(text);
}

TEST_IN(scratch, a_damaged_file_is_refused) {
    ls_flight_record *record = make_full_record();
    assert_int_equal(ls_flight_write(record, scratch_path("flight.jsonl")), LS_OK);
    ls_flight_free(record);
    expect_refusal_with("\"version\":1", "\"version\":2", "has version 2; this program reads version 1");
    expect_refusal_with("\"line\":\"record\"", "\"line\":\"group\"", "expected a flight record");
    expect_refusal_with("\"world_size\":3", "\"world_size\":65", "bad.jsonl:1");
    expect_refusal_with("\"world_size\":3", "\"world_size\":4", "is truncated");
    expect_refusal_with("\"group\":1,\"status\"", "\"group\":2,\"status\"", "is truncated");
    expect_refusal_with("\"presence\":\"left\"", "\"presence\":\"gone\"", "\"gone\" is not a presence");
    expect_refusal_with("\"rank\":1,\"pid\"", "\"rank\":2,\"pid\"", "found rank 2, expected rank 1");
    expect_refusal_with("\"kind\":\"reduce\"", "\"kind\":\"reduces\"", "\"reduces\" is not a kind");
    expect_refusal_with("\"root\":1", "\"root\":3", "bad.jsonl:");
    expect_refusal_with("\"group\":1,\"number\":1", "\"group\":2,\"number\":1", "bad.jsonl:");
    expect_refusal_with("\"number\":2", "\"number\":0", "bad.jsonl:");
    expect_refusal_with("\"line\":\"operation\"", "\"line\":\"operations\"", "cannot have a line \"operations\"");
    expect_refusal("{\"tasks\":[]}\n", "line");
    expect_refusal("not JSON\n", "bad.jsonl:1");
    expect_refusal("", "empty");
}

int main(void) { return run_added_tests(); }
