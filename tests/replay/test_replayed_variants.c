/* DDP's variants at scale: a published network's step on a modelled node, with a sharded optimizer's state (ZeRO), or
 * with gradients as lists of their largest elements (top-k). */
#include <math.h>
#include <string.h>

#include "ddp_procs/topk.h"
#include "labs/replay/record/record.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/replay/accounts.h"
#include "tests/replay/planned.h"

enum { RANKS = 8, BATCH = 256 };

static ls_node *node;
static ls_workload *workload;

static int open_all(void **state) {
    (void)state;
    return ls_node_open(&node, "dgx1-v100") != LS_OK || ls_workload_open(&workload, "resnet50") != LS_OK;
}

static int close_all(void **state) {
    (void)state;
    ls_workload_close(workload);
    ls_node_close(node);
    return 0;
}

static struct record_memory memory_of(struct ls_plan plan) {
    struct record_memory memory;
    assert_int_equal(record_memory(&memory, workload, node, &plan), LS_OK);
    return memory;
}

static ls_trace *trace_of(struct ls_plan plan) {
    ls_trace *trace;
    assert_int_equal(record_steps(&trace, workload, node, &plan), LS_OK);
    return trace;
}

static int count_named(const ls_trace *trace, const char *name, const char *phase) {
    int count = 0;
    for (int i = 0; i < ls_trace_task_count(trace); i++) {
        const struct ls_task *task = ls_trace_task(trace, i);
        count += strcmp(task->name, name) == 0 && (!phase || strcmp(task->phase, phase) == 0);
    }
    return count;
}

static struct ls_plan zero(int stage) {
    struct ls_plan plan = ls_plan_defaults(LS_PLAN_DDP, RANKS, BATCH);
    plan.shard_state = stage;
    return plan;
}

static struct ls_plan topk(double fraction, bool feedback) {
    struct ls_plan plan = zero(0);
    plan.top_k = fraction;
    plan.feedback = feedback;
    return plan;
}

static double parameter_bytes(void) {
    double floats = 0;
    for (int p = 0; p < workload->parameter_count; p++)
        floats += ls_plan_aligned((double)workload->parameter_counts[p]);
    return floats * sizeof(float);
}

/* Slots are padded to lines of all ranks, less than a percent here. */
static void expect_bytes(size_t bytes, double expected) {
    if (!((double)bytes >= expected * 0.999 && (double)bytes < expected * 1.01 + 4096))
        fail_msg("%zu bytes, not %.0f", bytes, expected);
}

/* --- ZeRO: memory ------------------------------------------------------------------------------------------------------- */

TEST_WITH(open_all, close_all, each_stage_shares_out_one_category_more) {
    double whole = parameter_bytes(); /* momentum: one state */
    struct record_memory plain = memory_of(zero(0)), first = memory_of(zero(1)), second = memory_of(zero(2));
    expect_bytes(plain.first.peak_bytes[LS_MEMORY_OPTIMIZER], whole);
    expect_bytes(first.first.peak_bytes[LS_MEMORY_OPTIMIZER], whole / RANKS);
    expect_bytes(second.first.peak_bytes[LS_MEMORY_OPTIMIZER], whole / RANKS);
    expect_bytes(first.first.peak_bytes[LS_MEMORY_BUCKET], whole);
    expect_bytes(second.first.peak_bytes[LS_MEMORY_GRADIENT], whole / RANKS);
    /* two or three buckets of 25 MiB in turn, in place of 97 MiB */
    assert_true(second.first.peak_bytes[LS_MEMORY_BUCKET] < 0.8 * whole);
    expect_bytes(second.first.peak_bytes[LS_MEMORY_PARAMETER], (double)plain.first.peak_bytes[LS_MEMORY_PARAMETER]);
    assert_true(second.first.peak_bytes[LS_MEMORY_ACTIVATION] == plain.first.peak_bytes[LS_MEMORY_ACTIVATION]);
}

/* A ring's all-reduce is a reduce-scatter and an all-gather. (And batch norm's buffers from rank 0.) Stage 3 gathers
 * twice, except the last blocks, whose parameters stay from forward to backward: a third of resnet50's. */
TEST_WITH(open_all, close_all, traffic_of_each_stage) {
    double whole = 2 * (RANKS - 1.0) / RANKS * parameter_bytes(), buffers = (RANKS - 1.0) * workload->buffer_bytes;
    for (int stage = 0; stage <= 2; stage++) expect_bytes(memory_of(zero(stage)).sent_bytes, whole + buffers);
    double sent = (double)memory_of(zero(3)).sent_bytes - buffers;
    if (!(sent > 1.3 * whole && sent <= 1.51 * whole)) fail_msg("stage 3 sends %g times as much", sent / whole);
}

