#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/trace/happens_before.h"
#include "tests/trace/small_trace.h"

static ls_trace *empty_trace(void) {
    ls_trace *trace;
    assert_int_equal(ls_trace_create(&trace), LS_OK);
    return trace;
}

/* Seals, and expects this error. */
static void expect_refused(ls_trace *trace, const char *text, const char *another) {
    assert_int_equal(ls_trace_seal(trace), LS_ERR_INVALID);
    scratch_expect_error(text, another);
    ls_trace_destroy(trace);
}

static void expect_list(const int *list, int count, int expected_count, const int *expected) {
    assert_int_equal(count, expected_count);
    for (int i = 0; i < count; i++) assert_int_equal(list[i], expected[i]);
}

TEST_IN(scratch, test_texts_are_kept_once) {
    ls_trace *trace = empty_trace();
    char text[64], first[64];
    const char *kept[1000];
    for (int i = 0; i < 1000; i++) { /* more than a block, and than the initial tables */
        snprintf(text, sizeof text, "a text of some length %d", i);
        kept[i] = ls_trace_text(trace, text);
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(first, sizeof first, "a text of some length %d", i);
        assert_string_equal(kept[i], first);
        assert_ptr_equal(ls_trace_text(trace, first), kept[i]);
    }
    assert_string_equal(ls_trace_text(trace, NULL), "");
    assert_string_equal(ls_trace_text(trace, ""), "");
    ls_trace_destroy(trace);
}

TEST_IN(scratch, test_lists_and_counts) {
    ls_trace *trace = small_trace(false);
    assert_int_equal(ls_trace_seal(trace), LS_OK);
    int count;
    assert_int_equal(ls_trace_lane_count(trace), 8);
    assert_int_equal(ls_trace_task_count(trace), 10);
    assert_int_equal(ls_trace_mark_count(trace), 4);
    assert_int_equal(ls_trace_parameter_count(trace), 2);
    assert_int_equal(ls_trace_meeting_count(trace), 1);
    assert_int_equal(ls_trace_meeting(trace, 0)->tasks, 2);
    assert_string_equal(ls_trace_meeting(trace, 0)->dtype, "fp32");
    const int *list = ls_trace_before(trace, 6, &count);
    expect_list(list, count, 3, (int[]){7, 7, 5});
    list = ls_trace_after(trace, 6, &count);
    expect_list(list, count, 1, (int[]){8});
    (void)ls_trace_before(trace, 0, &count);
    assert_int_equal(count, 0);
    list = ls_trace_lane_tasks(trace, 4, &count);
    expect_list(list, count, 2, (int[]){5, 9});
    list = ls_trace_meeting_tasks(trace, 0, &count);
    expect_list(list, count, 2, (int[]){3, 8});
    assert_string_equal(ls_trace_task(trace, 1)->name, "gemm");
    assert_ptr_equal(ls_trace_task(trace, 1)->name, ls_trace_task(trace, 6)->name);
    ls_trace_destroy(trace);
}

TEST_IN(scratch, test_an_empty_trace_can_be_sealed) {
    ls_trace *trace = empty_trace();
    assert_int_equal(ls_trace_seal(trace), LS_OK);
    assert_int_equal(ls_trace_task_count(trace), 0);
    ls_trace_destroy(trace);
}

TEST_IN(scratch, test_meetings_are_found_by_group_and_number) {
    ls_trace *trace = empty_trace();
    struct ls_meeting meeting = {.operation = "all_reduce", .ranks = 2};
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 500; i++) {
            meeting.group = i % 2 ? "odd" : "even";
            meeting.number = i / 2;
            assert_int_equal(ls_trace_join_meeting(trace, &meeting), (int)i);
        }
    }
    assert_int_equal(ls_trace_meeting_count(trace), 500);
    assert_int_equal(ls_trace_meeting(trace, 77)->tasks, 2);
    ls_trace_destroy(trace);
}

