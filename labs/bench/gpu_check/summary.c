/* summary — one screen of a log, results first: broken items, items that were not checked, the GPU, the counts of each
 * stage, peaks, training steps beside PyTorch's, and the slowest operations. A truncated log is accepted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/bench/gpu_check/gpu_check.h"

enum { SLOWEST = 5, SHOWN_MAX = 12 };

static const cJSON *figures_of(const cJSON *line) { return cJSON_GetObjectItemCaseSensitive(line, "figures"); }

static double number(const cJSON *object, const char *name) {
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

static void print_number(double value, int width, int digits) {
    isnan(value) ? printf("%*s", width, "-") : printf("%*.*f", width, digits, value);
}

/* --- results ---------------------------------------------------------------------------------------------- */

static bool is_of(const cJSON *line, int stage) {
    return strcmp(gpu_check_text(line, "stage"), gpu_check_stage_name((gpu_check_stage)stage)) == 0;
}

static int count(const cJSON *lines, int stage, gpu_check_verdict verdict) {
    int found = 0;
    const cJSON *line;
    cJSON_ArrayForEach(line, lines) found += is_of(line, stage) && gpu_check_verdict_in(line) == verdict;
    return found;
}

static void list(const cJSON *lines, gpu_check_verdict verdict) {
    int shown = 0;
    const cJSON *line;
    cJSON_ArrayForEach(line, lines) {
        if (gpu_check_verdict_in(line) != verdict || ++shown > SHOWN_MAX) continue;
        const char *detail = gpu_check_text(line, "detail");
        printf("  %-9s %s%s%.160s\n", gpu_check_text(line, "stage"), gpu_check_text(line, "name"),
               detail[0] ? ": " : "", detail);
    }
    if (shown > SHOWN_MAX) printf("  and %d more\n", shown - SHOWN_MAX);
}

/* Whether the last command that wrote into this file had this stage to run. */
static bool was_asked_for(const cJSON *lines, int stage) {
    char names[256], wanted[32];
    snprintf(names, sizeof names, ",%s,",
             gpu_check_text(figures_of(gpu_check_find_line(lines, "run", "machine")), "stages"));
    snprintf(wanted, sizeof wanted, ",%s,", gpu_check_stage_name((gpu_check_stage)stage));
    return strstr(names, wanted) != NULL;
}

/* Whether the last command finished: its last line of this kind is "end". */
static bool has_ended(const cJSON *lines) {
    bool ended = false;
    const cJSON *line;
    cJSON_ArrayForEach(line, lines) {
        if (!is_of(line, GPU_CHECK_STAGES)) continue;
        ended = strcmp(gpu_check_text(line, "name"), "end") == 0;
    }
    return ended;
}

static void print_stages(const cJSON *lines) {
    printf("\n%-10s %6s %7s %11s %8s %8s %9s\n", "stage", "held", "broken", "needs GPUs", "no tool", "not run",
           "seconds");
    for (int s = 0; s < GPU_CHECK_STAGES; s++) {
        double seconds = 0;
        int all = 0;
        const cJSON *line;
        cJSON_ArrayForEach(line, lines) {
            if (!is_of(line, s)) continue;
            double one = number(line, "seconds");
            all++;
            if (one > 0 && strncmp(gpu_check_text(line, "name"), "all ", 4) != 0) seconds += one;
        }
        if (all == 0) {
            printf("%-10s %s\n", gpu_check_stage_name((gpu_check_stage)s),
                   was_asked_for(lines, s) ? "nothing: it had not begun" : "not asked for");
            continue;
        }
        printf("%-10s %6d %7d %11d %8d %8d %9.1f\n", gpu_check_stage_name((gpu_check_stage)s),
               count(lines, s, GPU_CHECK_HELD), count(lines, s, GPU_CHECK_BROKEN),
               count(lines, s, GPU_CHECK_NEEDS_GPUS), count(lines, s, GPU_CHECK_NO_TOOL),
               count(lines, s, GPU_CHECK_NOT_RUN), seconds);
    }
}

