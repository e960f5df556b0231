/* run: one combination. A model is trained by the program's own code on meta devices; a workload is described, and the
 * real step runs with the description. In both cases the step is recorded, gets the node's times, and is replayed. */
#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/engine/account.h"
#include "labs/replay/engine/recost.h"
#include "labs/replay/plan/planner.h"
#include "labs/replay/record/real.h"
#include "labs/replay/record/record.h"

enum { WORDS = 48 };

/* --- the options --------------------------------------------------------------------------------------------------- */

static void add_word(planner_common *common, const char *name, const char *value) {
    if (value && common->count < PLANNER_COMMON)
        snprintf(common->words[common->count++], sizeof common->words[0], "--%s=%s", name, value);
}

void planner_make_common(planner_common *common, const planner_settings *s) {
    char batch[32];
    common->count = 0;
    add_word(common, "model", s->model);
    add_word(common, "data", s->data);
    snprintf(batch, sizeof batch, "%lld", (long long)s->batch);
    if (s->batch > 0) add_word(common, "batch-size", batch);
    if (s->optimizer >= 0) add_word(common, "optimizer", planner_optimizers[s->optimizer]);
}

/* The common options, and the row's own; their texts are in `common` and `own`. */
static int list_words(char *words[WORDS], planner_common *common, char own[PLANNER_OPTIONS], const planner_row *row) {
    int count = 0;
    for (int i = 0; i < common->count; i++) words[count++] = common->words[i];
    memcpy(own, row->options, PLANNER_OPTIONS);
    for (char *at = strtok(own, " "); at && count < WORDS; at = strtok(NULL, " ")) words[count++] = at;
    return count;
}

/* --- figures ------------------------------------------------------------------------------------------------------- */

static void hold(planner_row *row, const planner_results *results, const ls_memory_report *report, int device) {
    row->device = device;
    for (int c = 0; c < LS_MEMORY_COUNT; c++) row->bytes[c] = (double)report->peak_bytes[c];
    row->total_bytes = (double)report->peak_total_bytes;
    row->over_bytes = row->total_bytes - results->memory_bytes;
    row->verdict = row->over_bytes > 0 ? PLANNER_TOO_LARGE : PLANNER_FITS;
}

static void take_account(planner_row *row, const struct ls_account *account, double batch) {
    row->step_ms = account->step_us / 1e3;
    row->samples_per_s = batch / (account->step_us / 1e6);
    for (int d = 0; d < account->device_count; d++) {
        const struct ls_device_account *device = &account->devices[d];
        double part = 1 / (account->step_us * account->device_count);
        row->compute += device->compute_us * part;
        row->communication += device->exposed_us * part;
        row->host += device->host_us * part;
        row->idle += device->idle_us * part;
    }
}

static ls_status replay(planner_row *row, const planner_results *results, const ls_trace *priced) {
    ls_timeline *timeline = NULL;
    struct ls_account *account = NULL;
    ls_status status = ls_engine_run(&timeline, priced, results->node);
    if (status == LS_OK) status = ls_account_make(&account, priced, timeline, results->node);
    if (status == LS_OK) take_account(row, account, results->batch);
    ls_account_free(account);
    ls_timeline_free(timeline);
    return status;
}

/* --- a model, a workload ------------------------------------------------------------------------------------------- */

static ls_status run_model(planner_row *row, const planner_results *results, const struct record_program *program,
                           struct ls_plan *plan) {
    ls_trace *recorded = NULL, *priced = NULL;
    struct record_held held;
    ls_status status = record_real(&recorded, &held, plan, program, results->node);
    if (status == LS_OK) hold(row, results, &held.report, held.device);
    if (status == LS_OK && row->verdict == PLANNER_FITS) {
        ls_workload workload = record_real_workload(results->settings->model, program, plan);
        status = ls_recost(&priced, recorded, &workload, results->node, plan);
        if (status == LS_OK) status = replay(row, results, priced);
    }
    ls_trace_destroy(recorded);
    ls_trace_destroy(priced);
    return status;
}

static ls_status run_workload(planner_row *row, const planner_results *results, struct ls_plan *plan) {
    struct record_memory memory;
    ls_trace *priced = NULL;
    if (plan->pipeline > 1) {
        row->verdict = PLANNER_UNPLANNED;
        snprintf(row->reason, sizeof row->reason,
                 "stages of a described network are not recorded; those of a --model are");
        return LS_OK;
    }
    plan->gil = ls_node_host(results->node)->lock_us > 0;
    row->verdict =
        PLANNER_UNPLANNED; /* if that fails: the program accepts the options, but the description does not suffice for them */
    ls_status status = record_memory(&memory, results->workload, results->node, plan);
    if (status != LS_OK) return status;
    bool first = memory.first.peak_total_bytes >= memory.last.peak_total_bytes;
    hold(row, results, first ? &memory.first : &memory.last, first ? 0 : plan->devices - 1);
    if (row->verdict != PLANNER_FITS) return LS_OK;
    status = record_steps(&priced, results->workload, results->node, plan);
    if (status == LS_OK) status = replay(row, results, priced);
    ls_trace_destroy(priced);
    return status;
}

/* --- a row --------------------------------------------------------------------------------------------------------- */

/* Keeps the first error of a run; warnings and notes concern combinations that the user has not chosen. */
static void keep_error(void *context, const char *line) {
    static const char mark[] = ": error: ";
    planner_row *row = context;
    const char *error = strstr(line, mark);
    if (error && row->reason[0] == '\0') snprintf(row->reason, sizeof row->reason, "%s", error + sizeof mark - 1);
}

static ls_status run(planner_row *row, const planner_results *results) {
    static planner_common common;
    char *words[WORDS], own[PLANNER_OPTIONS];
    struct record_program program;
    struct ls_plan plan;
    planner_make_common(&common, results->settings);
    int count = list_words(words, &common, own, row);
    ls_status status = record_program_parse(&program, row->mode, results->settings->devices, words, count);
    if (status == LS_OK) status = record_program_plan(&plan, &program);
    if (status != LS_OK) return status;
    return results->workload ? run_workload(row, results, &plan) : run_model(row, results, &program, &plan);
}

ls_status planner_run(planner_row *row, const planner_results *results) {
    row->step_ms = row->samples_per_s = row->total_bytes = row->over_bytes = NAN;
    ls_log_redirect(keep_error, row);
    ls_status status = run(row, results);
    ls_log_redirect(NULL, NULL);
    if (status == LS_ERR_USAGE || status == LS_ERR_INVALID || status == LS_ERR_UNSUPPORTED) {
        if (row->verdict != PLANNER_UNPLANNED) row->verdict = PLANNER_REFUSED;
        row->step_ms = row->samples_per_s = row->total_bytes = row->over_bytes = NAN;
        return LS_OK;
    }
    return status == LS_OK ? LS_OK : ls_fail(status, "%s %s: %s", planner_program(row), row->options, row->reason);
}
