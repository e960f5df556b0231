/* The effects of options on a replayed step: batch norm over all devices, ranks that join, a step as a graph, devices
 * of different speed. Each against its closed form. */
#include <math.h>

#include "labs/replay/engine/account.h"
#include "labs/replay/engine/plan.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/replay/planned.h"

enum { LAYERS = 3, DEVICES = 4, CHANNELS = 16, WORKS = 2 * LAYERS + 2 };
static const struct planned_layer layers[LAYERS] = {{100, 200, 1024}, {300, 400, 1024}, {500, 600, 1024}};
static const double compute_us = 100 + 200 + 300 + 400 + 500 + 600 + 5 + 8;

/* Gradients so small that all their all-reduces except the last end before backward. */
static void begin(struct planned *b, ls_plan_mode mode, int devices) {
    planned_begin(b, mode, devices, devices, 1);
    planned_network(b, layers, LAYERS, 5, 8);
    ls_node_change_host(b->node)->launch_us = 0;
}

static double step_us(struct planned *b) {
    struct ls_account *account;
    planned_run(b);
    assert_int_equal(ls_account_make(&account, b->trace, b->timeline, b->node), LS_OK);
    double us = account->step_us;
    ls_account_free(account);
    return us;
}

/* Makes the middle layer a batch norm, forward and backward. */
static void make_batchnorm(struct planned *b) {
    b->work[1].channels = b->work[LAYERS + 2].channels = CHANNELS;
    assert_string_equal(b->work[LAYERS + 2].phase, "backward");
}

/* An all-gather of 2 C + 1 doubles of each rank and an all-reduce of 2 C floats, both on the compute stream, and three
 * more kernels. */
TEST(batch_norm_meets_twice) {
    for (ls_plan_mode mode = LS_PLAN_DP; mode <= LS_PLAN_DDP; mode++) {
        struct planned b;
        begin(&b, mode, DEVICES);
        make_batchnorm(&b);
        ls_node_change_device(b.node)->kernel_us = 7;
        double alone_us = step_us(&b);
        b.options.sync_bn = true;
        double gather_bytes = DEVICES * (2.0 * CHANNELS + 1) * sizeof(double),
               sum_bytes = 2.0 * CHANNELS * sizeof(float);
        double gather_us = ls_cost_collective_us(b.node, LS_COLLECTIVE_ALL_REDUCE, DEVICES, gather_bytes) / 2;
        double sum_us = ls_cost_collective_us(b.node, LS_COLLECTIVE_ALL_REDUCE, DEVICES, sum_bytes);
        planned_expect_us(step_us(&b), alone_us + gather_us + sum_us + 3 * 7);
        planned_end(&b);
    }
}

/* Nothing changes on one device, or for a network without batch norm. */
TEST(batch_norm_alone_is_as_it_was) {
    for (ls_plan_mode mode = LS_PLAN_DP; mode <= LS_PLAN_DDP; mode++) {
        for (int devices = 1; devices <= 2; devices++) {
            struct planned b;
            begin(&b, mode, devices);
            if (devices == 1) make_batchnorm(&b);
            double alone_us = step_us(&b);
            b.options.sync_bn = true;
            planned_expect_us(step_us(&b), alone_us);
            planned_end(&b);
        }
    }
}

/* The counts must arrive before rank 0's batch is copied, so that its host is no longer ahead. */
TEST(joining_ranks_wait_before_each_step) {
    struct planned b;
    begin(&b, LS_PLAN_DDP, DEVICES);
    b.workload.input_bytes = 300e3; /* 300 us from the host */
    double alone_us = step_us(&b),
           count_us = ls_cost_collective_us(b.node, LS_COLLECTIVE_ALL_REDUCE, DEVICES, DEVICES * 8) / 2;
    b.options.join = true;
    double joined_us = step_us(&b);
    if (!(joined_us > alone_us + count_us)) fail_msg("%g us with joining ranks, %g without", joined_us, alone_us);
    int count = planned_find(&b, 2, LS_LANE_COMM, 1, "broadcast", NULL, 0);
    int copy = planned_find(&b, 2, LS_LANE_COPY, 1, "input", NULL, 0);
    assert_true(planned_before(&b, count, copy));
    planned_expect_us(ls_trace_task(b.trace, count)->us, count_us);
    planned_end(&b);
}

