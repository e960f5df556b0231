#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/table.h"
#include "labs/bench_dp_vs_ddp/bench.h"

void bench_put_times(ls_table *table, const bench_row *row) {
    ls_table_cell(table, "%s", bench_mode_name(row->mode));
    ls_table_cell(table, "%d", row->n);
    ls_table_cell(table, "%lld", (long long)row->per_device_batch);
    ls_table_number(table, 3, row->step_ms);
    ls_table_number(table, 3, row->step_ms_min);
    ls_table_number(table, 3, row->step_ms_max);
}

static ls_status print_times(const bench_model *model) {
    static const ls_column columns[] = {
        BENCH_TIMES_COLUMNS("T_N\nms"),
        {"speed-up\nT1/T_N", LS_RIGHT},
        {"efficiency\n%", LS_RIGHT},
        {"", LS_LEFT},
    };
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    if (status != LS_OK) return status;
    for (int i = 0; i < model->row_count; i++) {
        const bench_row *row = &model->rows[i];
        bench_put_times(table, row);
        ls_table_number(table, 2, row->speedup);
        ls_table_number(table, 1, 100 * row->efficiency);
        ls_table_cell(table, "%s", row->oversubscribed ? "*oversubscribed*" : "");
    }
    return ls_table_finish(table, stdout);
}

static ls_status print_parts(const bench_model *model) {
    static const ls_column columns[] = {
        {"mode", LS_LEFT},
        {"N", LS_RIGHT},
        {"T_N\nms", LS_RIGHT},
        {"- T1/N\nms", LS_RIGHT},
        {"= difference\nms", LS_RIGHT},
        {"= smaller batch\nms", LS_RIGHT},
        {"+ exposed comm.\nms", LS_RIGHT},
        {"+ fixed work\nms", LS_RIGHT},
        {"", LS_LEFT},
    };
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    if (status != LS_OK) return status;
    for (int i = 0; i < model->row_count; i++) {
        const bench_row *row = &model->rows[i];
        if (row->mode == BENCH_SINGLE) continue;
        ls_table_cell(table, "%s", bench_mode_name(row->mode));
        ls_table_cell(table, "%d", row->n);
        ls_table_number(table, 3, row->step_ms);
        ls_table_number(table, 3, row->ideal_ms);
        ls_table_number(table, 3, row->over_ms);
        ls_table_number(table, 3, row->smaller_batch_ms);
        ls_table_number(table, 3, row->exposed_ms);
        ls_table_number(table, 3, row->fixed_ms);
        ls_table_cell(table, "%s", row->oversubscribed ? "*oversubscribed*" : "");
    }
    return ls_table_finish(table, stdout);
}

static const char *verdict(const bench_model *model, int n) {
    if (bench_same_weights(model, n)) return "yes";
    if (bench_must_agree(model, n)) return "NO: they must be";
    return strcmp(bench_find(model, BENCH_DDP, n)->backend, "nccl") == 0 ? "no: NCCL adds in its own order"
                                                                         : "no, nor must they be";
}

static ls_status print_weights(const bench_model *model, const bench_settings *settings) {
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
        ls_table_cell(table, "%.6f", dp->final_loss);
        ls_table_cell(table, "%.6f", ddp->final_loss);
        ls_table_cell(table, "%s%s", dp->weights, dp->repeats ? "" : " (runs differ)");
        ls_table_cell(table, "%s%s", ddp->weights, ddp->repeats ? "" : " (runs differ)");
        ls_table_cell(table, "%s", verdict(model, n));
    }
    return ls_table_finish(table, stdout);
}

ls_status bench_print_model(const bench_model *model, const bench_settings *settings) {
    const bench_plan *plan = model->plan;
    printf("\n%s: %lld samples per step on every N,", plan->model, (long long)plan->batch);
    for (int i = 0; plan->recipe[i]; i++) printf(" %s", plan->recipe[i] + 2);
    printf("; measured, %d run%s of %d steps a row\n\n", settings->rounds, settings->rounds == 1 ? "" : "s",
           plan->steps);
    ls_status status = print_times(model);
    printf("\nWhat T_N - T1/N is made of\n\n");
    if (status == LS_OK) status = print_parts(model);
    const bench_row *t1 = &model->rows[0];
    printf("\nWhat was trained (single: final loss %.6f, weights %s)\n\n", t1->final_loss, t1->weights);
    if (status == LS_OK) status = print_weights(model, settings);
    fflush(stdout);
    return status;
}

static void print_virtual_legend(void) {
    puts("virtual          a core for each device, which this machine need not have: devices took turns on one core,\n"
         "                 each thread's CPU time was recorded, and replay sets the pieces side by side; T1 too. A\n"
         "                 run's time is the mean of its steps but the first. Not in it: that N cores share caches\n"
         "                 and memory bandwidth, and that threads take time to wake up; by these true steps are\n"
         "                 longer. In it: what recording costs, of short steps the most. The traces stay beside the\n"
         "                 results, for Perfetto and for build/replay --as-recorded --trace DIR\n"
         "                 busy: share of the step in which a kernel of the device runs; exposed comm.: the time of\n"
         "                 its copies and all-reduces outside of kernels, without waits for others; mean of devices");
}

void bench_print_legend(const bench_settings *settings, bool has_virtual) {
    printf("\n"
           "N                devices: threads of one process (DP) or processes (DDP)\n"
           "single           one device without either mode; its first row is T1, the others are T1(b/N)\n"
           "T_N              time of a step: each run's median after a warm-up; of these (%d) the median\n"
           "lowest, highest  the fastest and the slowest run\n"
           "efficiency       speed-up / N\n"
           "smaller batch    T1(b/N) - T1/N: what one device loses because its batch is smaller\n"
           "exposed comm.    communication that a step waits for. DP: copies of the busiest other device, and\n"
           "                 the gradients' sum on device 0. DDP: what backward did not hide of the all-reduce\n"
           "fixed work       the rest: hand-overs, loss on one device, shared cores; noise may make it negative\n"
           "%s"
           "weights          hash of the trained weights; same: DP's and DDP's are equal bit for bit\n",
           settings->rounds,
           settings->gpus ? "                 (on GPUs, whose threads only enqueue, these two are not told apart)\n"
                          : "");
    if (has_virtual) print_virtual_legend();
    if (settings->n.values[settings->n.count - 1] > settings->processors) {
        printf("*oversubscribed* N exceeds this machine's %d %s%s: devices take turns, so T_N says little%s\n",
               settings->processors, settings->gpus ? "GPU" : "core", settings->processors == 1 ? "" : "s",
               has_virtual ? ";\n                 what a core for each gives stands under virtual" : "");
    }
    fflush(stdout);
}
