/* machine — runs, traces and predictions for table 6.
 *   idea  : the programs that users run are children of this one, and their own clocks are used. A round runs every
 *           kind once, so that other load affects all of them equally; the median is over rounds
 *   apart : timed runs have no --trace and traced runs are not timed, except where a replayed trace is compared with
 *           itself
 *   input : a prediction sees the trace of one device and the node that `calibrate` wrote, not two devices. A machine's
 *           speed changes from run to run, so the inputs of predictions are traced in every round, and the trace counts
 *           whose step is nearest to the median of one device's untraced ones
 *   steps : a prediction has as many as the trace, each with its own times, and is reported by their median */
#include "labs/replay/tables/machine.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cores.h"
#include "common/base/statistics.h"
#include "common/trace/chrome.h"
#include "labs/bench/shared/child.h"
#include "labs/bench/shared/output.h"
#include "labs/replay/tables/train.h"

enum { ROUNDS_MAX = 15, TRIES = 3, CACHE_BYTES = 32 << 20 }; /* if the system does not report it: [K] a common size */

const struct machine_kind machine_kinds[MACHINE_RUNS] = {
#define MACHINE_RUN_ROW(name, mode, devices, part, text) {mode, devices, part, text, #name},
    MACHINE_RUN_MAP(MACHINE_RUN_ROW)
#undef MACHINE_RUN_ROW
};

/* --- runs --------------------------------------------------------------------------------------------------------- */

/* One run; with a folder it is traced. Digits, as for bench_dp_vs_ddp: a loader of random numbers would take the cores'
 * time. Contiguous shards are DP's chunks. */
static ls_status train(double *ms, const struct machine_plan *plan, enum machine_run run, const char *folder,
                       const tables_settings *settings) {
    const struct machine_kind *kind = &machine_kinds[run];
    char arguments[256];
    cJSON *summary;
    snprintf(arguments, sizeof arguments,
             "--data=data/digits --model=%s %s --precision=fp32 --batch-size=%d --steps=%d%s%s", plan->model,
             plan->optimizer, plan->batch / kind->part, plan->steps,
             kind->mode == LS_PLAN_DDP ? " --shard=contiguous" : "", run == MACHINE_APART ? " --no-overlap" : "");
    const struct tables_training training = {
        .mode = kind->mode, .devices = kind->devices, .arguments = arguments, .trace = folder};
    ls_status status = tables_train(&summary, &training, settings->timeout_s);
    if (status == LS_OK) *ms = bench_number_of(summary, "median_step_ms");
    cJSON_Delete(summary);
    return status;
}

/* One traced run. */
static ls_status trace_one(ls_trace **trace, const struct machine_plan *plan, enum machine_run run, int round,
                           const tables_settings *settings) {
    char folder[PATH_MAX];
    double ms;
    snprintf(folder, sizeof folder, "%.3800s/traces/%s_%s_%d", settings->folder, plan->model, machine_kinds[run].folder,
             round + 1);
    ls_status status = bench_prepare_folder(&(ls_named_files){0}, folder, &(bench_file){NULL, NULL});
    if (status == LS_OK) status = train(&ms, plan, run, folder, settings);
    if (status == LS_OK) status = ls_trace_read(trace, folder);
    return status;
}

/* The results of the rounds, by kind. */
struct rounds {
    int count;
    double ms[MACHINE_RUNS][ROUNDS_MAX];
    ls_trace *traces[MACHINE_RUNS][ROUNDS_MAX]; /* NULL: not recorded in that round */
};

bool machine_has_cores(enum machine_run run) { return machine_kinds[run].devices <= ls_usable_cores(); }

static bool is_timed(enum machine_run run) {
    return machine_has_cores(run) && run != MACHINE_DP1 && run != MACHINE_DDP1;
}

/* Predictions start from SINGLE and HALF; the others are compared with themselves, for which one trace is enough. */
static bool is_traced(enum machine_run run, int round) {
    return machine_has_cores(run) && run != MACHINE_APART &&
           (round == 0 || run == MACHINE_SINGLE || run == MACHINE_HALF);
}

static ls_status run_round(struct rounds *rounds, int round, const struct machine_plan *plan,
                           const tables_settings *settings) {
    ls_status status = LS_OK;
    for (enum machine_run run = 0; status == LS_OK && run < MACHINE_RUNS; run++) {
        if (is_timed(run)) status = train(&rounds->ms[run][round], plan, run, NULL, settings);
        if (status == LS_OK && is_traced(run, round))
            status = trace_one(&rounds->traces[run][round], plan, run, round, settings);
    }
    return status;
}

