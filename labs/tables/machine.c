/* machine — runs, traces and predictions for table 6.
 *   idea  : the programs that users run are children of this one, and their own clock is what is believed. A round runs
 *           every kind once, so that what else the machine does falls on all of them alike; the median is over rounds
 *   apart : timed runs have no --trace and traced runs are not timed, but where a replayed trace is held against itself
 *   input : a prediction sees the trace of one device and the node that `calibrate` wrote, not two devices */
#include "labs/tables/machine.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/statistics.h"
#include "common/trace/chrome.h"
#include "labs/bench_shared/child.h"
#include "labs/bench_shared/output.h"
#include "labs/tables/train.h"

enum { ROUNDS_MAX = 15, CACHE_BYTES = 32 << 20 }; /* where the system does not tell: [K] a common size */

static const struct {
    enum tables_mode mode;
    int devices, part;
    const char *name, *folder;
} kinds[MACHINE_RUNS] = {
#define MACHINE_RUN_ROW(name, mode, devices, part, text) {mode, devices, part, text, #name},
    MACHINE_RUN_MAP(MACHINE_RUN_ROW)
#undef MACHINE_RUN_ROW
};

const char *machine_run_name(enum machine_run run) { return kinds[run].name; }
int machine_run_devices(enum machine_run run) { return kinds[run].devices; }

/* --- runs --------------------------------------------------------------------------------------------------------- */

/* One run; with a folder it is traced. */
static ls_status train(double *ms, const struct machine_plan *plan, enum machine_run kind, const char *folder,
                       const tables_settings *settings) {
    char trace[PATH_MAX + 16];
    const char *extra[7];
    int count = 0;
    extra[count++] =
        "--data=data/digits"; /* as bench_dp_vs_ddp: a loader of random numbers would take the cores' time */
    if (plan->momentum) extra[count++] = plan->momentum;
    if (kinds[kind].mode == TABLES_DDP) extra[count++] = "--shard=contiguous"; /* DP's chunks */
    if (kind == MACHINE_APART) extra[count++] = "--no-overlap";
    if (folder) {
        snprintf(trace, sizeof trace, "--trace=%s", folder);
        extra[count++] = trace;
    }
    extra[count] = NULL;
    const struct tables_run run = {.mode = kinds[kind].mode,
                                   .devices = kinds[kind].devices,
                                   .model = plan->model,
                                   .optimizer = plan->optimizer,
                                   .precision = "fp32",
                                   .batch = plan->batch / kinds[kind].part,
                                   .steps = plan->steps,
                                   .extra = extra};
    cJSON *summary;
    ls_status status = tables_train(&summary, &run, settings->timeout_s);
    if (status != LS_OK) return status;
    *ms = tables_step_ms(summary);
    cJSON_Delete(summary);
    return LS_OK;
}

static ls_status time_all(struct machine_record *record, const struct machine_plan *plan,
                          const bool timed[MACHINE_RUNS], int rounds, const tables_settings *settings) {
    double ms[MACHINE_RUNS][ROUNDS_MAX] = {{0}};
    if (rounds > ROUNDS_MAX) rounds = ROUNDS_MAX;
    for (int round = 0; round < rounds; round++) {
        for (int kind = 0; kind < MACHINE_RUNS; kind++) {
            if (!timed[kind]) continue;
            ls_status status = train(&ms[kind][round], plan, (enum machine_run)kind, NULL, settings);
            if (status != LS_OK) return status;
        }
    }
    for (int kind = 0; kind < MACHINE_RUNS; kind++) {
        if (!timed[kind]) continue;
        ls_sort(ms[kind], (size_t)rounds);
        record->ms[kind] = ls_quantile(ms[kind], (size_t)rounds, 0.5);
    }
    return LS_OK;
}

static ls_status trace_one(struct machine_record *record, const struct machine_plan *plan, enum machine_run kind,
                           const tables_settings *settings) {
    char folder[PATH_MAX];
    double ms;
    snprintf(folder, sizeof folder, "%.3800s/traces/%s_%s", settings->folder, plan->model, kinds[kind].folder);
    ls_status status = bench_prepare_folder(folder, NULL, 0);
    if (status == LS_OK) status = train(&ms, plan, kind, folder, settings);
    if (status == LS_OK) status = ls_trace_read(&record->traces[kind], folder);
    return status;
}

void machine_record_free(struct machine_record *record) {
    for (int kind = 0; kind < MACHINE_RUNS; kind++) ls_trace_destroy(record->traces[kind]);
    *record = (struct machine_record){.traces = {NULL}};
}

