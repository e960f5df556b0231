/* Layers shared by ranks on a modelled node: the memory, messages and computation of a rank, the members of
 * collectives, and their times. */
#include <string.h>

#include "common/nn/tensor_parallel.h"
#include "labs/replay/engine/workload_cut.h"
#include "labs/replay/record/record.h"
#include "tests/base/test.h"

enum { RANKS = 8, S = 1024, C = 1536, LAYERS = 40, HEADS = 16 }; /* the sizes of megatron-1.2b */

static ls_node *node;
static ls_workload *wide, *gpt;

static int open_all(void **state) {
    (void)state;
    return ls_node_open(&node, "hgx-h200") != LS_OK || ls_workload_open(&wide, "wide") != LS_OK ||
           ls_workload_open(&gpt, "megatron-1.2b") != LS_OK;
}

static int close_all(void **state) {
    (void)state;
    ls_workload_close(gpt);
    ls_workload_close(wide);
    ls_node_close(node);
    return 0;
}

static struct ls_plan plan_of(int tensor, double batch) {
    struct ls_plan plan = ls_plan_defaults(LS_PLAN_DDP, RANKS, batch);
    plan.tensor = tensor;
    plan.steps = 1;
    return plan;
}

static struct record_memory memory_of(const ls_workload *workload, const struct ls_plan *plan) {
    struct record_memory memory;
    assert_int_equal(record_memory(&memory, workload, node, plan), LS_OK);
    return memory;
}

/* The bytes that each rank sends in an all-reduce. */
static double sent(double ranks, double bytes) { return 2 * (ranks - 1) / ranks * bytes; }

/* --- memory and messages of a rank -------------------------------------------------------------------------------- */

/* For the real network's part: its parameters' memory, and the bytes that a step of `rows` samples reduces. */
static void look_at_real_part(size_t *held, size_t *met, int tensor, size_t rows) {
    ls_device *device;
    ls_model *model;
    ls_memory_report report;
    const ls_device_options of_device = {.kind = LS_DEVICE_META, .devices_on_node = 1};
    const ls_tensor_options options = {.ranks = tensor};
    assert_int_equal(ls_device_open(&device, &of_device), LS_OK);
    assert_int_equal(ls_tensor_create_model(&model, device, "wide", &options, rows, LS_FP32, 0, false), LS_OK);
    ls_device_memory(device, &report);
    *held = report.peak_bytes[LS_MEMORY_PARAMETER];
    *met = ls_tensor_step_nbytes(model, rows);
    ls_model_destroy(model);
    ls_device_close(device);
}

TEST_WITH(open_all, close_all, a_rank_holds_and_sends_what_one_of_ddp_train_does) {
    for (int tensor = 2; tensor <= RANKS; tensor *= 2) {
        struct ls_plan plan = plan_of(tensor, 64);
        size_t held, met, rows = 64 * (size_t)tensor / RANKS;
        double replicas = RANKS / tensor, floats = (2.0 * 4096 * 8192 + 8192) / tensor + 4096;
        look_at_real_part(&held, &met, tensor, rows);
        struct record_memory memory = memory_of(wide, &plan);
        assert_int_equal(memory.first.peak_bytes[LS_MEMORY_PARAMETER], held);
        assert_int_equal(met, rows * 4096 * sizeof(float));
        assert_true((double)memory.sent_bytes == sent(tensor, (double)met) + sent(replicas, sizeof(float) * floats));
        plan.shard_state = 1;
        struct record_memory sharded = memory_of(wide, &plan);
        assert_true((double)sharded.first.peak_bytes[LS_MEMORY_OPTIMIZER] <=
                    (double)memory.first.peak_bytes[LS_MEMORY_OPTIMIZER] / replicas + 4096);
    }
}