int machine_nearest(ls_trace *const *traces, int count, double ms) {
    int nearest = 0;
    double least_ms = INFINITY;
    for (int i = 0; i < count && traces[i]; i++) {
        double apart_ms = fabs(ls_trace_what(traces[i])->median_step_ms - ms);
        if (!(apart_ms < least_ms)) continue;
        nearest = i;
        least_ms = apart_ms;
    }
    return nearest;
}

/* The medians of all rounds. */
static void choose(struct machine_record *record, struct rounds *rounds) {
    for (enum machine_run run = 0; run < MACHINE_RUNS; run++) {
        ls_sort(rounds->ms[run], (size_t)rounds->count);
        record->ms[run] = is_timed(run) ? ls_quantile(rounds->ms[run], (size_t)rounds->count, 0.5) : NAN;
        int round = record->rounds[run] = machine_nearest(rounds->traces[run], rounds->count, record->ms[run]);
        record->traces[run] = rounds->traces[run][round];
        rounds->traces[run][round] = NULL;
    }
}

void machine_record_free(struct machine_record *record) {
    for (int run = 0; run < MACHINE_RUNS; run++) ls_trace_destroy(record->traces[run]);
    *record = (struct machine_record){.traces = {NULL}};
}

ls_status machine_record(struct machine_record *record, const struct machine_plan *plan, int rounds,
                         const tables_settings *settings) {
    *record = (struct machine_record){.traces = {NULL}};
    struct rounds done = {.count = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX};
    ls_status status = LS_OK;
    for (int round = 0; status == LS_OK && round < done.count; round++)
        status = run_round(&done, round, plan, settings);
    if (status == LS_OK) choose(record, &done);
    for (int run = 0; run < MACHINE_RUNS; run++)
        for (int round = 0; round < done.count; round++) ls_trace_destroy(done.traces[run][round]);
    return status;
}

/* --- the machine -------------------------------------------------------------------------------------------------- */

static ls_status calibrate_one(ls_node **node, const char *name, bool beyond_cache, const tables_settings *settings) {
    char program[BENCH_PATH_CAPACITY], path[PATH_MAX], out[PATH_MAX + 8];
    char quiet[] = "--quiet", quick[] = "--quick", beyond[] = "--beyond-cache";
    bench_output *output = malloc(sizeof *output);
    ls_status status = output ? bench_find_program(program, "calibrate")
                              : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for calibrate");
    snprintf(path, sizeof path, "%.3800s/%s%s.json", settings->folder, settings->quick ? "quick_" : "", name);
    snprintf(out, sizeof out, "--out=%s", path);
    char *argv[6] = {program, out, quiet};
    int count = 3;
    if (settings->quick) argv[count++] = quick;
    if (beyond_cache) argv[count++] = beyond;
    if (status == LS_OK) status = bench_child_run(argv, settings->timeout_s, output);
    if (status == LS_OK) status = ls_node_open(node, path);
    free(output);
    return status;
}

bool machine_is_rough(const ls_node *node) { return strstr(ls_node_description(node), "rough") != NULL; }

/* Tries a few times, if necessary: a disturbance of the machine may pass. */
static ls_status calibrate_quietly(ls_node **node, const char *name, bool beyond_cache,
                                   const tables_settings *settings) {
    ls_status status = calibrate_one(node, name, beyond_cache, settings);
    for (int i = 1; i < TRIES && status == LS_OK && machine_is_rough(*node) && !settings->quick; i++) {
        ls_note("the machine was busy while %s was measured: once more", name);
        ls_node_close(*node);
        *node = NULL;
        status = calibrate_one(node, name, beyond_cache, settings);
    }
    return status;
}

ls_status machine_calibrate(ls_node *nodes[2], const tables_settings *settings) {
    ls_status status = calibrate_quietly(&nodes[0], "this_machine", false, settings);
    if (status != LS_OK || settings->quick) return status; /* a quick table's network fits */
    return calibrate_quietly(&nodes[1], "this_machine_beyond_cache", true, settings);
}

bool machine_fits_cache(const ls_workload *workload) {
    double floats = (double)ls_workload_parameters(workload) * (2 + workload->optimizer_states);
    double cache_bytes = ls_cache_bytes(3);
    return floats * sizeof(float) < (cache_bytes > 0 ? cache_bytes : CACHE_BYTES);
}

ls_status machine_predict(tables_replayed predicted, const ls_workload *workload, const ls_node *node,
                          const struct machine_plan *plan, enum machine_run run) {
    const struct machine_kind *kind = &machine_kinds[run];
    struct ls_plan options = ls_plan_defaults(kind->mode, kind->devices, (double)plan->batch / kind->part);
    options.overlap = run != MACHINE_APART;
    options.vary = workload->step_count > 0;
    if (options.vary) options.steps = workload->step_count + 1; /* the first does not count */
    return tables_replay(predicted, workload, node, &options);
}
