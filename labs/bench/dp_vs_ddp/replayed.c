/* replayed: the same training steps on eight GPUs, which this machine need not have.
 *   idea : on CPU devices that share one memory, copies are cheap and a launch costs nothing, so DP may be nearly as
 *          fast as DDP. On GPUs it is slower, and in Python slower still. To show why, the model's step is recorded on
 *          a meta device (shapes, flops and bytes, nothing computed), and build/replay's parts compute when each task
 *          would have run on a DGX-1 (labs/replay/nodes/dgx1-v100.json)
 *   how  : twice: as C programs launch, with a launch of LAUNCH_C_US and threads that do not block one another; and as
 *          Python does, with the node's launch cost, which DP's threads pay one after another under the interpreter's
 *          one lock (DDP's processes have one each)
 *   not  : measured. The time of a kernel follows from its flops and bytes alone (a roofline with a floor) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/trace/chrome.h"
#include "labs/bench/dp_vs_ddp/bench.h"
#include "labs/replay/engine/plan.h"
#include "labs/replay/record/record.h"

#define LAUNCH_C_US 2.5 /* cudaLaunchKernel from C takes 1 to 3 us (labs/replay/nodes/README.md) */

enum { DEVICES_MOST = 8, STEPS = 4 };

static const struct way {
    const char *name, *text;
    bool python;
} ways[] = {{"C", "this program", false}, {"Python", "Python", true}};

/* --- one device's step ------------------------------------------------------------------------------------------- */

/* The trace is kept in the results' folder, for inspection and replay. */
static ls_status record_step(ls_workload **workload, const bench_plan *plan, const bench_settings *settings) {
    char folder[BENCH_PATH_CAPACITY], option[BENCH_PATH_CAPACITY + 8], program[BENCH_PATH_CAPACITY];
    char model[BENCH_NAME_CAPACITY + 16], data[BENCH_PATH_CAPACITY], batch[64];
    char *argv[20 + BENCH_RECIPE_MAX] = {program,
                                         (char[]){"--single"},
                                         (char[]){"--device-kind=meta"},
                                         (char[]){"--drop-last"},
                                         (char[]){"--steps=2"},
                                         (char[]){"--no-evaluate"},
                                         (char[]){"--quiet"},
                                         option,
                                         model,
                                         data,
                                         batch};
    int count = 11;
    for (int i = 0; plan->recipe[i]; i++) argv[count++] = (char *)(uintptr_t)plan->recipe[i];
    snprintf(model, sizeof model, "--model=%s", plan->model);
    snprintf(data, sizeof data, "--data=%s", plan->data);
    snprintf(batch, sizeof batch, "--batch-size=%lld", (long long)plan->batch);
    bench_output *output = malloc(sizeof *output);
    ls_status status = output ? bench_trace_folder(folder, settings, "step_of", plan->model)
                              : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a run");
    snprintf(option, sizeof option, "--trace=%s", folder);
    if (status == LS_OK) status = bench_find_program(program, "dp_train");
    if (status == LS_OK) status = bench_child_run(argv, settings->timeout_s, output);
    free(output);
    ls_trace *trace = NULL;
    if (status == LS_OK) status = ls_trace_read(&trace, folder);
    if (status == LS_OK) status = ls_workload_from_trace(workload, trace);
    ls_trace_destroy(trace);
    return status;
}

/* --- replays ----------------------------------------------------------------------------------------------------- */

static ls_status replay(struct bench_replayed *row, const bench_plan *plan, const ls_workload *workload,
                        const ls_node *node) {
    static const ls_plan_mode modes[] = {LS_PLAN_SINGLE, LS_PLAN_DP, LS_PLAN_DDP};
    double samples = plan->weak ? row->n * workload->samples : workload->samples;
    struct ls_plan options = ls_plan_defaults(modes[row->mode], row->n, samples);
    options.steps = STEPS;
    options.gil = ways[row->way].python;
    ls_trace *trace = NULL;
    ls_status status = record_steps(&trace, workload, node, &options);
    if (status == LS_OK) status = bench_replay_trace(&row->step, trace, node);
    ls_trace_destroy(trace);
    return status;
}

static ls_status replay_way(bench_model *model, const ls_workload *workload, const ls_node *node, int way) {
    double t1_ms = NAN;
    ls_status status = LS_OK;
    for (int mode = BENCH_SINGLE; mode <= BENCH_DDP; mode++) {
        for (int n = mode == BENCH_SINGLE ? 1 : 2; status == LS_OK && n <= DEVICES_MOST; n *= 2) {
            if (bench_device_batch(model->plan, n) < 1) break;
            struct bench_replayed *row = &model->replayed[model->replayed_count];
            *row = (struct bench_replayed){.mode = (bench_mode)mode, .n = n, .way = way};
            status = replay(row, model->plan, workload, node);
            if (mode == BENCH_SINGLE) t1_ms = row->step.step_ms;
            row->speedup = (model->plan->weak ? n : 1) * t1_ms / row->step.step_ms;
            model->replayed_count++;
            if (mode == BENCH_SINGLE) break;
        }
    }
    return status;
}