/* Parameters: a shard, and the gathered blocks: for resnet50, whose largest has 15 MB, two with one prefetched. */
TEST_WITH(open_all, close_all, stage_3_shares_out_the_parameters) {
    struct record_memory third = memory_of(zero(3));
    double whole = parameter_bytes(), held = (double)third.first.peak_bytes[LS_MEMORY_PARAMETER];
    expect_bytes(third.first.peak_bytes[LS_MEMORY_OPTIMIZER], whole / RANKS);
    expect_bytes(third.first.peak_bytes[LS_MEMORY_GRADIENT], whole / RANKS);
    assert_true(held > whole / RANKS && held < 0.7 * whole);
    ls_trace *ahead = trace_of(zero(3));
    struct ls_plan plan = zero(3);
    plan.prefetch_blocks = 0;
    ls_trace *behind = trace_of(plan);
    assert_true(account_step_us(ahead, node) < 0.98 * account_step_us(behind, node)); /* gathers overlap */
}

/* 7.5e9 parameters in mixed precision on 64 ranks: 18 bytes each, of which 8, 12 and 16 are sharded; in stage 3 the
 * fp16 copy has only gathered blocks. */
TEST(zero_papers_example) {
    static const double bytes[] = {18, 10 + 8. / 64, 6 + 12. / 64, 16. / 64};
    ls_node *own_node;
    ls_workload *example;
    struct record_memory memory;
    assert_int_equal(ls_node_open(&own_node, "hgx-h200"), LS_OK);
    assert_int_equal(ls_workload_open(&example, "zero-7.5b"), LS_OK);
    for (int stage = 0; stage <= RECORD_SHARD_STAGES; stage++) {
        struct ls_plan plan = ls_plan_defaults(LS_PLAN_DDP, 64, 64);
        plan.precision = LS_FP16;
        plan.shard_state = stage;
        assert_int_equal(record_memory(&memory, example, own_node, &plan), LS_OK);
        double states = (double)memory.first.peak_total_bytes;
        if (stage >= 2) states -= (double)memory.first.peak_bytes[LS_MEMORY_BUCKET]; /* a few in turn, 0.24 GB each */
        if (stage == 3) states -= 2 * 120e6 * 6; /* gathered: two, in fp32 and fp16 */
        if (fabs(states / (bytes[stage] * 7.5e9) - 1) > 0.002) fail_msg("stage %d: %.4g bytes", stage, states);
    }
    ls_workload_close(example);
    ls_node_close(own_node);
}

/* --- ZeRO: time --------------------------------------------------------------------------------------------------------- */

static double update_us(const ls_trace *trace) {
    for (int i = 0; i < ls_trace_task_count(trace); i++) {
        const struct ls_task *task = ls_trace_task(trace, i);
        if (task->work != LS_NONE && strcmp(task->phase, "optimizer") == 0) return task->us;
    }
    fail_msg("there is no update");
    return NAN;
}

TEST_WITH(open_all, close_all, an_owner_updates_its_part_only) {
    ls_trace *plain = trace_of(zero(0)), *sharded = trace_of(zero(1));
    double floor_us = ls_node_device(node)->kernel_us;
    planned_expect_us(update_us(sharded) - floor_us, (update_us(plain) - floor_us) / RANKS);
    ls_trace_destroy(plain);
    ls_trace_destroy(sharded);
}

/* Each bucket has a reduce-scatter during backward and an all-gather after the update; no all-reduce is left. */
TEST_WITH(open_all, close_all, both_halves_are_in_the_trace) {
    for (int stage = 1; stage <= 2; stage++) {
        ls_trace *trace = trace_of(zero(stage));
        int scatters = count_named(trace, "reduce_scatter", NULL);
        assert_true(scatters > RANKS * 4);
        assert_int_equal(count_named(trace, "all_gather", "gather"), scatters);
        assert_int_equal(count_named(trace, "all_reduce", NULL), 0);
        ls_trace_destroy(trace);
    }
}