/* Launches of 1,000 us each, one for each operation, or one for the graph and one for the batch. */
TEST(a_graph_is_one_launch) {
    struct planned b;
    begin(&b, LS_PLAN_SINGLE, 1);
    ls_node_change_host(b.node)->launch_us = 1000;
    int copies = 0;
    double launched_us = step_us(&b);
    copies = planned_count(&b, 0, LS_LANE_COPY, 1, NULL, NULL);
    planned_expect_us(launched_us, 1000.0 * (WORKS + copies));
    b.options.graph = true;
    planned_expect_us(step_us(&b), fmax(1000.0 * (1 + copies), compute_us));
    planned_end(&b);
    begin(&b, LS_PLAN_DDP, DEVICES); /* collectives are also captured */
    ls_node_change_host(b.node)->launch_us = ls_node_change_host(b.node)->collective_us = 1000;
    b.options.graph = true;
    double graph_us = step_us(&b);
    if (!(graph_us <= 3 * 1000 + compute_us)) fail_msg("a step as a graph takes %g us", graph_us);
    planned_end(&b);
}

/* The expected times of two devices: 0.589 standard deviations below and above the mean. */
TEST(devices_may_differ) {
    struct planned b;
    const double spread = 0.1, expected = 0.58945579784977842; /* the quantile of 1.625 / 2.25 */
    begin(&b, LS_PLAN_DDP, 2);
    b.options.spread = spread;
    planned_make(&b);
    for (int d = 0; d < 2; d++) {
        const struct ls_task *task =
            ls_trace_task(b.trace, planned_find(&b, d, LS_LANE_COMPUTE, 1, "forward", NULL, 1));
        planned_expect_us(task->us, 300 * (1 + spread * (d == 0 ? -expected : expected)));
    }
    planned_end(&b);
    begin(&b, LS_PLAN_SINGLE, 1);
    double alone_us = step_us(&b);
    b.options.spread = spread;
    planned_expect_us(step_us(&b), alone_us);
    planned_end(&b);
    double last_us = 0; /* the slowest of more devices is slower */
    for (int n = 1; n <= 8; n *= 2) {
        begin(&b, LS_PLAN_DDP, n);
        b.options.spread = spread;
        double us = step_us(&b);
        assert_true(us > last_us);
        last_us = us;
        planned_end(&b);
    }
}

TEST_IN(scratch, what_no_program_does_is_refused) {
    struct planned b;
    begin(&b, LS_PLAN_DP, 2);
    b.options.graph = true;
    assert_int_equal(ls_plan_check(&b.workload, b.node, &b.options), LS_ERR_INVALID);
    scratch_expect_error("DataParallel on 2 devices", "a CUDA graph");
    b.options.devices = 1;
    assert_int_equal(ls_plan_check(&b.workload, b.node, &b.options), LS_OK);
    ls_node_change_host(b.node)->runs_compute = true;
    assert_int_equal(ls_plan_check(&b.workload, b.node, &b.options), LS_ERR_INVALID);
    scratch_expect_error("CPU devices", NULL);
    b.options.graph = false;
    b.options.spread = 0.21;
    assert_int_equal(ls_plan_check(&b.workload, b.node, &b.options), LS_ERR_INVALID);
    scratch_expect_error("spread by 21 %", NULL);
    b.options.spread = NAN;
    assert_int_equal(ls_plan_check(&b.workload, b.node, &b.options), LS_ERR_INVALID);
    scratch_expect_error("spread by nan %", NULL);
    planned_end(&b);
}