ls_status bench_replay_model(bench_model *model, const bench_settings *settings) {
    ls_workload *workload = NULL;
    ls_node *node = NULL;
    model->replayed_count = 0;
    ls_status status = record_step(&workload, model->plan, settings);
    if (status == LS_OK) status = ls_node_open(&node, BENCH_REPLAYED_NODE);
    if (status == LS_OK) model->replayed_launch_us[1] = ls_node_host(node)->lock_us;
    if (status == LS_OK) model->replayed_launch_us[0] = ls_node_change_host(node)->launch_us = LAUNCH_C_US;
    for (int way = 0; status == LS_OK && way < BENCH_WAYS; way++) status = replay_way(model, workload, node, way);
    ls_node_close(node);
    ls_workload_close(workload);
    if (status != LS_OK) model->replayed_count = 0;
    return status;
}

/* --- output ------------------------------------------------------------------------------------------------------ */

const struct bench_replayed *bench_find_replayed(const bench_model *model, bench_mode mode, int n, int way) {
    for (int i = 0; i < model->replayed_count; i++) {
        const struct bench_replayed *row = &model->replayed[i];
        if (row->mode == mode && row->n == n && row->way == way) return row;
    }
    return NULL;
}

/* DP and DDP side by side. */
struct pair {
    const struct bench_replayed *dp, *ddp;
};

BENCH_TEXT_OF(way_of, struct bench_replayed, ways[row->way].text)
BENCH_NUMBER_OF(efficiency_of, struct bench_replayed, row->speedup / row->n)

/* The columns of a row in the CSV and of DP's half of a line of text; then of DDP's half. */
#define AT(field) BENCH_AT(BENCH_DOUBLE, struct bench_replayed, field)
static const bench_column replayed[] = {
    {.head = "driven by", .text = way_of},
    {.head = "N", BENCH_AT(BENCH_INT, struct bench_replayed, n)},
    {.name = "step_ms", .head = "DP\nms", AT(step.step_ms), .decimals = 3},
    {.name = "speedup", .head = "speed-up\nDP", AT(speedup), .decimals = 2},
    {.name = "efficiency", .number = efficiency_of},
    {.name = "busy", .head = "busy\nDP, %", AT(step.busy), .percent = true},
    {.name = "exposed_ms", AT(step.exposed_ms)},
    {.name = "lock_ms", .head = "wait for the\nlock, ms", AT(step.lock_ms), .decimals = 3},
    {.kind = BENCH_END},
};
static const bench_column of_ddp[] = {
    {.head = "DDP\nms", AT(step.step_ms), .decimals = 3},
    {.head = "speed-up\nDDP", AT(speedup), .decimals = 2},
    {.head = "busy\nDDP, %", AT(step.busy), .percent = true},
    {.kind = BENCH_END},
};
static const bench_column side_by_side[] = {
    BENCH_OF(struct pair, dp, replayed), BENCH_OF(struct pair, ddp, of_ddp), {.kind = BENCH_END}};

/* One line for each N and way of launching. */
ls_status bench_print_replayed(FILE *file, const bench_model *model) {
    if (model->replayed_count == 0) return LS_OK;
    bench_table table = {.columns = side_by_side};
    fprintf(file, "\nThe same step on up to %d GPUs: replayed on %s (figures from its file), nothing was run\n\n",
            DEVICES_MOST, BENCH_REPLAYED_NODE);
    for (const struct bench_replayed *dp = model->replayed; dp < model->replayed + model->replayed_count; dp++) {
        const struct bench_replayed *ddp = dp->n == 1 ? dp : bench_find_replayed(model, BENCH_DDP, dp->n, dp->way);
        if (dp->mode != BENCH_DDP) bench_table_line(&table, &(struct pair){dp, ddp});
    }
    ls_status status = bench_table_finish(&table, file);
    fprintf(
        file,
        "\n(A launch takes %g us in this program, and %g us in Python, where DP's threads launch one after another:\n"
        "they share one lock, and at worst hold it for all of the launch: PyTorch gives it back inside of operators.\n"
        "DDP's processes have one lock each. N = 1 is one device without either mode.)\n",
        model->replayed_launch_us[0], model->replayed_launch_us[1]);
    return status;
}

ls_status bench_put_replayed(FILE *file, const void *of) {
    const bench_results *results = of;
    fputs("model,mode,n,batch,driven_by,launch_us", file);
    bench_put_names(file, replayed);
    fputs(",node,how,scaling\n", file);
    for (const bench_model *model = results->models; model < results->models + results->model_count; model++) {
        for (int i = 0; i < model->replayed_count; i++) {
            const struct bench_replayed *row = &model->replayed[i];
            bench_put_text(file, model->plan->model);
            fprintf(file, ",%s,%d,%lld,%s", bench_mode_name(row->mode), row->n,
                    (long long)bench_global_batch(model->plan, row->n), ways[row->way].name);
            bench_put_number(file, model->replayed_launch_us[row->way]);
            bench_put_columns(file, replayed, row);
            fprintf(file, ",%s,replayed,%s\n", BENCH_REPLAYED_NODE, model->plan->weak ? "weak" : "strong");
        }
    }
    return LS_OK;
}
