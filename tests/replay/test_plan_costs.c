/* Additional time of tasks in replayed steps, compared with one device alone: recorded steps in turn, and memory in
 * another device's cache. */
#include "labs/replay/engine/account.h"
#include "labs/replay/engine/plan.h"
#include "tests/base/test.h"
#include "tests/replay/planned.h"

enum { LAYERS = 2, DEVICES = 2, WORKS = 2 * LAYERS + 2, RECORDED = 4 };
static const struct planned_layer layers[LAYERS] = {{10, 20, 1024}, {30, 40, 1024}};

static void begin(struct planned *b, ls_plan_mode mode) {
    planned_begin(b, mode, DEVICES, DEVICES, 1);
    planned_network(b, layers, LAYERS, 5, 8);
}

static double us_of(const struct planned *b, int device, int step, const char *phase, int n) {
    int task = planned_find(b, device, LS_LANE_COMPUTE, step, phase, NULL, n);
    assert_true(task >= 0);
    return ls_trace_task(b->trace, task)->us;
}

/* --- steps as they were recorded ---------------------------------------------------------------------------------- */

/* In recorded step k all operations exceed the median by k + 1 tenths. */
static void record(struct planned *b, double step_us[RECORDED * WORKS]) {
    for (int k = 0; k < RECORDED; k++) {
        for (int w = 0; w < WORKS; w++) step_us[k * WORKS + w] = b->work[w].us * (1 + 0.1 * (k + 1));
    }
    b->workload.step_us = step_us;
    b->workload.step_count = RECORDED;
}

TEST(steps_take_the_times_of_recorded_ones) {
    struct planned b;
    double step_us[RECORDED * WORKS];
    begin(&b, LS_PLAN_DDP);
    record(&b, step_us);
    b.options.steps = RECORDED + 1;
    for (int vary = 0; vary < 2; vary++) {
        b.options.vary = vary;
        planned_make(&b);
        for (int s = 0; s < b.options.steps; s++) {
            for (int d = 0; d < DEVICES; d++) {
                int recorded = (s + d * RECORDED / DEVICES) % RECORDED; /* evenly spread */
                double longer = vary ? 1 + 0.1 * (recorded + 1) : 1;
                planned_expect_us(us_of(&b, d, s, "forward", 1), 30 * longer);
                planned_expect_us(us_of(&b, d, s, "optimizer", 0), 8 * longer);
            }
        }
    }
    b.workload.samples = 2; /* half of a batch takes half of that, except operations without bytes or flops */
    b.work[0].bytes = 1e12;
    planned_make(&b);
    planned_expect_us(us_of(&b, 0, 1, "forward", 0), 10 * 1.2 / 2);
    planned_expect_us(us_of(&b, 0, 1, "forward", 1), 30 * 1.2);
    planned_end(&b);
}

TEST(without_recorded_steps_all_are_medians) {
    struct planned b;
    double step_us[RECORDED * WORKS];
    begin(&b, LS_PLAN_DDP);
    b.options.vary = true;
    planned_make(&b);
    planned_expect_us(us_of(&b, 1, 2, "backward", 0), 40);
    record(&b, step_us);
    b.work[0].us = 0; /* nothing to multiply */
    planned_make(&b);
    planned_expect_us(us_of(&b, 0, 1, "forward", 0), 0);
    planned_end(&b);
}

/* Each device is late in half of the steps. Alone each takes 113 us at the median; together all of them are late. */
TEST(who_waits_for_the_late_is_late) {
    struct planned b;
    double step_us[RECORDED * WORKS];
    struct ls_account *account;
    begin(&b, LS_PLAN_DDP);
    record(&b, step_us);
    for (int k = 0; k < RECORDED; k++) {
        for (int w = 0; w < WORKS; w++) step_us[k * WORKS + w] = b.work[w].us * (k < RECORDED / 2 ? 1 : 2);
    }
    ls_node_change_collectives(b.node)->base_us = ls_node_change_collectives(b.node)->hop_us = 0;
    ls_node_change_collectives(b.node)->bus_GBps = 1e9;
    b.options.steps = RECORDED + 1;
    for (int vary = 0; vary < 2; vary++) {
        b.options.vary = vary;
        planned_run(&b);
        assert_int_equal(ls_account_make(&account, b.trace, b.timeline, b.node), LS_OK);
        assert_true(account->median_step_us > (vary ? 2 : 1) * 113 - 10);
        assert_true(account->median_step_us < (vary ? 2 : 1) * 113 + 10);
        ls_account_free(account);
    }
    planned_end(&b);
}

/* More devices than recorded steps reuse them, and still differ. */
TEST(few_recorded_steps_are_shared) {
    struct planned b;
    double step_us[RECORDED * WORKS];
    begin(&b, LS_PLAN_DDP);
    record(&b, step_us);
    b.options.vary = true;
    b.workload.step_count = 1;
    planned_make(&b);
    planned_expect_us(us_of(&b, 0, 1, "forward", 0), 10 * 1.1);
    planned_expect_us(us_of(&b, 1, 1, "forward", 0), 10 * 1.1);
    planned_end(&b);
    planned_begin(&b, LS_PLAN_DDP, 6, 6, 1);
    planned_network(&b, layers, LAYERS, 5, 8);
    record(&b, step_us);
    b.options.vary = true;
    planned_make(&b);
    for (int d = 0; d < 6; d++)
        planned_expect_us(us_of(&b, d, 0, "forward", 0), 10 * (1 + 0.1 * (d * RECORDED / 6 + 1)));
    planned_end(&b);
}

