#include "labs/replay/tables/replayed.h"

#include "labs/replay/record/record.h"

static void add_shares(struct tables_shares *shares, const struct ls_device_account *device, double weight) {
    shares->compute += weight * device->compute_us;
    shares->communication += weight * device->communication_us;
    shares->exposed += weight * device->exposed_us;
}

static void read_account(struct tables_replayed *replayed, const struct ls_account *account) {
    *replayed = (struct tables_replayed){.step_ms = account->step_us * 1e-3};
    int count = account->device_count, first_other = count > 1 ? 1 : 0;
    add_shares(&replayed->first, &account->devices[0], 1 / account->step_us);
    for (int d = 0; d < count; d++) {
        add_shares(&replayed->mean, &account->devices[d], 1 / (count * account->step_us));
        if (d < first_other) continue;
        add_shares(&replayed->others, &account->devices[d], 1 / ((count - first_other) * account->step_us));
    }
}

/* Collectives of one device follow one another on its stream, so their times add up. */
static double collectives_us(const ls_trace *trace, const ls_timeline *timeline) {
    double us = 0;
    for (int i = 0; i < ls_trace_task_count(trace); i++) {
        const struct ls_task *task = ls_trace_task(trace, i);
        if (task->kind == LS_TASK_COLLECTIVE && task->step > 0) us += timeline->end_us[i] - timeline->start_us[i];
    }
    return us;
}

ls_status tables_replay(struct tables_replayed *replayed, const ls_workload *workload, const ls_node *node,
                        const struct ls_plan *options) {
    ls_trace *trace = NULL;
    ls_timeline *timeline = NULL;
    struct ls_account *account = NULL;
    ls_status status = record_steps(&trace, workload, node, options);
    if (status == LS_OK) status = ls_engine_run(&timeline, trace, node);
    if (status == LS_OK) status = ls_account_make(&account, trace, timeline, node);
    if (status == LS_OK) {
        read_account(replayed, account);
        double whole_us = account->step_us * account->steps * account->device_count;
        replayed->collectives = collectives_us(trace, timeline) / whole_us;
    }
    ls_account_free(account);
    ls_timeline_free(timeline);
    ls_trace_destroy(trace);
    return status;
}