/* The same step except the update and the gather, which are not hidden. */
TEST_WITH(open_all, close_all, a_sharded_step_waits_for_its_gather) {
    double floor_us = ls_node_device(node)->kernel_us, bytes = parameter_bytes();
    ls_trace *plain = trace_of(zero(0)), *sharded = trace_of(zero(1));
    double saved_us = (update_us(plain) - floor_us) * (1 - 1.0 / RANKS);
    double gather_us = ls_cost_collective_us(node, LS_COLLECTIVE_ALL_GATHER, RANKS, bytes);
    double plain_us = account_step_us(plain, node), sharded_us = account_step_us(sharded, node);
    assert_true(sharded_us < plain_us - saved_us + 1.1 * gather_us + 1000);
    assert_true(sharded_us > plain_us - saved_us - gather_us);
}

/* --- top-k -------------------------------------------------------------------------------------------------------- */

static double entry_bytes(double fraction) {
    double entries = 0;
    for (int p = 0; p < workload->parameter_count; p++)
        entries += (double)ddp_topk_count((size_t)workload->parameter_counts[p], fraction);
    return 8 * entries;
}

/* The additional memory compared with plain DDP. */
static double more(const struct record_memory *memory, ls_memory_category category) {
    const struct record_memory plain = memory_of(zero(0));
    return (double)memory->first.peak_bytes[category] - (double)plain.first.peak_bytes[category];
}

TEST_WITH(open_all, close_all, a_rank_sends_its_lists_to_all_and_keeps_its_errors) {
    struct record_memory some = memory_of(topk(0.01, true)), forgets = memory_of(topk(0.01, false));
    assert_true((double)some.sent_bytes == (RANKS - 1) * (entry_bytes(0.01) + workload->buffer_bytes));
    assert_true(forgets.sent_bytes == some.sent_bytes);
    assert_true(more(&some, LS_MEMORY_GRADIENT) == parameter_bytes());
    assert_true(more(&forgets, LS_MEMORY_GRADIENT) == 0);
    assert_true(more(&some, LS_MEMORY_BUCKET) == RANKS * entry_bytes(0.01));
}

/* Lists are gathered, bucket by bucket, after a selection for each parameter. */
TEST_WITH(open_all, close_all, lists_are_gathered_in_place_of_an_all_reduce) {
    ls_trace *none = trace_of(zero(0)), *some = trace_of(topk(0.01, true));
    assert_true(count_named(none, "all_gather", NULL) == 0 && count_named(none, "top_k", NULL) == 0);
    assert_int_equal(count_named(some, "all_reduce", NULL), 0);
    assert_true(count_named(none, "all_reduce", NULL) > 0);
    assert_int_equal(count_named(some, "all_gather", NULL), count_named(none, "all_reduce", NULL));
    assert_true(count_named(some, "top_k", NULL) >= RANKS * workload->parameter_count);
    ls_trace_destroy(none);
    ls_trace_destroy(some);
}

static double gathered_us(double fraction) {
    ls_trace *trace = trace_of(topk(fraction, true));
    double us = 0;
    for (int i = 0; i < ls_trace_task_count(trace); i++) {
        const struct ls_task *task = ls_trace_task(trace, i);
        if (strcmp(task->name, "all_gather") == 0) us += task->us;
    }
    ls_trace_destroy(trace);
    return us;
}

TEST_WITH(open_all, close_all, ten_times_the_entries_take_longer) {
    assert_true(gathered_us(0.1) > 2 * gathered_us(0.01));
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, plans_that_cannot_be_are_refused) {
    struct ls_plan plan = zero(2);
    assert_int_equal(open_all(NULL), 0);
    plan.overlap = false;
    assert_int_equal(ls_plan_check(workload, node, &plan), LS_ERR_INVALID);
    scratch_expect_error("ZeRO-2 reduces buckets during backward", NULL);
    plan = zero(3);
    plan.graph = true;
    assert_int_equal(ls_plan_check(workload, node, &plan), LS_ERR_INVALID);
    scratch_expect_error("a CUDA graph cannot hold a step of ZeRO-3", NULL);
    ls_workload without_layers = *workload;
    without_layers.layer_count = 0;
    plan.graph = false;
    assert_int_equal(ls_plan_check(&without_layers, node, &plan), LS_ERR_INVALID);
    scratch_expect_error("no parameters can be gathered block by block", NULL);
    plan = ls_plan_defaults(LS_PLAN_DDP, 128, 256);
    plan.shard_state = 1;
    ls_trace *trace;
    assert_int_equal(record_steps(&trace, workload, node, &plan), LS_ERR_INVALID);
    scratch_expect_error("at most 64 ranks can share the state, not 128", NULL);
    plan = topk(0.01, true);
    plan.shard_state = 1;
    assert_int_equal(record_steps(&trace, workload, node, &plan), LS_ERR_INVALID);
    scratch_expect_error("top-k sends only a part of them", NULL);
    close_all(NULL);
}
