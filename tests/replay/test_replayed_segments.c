/* Activation checkpointing at scale: published networks, replayed with and without it, hold less and take at most a
 * third longer. */
#include "labs/replay/record/record.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/replay/accounts.h"

struct figures {
    double step_us, activation_bytes, other_bytes;
};

static struct figures figures_of(const ls_workload *workload, const ls_node *node, struct ls_plan options, int every) {
    struct record_memory memory;
    struct figures f = {0};
    ls_trace *trace;
    options.every = every;
    assert_int_equal(record_memory(&memory, workload, node, &options), LS_OK);
    for (int c = 0; c < LS_MEMORY_COUNT; c++)
        *(c == LS_MEMORY_ACTIVATION ? &f.activation_bytes : &f.other_bytes) += (double)memory.first.peak_bytes[c];
    assert_int_equal(record_steps(&trace, workload, node, &options), LS_OK);
    f.step_us = account_step_us(trace, node);
    return f;
}

static void expect_less_memory(const char *name, struct ls_plan options, double share_left) {
    ls_node *node;
    ls_workload *workload;
    assert_int_equal(ls_node_open(&node, "dgx1-v100"), LS_OK);
    assert_int_equal(ls_workload_open(&workload, name), LS_OK);
    struct figures kept = figures_of(workload, node, options, 0);
    struct figures dropped = figures_of(workload, node, options, LS_EVERY_SQRT);
    assert_true(dropped.activation_bytes < share_left * kept.activation_bytes);
    assert_true(dropped.other_bytes == kept.other_bytes);
    assert_true(dropped.step_us > 1.15 * kept.step_us); /* forward is a third of the step, most of it runs twice */
    assert_true(dropped.step_us < 4.0 / 3 * kept.step_us * 1.02); /* plus copies of kept inputs */
    ls_workload_close(workload);
    ls_node_close(node);
}

TEST(published_networks_hold_less_and_take_a_third_longer_at_most) {
    static const ls_plan_mode modes[] = {LS_PLAN_SINGLE, LS_PLAN_DP, LS_PLAN_DDP};
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        int devices = modes[m] == LS_PLAN_SINGLE ? 1 : 2;
        expect_less_memory("gpt2-xl", ls_plan_defaults(modes[m], devices, 16), 0.2);
        expect_less_memory("resnet50", ls_plan_defaults(modes[m], devices, 256), 0.7);
    }
}

TEST_IN(scratch, a_trace_does_not_know_its_blocks) {
    ls_node *node;
    ls_workload *workload;
    assert_int_equal(ls_node_open(&node, "dgx1-v100"), LS_OK);
    assert_int_equal(ls_workload_open(&workload, "resnet50"), LS_OK);
    struct ls_plan options = ls_plan_defaults(LS_PLAN_SINGLE, 1, 256);
    ls_workload without_layers = *workload;
    without_layers.layer_count = 0;
    options.every = 1;
    assert_int_equal(ls_plan_check(&without_layers, node, &options), LS_ERR_INVALID);
    scratch_expect_error("no activations can be checkpointed", NULL);
    ls_workload_close(workload);
    ls_node_close(node);
}
