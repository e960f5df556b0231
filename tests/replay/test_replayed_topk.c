/* Top-k at scale: a published network's step on a modelled node, whose gradients travel as lists of their largest elements. */
#include <math.h>
#include <string.h>

#include "ddp_procs/topk.h"
#include "labs/replay/record/record.h"
#include "tests/base/test.h"
#include "tests/replay/accounts.h"

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

static struct ls_plan plan_of(double fraction, bool feedback) {
    struct ls_plan plan = ls_plan_defaults(LS_PLAN_DDP, RANKS, BATCH);
    plan.top_k = fraction;
    plan.feedback = feedback;
    return plan;
}

static struct record_memory memory_of(double fraction, bool feedback) {
    struct record_memory memory;
    const struct ls_plan plan = plan_of(fraction, feedback);
    assert_int_equal(record_memory(&memory, workload, node, &plan), LS_OK);
    return memory;
}

static ls_trace *trace_of(double fraction) {
    ls_trace *trace;
    const struct ls_plan plan = plan_of(fraction, true);
    assert_int_equal(record_steps(&trace, workload, node, &plan), LS_OK);
    return trace;
}

static double entry_bytes(double fraction) {
    double entries = 0;
    for (int p = 0; p < workload->parameter_count; p++)
        entries += (double)ddp_topk_count((size_t)workload->parameter_counts[p], fraction);
    return 8 * entries;
}

TEST_WITH(open_all, close_all, a_rank_sends_its_lists_to_all_and_keeps_its_errors) {
    double floats = 0, buffers = (RANKS - 1.0) * workload->buffer_bytes;
    for (int p = 0; p < workload->parameter_count; p++)
        floats += ls_plan_aligned((double)workload->parameter_counts[p]);
    struct record_memory plain = memory_of(0, false), some = memory_of(0.01, true), forgets = memory_of(0.01, false);
    assert_true((double)some.sent_bytes == (RANKS - 1) * entry_bytes(0.01) + buffers);
    assert_true(forgets.sent_bytes == some.sent_bytes);
    assert_true((double)(some.first.peak_bytes[LS_MEMORY_GRADIENT] - plain.first.peak_bytes[LS_MEMORY_GRADIENT]) ==
                sizeof(float) * floats);
    assert_true(forgets.first.peak_bytes[LS_MEMORY_GRADIENT] == plain.first.peak_bytes[LS_MEMORY_GRADIENT]);
    assert_true((double)(some.first.peak_bytes[LS_MEMORY_BUCKET] - plain.first.peak_bytes[LS_MEMORY_BUCKET]) ==
                RANKS * entry_bytes(0.01));
}

struct totals {
    int all_gathers, all_reduces, choices;
    double gathered_us;
};

static struct totals totals_of(double fraction) {
    struct totals totals = {0};
    ls_trace *trace = trace_of(fraction);
    for (int i = 0; i < ls_trace_task_count(trace); i++) {
        const struct ls_task *task = ls_trace_task(trace, i);
        bool meets = task->kind == LS_TASK_COLLECTIVE, gathers = meets && strcmp(task->name, "all_gather") == 0;
        totals.all_gathers += gathers;
        totals.all_reduces += meets && strcmp(task->name, "all_reduce") == 0;
        totals.choices += strcmp(task->name, "top_k") == 0;
        if (gathers) totals.gathered_us += task->us;
    }
    ls_trace_destroy(trace);
    return totals;
}

/* Lists are gathered, bucket by bucket, behind a choice for each parameter; ten times the entries take longer. */
TEST_WITH(open_all, close_all, lists_are_gathered_in_place_of_an_all_reduce) {
    struct totals none = totals_of(0), some = totals_of(0.01), more = totals_of(0.1);
    assert_true(none.all_gathers == 0 && none.choices == 0 && none.all_reduces > 0);
    assert_int_equal(some.all_reduces, 0);
    assert_int_equal(some.all_gathers, none.all_reduces);
    assert_true(some.choices >= RANKS * workload->parameter_count && some.choices == more.choices);
    assert_true(more.gathered_us > 2 * some.gathered_us);
}

TEST_WITH(open_all, close_all, what_cannot_be_is_refused) {
    struct ls_plan plan = plan_of(0.01, true);
    ls_trace *trace;
    plan.shard_state = 1;
    ls_log_sink sink = ls_log_capture((char[200]){""}, 200);
    assert_int_equal(record_steps(&trace, workload, node, &plan), LS_ERR_INVALID);
    ls_log_restore(sink);
}