TEST_IN(scratch, test_what_happens_before_what) {
    ls_trace *trace = small_trace(false);
    assert_int_equal(ls_trace_seal(trace), LS_OK);
    enum { LAUNCH, GEMM, COPY, REDUCE, WAIT, OTHER_LAUNCH, OTHER_GEMM, OTHER_COPY, OTHER_REDUCE, OTHER_WAIT };
    assert_true(happens_before(trace, LAUNCH, GEMM));       /* an edge */
    assert_true(happens_before(trace, LAUNCH, WAIT));       /* the lane */
    assert_true(happens_before(trace, COPY, WAIT));         /* three edges */
    assert_true(happens_before(trace, GEMM, OTHER_REDUCE)); /* a meeting begins when all have arrived */
    assert_true(happens_before(trace, COPY, OTHER_WAIT));
    assert_false(happens_before(trace, GEMM, LAUNCH));
    assert_false(happens_before(trace, GEMM, GEMM));
    assert_false(happens_before(trace, LAUNCH, COPY));
    assert_false(happens_before(trace, GEMM, OTHER_GEMM));
    assert_false(happens_before(trace, REDUCE, OTHER_REDUCE)); /* they are one meeting */
    assert_false(happens_before(trace, WAIT, OTHER_WAIT));
    assert_true(happens_before(trace, LAUNCH, OTHER_WAIT)); /* after all of them, no task is left */
    ls_trace_destroy(trace);
}

/* A chain over many lanes, compared with its construction. */
TEST_IN(scratch, test_before_in_a_large_trace) {
    enum { LANES = 16, TASKS = 200000 };
    ls_trace *trace = empty_trace();
    for (int i = 0; i < LANES; i++) small_lane(trace, LS_LANE_COMPUTE, 0, i);
    for (int i = 0; i < TASKS; i++) small_task(trace, LS_TASK_KERNEL, "gemm", i % LANES);
    for (int i = LANES; i < TASKS; i += LANES) ls_trace_add_edge(trace, i - LANES + 3, i + 5); /* lane 3 to lane 5 */
    assert_int_equal(ls_trace_seal(trace), LS_OK);
    for (int i = 0; i < 60; i++) {
        int lane = i % LANES, row = i * 37, other = (i * 7) % LANES, later = row + i % 5 - 1;
        if (later < 0) continue;
        bool expected = lane == other ? later > row : lane == 3 && other == 5 && later > row;
        assert_int_equal(happens_before(trace, row * LANES + lane, later * LANES + other), expected);
    }
    ls_trace_destroy(trace);
}

TEST_IN(scratch, test_cycles_are_refused_with_two_names) {
    ls_trace *trace = small_trace(false);
    ls_trace_add_edge(trace, 4, 1); /* gemm waits for a task that waits for its all-reduce */
    expect_refused(trace, "waits for task 1 (\"gemm\" on \"compute\"), which waits for it", "all_reduce");
    trace = empty_trace();
    small_lane(trace, LS_LANE_HOST, 0, 0);
    int first = small_task(trace, LS_TASK_HOST, "first", 0), second = small_task(trace, LS_TASK_HOST, "second", 0);
    ls_trace_add_edge(trace, second, first); /* against the lane's order */
    expect_refused(trace, "\"first\"", "\"second\"");
    trace = empty_trace();
    small_lane(trace, LS_LANE_COMM, 0, 0);
    small_lane(trace, LS_LANE_COMM, 1, 1);
    small_collective(trace, 0, 1, 2);
    small_collective(trace, 0, 2, 2);
    small_collective(trace, 1, 2, 2); /* the other rank has them in reverse order */
    small_collective(trace, 1, 1, 2);
    expect_refused(trace, "all_reduce", "which waits for it");
}

