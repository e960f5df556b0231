/* virtual: the times with a core for each device, on a machine that has fewer cores.
 *   idea : with more devices than cores, measured times only show time-slicing. So all devices run on one core, in
 *          turns (--virtual-time), and every task has the CPU time of its thread as its duration. Replay then runs the
 *          tasks in parallel: each device's in their order, none before its dependencies have ended
 *   like : T1 is measured in the same way, so that the cost of recording, and the effect of the one core on the caches,
 *          are in both sides of a speed-up. The first recorded step fills the pipeline and does not count
 *   check: if each device has a core of its own, there are measured and virtual times, and bench_put_comparison prints
 *          how far they differ
 *   not  : included: how cores affect one another. They share a cache and the memory's bandwidth, and a thread takes
 *          some microseconds to wake up. Both make real steps longer, short ones by more; recording makes virtual steps
 *          a little longer
 *   cost : each run computes a few steps on one core, in N turns; a trace of some 30 KB per device and step */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/trace/chrome.h"
#include "common/train/loop.h"
#include "labs/bench/dp_vs_ddp/bench.h"
#include "labs/replay/engine/account.h"

enum { SHARE_OF_STEPS = 6, STEPS_LEAST = 2, STEPS_MOST = 20 }; /* recorded ones, to a measured run's */

/* --- rows -------------------------------------------------------------------------------------------------------- */

static void add_row(bench_model *model, const bench_settings *settings, bench_mode mode, int n) {
    model->virtual_rows[model->virtual_count++] = (bench_row){.mode = mode,
                                                              .n = n,
                                                              .per_device_batch = bench_device_batch(model->plan, n),
                                                              .oversubscribed = n > settings->processors};
}

/* Another N, for users who chose none; 0: there is none. */
static int another_n(const bench_plan *plan, const bench_settings *settings) {
    int most = settings->n.values[settings->n.count - 1];
    for (int n = BENCH_VIRTUAL_N; !settings->n_chosen && n > most && n > 0; n--) {
        bool is_enough = plan->samples == 0 || bench_global_batch(plan, n) <= plan->samples;
        if (is_enough && bench_global_batch(plan, n) % n == 0) return n;
    }
    return 0;
}

void bench_plan_virtual(bench_model *model, const bench_settings *settings) {
    const ls_int_list *list = &settings->n;
    int recorded = model->plan->steps / SHARE_OF_STEPS, another = another_n(model->plan, settings);
    if (recorded < STEPS_LEAST) recorded = STEPS_LEAST;
    if (recorded > STEPS_MOST) recorded = STEPS_MOST;
    model->virtual_plan = *model->plan;
    model->virtual_plan.steps = LS_WARMUP_STEPS + recorded;
    model->virtual_count = 0;
    if (settings->gpus || (settings->n_chosen && list->values[list->count - 1] <= settings->processors)) return;
    add_row(model, settings, BENCH_SINGLE, 1);
    for (bench_mode mode = BENCH_DP; mode <= BENCH_DDP; mode++) {
        for (int i = 0; i < list->count; i++)
            if (list->values[i] > 1) add_row(model, settings, mode, list->values[i]);
        if (another > 0) add_row(model, settings, mode, another);
    }
}

/* --- traces ------------------------------------------------------------------------------------------------------ */

ls_status bench_trace_folder(char path[BENCH_PATH_CAPACITY], const bench_settings *settings, const char *what,
                             const char *model) {
    int length = snprintf(path, BENCH_PATH_CAPACITY, "%s/dp_vs_ddp_%s_%s", settings->folder, what, model);
    if (length < 0 || length >= BENCH_PATH_CAPACITY)
        return ls_fail(LS_ERR_USAGE, "--out: the folder's name is too long: %.60s...", settings->folder);
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

/* --- runs -------------------------------------------------------------------------------------------------------- */

ls_status bench_train_virtual(bench_run *run, const bench_plan *plan, const bench_settings *settings) {
    char folder[BENCH_PATH_CAPACITY], name[BENCH_NAME_CAPACITY + 24];
    ls_trace *trace = NULL;
    struct bench_replay step;
    snprintf(name, sizeof name, "%s %s %d", plan->model, bench_mode_name(run->mode), run->n);
    ls_status status = bench_trace_folder(folder, settings, "virtual", name);
    run->trace = folder;
    if (status == LS_OK) status = bench_train(run, plan, settings);
    run->trace = NULL;
    if (status == LS_OK) status = ls_trace_read(&trace, folder);
    if (status == LS_OK && !ls_trace_what(trace)->virtual_time)
        status = ls_fail(LS_ERR_FORMAT, "the trace in %s was not recorded in virtual time", folder);
    if (status == LS_OK) status = bench_replay_trace(&step, trace, NULL);
    ls_trace_destroy(trace);
    if (status != LS_OK) return status;
    run->step_ms = step.step_ms;
    run->exposed_ms = step.exposed_ms;
    run->busy = step.busy;
    return LS_OK;
}

/* --- output ------------------------------------------------------------------------------------------------------ */

static double excess(const bench_row *virtual_row, const bench_row *measured) {
    return 100 * (virtual_row->step_ms / measured->step_ms - 1);
}

void bench_put_comparison(FILE *file, const bench_model *model) {
    const bench_row *dp = model->virtual_rows + 1, *ddp = dp + (model->virtual_count - 1) / 2;
    fprintf(file, "single %+.1f %%", excess(&model->virtual_rows[0], &model->rows[0]));
    for (const bench_row *end = ddp; dp < end; dp++, ddp++) {
        const bench_row *measured_dp = bench_find(model, BENCH_DP, dp->n),
                        *measured_ddp = bench_find(model, BENCH_DDP, ddp->n);
        if (dp->oversubscribed || !measured_dp || !measured_ddp) continue;
        fprintf(file, "; N = %d: DP %+.1f %%, DDP %+.1f %%", dp->n, excess(dp, measured_dp), excess(ddp, measured_ddp));
    }
}

ls_status bench_print_virtual(FILE *file, const bench_model *model, const bench_settings *settings) {
    if (model->virtual_count == 0) return LS_OK;
    fprintf(file, "\nOn N cores: virtual, recorded on one of this machine's %d cores, %d run%s of %d steps a row\n\n",
            settings->processors, settings->rounds, settings->rounds == 1 ? "" : "s",
            model->virtual_plan.steps - LS_WARMUP_STEPS);
    ls_status status = bench_print_rows(file, bench_virtual_columns, model->virtual_rows, (size_t)model->virtual_count,
                                        sizeof(bench_row));
    fprintf(file, "\nVirtual T_N beside the measured ones, where each device had a core: ");
    bench_put_comparison(file, model);
    fprintf(file, "\n");
    return status;
}
