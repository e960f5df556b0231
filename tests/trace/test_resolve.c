#include <math.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/trace/happens_before.h"
#include "tests/trace/records.h"

static const struct ls_task *task_of(const ls_trace *trace, const char *name) {
    return ls_trace_task(trace, records_task(trace, name, 0));
}

static void expect_near(double value, double expected) { assert_true(fabs(value - expected) < 1e-9); }

/* A worker runs the tasks that a host launches, while the host continues. */
TEST_IN(scratch, test_a_launch_is_a_task_of_the_host_and_one_of_the_stream) {
    struct records threads[2] = {{.thread.name = "rank 3"}, {.thread.name = "worker"}};
    records_add(&threads[0], LS_PROBE_LAUNCH, "gemm", 12, 1, 100, 102)->phase = "forward";
    threads[0].records[0].flops = 77;
    records_add(&threads[0], LS_PROBE_LAUNCH, "relu", 12, 2, 107, 108);
    records_add(&threads[1], LS_PROBE_RUN, "gemm", 12, 1, 103, 113);
    records_add(&threads[1], LS_PROBE_RUN, "relu", 12, 2, 114, 116);
    ls_trace *trace = records_resolve(threads, 2, false);
    assert_int_equal(ls_trace_lane_count(trace), 2); /* the worker only ran a stream */
    const struct ls_lane *host = ls_trace_lane(trace, 0), *stream = ls_trace_lane(trace, 1);
    assert_string_equal(host->name, "rank 3");
    assert_int_equal(host->rank, 3);
    assert_int_equal(host->device, 40 + 1);
    assert_int_equal(stream->kind, LS_LANE_COMM);
    int launch = records_task(trace, "launch relu", 0), run = records_task(trace, "relu", 0);
    records_expect_edge(trace, launch, run);
    expect_near(ls_trace_task(trace, launch)->us, 6); /* includes its work since the last launch */
    expect_near(ls_trace_task(trace, launch)->start_us, 102);
    expect_near(ls_trace_task(trace, launch)->end_us, 108);
    assert_int_equal(records_edge_count(trace, launch), 0);
    const struct ls_task *gemm = task_of(trace, "gemm");
    assert_string_equal(gemm->phase, "forward");
    assert_int_equal(gemm->step, 4);
    assert_int_equal(gemm->flops, 77);
    expect_near(gemm->us, 10);
    expect_near(gemm->launched_us, 100);
    expect_near(gemm->start_us, 103);
    ls_trace_destroy(trace);
}

TEST_IN(scratch, test_lanes_do_not_depend_on_who_wrote_first) {
    for (int first = 0; first < 2; first++) {
        struct records threads[3] = {{.thread.name = "loader"}, {.thread.name = ""}, {.thread.name = ""}};
        struct records *one = &threads[1 + first], *other = &threads[2 - first];
        one->thread.name = "replica 1";
        other->thread.name = "replica 2";
        records_add(&threads[0], LS_PROBE_RAISE, "batch", 5, 1, 100, 101);
        records_add(one, LS_PROBE_LAUNCH, "gemm", 10, 1, 100, 102);
        records_add(other, LS_PROBE_LAUNCH, "gemm", 20, 1, 100, 103);
        ls_trace *trace = records_resolve(threads, 3, false);
        const char *const names[] = {"replica 1", "replica 2", "loader", "compute", "compute"};
        assert_int_equal(ls_trace_lane_count(trace), 5);
        for (int l = 0; l < 5; l++) assert_string_equal(ls_trace_lane(trace, l)->name, names[l]);
        ls_trace_destroy(trace);
    }
}

