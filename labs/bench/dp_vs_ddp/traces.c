/* traces: where those that the bench records lie, and what a replay of one says of a step. */
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/bench/dp_vs_ddp/bench.h"
#include "labs/replay/engine/account.h"

ls_status bench_trace_folder(char path[BENCH_PATH_CAPACITY], const bench_settings *settings, const char *what,
                             const char *model) {
    int length = snprintf(path, BENCH_PATH_CAPACITY, "%s/dp_vs_ddp_%s_%s", settings->folder, what, model);
    if (length < 0 || length >= BENCH_PATH_CAPACITY)
        return ls_fail(LS_ERR_USAGE, "--out is too long: %.60s...", settings->folder);
    for (char *c = path + length - strlen(model); *c; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        if (!plain) *c = '_';
    }
    return LS_OK;
}

ls_status bench_replay_trace(struct bench_replay *replay, const ls_trace *trace, const ls_node *node) {
    ls_timeline *timeline = NULL;
    struct ls_account *account = NULL;
    *replay = (struct bench_replay){.step_ms = 0};
    ls_status status = ls_engine_run(&timeline, trace, node);
    if (status == LS_OK) status = ls_account_make(&account, trace, timeline, node);
    if (status == LS_OK) {
        replay->step_ms = account->step_us * 1e-3;
        replay->busy = account->busy_share;
        for (int d = 0; d < account->device_count; d++) {
            replay->exposed_ms += account->devices[d].exposed_us * 1e-3 / account->device_count;
            replay->lock_ms += account->devices[d].lock_us * 1e-3 / account->device_count;
        }
    }
    ls_account_free(account);
    ls_timeline_free(timeline);
    return status;
}