static int print_answers(const cJSON *lines, int *held) {
    int totals[GPU_CHECK_VERDICTS] = {0}, all = 0;
    for (int s = 0; s < GPU_CHECK_STAGES; s++)
        for (int v = 0; v < GPU_CHECK_VERDICTS; v++) totals[v] += count(lines, s, (gpu_check_verdict)v);
    for (int v = 0; v < GPU_CHECK_VERDICTS; v++) all += totals[v];
    printf("\n%d of %d results are broken; %d held, %d need more GPUs, %d need a tool that is not usable here, %d were "
           "not run%s\n",
           totals[GPU_CHECK_BROKEN], all, totals[GPU_CHECK_HELD], totals[GPU_CHECK_NEEDS_GPUS],
           totals[GPU_CHECK_NO_TOOL], totals[GPU_CHECK_NOT_RUN], has_ended(lines) ? "" : "; the check was cut short");
    list(lines, GPU_CHECK_BROKEN);
    if (totals[GPU_CHECK_NEEDS_GPUS] > 0) printf("needs more GPUs:\n");
    list(lines, GPU_CHECK_NEEDS_GPUS);
    if (totals[GPU_CHECK_NO_TOOL] > 0) printf("not usable here:\n");
    list(lines, GPU_CHECK_NO_TOOL);
    *held = totals[GPU_CHECK_HELD];
    return totals[GPU_CHECK_BROKEN];
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

static void print_gpu(const cJSON *lines) {
    cJSON *gpu = gpu_check_merge(lines, "look"), *peaks = gpu_check_merge(lines, "peaks");
    const cJSON *machine = figures_of(gpu_check_find_line(lines, "run", "machine"));
    const struct {
        const char *text, *key, *unit;
    } parts[] = {{"product fp32", "gemm_fp32_TFLOPs", "TFLOP/s"},
                 {"TF32", "gemm_tf32_TFLOPs", "TFLOP/s"},
                 {"fp16", "gemm_fp16_TFLOPs", "TFLOP/s"},
                 {"bf16", "gemm_bf16_TFLOPs", "TFLOP/s"},
                 {"copy", "copy_GBps", "GB/s"},
                 {"to the GPU", "copy_to_gpu_GBps", "GB/s"},
                 {"from it", "copy_from_gpu_GBps", "GB/s"},
                 {"launch", "launch_us", "us"},
                 {"launch and wait", "launch_and_wait_us", "us"}};
    printf("\n%s, driver %s, cuBLAS %s, NCCL %s; commit %s, %s\n", gpu_check_text(gpu, "name"),
           gpu_check_text(gpu, "driver"), gpu_check_text(gpu, "cublas"), gpu_check_text(gpu, "nccl"),
           gpu_check_text(machine, "commit"), gpu_check_text(machine, "date"));
    printf("start of a process: cold ");
    print_number(number(gpu, "start_cold_s"), 0, 2);
    printf(" s, beside the idle context ");
    print_number(number(gpu, "start_warm_s"), 0, 2);
    const cJSON *locking = gpu_check_find_line(lines, "look", "page-locking");
    printf(" s; page-locking: %s\n", !locking                                          ? "not tried"
                                     : gpu_check_verdict_in(locking) == GPU_CHECK_HELD ? "yes"
                                                                                       : "REFUSED");
    const char *mark = "peaks: ";
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!(number(peaks, parts[i].key) > 0)) continue;
        printf("%s%s %.4g %s", mark, parts[i].text, number(peaks, parts[i].key), parts[i].unit);
        mark = ", ";
    }
    if (mark[0] == ',') printf("; medians of %d groups of calls\n", GPU_CHECK_GROUPS);
    cJSON_Delete(gpu);
    cJSON_Delete(peaks);
}

/* lockstep's times, loader included, with a graph and eager. */
static void print_steps(const cJSON *lines) {
    char name[GPU_CHECK_TEXT];
    const char *title = "\nms per step, the loader included                eager      graph\n";
    const cJSON *line;
    cJSON_ArrayForEach(line, lines) {
        if (!is_of(line, GPU_CHECK_steps) || isnan(gpu_check_figure(line, "step_ms"))) continue;
        const char *eager = gpu_check_text(line, "name");
        if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(figures_of(line), "graph"))) continue;
        snprintf(name, sizeof name, "%s, graph", eager);
        printf("%s%-40s", title, eager);
        title = "";
        print_number(gpu_check_figure(line, "step_ms"), 13, 4);
        print_number(gpu_check_figure(gpu_check_find_line(lines, "steps", name), "step_ms"), 11, 4);
        printf("\n");
    }
}

/* The names that bench_pytorch_gpu.py writes. */
static void print_pytorch(const cJSON *lines) {
    static const char *const ways[] = {"lockstep graph, resident", "PyTorch graph, resident",
                                       "lockstep eager, resident", "PyTorch eager, resident"};
    const char *title = "\nms per step in turn, batches on the GPU:   graph    PyTorch      eager    PyTorch\n";
    const cJSON *line;
    cJSON_ArrayForEach(line, lines) {
        const cJSON *times = cJSON_GetObjectItemCaseSensitive(figures_of(line), "step_ms");
        if (!is_of(line, GPU_CHECK_steps) || !cJSON_IsObject(times)) continue;
        printf("%s%-36s", title, gpu_check_text(figures_of(line), "case"));
        title = "";
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) print_number(number(times, ways[w]), 11, 4);
        printf("\n");
    }
}

static int by_share(const void *a, const void *b) {
    double x = gpu_check_figure(*(const cJSON *const *)a, "share_of_peak"),
           y = gpu_check_figure(*(const cJSON *const *)b, "share_of_peak");
    return (x > y) - (x < y);
}

static void print_slowest(const cJSON *lines) {
    const cJSON *rated[GPU_CHECK_RATES_MAX], *line;
    int found = 0;
    cJSON_ArrayForEach(line, lines) {
        if (is_of(line, GPU_CHECK_rates) && gpu_check_figure(line, "share_of_peak") > 0 && found < GPU_CHECK_RATES_MAX)
            rated[found++] = line;
    }
    if (found == 0) return;
    qsort(rated, (size_t)found, sizeof *rated, by_share);
    printf("\nslowest of %d operations:", found);
    for (int i = 0; i < found && i < SLOWEST; i++)
        printf("%s %s %.0f %% of %s", i ? "," : "", gpu_check_text(rated[i], "name"),
               100 * gpu_check_figure(rated[i], "share_of_peak"), gpu_check_text(figures_of(rated[i]), "peak"));
    printf("\n");
}

int gpu_check_print_summary(const cJSON *lines, int *held) {
    int broken = print_answers(lines, held);
    print_stages(lines);
    print_gpu(lines);
    print_steps(lines);
    print_pytorch(lines);
    print_slowest(lines);
    return broken;
}