/* A cycle late in the trace, with many tasks before and after it. */
TEST_IN(scratch, test_a_cycle_is_named_and_not_what_waits_for_it) {
    ls_trace *trace = empty_trace();
    for (int i = 0; i < 5; i++) small_lane(trace, LS_LANE_COMPUTE, 0, i);
    for (int i = 0; i < 1000; i++) small_task(trace, LS_TASK_KERNEL, i == 0 ? "waits" : "innocent", i < 500 ? 0 : 1);
    int a = small_task(trace, LS_TASK_KERNEL, "guilty a", 2), b = small_task(trace, LS_TASK_KERNEL, "guilty b", 3);
    int c = small_task(trace, LS_TASK_KERNEL, "guilty c", 4);
    ls_trace_add_edge(trace, 600, a);
    ls_trace_add_edge(trace, a, b);
    ls_trace_add_edge(trace, b, c);
    ls_trace_add_edge(trace, c, a);
    ls_trace_add_edge(trace, c, 0);
    assert_int_equal(ls_trace_seal(trace), LS_ERR_INVALID);
    scratch_expect_error("(\"guilty ", ") waits for task");
    ls_trace_destroy(trace);
}

TEST_IN(scratch, test_what_does_not_exist_is_refused) {
    ls_trace *trace = small_trace(false);
    ls_trace_add_edge(trace, 10, 1);
    expect_refused(trace, "task 1 waits for task 10", "there are only 10");
    trace = small_trace(false);
    ls_trace_add_edge(trace, 1, -1);
    expect_refused(trace, "task -1 waits", NULL);
    trace = small_trace(false);
    ls_trace_add_edge(trace, 3, 3);
    expect_refused(trace, "waits for itself", "all_reduce");
    trace = small_trace(false);
    small_task(trace, LS_TASK_KERNEL, "nowhere", 8);
    expect_refused(trace, "nowhere", "lane 8");
    trace = small_trace(false);
    small_task(trace, LS_TASK_COLLECTIVE, "alone", 0);
    expect_refused(trace, "alone", "meeting -1");
    trace = small_trace(false);
    small_collective(trace, 0, 5, 2);
    expect_refused(trace, "2 ranks and 3 tasks", NULL);
    trace = small_trace(false);
    ls_trace_add_mark(trace, &(struct ls_mark){.name = "astray", .lane = 0, .after = 1, .at_us = NAN});
    expect_refused(trace, "astray", "task 1");
    trace = small_trace(false);
    ls_trace_add_lane(trace, &(struct ls_lane){"odd", LS_LANE_COUNT, 0, 0});
    expect_refused(trace, "lane 8", NULL);
}

TEST_IN(scratch, test_absurd_tasks_are_refused) {
    static const struct {
        double us, fixed_bytes;
        int from, to, lock;
        ls_task_kind kind;
    } rows[] = {{NAN, 0, 0, 0, LS_NONE, LS_TASK_COPY},   {INFINITY, 0, 0, 0, LS_NONE, LS_TASK_COPY},
                {1, -1, 0, 0, LS_NONE, LS_TASK_COPY},    {1, NAN, 0, 0, LS_NONE, LS_TASK_COPY},
                {1, 0, -2, 0, LS_NONE, LS_TASK_COPY},    {1, 0, 0, -2, LS_NONE, LS_TASK_COPY},
                {1, 0, 0, 0, 0, LS_TASK_KERNEL},         {1, 0, 0, 0, -2, LS_TASK_HOST},
                {1, 0, 0, 0, LS_NONE, (ls_task_kind)-1}, {1, 0, 0, 0, LS_NONE, LS_TASK_COUNT}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_trace *trace = small_trace(false);
        struct ls_task task = ls_task_default(rows[i].kind, "absurd", 0);
        task.us = rows[i].us;
        task.fixed_bytes = rows[i].fixed_bytes;
        task.from = rows[i].from;
        task.to = rows[i].to;
        task.lock = rows[i].lock;
        ls_trace_add_task(trace, &task);
        expect_refused(trace, "task 10 (\"absurd\")", NULL);
    }
}
