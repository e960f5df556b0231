/* The order of tasks in replayed steps, whatever their times: the edges of dp_step.c and ddp_step.c. */
#include <string.h>

#include "labs/replay/engine/plan.h"
#include "tests/base/test.h"
#include "tests/replay/planned.h"

enum { LAYERS = 3, DEVICES = 3 };
static const struct planned_layer layers[LAYERS] = {{10, 20, 1008}, {10, 20, 1008}, {10, 20, 1008}};

static void begin(struct planned *b, ls_plan_mode mode) {
    planned_begin(b, mode, DEVICES, 12, 1);
    planned_network(b, layers, LAYERS, 5, 5);
    b->workload.input_bytes = b->workload.output_bytes = b->workload.answer_bytes = 8;
}

/* The n-th kernel of a phase on a device. */
static int kernel(const struct planned *b, int device, int step, const char *phase, int n) {
    int task = planned_find(b, device, LS_LANE_COMPUTE, step, phase, NULL, n);
    assert_true(task >= 0);
    return task;
}

/* The n-th copy of a phase that a device's copy stream makes. */
static int copy(const struct planned *b, int device, int step, const char *phase, int n) {
    int task = planned_find(b, device, LS_LANE_COPY, step, phase, "copy", n);
    assert_true(task >= 0);
    return task;
}

/* --- DataParallel ------------------------------------------------------------------------------------------------ */

TEST(dp_goes_through_device_0_and_back) {
    struct planned b;
    begin(&b, LS_PLAN_DP);
    planned_make(&b);
    int s = 1, loss = kernel(&b, 0, s, "loss", 0), sum = kernel(&b, 0, s, "reduce", 0);
    int update = kernel(&b, 0, s, "optimizer", 0), batch = copy(&b, 0, s, "input", 0);
    for (int i = 0; i < DEVICES; i++) {
        int forward = kernel(&b, i, s, "forward", 0), gather = copy(&b, i, s, "gather", 0);
        int backward = kernel(&b, i, s, "backward", 0), last = kernel(&b, i, s, "backward", LAYERS - 1);
        assert_true(planned_before(&b, batch, forward));
        assert_true(planned_before(&b, kernel(&b, i, s, "forward", LAYERS - 1), gather));
        assert_true(planned_before(&b, gather, loss));
        assert_true(planned_before(&b, loss, backward));
        assert_true(planned_before(&b, last, sum));
        assert_true(planned_before(&b, kernel(&b, 0, s - 1, "optimizer", 0), forward));
        if (i == 0) continue;
        assert_true(planned_before(&b, batch, copy(&b, i, s, "scatter", 0)));
        assert_true(planned_before(&b, copy(&b, i, s, "scatter", 0), forward));
        assert_true(planned_before(&b, kernel(&b, 0, s - 1, "optimizer", 0), copy(&b, i, s, "replicate", 0)));
        assert_true(planned_before(&b, copy(&b, i, s, "replicate", 0), forward));
        assert_true(planned_before(&b, loss, copy(&b, i, s, "scatter", 1)));
        assert_true(planned_before(&b, copy(&b, i, s, "scatter", 1), backward));
        assert_true(planned_before(&b, last, copy(&b, i, s, "reduce", 0)));
        assert_true(planned_before(&b, copy(&b, i, s, "reduce", 0), sum));
    }
    assert_true(planned_before(&b, sum, update));
    planned_end(&b);
}

TEST(dp_replicas_run_side_by_side) {
    struct planned b;
    begin(&b, LS_PLAN_DP);
    ls_node_change_host(b.node)->runs_compute = true;
    planned_make(&b);
    for (int i = 0; i < DEVICES; i++) {
        for (int j = 0; j < DEVICES; j++) {
            if (i == j) continue;
            assert_false(planned_before(&b, kernel(&b, i, 1, "forward", 0), kernel(&b, j, 1, "forward", LAYERS - 1)));
            assert_false(planned_before(&b, kernel(&b, i, 1, "backward", 0), kernel(&b, j, 1, "backward", LAYERS - 1)));
        }
    }
    /* a copy of parameters and the batch's next piece do not wait for each other, except on the same stream */
    assert_false(planned_before(&b, copy(&b, 1, 1, "replicate", 0), copy(&b, 2, 1, "scatter", 0)));
    planned_end(&b);
}