/* A layer's two pairs all-reduce forward and back; so do the table and the head, once. */
TEST_WITH(open_all, close_all, a_text_sends_as_much_with_rows_of_its_own_and_the_sums_of_gradients) {
    const double batch = 4, crossings = 2 * (2.0 * LAYERS + 1), halves = 2;
    struct ls_plan plan = plan_of(RANKS, batch);
    plan.precision = LS_BF16;
    double alike = batch * (crossings * S * C * halves + 3.0 * S * sizeof(float));
    double gradients = sizeof(float) * ((2.0 * LAYERS + 1) * 2 * C + (double)S * C); /* of norms and positions */
    assert_true((double)memory_of(gpt, &plan).sent_bytes == sent(RANKS, alike));
    plan.sequence = true;
    assert_true((double)memory_of(gpt, &plan).sent_bytes == sent(RANKS, alike + gradients));
}

/* The formula of docs/splitting.md minus the outputs of the second layers of pairs, which a description adds in
 * place. */
TEST_WITH(open_all, close_all, activations_are_those_of_parts_and_of_rows) {
    for (int tensor = 2; tensor <= RANKS; tensor *= 2) {
        ls_workload *alike, *rows;
        double parts = (12.0 * C + HEADS) / tensor, share = (double)C / tensor;
        assert_int_equal(ls_workload_cut(&alike, gpt, tensor, false), LS_OK);
        assert_int_equal(ls_workload_cut(&rows, gpt, tensor, true), LS_OK);
        assert_true(alike->activation_bytes == 4.0 * S * (LAYERS * (parts + 4 * C) + 2 * C));
        assert_true(rows->activation_bytes == 4.0 * S * (LAYERS * (parts + 2 * share + 2 * C) + share + C));
        ls_workload_close(rows);
        ls_workload_close(alike);
    }
}

/* --- computation of a rank ---------------------------------------------------------------------------------------- */

static double product_flops(const ls_workload *w) {
    double sum = 0;
    for (int i = 0; i < w->work_count; i++) sum += w->work[i].is_product ? w->work[i].flops : 0;
    return sum;
}

TEST_WITH(open_all, close_all, ranks_share_all_products) {
    const ls_workload *const all[] = {wide, gpt};
    for (int i = 0; i < 4; i++) {
        ls_workload *part;
        assert_int_equal(ls_workload_cut(&part, all[i / 2], 4, i == 3), LS_OK);
        assert_true(4 * product_flops(part) == product_flops(all[i / 2]));
        ls_workload_close(part);
    }
}

/* --- members and times of collectives ----------------------------------------------------------------------------- */

static bool is_of_pass(const struct ls_task *task) {
    return strcmp(task->phase, "forward") == 0 || strcmp(task->phase, "loss") == 0 ||
           strcmp(task->phase, "backward") == 0;
}

/* Checks that the collective's ranks are neighbours, or those with the same place among their neighbours. */
static void expect_axis(const ls_trace *trace, const struct ls_task *task, int tensor, bool neighbours) {
    int count, ranks = neighbours ? tensor : RANKS / tensor;
    const int *tasks = ls_trace_meeting_tasks(trace, task->meeting, &count);
    int first = ls_trace_lane(trace, ls_trace_task(trace, tasks[0])->lane)->device;
    assert_int_equal(count, ranks);
    assert_int_equal(ls_trace_meeting(trace, task->meeting)->ranks, ranks);
    for (int i = 0; i < count; i++) {
        int device = ls_trace_lane(trace, ls_trace_task(trace, tasks[i])->lane)->device;
        assert_int_equal(neighbours ? device / tensor : device % tensor, neighbours ? first / tensor : first % tensor);
    }
}

static struct axes { int of_passes, of_gradients; } expect_costs(int tensor, double batch) {
    struct axes axes = {0, 0};
    struct ls_plan plan = plan_of(tensor, batch);
    ls_trace *trace;
    plan.precision = LS_BF16;
    double rows = batch * tensor / RANKS, crossing = rows * S * C * 2;
    assert_int_equal(record_steps(&trace, gpt, node, &plan), LS_OK);
    for (int i = 0; i < ls_trace_task_count(trace); i++) {
        const struct ls_task *task = ls_trace_task(trace, i);
        if (task->kind != LS_TASK_COLLECTIVE) continue;
        bool in_pass = is_of_pass(task), in_loss = strcmp(task->phase, "loss") == 0;
        double bytes = in_pass ? crossing : (double)ls_trace_meeting(trace, task->meeting)->bytes;
        expect_axis(trace, task, tensor, in_pass);
        axes.of_passes += in_pass;
        axes.of_gradients += !in_pass;
        if (!in_loss)
            assert_true(task->us == ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE,
                                                          in_pass ? tensor : RANKS / tensor, bytes));
    }
    ls_trace_destroy(trace);
    return axes;
}