/* The host runs the task itself: its own time is the time before and after it. */
TEST_IN(scratch, test_inline_work_is_not_the_hosts_time) {
    struct records host = {0};
    records_inline(&host, "gemm", 10, 1, 100, 101, 150, 152);
    records_inline(&host, "relu", 10, 2, 160, 161, 165, 165.5);
    ls_trace *trace = records_resolve(&host, 1, false);
    expect_near(task_of(trace, "launch gemm")->us, 1);
    expect_near(task_of(trace, "launch relu")->us, 11); /* from 150 to 161 */
    expect_near(task_of(trace, "relu")->us, 4);
    records_expect_edge(trace, records_task(trace, "launch gemm", 0), records_task(trace, "gemm", 0));
    records_expect_edge(trace, records_task(trace, "gemm", 0), records_task(trace, "launch relu", 0));
    assert_true(happens_before(trace, records_task(trace, "gemm", 0), records_task(trace, "relu", 0)));
    ls_trace_destroy(trace);
    trace = records_resolve(&host, 1, true);
    expect_near(task_of(trace, "launch relu")->us, 1.1);
    expect_near(task_of(trace, "relu")->us, 0.4);
    assert_true(task_of(trace, "relu")->virtual_time && task_of(trace, "launch relu")->virtual_time);
    ls_trace_destroy(trace);
}

/* Records that are no tasks count, too: each belongs to one task of the host. */
TEST_IN(scratch, test_a_task_of_the_host_knows_its_records) {
    struct records host = {0};
    records_inline(&host, "gemm", 10, 1, 100, 101, 150, 152); /* a LAUNCH and a RUN */
    records_event(&host, LS_PROBE_RECORD, 10, 500, 1, 153, 153);
    records_add(&host, LS_PROBE_MARK, "gradient ready", 10, 1, 154, 154);
    records_inline(&host, "relu", 10, 2, 1000160, 1000161, 1000165, 1000165.5);
    ls_probe_start(false);
    ls_probe_stop();
    ls_trace *trace = records_resolve(&host, 1, false);
    double each_us = ls_probe_record_us();
    assert_true(task_of(trace, "launch gemm")->probes_us == fmin(1, 2 * each_us)); /* at most the task's own time */
    assert_true(task_of(trace, "launch relu")->probes_us == 4 * each_us);
    assert_true(task_of(trace, "relu")->probes_us == 0);
    ls_trace_destroy(trace);
    ls_probe_drop();
}

/* Two streams of one device, without times, as on a GPU. */
TEST_IN(scratch, test_events_order_streams) {
    struct records host = {0};
    records_event(&host, LS_PROBE_WAIT, 10, 500, 8, 0, 1);   /* recorded before the probes began */
    records_event(&host, LS_PROBE_RECORD, 12, 500, 1, 1, 2); /* the stream has no work yet */
    records_event(&host, LS_PROBE_WAIT, 10, 500, 1, 2, 3);
    records_add(&host, LS_PROBE_LAUNCH, "gemm", 10, 1, 3, 4);
    records_event(&host, LS_PROBE_RECORD, 10, 600, 1, 4, 5);
    records_add(&host, LS_PROBE_LAUNCH, "relu", 10, 2, 5, 6);
    records_event(&host, LS_PROBE_WAIT, 12, 600, 1, 6, 7);
    records_event(&host, LS_PROBE_RECORD, 12, 700, 1, 7, 8); /* stands for the tasks that the stream waits for */
    records_event(&host, LS_PROBE_WAIT, 11, 700, 1, 8, 9);
    records_add(&host, LS_PROBE_LAUNCH, "copy", 11, 1, 9, 10);
    records_add(&host, LS_PROBE_LAUNCH, "reduce", 12, 1, 10, 11);
    records_add(&host, LS_PROBE_LAUNCH, "again", 12, 2, 11, 12);
    ls_trace *trace = records_resolve(&host, 1, false);
    int gemm = records_task(trace, "gemm", 0), copy = records_task(trace, "copy", 0);
    int reduce = records_task(trace, "reduce", 0), again = records_task(trace, "again", 0);
    assert_int_equal(records_edge_count(trace, gemm), 1); /* its launch */
    records_expect_edge(trace, gemm, copy);
    records_expect_edge(trace, gemm, reduce);
    assert_int_equal(records_edge_count(trace, reduce), 2);
    assert_int_equal(records_edge_count(trace, again), 1); /* an edge to the next task only: later ones follow */
    assert_false(happens_before(trace, records_task(trace, "relu", 0), reduce));
    assert_true(happens_before(trace, gemm, again));
    assert_true(ls_trace_task(trace, gemm)->us < 0 && isnan(ls_trace_task(trace, gemm)->start_us));
    assert_int_equal(records_edge_count(trace, records_task(trace, "launch copy", 0)), 0); /* the host does not wait */
    expect_near(task_of(trace, "launch gemm")->us, 4); /* the time of event calls counts for the next task */
    ls_trace_destroy(trace);
}