TEST(dp_threads_begin_when_they_are_told_and_are_waited_for) {
    struct planned b;
    begin(&b, LS_PLAN_DP);
    planned_make(&b);
    int launch_loss = planned_find(&b, 0, LS_LANE_HOST, 1, "loss", "launch loss", 0);
    for (int i = 1; i < DEVICES; i++) {
        int told = planned_find(&b, i, LS_LANE_HOST, 1, NULL, "wait for replica starts", 0);
        int back = planned_find(&b, i, LS_LANE_HOST, 1, NULL, "raise replica done", 0);
        int told_again = planned_find(&b, i, LS_LANE_HOST, 1, NULL, "wait for replica starts", 1);
        assert_int_equal(planned_count(&b, i, LS_LANE_HOST, 1, NULL, "wait for replica starts"),
                         2); /* dp_on_replicas */
        assert_true(planned_before(&b, planned_find(&b, 0, LS_LANE_HOST, 1, "input", NULL, 0), told));
        assert_true(planned_before(&b, back, launch_loss));
        assert_true(planned_before(&b, launch_loss, told_again));
        assert_false(planned_before(&b, kernel(&b, 0, 1, "loss", 0), told_again)); /* the host is ahead of its device */
    }
    planned_end(&b);
}

TEST(dp_by_collectives_copies_no_parameters) {
    struct planned b;
    begin(&b, LS_PLAN_DP);
    b.options.replicate_by_collectives = true;
    planned_run(&b);
    int step = 2, sum = planned_find(&b, 0, LS_LANE_COMM, step, "reduce", "reduce", 0);
    assert_int_equal(ls_trace_meeting_count(b.trace), 2 * 4);
    assert_int_equal(planned_count(&b, 0, LS_LANE_COMPUTE, step, "reduce", NULL), 0); /* summed in transit */
    for (int i = 0; i < DEVICES; i++) {
        int broadcast = planned_find(&b, i, LS_LANE_COMM, step, "replicate", "broadcast", 0);
        assert_true(planned_before(&b, kernel(&b, 0, step - 1, "optimizer", 0), broadcast));
        if (i > 0) assert_true(planned_before(&b, broadcast, kernel(&b, i, step, "forward", 0)));
        assert_true(planned_before(&b, kernel(&b, i, step, "backward", LAYERS - 1), sum));
        assert_int_equal(planned_count(&b, i, LS_LANE_COPY, step, "replicate", NULL), 0);
        assert_int_equal(planned_count(&b, i, LS_LANE_COPY, step, "reduce", NULL), 0);
    }
    assert_true(planned_before(&b, sum, kernel(&b, 0, step, "optimizer", 0)));
    for (int m = 0; m < ls_trace_meeting_count(b.trace); m++) {
        assert_int_equal(ls_trace_meeting(b.trace, m)->tasks, DEVICES);
        assert_true(ls_trace_meeting(b.trace, m)->bytes == 3 * 4032);
    }
    planned_end(&b);
}

/* --- the host ---------------------------------------------------------------------------------------------------- */