ls_status machine_record(struct machine_record *record, const struct machine_plan *plan, const bool timed[MACHINE_RUNS],
                         const bool traced[MACHINE_RUNS], int rounds, const tables_settings *settings) {
    *record = (struct machine_record){.traces = {NULL}};
    for (int kind = 0; kind < MACHINE_RUNS; kind++) record->ms[kind] = NAN;
    ls_status status = time_all(record, plan, timed, rounds, settings);
    for (int kind = 0; status == LS_OK && kind < MACHINE_RUNS; kind++) {
        if (traced[kind]) status = trace_one(record, plan, (enum machine_run)kind, settings);
    }
    if (status != LS_OK) machine_record_free(record);
    return status;
}

/* --- the machine -------------------------------------------------------------------------------------------------- */

static ls_status calibrate_one(ls_node **node, const char *name, bool beyond_cache, const tables_settings *settings) {
    char program[BENCH_PATH_CAPACITY], path[PATH_MAX], out[PATH_MAX + 8];
    char quiet[] = "--quiet", quick[] = "--quick", beyond[] = "--beyond-cache";
    bench_output *output = malloc(sizeof *output);
    ls_status status =
        output ? bench_find_program(program, "calibrate") : ls_fail(LS_ERR_NO_MEMORY, "no memory for calibrate");
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

void machine_close_nodes(struct machine_nodes *nodes) {
    ls_node_close(nodes->in_caches);
    ls_node_close(nodes->beyond_caches);
    *nodes = (struct machine_nodes){NULL, NULL};
}

ls_status machine_calibrate(struct machine_nodes *nodes, const tables_settings *settings) {
    *nodes = (struct machine_nodes){NULL, NULL};
    ls_status status = calibrate_one(&nodes->in_caches, "this_machine", false, settings);
    if (settings->quick) return status; /* its network fits */
    if (status == LS_OK) status = calibrate_one(&nodes->beyond_caches, "this_machine_beyond_cache", true, settings);
    if (status != LS_OK) machine_close_nodes(nodes);
    return status;
}

/* Of the first core; what sysconf says of it is, on some machines, the sum of all there are. */
static double last_cache_bytes(void) {
    long kib = 0;
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    if (!file) return CACHE_BYTES;
    if (fscanf(file, "%ldK", &kib) != 1) kib = 0;
    fclose(file);
    return kib > 0 ? (double)kib * 1024 : CACHE_BYTES;
}

bool machine_fits_cache(const ls_workload *workload) {
    double floats = (double)ls_workload_parameters(workload) * (2 + workload->optimizer_states);
    return floats * sizeof(float) < last_cache_bytes();
}

/* --- replays ------------------------------------------------------------------------------------------------------ */

static struct machine_step step_of(const struct ls_account *account) {
    struct machine_step step = {.step = account->step_us * 1e-3};
    double part = 1e-3 / account->device_count;
    for (int d = 0; d < account->device_count; d++) {
        step.compute += part * account->devices[d].compute_us;
        step.exposed += part * account->devices[d].exposed_us;
        step.host += part * account->devices[d].host_us;
        step.idle += part * account->devices[d].idle_us;
    }
    return step;
}

static ls_status replay(struct machine_step *step, const ls_trace *trace, const ls_node *node) {
    ls_timeline *timeline = NULL;
    struct ls_account *account = NULL;
    ls_status status = ls_engine_run(&timeline, trace, node);
    if (status == LS_OK) status = ls_account_make(&account, trace, timeline, node);
    if (status == LS_OK) *step = step_of(account);
    ls_account_free(account);
    ls_timeline_free(timeline);
    return status;
}

ls_status machine_replay_recorded(struct machine_step *recorded, struct machine_step *replayed, const ls_trace *trace) {
    struct ls_account *account = NULL;
    ls_status status = ls_account_recorded(&account, trace);
    if (status == LS_OK) *recorded = step_of(account);
    ls_account_free(account);
    return status == LS_OK ? replay(replayed, trace, NULL) : status;
}

ls_status machine_predict(struct machine_step *predicted, const ls_workload *workload, const ls_node *node,
                          const struct machine_plan *plan, enum machine_run run) {
    static const ls_build_mode modes[] = {
        [TABLES_SINGLE] = LS_BUILD_SINGLE, [TABLES_DP] = LS_BUILD_DP, [TABLES_DDP] = LS_BUILD_DDP};
    struct ls_build_options options =
        ls_build_defaults(modes[kinds[run].mode], kinds[run].devices, (double)plan->batch / kinds[run].part);
    ls_trace *trace = NULL;
    options.overlap = run != MACHINE_APART;
    ls_status status = ls_build(&trace, workload, node, &options);
    if (status == LS_OK) status = replay(predicted, trace, node);
    ls_trace_destroy(trace);
    return status;
}
