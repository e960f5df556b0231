/* plan — which combinations of modes fit into the devices' memory, how fast they would be, and why the others do not fit.
 *
 *     build/plan deep --devices 4 --memory 200M
 *     build/plan gpt:12,12,768,256 --devices 8 --memory 2G --node dgx1-v100 --batch 64
 *     build/plan resnet50 --devices 8 --node hgx-h200 --batch 256
 *
 * The exit status is 0 even if nothing fits: that is an answer. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/results.h"
#include "labs/replay/plan/planner.h"

#define THIS_MACHINE "build/results/this_machine.json"

static void choose_node(planner_settings *s) {
    s->node_is_default = !s->node;
    if (s->node) return;
    s->node = access(THIS_MACHINE, R_OK) == 0 ? THIS_MACHINE : "hgx-h200";
}

static ls_status open_inputs(planner_results *results, planner_settings *s) {
    ls_status status = ls_node_open(&results->node, s->node);
    if (status == LS_OK && s->workload) status = ls_workload_open(&results->workload, s->workload);
    if (status != LS_OK) return status;
    const struct ls_workload_defaults *defaults = results->workload ? &results->workload->defaults : NULL;
    if (s->batch == 0) s->batch = defaults && defaults->batch > 0 ? (int64_t)defaults->batch : 64;
    results->batch = (double)s->batch;
    results->memory_bytes =
        s->memory_bytes > 0 ? (double)s->memory_bytes : (double)ls_node_device(results->node)->memory_bytes;
    if (results->memory_bytes == 0)
        return ls_fail(LS_ERR_USAGE, "give --memory, as in 512M: the node %s does not say how much its devices have",
                       ls_node_name(results->node));
    if (s->host_lock_us >= 0) ls_node_change_host(results->node)->lock_us = s->host_lock_us;
    snprintf(results->on, sizeof results->on, "replayed on %s", ls_node_name(results->node));
    return LS_OK;
}

/* Runs the plainest combination first, to report errors that concern all of them: in the model, its data, or the
 * batch. */
static ls_status check_first(const planner_results *results) {
    const planner_row *first = results->rows;
    return isnan(first->total_bytes) ? ls_fail(LS_ERR_USAGE, "%s", first->reason) : LS_OK;
}

static ls_status run_rows(planner_results *results) {
    ls_progress progress = ls_progress_begin(results->settings->quiet);
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < results->count; i++) {
        ls_progress_show(&progress, "combination", i + 1, results->count);
        status = planner_run(&results->rows[i], results);
        if (status == LS_OK && i == 0) status = check_first(results);
    }
    ls_progress_end(&progress);
    return status;
}

static ls_status plan(planner_settings *settings) {
    planner_results results = {.settings = settings};
    choose_node(settings);
    ls_status status = planner_prepare_files(settings);
    if (status == LS_OK) status = open_inputs(&results, settings);
    if (status == LS_OK) status = planner_list(&results);
    if (status == LS_OK) status = run_rows(&results);
    if (status == LS_OK) status = planner_sort(&results);
    if (status == LS_OK) status = planner_print(&results);
    if (status == LS_OK) status = planner_write_files(&results);
    free(results.rows);
    ls_workload_close(results.workload);
    ls_node_close(results.node);
    return status;
}

int main(int argc, char **argv) {
    planner_settings settings;
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = planner_parse(&settings, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    ls_log_init(argv[0], -1, settings.quiet);
    return ls_status_exit_code(ls_results_written(plan(&settings)));
}
