/* replayed: a step on a modelled node. The real step runs on meta devices, with a network that is described, not
 * computed: the devices count its memory, its groups count the bytes they send, and replay computes when each task
 * would have run (labs/replay/record). */
#include <math.h>

#include "labs/bench/memory/bench_memory.h"
#include "labs/replay/engine/account.h"
#include "labs/replay/record/record.h"

#define MIB 1048576.0

static ls_status replay_step(double *step_ms, const ls_workload *workload, const ls_node *node,
                             const struct ls_plan *plan) {
    ls_trace *trace = NULL;
    ls_timeline *timeline = NULL;
    struct ls_account *account = NULL;
    ls_status status = record_steps(&trace, workload, node, plan);
    if (status == LS_OK) status = ls_engine_run(&timeline, trace, node);
    if (status == LS_OK) status = ls_account_make(&account, trace, timeline, node);
    if (status == LS_OK) *step_ms = account->step_us / 1e3;
    ls_account_free(account);
    ls_timeline_free(timeline);
    ls_trace_destroy(trace);
    return status;
}

static ls_status count_memory(memory_row *row, const ls_workload *workload, const ls_node *node,
                              const struct ls_plan *plan) {
    struct record_memory memory;
    ls_status status = record_memory(&memory, workload, node, plan);
    if (status != LS_OK) return status;
    for (int c = 0; c < LS_MEMORY_COUNT; c++) row->bytes[c] = (double)memory.first.peak_bytes[c];
    row->total_bytes = (double)memory.first.peak_total_bytes;
    row->sent_bytes = (double)memory.sent_bytes;
    return LS_OK;
}

ls_status memory_replay(memory_row *row, const memory_settings *settings) {
    ls_node *node = NULL;
    ls_workload *workload = NULL;
    struct ls_plan plan = ls_plan_defaults(LS_PLAN_DDP, row->n, (double)row->model->batch);
    plan.bucket_bytes = (uint64_t)fmax(1, settings->bucket_cap_mb * MIB);
    if (plan.first_bucket_bytes > plan.bucket_bytes) plan.first_bucket_bytes = plan.bucket_bytes;
    plan.every = row->technique->every;
    plan.shard_state = row->technique->shard_state;
    if (row->technique->split) plan.tensor = row->n;
    ls_status status = ls_node_open(&node, settings->node);
    if (status == LS_OK) status = ls_workload_open(&workload, row->model->name);
    if (status == LS_OK) plan.gil = ls_node_host(node)->lock_us > 0;
    if (status == LS_OK) status = replay_step(&row->run_ms[0], workload, node, &plan);
    if (status == LS_OK) status = count_memory(row, workload, node, &plan);
    row->run_count = status == LS_OK;
    ls_workload_close(workload);
    ls_node_close(node);
    return status;
}
