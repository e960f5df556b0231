/* locked: the same runs under an emulated interpreter's lock, measured.
 *   idea : no lock serializes the threads of a C program, so DP's handicap in Python does not show; the replayed table
 *          computes it for GPUs that this machine need not have. Here it is measured: each launch holds its process's
 *          one lock for BENCH_LOCK_US (device/host_lock.h), and everything else is unchanged. T1's launches hold it,
 *          too
 *   rows : T1, and both modes on the most devices that have a core (or a GPU) each; none if no N > 1 has
 *   cost : as many rounds as the others, each with a third of the steps */
#include <stdio.h>

#include "common/train/loop.h"
#include "labs/bench/dp_vs_ddp/bench.h"

static void add_row(bench_model *model, bench_mode mode, int n) {
    model->locked_rows[model->locked_count++] =
        (bench_row){.mode = mode, .n = n, .per_device_batch = bench_device_batch(model->plan, n)};
}

void bench_plan_locked(bench_model *model, const bench_settings *settings) {
    int most = 1;
    for (int i = 0; i < settings->n.count; i++)
        if (settings->n.values[i] <= settings->processors) most = settings->n.values[i]; /* they ascend */
    model->locked_plan = *model->plan;
    model->locked_plan.steps = LS_WARMUP_STEPS + (model->plan->steps - LS_WARMUP_STEPS) / 3;
    if (model->locked_plan.steps < settings->least_steps) model->locked_plan.steps = settings->least_steps;
    model->locked_count = 0;
    if (most == 1) return;
    add_row(model, BENCH_SINGLE, 1);
    add_row(model, BENCH_DP, most);
    add_row(model, BENCH_DDP, most);
}

ls_status bench_train_locked(bench_run *run, const bench_plan *plan, const bench_settings *settings) {
    run->host_lock_us = BENCH_LOCK_US;
    return bench_train(run, plan, settings);
}

/* --- output ------------------------------------------------------------------------------------------------------ */

/* A row, and the speed-up of the same without the lock. */
struct line {
    const bench_row *locked, *measured;
};
static const bench_column without[] = {
    {.head = "speed-up\nwithout it", BENCH_AT(BENCH_DOUBLE, bench_row, speedup), .decimals = 2}, {.kind = BENCH_END}};
static const bench_column columns[] = {
    BENCH_OF(struct line, locked, bench_locked_columns), BENCH_OF(struct line, measured, without), {.kind = BENCH_END}};

ls_status bench_print_locked(FILE *file, const bench_model *model, const bench_settings *settings) {
    bench_table table = {.columns = columns};
    if (model->locked_count == 0) return LS_OK;
    fprintf(file,
            "\nWith an emulated interpreter's lock (--host-lock %g): measured on this machine's %ss, %d run%s of %d "
            "steps a row\n\n",
            BENCH_LOCK_US, settings->gpus ? "GPU" : "core", settings->rounds, settings->rounds == 1 ? "" : "s",
            model->locked_plan.steps);
    for (const bench_row *row = model->locked_rows; row < model->locked_rows + model->locked_count; row++)
        bench_table_line(&table, &(struct line){row, bench_find(model, row->mode, row->n)});
    ls_status status = bench_table_finish(&table, file);
    fprintf(
        file,
        "\n(Each launch keeps a core busy for %g us under its process's one lock. The launches of DP's threads queue\n"
        "for one another; those of DDP's processes, and of the single device, do not. Short steps show it most.)\n",
        BENCH_LOCK_US);
    return status;
}
