/* details: all tables but the first screen's: every row with its fastest and slowest run, the parts of T_N - T1/N, the
 * training settings; then the tables of other files (lock, virtual time, replays); and the meaning of all columns. */
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/table.h"
#include "labs/bench/dp_vs_ddp/bench.h"

static ls_status print_times(FILE *file, const bench_model *model) {
    return bench_print_rows(file, bench_measured_columns, model->rows, (size_t)model->row_count, sizeof(bench_row));
}

static ls_status print_parts(FILE *file, const bench_model *model) {
    bench_table table = {.columns = model->plan->weak ? bench_weak_parts : bench_strong_parts};
    for (int i = 0; i < model->row_count; i++)
        if (model->rows[i].mode != BENCH_SINGLE) bench_table_line(&table, &model->rows[i]);
    return bench_table_finish(&table, file);
}

static const char *verdict(const bench_model *model, int n) {
    if (!bench_have_weights(model, n)) return "unknown: a run failed";
    if (bench_same_weights(model, n)) return "yes";
    if (bench_must_agree(model, n)) return "NO: they must be";
    return strcmp(bench_find(model, BENCH_DDP, n)->backend, "nccl") == 0 ? "no: NCCL adds in its own order"
                                                                         : "no, nor must they be";
}

static ls_status print_weights(FILE *file, const bench_model *model, const bench_settings *settings) {
    static const ls_column columns[] = {
        {"N", LS_RIGHT},          {"final loss\nDP", LS_RIGHT}, {"final loss\nDDP", LS_RIGHT},
        {"weights\nDP", LS_LEFT}, {"weights\nDDP", LS_LEFT},    {"same weights", LS_LEFT},
    };
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    if (status != LS_OK) return status;
    for (int i = 0; i < settings->n.count; i++) {
        int n = settings->n.values[i];
        const bench_row *dp = bench_find(model, BENCH_DP, n), *ddp = bench_find(model, BENCH_DDP, n);
        ls_table_cell(table, "%d", n);
        ls_table_number(table, 6, dp->final_loss);
        ls_table_number(table, 6, ddp->final_loss);
        ls_table_cell(table, "%s%s", dp->weights, dp->failed || dp->repeats ? "" : " (runs differ)");
        ls_table_cell(table, "%s%s", ddp->weights, ddp->failed || ddp->repeats ? "" : " (runs differ)");
        ls_table_cell(table, "%s", verdict(model, n));
    }
    return ls_table_finish(table, file);
}

ls_status bench_print_details(FILE *file, const bench_model *model, const bench_settings *settings) {
    const bench_plan *plan = model->plan;
    fprintf(file, "\n%s in detail: measured, %d run%s of %d steps a row\n\n", plan->model, settings->rounds,
            settings->rounds == 1 ? "" : "s", plan->steps);
    ls_status status = print_times(file, model);
    fprintf(file, "\nWhat T_N - %s is made of\n\n", plan->weak ? "T1" : "T1/N");
    if (status == LS_OK) status = print_parts(file, model);
    const bench_row *t1 = &model->rows[0];
    fprintf(file, "\nWhat was trained (single: final loss %.6f, weights %s)\n\n", t1->final_loss, t1->weights);
    if (status == LS_OK) status = print_weights(file, model, settings);
    if (status == LS_OK) status = bench_print_locked(file, model, settings);
    if (status == LS_OK) status = bench_print_virtual(file, model, settings);
    return status == LS_OK ? bench_print_replayed(file, model) : status;
}

/* --- legends ----------------------------------------------------------------------------------------------------- */

static const char weak_texts[] =
    "speed-up         N T1 / T_N: samples per second over those of one device (weak scaling)\n"
    "efficiency       speed-up / N, which is T1 / T_N\n";
static const char strong_texts[] =
    "speed-up         T1 / T_N (strong scaling)\n"
    "efficiency       speed-up / N\n"
    "smaller batch    T1(b/N) - T1/N: what one device loses because its batch is smaller\n";

static void print_virtual_legend(FILE *file) {
    fputs(
        "virtual          a core for each device. All devices took turns on one core, which recorded the CPU time of\n"
        "                 each thread; replay sets the pieces side by side. Its T1 was found in the same way. A run's\n"
        "                 time is the mean of its steps but the first. Left out: N cores share caches and memory\n"
        "                 bandwidth, and threads take time to wake up, so true steps are longer. Added: what\n"
        "                 recording costs, most of short steps. The traces lie beside the results, for Perfetto and\n"
        "                 for build/replay --as-recorded --trace DIR\n"
        "                 busy: share of the step in which a kernel of the device runs; exposed comm.: the time of\n"
        "                 its copies and all-reduces outside of kernels, without waits for others; mean of devices\n",
        file);
}

void bench_print_legend(FILE *file, const bench_settings *settings, bool has_virtual) {
    bool weak = settings->plans[0].weak;
    fprintf(
        file,
        "\n"
        "N                devices: threads of one process (DP) or processes (DDP)\n"
        "single           one device without either mode: %s\n"
        "T_N              time of a step: each run's median after a warm-up; of these (%d) the median\n"
        "lowest, highest  the fastest and the slowest run\n"
        "%s"
        "exposed comm.    communication that a step waits for. DP: copies of the busiest other device, and\n"
        "                 the gradients' sum on device 0. DDP: what backward did not hide of the all-reduce\n"
        "fixed work       the rest: hand-offs between threads, loss on one device, shared cores; noise may\n"
        "                 make it negative\n"
        "%s"
        "weights          hash of the trained weights. Same: DP's and DDP's are equal bit for bit. That holds\n"
        "                 where both modes cut a batch into the same chunks, so the bench runs ddp_train with\n"
        "                 --shard contiguous; and where N is a power of two that divides the batch. With\n"
        "                 ddp_train's default shards the weights differ in their last bits\n",
        weak ? "T1" : "its first row is T1, the others are T1(b/N)", settings->rounds, weak ? weak_texts : strong_texts,
        settings->gpus ? "                 (on GPUs, whose threads only enqueue, these two are not told apart)\n" : "");
    if (has_virtual) print_virtual_legend(file);
    if (settings->n.values[settings->n.count - 1] > settings->processors) {
        fprintf(file, "oversubscribed   N exceeds this machine's %d %s%s: times only show time-slicing\n",
                settings->processors, settings->gpus ? "GPU" : "core", settings->processors == 1 ? "" : "s");
    }
}