/* A wait is for the ticket that it names, also if another thread waits. */
TEST_IN(scratch, test_a_wait_is_for_the_ticket_it_names) {
    struct records threads[2] = {{.thread.name = "a"}, {.thread.name = "b"}};
    records_add(&threads[0], LS_PROBE_LAUNCH, "first", 10, 1, 0, 1);
    records_event(&threads[0], LS_PROBE_RECORD, 10, 500, 1, 1, 2);
    records_add(&threads[0], LS_PROBE_LAUNCH, "second", 10, 2, 2, 3);
    records_event(&threads[0], LS_PROBE_RECORD, 10, 500, 2, 3, 4);
    records_event(&threads[1], LS_PROBE_WAIT, 20, 500, 1, 5, 6);
    records_add(&threads[1], LS_PROBE_LAUNCH, "after first", 20, 1, 6, 7);
    records_event(&threads[1], LS_PROBE_WAIT, 20, 500, 2, 7, 8);
    records_add(&threads[1], LS_PROBE_LAUNCH, "after second", 20, 2, 8, 9);
    for (uint32_t i = 0; i < 3; i++) /* of several tasks of a stream the last is enough, in any order of the waits */
        records_event(&threads[1], LS_PROBE_WAIT, 30, 500, i == 1 ? 2 : 1, 10 + i, 11 + i);
    records_add(&threads[1], LS_PROBE_LAUNCH, "after both", 30, 1, 14, 15);
    ls_trace *trace = records_resolve(threads, 2, false);
    records_expect_edge(trace, records_task(trace, "first", 0), records_task(trace, "after first", 0));
    records_expect_edge(trace, records_task(trace, "second", 0), records_task(trace, "after second", 0));
    records_expect_edge(trace, records_task(trace, "second", 0), records_task(trace, "after both", 0));
    assert_int_equal(records_edge_count(trace, records_task(trace, "after both", 0)), 2);
    assert_false(happens_before(trace, records_task(trace, "second", 0), records_task(trace, "after first", 0)));
    ls_trace_destroy(trace);
}

/* A wait of a stream that its host runs also delays the host. */
TEST_IN(scratch, test_a_wait_of_an_inline_stream_is_the_hosts) {
    struct records threads[2] = {{.thread.name = "host"}, {.thread.name = "worker"}};
    records_add(&threads[0], LS_PROBE_LAUNCH, "copy", 11, 1, 0, 1);
    records_event(&threads[0], LS_PROBE_RECORD, 11, 500, 1, 1, 2);
    records_event(&threads[0], LS_PROBE_WAIT, 10, 500, 1, 4, 50);
    records_inline(&threads[0], "gemm", 10, 1, 51, 52, 60, 61);
    records_add(&threads[1], LS_PROBE_RUN, "copy", 11, 1, 1, 48);
    ls_trace *trace = records_resolve(threads, 2, false);
    int launch = records_task(trace, "launch gemm", 0), copy = records_task(trace, "copy", 0);
    records_expect_edge(trace, copy, launch);
    records_expect_edge(trace, copy, records_task(trace, "gemm", 0));
    expect_near(ls_trace_task(trace, launch)->us, 3 + 2 + 2); /* 1 to 4, waking up until 50, 50 to 52 */
    ls_trace_destroy(trace);
}