/* --- concurrent work ---------------------------------------------------------------------------------------------- */

/* Work of all devices at once takes longer; work of DP's first device while the others wait does not. */
TEST(only_those_who_work_crowd) {
    struct planned b;
    for (int ddp = 0; ddp < 2; ddp++) {
        begin(&b, ddp ? LS_PLAN_DDP : LS_PLAN_DP);
        for (int w = 0; w < WORKS; w++) b.work[w].is_product = true;
        ls_node_change_device(b.node)->product_crowding = 2;
        planned_make(&b);
        int all = ddp ? 2 : 1;
        for (int d = 0; d < DEVICES; d++) {
            planned_expect_us(us_of(&b, d, 1, "forward", 1), 2 * 30);
            planned_expect_us(us_of(&b, d, 1, "backward", 0), 2 * 40);
        }
        planned_expect_us(us_of(&b, 0, 1, "loss", 0), all * 5);
        planned_expect_us(us_of(&b, 0, 1, "optimizer", 0), all * 8);
        planned_end(&b);
    }
}

/* A batch of 5 leaves the last of 4 replicas without samples: three of four devices cause two thirds of the
 * crowding. */
TEST(devices_without_samples_do_not_crowd) {
    struct planned b;
    planned_begin(&b, LS_PLAN_DP, 4, 5, 1);
    planned_network(&b, layers, LAYERS, 5, 8);
    for (int w = 0; w < WORKS; w++) b.work[w].is_product = true;
    ls_node_change_device(b.node)->product_crowding = 4;
    planned_make(&b);
    planned_expect_us(us_of(&b, 0, 1, "forward", 0), 10 * (1 + 3 * 2. / 3));
    planned_end(&b);
}

/* The averaging of gradients, 2 x 1024 floats, reads values that have just been written, and DP's sum runs alone. */
TEST(other_kernels_do_not_crowd) {
    struct planned b;
    for (int ddp = 0; ddp < 2; ddp++) {
        begin(&b, ddp ? LS_PLAN_DDP : LS_PLAN_DP);
        ls_node_change_device(b.node)->memory_GBps = 1;
        ls_node_change_device(b.node)->memory_crowding = 3;
        ls_node_change_host(b.node)->runs_compute = true;
        planned_make(&b);
        planned_expect_us(ddp ? us_of(&b, 1, 1, "backward", 1) : us_of(&b, 0, 1, "reduce", 0), (ddp ? 1 : 3) * 8192e-3);
        planned_end(&b);
    }
}

/* --- memory that another device's cache holds --------------------------------------------------------------------- */

static double update_us(struct planned *b) {
    planned_make(b);
    return us_of(b, 0, 1, "optimizer", 0);
}

TEST(dp_takes_its_parameters_back) {
    struct planned b;
    begin(&b, LS_PLAN_DP);
    b.work[WORKS - 1].bytes = 1;
    planned_expect_us(update_us(&b), 8); /* the node does not have it */
    ls_node_change_device(b.node)->reclaim_GBps = 2;
    ls_node_change_device(b.node)->reclaim_bytes = 1 << 20;
    planned_expect_us(update_us(&b), 8 + 8192 / 2e3);
    ls_node_change_device(b.node)->reclaim_bytes = 1000; /* the other cache holds no more */
    planned_expect_us(update_us(&b), 8 + 1000 / 2e3);
    b.options.replicate_by_collectives = true;
    planned_expect_us(update_us(&b), 8);
    b.options.replicate_by_collectives = false;
    b.options.devices = 1; /* no replica that copies them */
    planned_expect_us(update_us(&b), 8);
    b.options.devices = DEVICES;
    b.options.mode = LS_PLAN_DDP; /* each has its own parameters */
    planned_expect_us(update_us(&b), 8);
    planned_end(&b);
}

/* An optimizer of several operations has the cost once. */
TEST(the_price_is_shared_out_by_bytes) {
    struct planned b;
    begin(&b, LS_PLAN_DP);
    b.work[WORKS - 1].bytes = 3;
    b.work[WORKS] = b.work[WORKS - 1];
    b.work[WORKS].bytes = 1;
    b.workload.work_count++;
    ls_node_change_device(b.node)->reclaim_GBps = 2;
    ls_node_change_device(b.node)->reclaim_bytes = 4000;
    planned_make(&b);
    planned_expect_us(us_of(&b, 0, 1, "optimizer", 0), 8 + 1.5);
    planned_expect_us(us_of(&b, 0, 1, "optimizer", 1), 8 + 0.5);
    planned_expect_us(us_of(&b, 0, 1, "forward", 0), 10);
    planned_end(&b);
}