/* With two places for batches the host is a step ahead of its device, and no more. */
TEST(hosts_run_ahead_as_far_as_there_are_places) {
    static const ls_plan_mode modes[] = {LS_PLAN_DP, LS_PLAN_DDP};
    for (size_t m = 0; m < 2; m++) {
        struct planned b;
        begin(&b, modes[m]);
        planned_make(&b);
        int step_2 = planned_find(&b, 0, LS_LANE_HOST, 2, "loader", NULL, 0);
        int step_3 = planned_find(&b, 0, LS_LANE_HOST, 3, "loader", NULL, 0);
        int backward = kernel(&b, 0, 0, "backward", LAYERS - 1), next = kernel(&b, 0, 1, "backward", LAYERS - 1);
        assert_false(planned_before(&b, backward, step_2)); /* there are places for two batches */
        assert_true(planned_before(&b, backward, step_3));  /* the third waits for the first's */
        assert_false(planned_before(&b, next, step_3));
        b.options.batch_places = 1; /* the next batch overwrites this one */
        planned_make(&b);
        backward = kernel(&b, 0, 0, "backward", LAYERS - 1);
        assert_true(planned_before(&b, backward, copy(&b, 0, 1, "input", 0)));
        assert_false(planned_before(&b, kernel(&b, 0, 0, "optimizer", 0), copy(&b, 0, 1, "input", 0)));
        ls_node_change_host(b.node)->runs_compute = true;
        planned_make(&b);
        step_2 = planned_find(&b, 0, LS_LANE_HOST, 2, "loader", NULL, 0);
        assert_true(planned_before(&b, kernel(&b, 0, 1, "optimizer", 0), step_2));
        planned_end(&b);
    }
}

TEST(a_launch_comes_before_what_it_launches) {
    struct planned b;
    begin(&b, LS_PLAN_DDP);
    planned_make(&b);
    int launches = 0;
    for (int t = 0; t < ls_trace_task_count(b.trace); t++) {
        int count;
        const int *before = ls_trace_before(b.trace, t, &count);
        const struct ls_task *task = ls_trace_task(b.trace, t);
        if (task->kind == LS_TASK_HOST) continue;
        int from_host = 0;
        for (int i = 0; i < count; i++) from_host += ls_trace_task(b.trace, before[i])->kind == LS_TASK_HOST;
        assert_int_equal(from_host, 1);
        launches++;
    }
    assert_int_equal(launches,
                     4 * DEVICES * (2 + 2 * LAYERS + 2 + 1 + 1)); /* two copies; dividing and reducing a bucket */
    planned_end(&b);
}

/* --- DistributedDataParallel ------------------------------------------------------------------------------------- */

TEST(ddp_reduces_buckets_while_backward_goes_on) {
    struct planned b;
    begin(&b, LS_PLAN_DDP);
    b.options.first_bucket_bytes = b.options.bucket_bytes = 1;
    for (int overlap = 0; overlap < 2; overlap++) {
        b.options.overlap = overlap;
        planned_make(&b);
        int first = planned_find(&b, 1, LS_LANE_COMM, 1, "all-reduce", "all_reduce", 0);
        int last = kernel(&b, 1, 1, "backward", 2 * LAYERS - 2); /* layers and their divisions in turn */
        assert_string_equal(ls_trace_task(b.trace, last)->name, "layer");
        assert_true(planned_before(&b, last, first) == !overlap);
        int launch = planned_find(&b, 1, LS_LANE_HOST, 1, "all-reduce", "launch all_reduce", 0);
        int launch_last = planned_find(&b, 1, LS_LANE_HOST, 1, "backward", "launch layer", LAYERS - 1);
        assert_true(planned_before(&b, launch_last, launch) == !overlap);
        for (int r = 0; r < DEVICES; r++) {
            for (int other = 0; other < DEVICES; other++) {
                int update = kernel(&b, r, 1, "optimizer", 0);
                assert_true(planned_before(&b, kernel(&b, other, 1, "backward", 2 * LAYERS - 2), update));
                assert_true(planned_before(&b, planned_find(&b, other, LS_LANE_COMM, 1, NULL, "all_reduce", LAYERS - 1),
                                           update));
            }
        }
    }
    planned_end(&b);
}