TEST_IN(scratch, test_a_host_waits_for_streams_and_events) {
    struct records threads[2] = {{.thread.name = "host"}, {.thread.name = "worker"}};
    records_add(&threads[0], LS_PROBE_LAUNCH, "gemm", 10, 1, 0, 1);
    records_event(&threads[0], LS_PROBE_RECORD, 10, 500, 1, 1, 2);
    records_add(&threads[0], LS_PROBE_LAUNCH, "relu", 10, 2, 2, 3);
    records_event(&threads[0], LS_PROBE_SYNC_EVENT, 0, 500, 1, 5, 22);
    records_add(&threads[0], LS_PROBE_SYNC_STREAM, "stream", 10, 2, 30, 31);
    records_add(&threads[1], LS_PROBE_RUN, "gemm", 10, 1, 2, 20);
    records_add(&threads[1], LS_PROBE_RUN, "relu", 10, 2, 20, 24);
    ls_trace *trace = records_resolve(threads, 2, false);
    int event = records_task(trace, "wait for event", 0), stream = records_task(trace, "wait for stream", 0);
    records_expect_edge(trace, records_task(trace, "gemm", 0), event);
    records_expect_edge(trace, records_task(trace, "relu", 0), stream);
    expect_near(ls_trace_task(trace, event)->us, 2);                              /* waking up */
    expect_near(ls_trace_task(trace, records_task(trace, "host", 0))->us, 5 - 3); /* the time before it is a task */
    expect_near(ls_trace_task(trace, records_task(trace, "host", 1))->us, 30 - 22);
    expect_near(ls_trace_task(trace, stream)->us, 1); /* the wait had nothing left to do: the call itself */
    ls_trace_destroy(trace);
    trace = records_resolve(threads, 2, true);
    expect_near(task_of(trace, "wait for event")->us, 1.7); /* at most the CPU time of the whole wait */
    expect_near(ls_trace_task(trace, records_task(trace, "host", 1))->us, 0.8);
    ls_trace_destroy(trace);
}

TEST_IN(scratch, test_a_flag_that_is_raised_lets_others_go) {
    struct records threads[3] = {{.thread.name = "main"}, {.thread.name = "first"}, {.thread.name = "second"}};
    records_add(&threads[0], LS_PROBE_RAISE, "start", 900, 7, 10, 10);
    records_add(&threads[0], LS_PROBE_AWAIT, "done", 901, 3, 12, 60);
    records_add(&threads[1], LS_PROBE_AWAIT, "start", 900, 7, 2, 9.5); /* ended before the raiser read the clock */
    records_add(&threads[1], LS_PROBE_RAISE, "done", 901, 2, 50, 50);
    records_add(&threads[1], LS_PROBE_RAISE, "done", 901, 5, 55, 55); /* 3 is reached with 5 */
    records_add(&threads[1], LS_PROBE_RAISE, "done", 901, 6, 56, 56);
    records_add(&threads[2], LS_PROBE_AWAIT, "start", 900, 6, 2,
                3); /* 6 was reached before the probes began, or with 7 */
    records_add(&threads[2], LS_PROBE_AWAIT, "nobody", 902, 1, 4, 8);
    ls_trace *trace = records_resolve(threads, 3, false);
    int start = records_task(trace, "raise start", 0), done = records_task(trace, "raise done", 1);
    int waited = records_task(trace, "wait for start", 1), finished = records_task(trace, "wait for done", 0);
    records_expect_edge(trace, start, waited);
    records_expect_edge(trace, done, finished);
    assert_int_equal(records_edge_count(trace, finished), 1);
    expect_near(ls_trace_task(trace, finished)->us, 5);
    expect_near(ls_trace_task(trace, waited)->us, 0);
    expect_near(ls_trace_task(trace, done)->us, 5);                                          /* from 50 on */
    expect_near(ls_trace_task(trace, records_task(trace, "wait for nobody", 0))->us, 8 - 4); /* an unknown flag */
    ls_trace_destroy(trace);
}

TEST_IN(scratch, test_a_lock_is_held_by_one_after_another) {
    struct records threads[2] = {{.thread.name = "a"}, {.thread.name = "b"}};
    records_add(&threads[0], LS_PROBE_LOCK, "gil", 800, 0, 0, 1);
    records_add(&threads[0], LS_PROBE_LAUNCH, "gemm", 10, 1, 2, 5);
    records_add(&threads[0], LS_PROBE_UNLOCK, "gil", 800, 0, 6, 6);
    records_add(&threads[0], LS_PROBE_LAUNCH, "free", 10, 2, 7, 8);
    records_add(&threads[1], LS_PROBE_LOCK, "gil", 800, 0, 3, 7);
    records_add(&threads[1], LS_PROBE_UNLOCK, "gil", 800, 0, 9, 9);
    ls_trace *trace = records_resolve(threads, 2, false);
    records_expect_edge(trace, records_task(trace, "unlock gil", 0), records_task(trace, "lock gil", 1));
    expect_near(ls_trace_task(trace, records_task(trace, "lock gil", 1))->us, 1);
    assert_int_equal(task_of(trace, "lock gil")->lock, LS_NONE);
    assert_int_equal(task_of(trace, "launch gemm")->lock, 0);
    assert_int_equal(task_of(trace, "unlock gil")->lock, 0);
    assert_int_equal(task_of(trace, "launch free")->lock, LS_NONE);
    ls_trace_destroy(trace);
    trace = records_resolve(threads, 2, true); /* on too few cores the order of the turns is accidental */
    assert_int_equal(records_edge_count(trace, records_task(trace, "lock gil", 1)), 0);
    assert_int_equal(ls_trace_task(trace, records_task(trace, "unlock gil", 1))->lock, 0);
    ls_trace_destroy(trace);
}