TEST_WITH(open_all, close_all, each_axis_meets_by_itself_and_costs_what_its_ranks_cost) {
    const int met = RANKS * (2 * (2 * LAYERS + 1) + 2);
    struct axes two = expect_costs(2, 16), eight = expect_costs(RANKS, 2);
    assert_int_equal(two.of_passes, met);
    assert_true(two.of_gradients > 0 && two.of_gradients % RANKS == 0);
    assert_int_equal(eight.of_passes, met);
    assert_int_equal(eight.of_gradients, 0);
}

/* A layer norm's sums do not grow with the samples, unlike gathered and scattered activations. */
TEST_WITH(open_all, close_all, sums_of_gradients_cost_the_same_for_any_batch) {
    double norms_us = ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, 4, 2 * C * sizeof(float));
    double gather_us = ls_cost_collective_us(node, LS_COLLECTIVE_ALL_GATHER, 4, 16.0 * S * C * 2);
    struct ls_plan plan = plan_of(4, 32);
    ls_trace *trace;
    int norms = 0, gathers = 0;
    plan.sequence = true;
    plan.precision = LS_BF16;
    assert_int_equal(record_steps(&trace, gpt, node, &plan), LS_OK);
    for (int i = 0; i < ls_trace_task_count(trace); i++) {
        const struct ls_task *task = ls_trace_task(trace, i);
        if (task->kind != LS_TASK_COLLECTIVE || !is_of_pass(task)) continue;
        norms += strcmp(task->name, "all_reduce") == 0 && task->us == norms_us;
        gathers += strcmp(task->name, "all_gather") == 0 && task->us == gather_us;
    }
    ls_trace_destroy(trace);
    assert_int_equal(norms, RANKS * (2 * LAYERS + 1));
    assert_int_equal(gathers, RANKS * 2 * (2 * LAYERS + 1));
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void expect_refusal(const char *name, const struct ls_plan *plan, const char *text) {
    char line[300] = "";
    ls_workload *workload;
    ls_trace *trace;
    assert_int_equal(ls_workload_open(&workload, name), LS_OK);
    ls_log_sink sink = ls_log_capture(line, sizeof line);
    ls_status status = record_steps(&trace, workload, node, plan);
    ls_log_restore(sink);
    ls_workload_close(workload);
    if (status != LS_ERR_INVALID || !strstr(line, text)) fail_msg("status %d: %s; not: %s", status, line, text);
}

TEST_WITH(open_all, close_all, what_cannot_be_shared_is_refused_by_name) {
    struct ls_plan plan = plan_of(8, 64);
    expect_refusal("gpt2-124m", &plan, "transformer.h.0.attn.tiles has heads that the ranks do not divide");
    expect_refusal("resnet50", &plan, "resnet50 does not describe how ranks can share its layers");
    plan.tensor = 3;
    expect_refusal("wide", &plan, "8 ranks do not form a grid of --tensor 3");
    plan = plan_of(2, 64);
    plan.sequence = true;
    expect_refusal("wide", &plan, "wide is not a text");
    plan = plan_of(2, 64);
    plan.every = 1;
    expect_refusal("wide", &plan, "--checkpoint-activations");
    plan = plan_of(2, 64);
    plan.shard_state = 3;
    expect_refusal("wide", &plan, "--shard-state 3");
    plan = plan_of(2, 64);
    plan.top_k = 0.01;
    expect_refusal("wide", &plan, "--compress topk");
    plan = plan_of(2, 64);
    plan.devices = 16;
    plan.collectives = LS_PLAN_BY_MESSAGES;
    expect_refusal("wide", &plan, "--collectives messages");
}