TEST(ddp_divides_each_gradient_where_the_host_computes) {
    struct planned b;
    begin(&b, LS_PLAN_DDP);
    planned_make(&b);
    assert_int_equal(planned_count(&b, 0, LS_LANE_COMPUTE, 1, "backward", "divide"), 1); /* its one bucket */
    ls_node_change_host(b.node)->runs_compute = true;
    planned_make(&b);
    assert_int_equal(planned_count(&b, 0, LS_LANE_COMPUTE, 1, "backward", "divide"), LAYERS);
    b.options.gradient_element_bytes = 2; /* in fp16 gradients are divided */
    planned_make(&b);
    assert_int_equal(planned_count(&b, 0, LS_LANE_COMPUTE, 1, "backward", "divide"), 0);
    int cast = planned_find(&b, 0, LS_LANE_COMM, 1, "all-reduce", "cast_divide", 0);
    int reduced = planned_find(&b, 0, LS_LANE_COMM, 1, "all-reduce", "all_reduce", 0);
    int back = planned_find(&b, 0, LS_LANE_COMM, 1, "all-reduce", "cast", 0);
    assert_true(planned_before(&b, cast, reduced) && planned_before(&b, reduced, back));
    assert_true(planned_before(&b, back, kernel(&b, 0, 1, "optimizer", 0)));
    assert_true(ls_trace_task(b.trace, reduced)->bytes == 2 * 3 * 1008);
    planned_end(&b);
}

TEST(ddp_broadcasts_buffers_before_forward) {
    struct planned b;
    begin(&b, LS_PLAN_DDP);
    planned_make(&b);
    assert_int_equal(planned_count(&b, 0, LS_LANE_COMM, 1, "broadcast", NULL), 0);
    b.workload.buffer_bytes = 128;
    planned_make(&b);
    for (int r = 0; r < DEVICES; r++) {
        int broadcast = planned_find(&b, r, LS_LANE_COMM, 1, "broadcast", "broadcast", 0);
        assert_true(planned_before(&b, kernel(&b, r, 0, "optimizer", 0), broadcast));
        assert_true(planned_before(&b, broadcast, kernel(&b, r, 1, "forward", 0)));
        assert_true(ls_trace_task(b.trace, broadcast)->bytes == 128);
    }
    planned_end(&b);
}

/* If devices leave no core free (LS_CPU_STREAMS=inline), work that a host thread launches has ended when the thread
 * continues, on any stream. */
TEST(inline_streams_keep_their_host_waiting) {
    struct planned b;
    begin(&b, LS_PLAN_DDP);
    ls_node_change_host(b.node)->runs_compute = true;
    b.options.first_bucket_bytes = b.options.bucket_bytes = 1;
    b.workload.buffer_bytes = 128;
    for (int in_line = 0; in_line < 2; in_line++) {
        ls_node_change_host(b.node)->cores = (uint64_t)b.options.devices + !in_line;
        b.workload.input_bytes = (256 << 10) / 4.0; /* for 4 samples: the largest copy that a host runs itself */
        planned_run(&b);
        int inputs = copy(&b, 1, 1, "input", 0),
            answers = planned_find(&b, 1, LS_LANE_HOST, 1, "input", "launch copy", 1);
        assert_true(planned_before(&b, inputs, answers));
        b.workload.input_bytes += 1; /* one byte more */
        planned_run(&b);
        int reduced = planned_find(&b, 1, LS_LANE_COMM, 1, "all-reduce", "all_reduce", 0);
        int broadcast = planned_find(&b, 1, LS_LANE_COMM, 1, "broadcast", "broadcast", 0);
        int next = planned_find(&b, 1, LS_LANE_HOST, 1, "backward", "launch layer", 1);
        int forward = planned_find(&b, 1, LS_LANE_HOST, 1, "forward", "launch layer", 0);
        assert_true(planned_before(&b, reduced, next) == in_line);
        assert_true(planned_before(&b, broadcast, forward) == in_line);
        answers = planned_find(&b, 1, LS_LANE_HOST, 1, "input", "launch copy", 1);
        assert_true(planned_before(&b, copy(&b, 1, 1, "input", 0), answers) == in_line);
    }
    planned_end(&b);
}