/* Two replicas in one process reduce together; the second arrived last. */
TEST_IN(scratch, test_a_meeting_makes_a_collective) {
    struct records threads[2] = {{.thread.name = "a"}, {.thread.name = "b"}};
    for (int t = 0; t < 2; t++) {
        struct ls_probe_record *meeting = records_add(&threads[t], LS_PROBE_MEETING, "all_reduce", 0xabc, 9, 20, 20);
        meeting->bytes = 4096;
        meeting->elements = 1024;
        meeting->peers = 2;
        meeting->detail = "ring";
        records_inline(&threads[t], "reduce bucket", t == 0 ? 2 : 12, 1, 5 + t, 6 + t, 28 + t, 30);
    }
    ls_trace *trace = records_resolve(threads, 2, false);
    assert_int_equal(ls_trace_meeting_count(trace), 1);
    const struct ls_meeting *meeting = ls_trace_meeting(trace, 0);
    assert_int_equal(meeting->tasks, 2);
    assert_string_equal(meeting->operation, "all_reduce");
    assert_string_equal(meeting->algorithm, "ring");
    const struct ls_task *task = ls_trace_task(trace, records_task(trace, "reduce bucket", 1));
    assert_int_equal(task->kind, LS_TASK_COLLECTIVE);
    assert_int_equal(task->bytes, 4096);
    expect_near(task->us, 9); /* from the meeting on; waiting for the other replica is not work */
    expect_near(task->start_us, 7);
    ls_trace_destroy(trace);
    threads[1].records[0].peers = 3;
    records_refused(threads, 2, "of 3 to another");
}

/* If nothing is computed a RUN takes no time, and is recorded after its meeting. */
TEST_IN(scratch, test_meta_devices_leave_times_open) {
    struct records host = {0};
    records_add(&host, LS_PROBE_MEETING, "all_reduce", 0xabc, 9, 20, 20)->peers = 8;
    records_add(&host, LS_PROBE_RUN, "all_reduce", 12, 1, 21, 21);
    records_add(&host, LS_PROBE_LAUNCH, "all_reduce", 12, 1, 19, 22);
    ls_trace *trace = records_resolve(&host, 1, false);
    const struct ls_task *task = task_of(trace, "all_reduce");
    assert_int_equal(task->kind, LS_TASK_COLLECTIVE);
    assert_true(task->us < 0 && isnan(task->start_us) && isnan(task->end_us));
    ls_trace_destroy(trace);
}

TEST_IN(scratch, test_copies_say_where_from_and_where_to) {
    struct records host = {0};
    struct ls_probe_record *launch = records_add(&host, LS_PROBE_LAUNCH, "copy", 11, 1, 0, 1);
    launch->from = -1;
    launch->to = 1;
    launch->bytes = 100;
    launch = records_add(&host, LS_PROBE_LAUNCH, "copy", 10, 1, 1, 2); /* on any stream */
    launch->from = 1;
    launch->to = 0;
    ls_trace *trace = records_resolve(&host, 1, false);
    const struct ls_task *first = ls_trace_task(trace, records_task(trace, "copy", 0));
    const struct ls_task *second = ls_trace_task(trace, records_task(trace, "copy", 1));
    assert_int_equal(first->kind, LS_TASK_COPY);
    assert_int_equal(first->from, LS_HOST_MEMORY);
    assert_int_equal(first->to, 41);
    assert_int_equal(first->bytes, 100);
    assert_int_equal(second->from, 41);
    assert_int_equal(second->to, 40);
    ls_trace_destroy(trace);
}

