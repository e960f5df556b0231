/* Steps of real networks on a modelled node: their time compared with a description's, the groups of a grid with
 * stages, and that stages wait for each other. */
#include <math.h>
#include <string.h>

#include "labs/replay/engine/account.h"
#include "labs/replay/engine/recost.h"
#include "labs/replay/record/real.h"
#include "labs/replay/record/record.h"
#include "tests/base/test.h"

static ls_node *node;

static int open_node(void **state) {
    (void)state;
    return ls_node_open(&node, "hgx-h200") != LS_OK;
}

static int close_node(void **state) {
    (void)state;
    ls_node_close(node);
    return 0;
}

/* A priced step. */
struct step {
    double step_us, idle;
    int meetings, messages; /* of one rank, in all steps */
};

static void look_at(struct step *step, const ls_trace *priced) {
    ls_timeline *timeline;
    struct ls_account *account;
    assert_int_equal(ls_engine_run(&timeline, priced, node), LS_OK);
    assert_int_equal(ls_account_make(&account, priced, timeline, node), LS_OK);
    step->step_us = account->step_us;
    for (int d = 0; d < account->device_count; d++)
        step->idle += account->devices[d].idle_us / account->step_us / account->device_count;
    ls_account_free(account);
    ls_timeline_free(timeline);
}

/* Checks that each meeting has exactly the ranks of its group. */
static void look_at_meetings(struct step *step, const ls_trace *priced) {
    step->meetings = ls_trace_meeting_count(priced);
    for (int m = 0; m < step->meetings; m++) {
        const struct ls_meeting *meeting = ls_trace_meeting(priced, m);
        if (meeting->tasks != meeting->ranks)
            fail_msg("%s number %u of %s: %d tasks of %d ranks", meeting->operation, meeting->number, meeting->group,
                     meeting->tasks, meeting->ranks);
        step->messages += strncmp(meeting->operation, "send", 4) == 0;
    }
}

/* A step of ddp_train with `devices` ranks. */
static struct step run(int devices, char *const *words, int count) {
    struct record_program program;
    struct record_held held;
    struct ls_plan plan;
    struct step step = {0};
    ls_trace *recorded, *priced;
    assert_int_equal(record_program_parse(&program, LS_PLAN_DDP, devices, words, count), LS_OK);
    assert_int_equal(record_program_plan(&plan, &program), LS_OK);
    assert_int_equal(record_real(&recorded, &held, &plan, &program, node), LS_OK);
    assert_true(held.report.peak_total_bytes > 0);
    ls_workload workload = record_real_workload("real", &program, &plan);
    assert_int_equal(ls_recost(&priced, recorded, &workload, node, &plan), LS_OK);
    look_at(&step, priced);
    look_at_meetings(&step, priced);
    ls_trace_destroy(priced);
    ls_trace_destroy(recorded);
    return step;
}

#define RUN(devices, ...) run(devices, (char *[]){__VA_ARGS__}, (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)))

/* --- a network and its description ---------------------------------------------------------------------------------- */

static double described_us(int devices, double batch, int shard_state, int tensor) {
    ls_workload *workload;
    ls_trace *priced;
    struct step step = {0};
    struct ls_plan plan = ls_plan_defaults(LS_PLAN_DDP, devices, batch);
    plan.shard_state = shard_state;
    plan.tensor = tensor;
    plan.gil = ls_node_host(node)->lock_us > 0;
    assert_int_equal(ls_workload_open(&workload, "deep"), LS_OK);
    assert_int_equal(record_steps(&priced, workload, node, &plan), LS_OK);
    look_at(&step, priced);
    ls_trace_destroy(priced);
    ls_workload_close(workload);
    return step.step_us;
}

static void expect_alike(double real_us, double described) {
    if (!(fabs(real_us / described - 1) < 0.04)) fail_msg("%g us, described %g us", real_us, described);
}

#define DEEP "--model=deep", "--data=random:0", "--optimizer=adam", "--batch-size=4096"

/* Operations have the flops, bytes and weights of their description, even if matrix multiplies of few rows do not reach
 * the full rate. */
TEST_WITH(open_node, close_node, a_network_takes_as_long_as_its_description) {
    struct ls_node_device *device = ls_node_change_device(node);
    ls_node_change_host(node)->lock_us = 0;
    ls_node_change_host(node)->launch_us = 1;
    device->products[0] = (struct ls_node_product){128, 0.05};
    device->products[1] = (struct ls_node_product){8192, 1};
    device->product_count = 2;
    expect_alike(RUN(2, DEEP).step_us, described_us(2, 4096, 0, 1));
    expect_alike(RUN(2, DEEP, "--shard-state=3").step_us, described_us(2, 4096, 3, 1));
    expect_alike(RUN(4, DEEP, "--tensor=2").step_us, described_us(4, 4096, 0, 2));
}

/* --- stages ------------------------------------------------------------------------------------------------------- */

#define EQUAL "--model=mlp:512,512,512,512,512", "--data=random:0", "--pipeline=2"

/* 2 (P - 1) messages for each micro-batch and replica; four steps are recorded. A message in both directions is one
 * meeting. */
TEST_WITH(open_node, close_node, stages_of_each_replica_meet) {
    struct step one = RUN(2, EQUAL, "--accumulate=8", "--batch-size=4096");
    struct step two = RUN(4, EQUAL, "--accumulate=8", "--batch-size=8192");
    struct step grid = RUN(8, "--model=gpt:4,4,32,16", "--data=sums:0", "--pipeline=2", "--tensor=2", "--accumulate=4",
                           "--batch-size=64");
    assert_true(one.messages > 4 * 8 && one.messages <= 4 * 16);
    assert_int_equal(two.messages, 2 * one.messages);
    assert_true(grid.messages > 0);
    /* the replicas' all-reduce takes additional time */
    assert_true(two.step_us > one.step_us && two.step_us < 1.5 * one.step_us);
}

/* With two equal stages a device is idle for 1 / (M + 1) of a step: the more micro-batches, the less. */
TEST_WITH(open_node, close_node, stages_wait_for_each_other) {
    static char heavy[] = "--model=mlp:16,2048,2048,2048,2048,2048,16"; /* messages are short beside GEMMs */
    struct step four = RUN(2, heavy, "--data=random:0", "--pipeline=2", "--accumulate=4", "--batch-size=65536");
    struct step sixteen = RUN(2, heavy, "--data=random:0", "--pipeline=2", "--accumulate=16", "--batch-size=65536");
    if (!(four.idle > 0.75 / 5 && four.idle < 1.25 / 5)) fail_msg("4 micro-batches: idle for %g", four.idle);
    if (!(sixteen.idle < 1.0 / 17)) fail_msg("16 micro-batches: idle for %g", sixteen.idle);
    assert_true(sixteen.step_us < four.step_us);
}