/* Only for CPU devices, only if the node has a number of cores, and counted by the devices of a node. */
TEST(streams_are_in_line_where_no_core_is_free) {
    struct planned b;
    static const struct {
        uint64_t cores;
        bool runs_compute, in_line;
    } cases[] = {{DEVICES, true, true},
                 {DEVICES - 1, true, true},
                 {DEVICES + 1, true, false},
                 {0, true, false},
                 {DEVICES, false, false}};
    begin(&b, LS_PLAN_DDP);
    b.options.first_bucket_bytes = b.options.bucket_bytes = 1;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        ls_node_change_host(b.node)->cores = cases[c].cores;
        ls_node_change_host(b.node)->runs_compute = cases[c].runs_compute;
        planned_make(&b);
        int reduced = planned_find(&b, 1, LS_LANE_COMM, 1, "all-reduce", "all_reduce", 0);
        int next = planned_find(&b, 1, LS_LANE_HOST, 1, "backward", "launch layer", 1);
        assert_true(planned_before(&b, reduced, next) == cases[c].in_line);
    }
    /* further nodes are like the first one: six ranks, three of them on each */
    ls_node_change_host(b.node)->runs_compute = true;
    ls_node_change_host(b.node)->cores = DEVICES + 1;
    ls_node_change_collectives(b.node)->network_GBps = ls_node_change_collectives(b.node)->network_hop_us = 1;
    b.options.devices = 2 * DEVICES;
    planned_make(&b);
    int reduced = planned_find(&b, 1, LS_LANE_COMM, 1, "all-reduce", "all_reduce", 0);
    assert_false(planned_before(&b, reduced, planned_find(&b, 1, LS_LANE_HOST, 1, "backward", "launch layer", 1)));
    planned_end(&b);
}

/* A caller that finishes before the others waits from its end on, not from its last launch. */
TEST(dp_callers_wait_from_the_end_of_their_own_part) {
    struct planned b;
    begin(&b, LS_PLAN_DP);
    planned_make(&b);
    int join = planned_find(&b, 0, LS_LANE_HOST, 1, "other", "wait for replica done", 0);
    int last = planned_find(&b, 0, LS_LANE_HOST, 1, "gather", "launch copy", 0);
    int told = planned_find(&b, 1, LS_LANE_HOST, 1, NULL, "wait for replica starts", 0);
    assert_true(planned_before(&b, last, join));
    assert_int_equal(planned_count(&b, 0, LS_LANE_HOST, 1, "other", "wait for replica done"), 2 * (DEVICES - 1));
    assert_true(ls_trace_task(b.trace, join)->hand_over && ls_trace_task(b.trace, told)->hand_over);
    assert_false(ls_trace_task(b.trace, last)->hand_over);
    ls_node_change_host(b.node)->runs_compute = true;
    planned_make(&b);
    join = planned_find(&b, 0, LS_LANE_HOST, 1, "other", "wait for replica done", DEVICES - 1);
    assert_true(planned_before(&b, kernel(&b, 0, 1, "backward", LAYERS - 1), join));
    planned_end(&b);
}

/* The marks have the form that replay and tests expect in recorded traces. */
TEST(gradients_are_marked_when_they_are_ready) {
    struct planned b;
    begin(&b, LS_PLAN_DDP);
    planned_make(&b);
    assert_int_equal(ls_trace_mark_count(b.trace), 4 * LAYERS);
    for (int m = 0; m < LAYERS; m++) {
        const struct ls_mark *mark = ls_trace_mark(b.trace, m);
        assert_string_equal(mark->name, "gradient ready");
        assert_int_equal(mark->number, LAYERS - 1 - m);
        int own = planned_find(&b, 0, LS_LANE_COMPUTE, 0, "backward", "layer", m);
        assert_int_equal(mark->after, own);
    }
    planned_end(&b);
}