TEST_IN(scratch, test_marks_lie_on_their_stream_or_thread) {
    struct records host = {0};
    records_add(&host, LS_PROBE_MARK, "early", 0, 1, 0, 0);
    records_inline(&host, "gemm", 10, 1, 1, 2, 3, 4);
    records_add(&host, LS_PROBE_MARK, "gradient ready", 10, 5, 5, 5);
    records_add(&host, LS_PROBE_MARK, "step", 0, 6, 6, 6);
    ls_trace *trace = records_resolve(&host, 1, false);
    assert_int_equal(ls_trace_mark_count(trace), 3);
    assert_int_equal(ls_trace_mark(trace, 0)->after, LS_NONE);
    assert_int_equal(ls_trace_mark(trace, 1)->after, records_task(trace, "gemm", 0));
    assert_int_equal(ls_trace_mark(trace, 1)->number, 5);
    assert_int_equal(ls_trace_mark(trace, 2)->after, records_task(trace, "launch gemm", 0));
    expect_near(ls_trace_mark(trace, 2)->at_us, 6);
    ls_trace_destroy(trace);
}

/* A worker's RUN contains the records of its task: a flag that the task raised is raised by the stream. The time in
 * which a thread ran tasks of streams is not its own. */
TEST_IN(scratch, test_what_lies_within_a_run_is_the_streams) {
    struct records threads[2] = {{.thread.name = "host"}, {.thread.name = "worker"}};
    records_add(&threads[0], LS_PROBE_LAUNCH, "task", 10, 1, 0, 1);
    records_add(&threads[0], LS_PROBE_AWAIT, "flag", 900, 1, 2, 30);
    records_add(&threads[1], LS_PROBE_LOCK, "inner", 800, 0, 11, 12);
    records_add(&threads[1], LS_PROBE_RAISE, "flag", 900, 1, 25, 25);
    records_add(&threads[1], LS_PROBE_RUN, "task", 10, 1, 10, 26);
    ls_trace *trace = records_resolve(threads, 2, false);
    assert_int_equal(ls_trace_lane_count(trace), 2);
    records_expect_edge(trace, records_task(trace, "task", 0), records_task(trace, "wait for flag", 0));
    ls_trace_destroy(trace);
    struct records lone = {0}; /* shuffled streams: a host runs tasks that are due while it waits */
    records_add(&lone, LS_PROBE_LAUNCH, "a", 10, 1, 0, 1);
    records_add(&lone, LS_PROBE_LAUNCH, "b", 12, 1, 1, 2);
    records_add(&lone, LS_PROBE_RUN, "a", 10, 1, 4, 9);
    records_add(&lone, LS_PROBE_RUN, "b", 12, 1, 9, 19);
    records_add(&lone, LS_PROBE_SYNC_STREAM, "stream", 10, 1, 3, 20);
    trace = records_resolve(&lone, 1, false);
    expect_near(task_of(trace, "host")->us, 1);
    expect_near(task_of(trace, "wait for stream")->us, 2);
    ls_trace_destroy(trace);
}

/* A GPU's RUNs are written later, by the thread that read its clock: they contain no records. */
TEST_IN(scratch, test_runs_that_are_written_later_hold_nothing) {
    struct records host = {0};
    records_add(&host, LS_PROBE_LAUNCH, "a", 10, 1, 0, 1);
    records_add(&host, LS_PROBE_LAUNCH, "b", 10, 2, 2, 3);
    records_add(&host, LS_PROBE_SYNC_STREAM, "stream", 10, 2, 4, 30);
    records_add(&host, LS_PROBE_RUN, "a", 10, 1, 1, 10);
    records_add(&host, LS_PROBE_RUN, "b", 10, 2, 2, 28);
    ls_trace *trace = records_resolve(&host, 1, false);
    expect_near(task_of(trace, "launch b")->us, 2);
    expect_near(task_of(trace, "wait for stream")->us, 2);
    expect_near(task_of(trace, "b")->us, 26);
    ls_trace_destroy(trace);
}

TEST_IN(scratch, test_nothing_at_all) {
    struct records host = {0};
    ls_trace *trace = records_resolve(&host, 1, false);
    assert_int_equal(ls_trace_task_count(trace), 0);
    assert_int_equal(ls_trace_lane_count(trace), 0);
    ls_trace_destroy(trace);
}
