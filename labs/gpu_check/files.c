/* files — the table on stdout and gpu_check.json. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "labs/bench_shared/output.h"
#include "labs/gpu_check/gpu_check.h"

/* --- text -------------------------------------------------------------------------------------------------------- */

static void print_rates(const gpu_check_result *r) {
    printf("\n%-32s %12s %10s %10s  %s\n", "operation", "us", "GB/s", "TFLOP/s", "of the peak");
    for (int i = 0; i < r->rate_count; i++) {
        const gpu_check_rate *rate = &r->rates[i];
        printf("%-32s %12.1f %10.1f %10.3f  %3.0f %% of %s\n", rate->name, rate->us, rate->bytes / rate->us * 1e-3,
               rate->flops / rate->us * 1e-6, 100 * rate->share, rate->arithmetic ? "the fp32 product" : "the copy");
    }
}

static void print_steps(const gpu_check_result *r) {
    printf("\n%-7s %-8s %4s %6s %-5s %-6s %10s %12s %9s %10s %7s\n", "mode", "model", "N", "batch", "prec.", "graph",
           "step ms", "samples/s", "TFLOP/s", "peak MiB", "loader");
    for (int i = 0; i < r->step_count; i++) {
        const gpu_check_step *s = &r->steps[i];
        printf("%-7s %-8s %4d %6ld %-5s %-6s ", s->mode, s->model, s->devices, s->batch, s->precision,
               s->graph ? "yes" : "no");
        if (s->note[0]) {
            printf("%s: %s\n", s->left_out ? "not run" : "failed", s->note);
            continue;
        }
        printf("%10.4f %12.0f ", s->step_ms, s->samples_per_s);
        isnan(s->TFLOPs) ? printf("%9s", "-") : printf("%9.2f", s->TFLOPs);
        printf(" %10.1f %5.0f %%\n", s->peak_bytes / (1 << 20), 100 * s->loader_share);
    }
}

static void print_verdicts(const gpu_check_result *r) {
    int failed = 0, left_out = 0;
    printf("\n");
    for (int i = 0; i < r->verdict_count; i++) {
        const gpu_check_verdict *v = &r->verdicts[i];
        printf("%-8s %s: %s\n", !v->ran ? "not run" : v->passed ? "passed" : "FAILED", v->name, v->detail);
        failed += v->ran && !v->passed;
        left_out += !v->ran;
    }
    printf("%d checks: %d passed, %d failed, %d not run\n", r->verdict_count, r->verdict_count - failed - left_out,
           failed, left_out);
}

void gpu_check_print(const gpu_check_result *r) {
    printf("copy %.1f GB/s (read and written); matrix product fp32 %.2f, TF32 %.2f, fp16 %.2f, bf16 %.2f TFLOP/s; "
           "medians of %d groups of calls\n",
           r->peaks.copy_GBps, r->peaks.fp32_TFLOPs, r->peaks.tf32_TFLOPs, r->peaks.fp16_TFLOPs, r->peaks.bf16_TFLOPs,
           GPU_CHECK_GROUPS);
    print_rates(r);
    print_steps(r);
    print_verdicts(r);
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

static void add_gpu(cJSON *root, const gpu_check_result *r) {
    cJSON *gpu = cJSON_AddObjectToObject(root, "gpu");
    char capability[16];
    snprintf(capability, sizeof capability, "%d.%d", r->gpu.capability_major, r->gpu.capability_minor);
    cJSON_AddStringToObject(gpu, "name", r->gpu.name);
    cJSON_AddNumberToObject(gpu, "count", r->gpu_count);
    cJSON_AddStringToObject(gpu, "compute_capability", capability);
    cJSON_AddNumberToObject(gpu, "multiprocessors", r->gpu.multiprocessors);
    cJSON_AddNumberToObject(gpu, "memory_bytes", (double)r->gpu.memory_bytes);
    cJSON_AddNumberToObject(gpu, "driver_version", r->gpu.driver_version);
    cJSON_AddNumberToObject(gpu, "runtime_version", r->gpu.runtime_version);
    cJSON *peaks = cJSON_AddObjectToObject(root, "peaks");
    bench_add_number(peaks, "copy_GBps", r->peaks.copy_GBps);
    bench_add_number(peaks, "gemm_fp32_TFLOPs", r->peaks.fp32_TFLOPs);
    bench_add_number(peaks, "gemm_tf32_TFLOPs", r->peaks.tf32_TFLOPs);
    bench_add_number(peaks, "gemm_fp16_TFLOPs", r->peaks.fp16_TFLOPs);
    bench_add_number(peaks, "gemm_bf16_TFLOPs", r->peaks.bf16_TFLOPs);
}

static void add_rates(cJSON *root, const gpu_check_result *r) {
    cJSON *rates = cJSON_AddArrayToObject(root, "operations");
    for (int i = 0; i < r->rate_count; i++) {
        const gpu_check_rate *rate = &r->rates[i];
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "operation", rate->name);
        bench_add_number(row, "us", rate->us);
        bench_add_number(row, "bytes", rate->bytes);
        bench_add_number(row, "flops", rate->flops);
        cJSON_AddStringToObject(row, "peak", rate->arithmetic ? "gemm_fp32" : "copy");
        bench_add_number(row, "share_of_peak", rate->share);
        cJSON_AddItemToArray(rates, row);
    }
}

static void add_steps(cJSON *root, const gpu_check_result *r) {
    cJSON *steps = cJSON_AddArrayToObject(root, "steps");
    for (int i = 0; i < r->step_count; i++) {
        const gpu_check_step *s = &r->steps[i];
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "mode", s->mode);
        cJSON_AddStringToObject(row, "model", s->model);
        cJSON_AddNumberToObject(row, "devices", s->devices);
        cJSON_AddNumberToObject(row, "batch", (double)s->batch);
        cJSON_AddStringToObject(row, "precision", s->precision);
        cJSON_AddBoolToObject(row, "graph", s->graph);
        bench_add_number(row, "step_ms", s->step_ms);
        bench_add_number(row, "samples_per_s", s->samples_per_s);
        bench_add_number(row, "TFLOPs", s->TFLOPs);
        bench_add_number(row, "peak_bytes", s->peak_bytes);
        bench_add_number(row, "loader_wait_share", s->loader_share);
        if (s->note[0]) cJSON_AddStringToObject(row, s->left_out ? "not_run" : "failed", s->note);
        cJSON_AddItemToArray(steps, row);
    }
}

static void add_verdicts(cJSON *root, const gpu_check_result *r) {
    cJSON *verdicts = cJSON_AddArrayToObject(root, "checks");
    for (int i = 0; i < r->verdict_count; i++) {
        const gpu_check_verdict *v = &r->verdicts[i];
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "check", v->name);
        cJSON_AddStringToObject(row, "verdict", !v->ran ? "not run" : v->passed ? "passed" : "failed");
        cJSON_AddStringToObject(row, "detail", v->detail);
        cJSON_AddItemToArray(verdicts, row);
    }
}

ls_status gpu_check_write(const gpu_check_result *r, const char *folder) {
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "how", "measured");
    cJSON_AddItemToObject(root, "machine", bench_machine_object(&r->machine));
    add_gpu(root, r);
    add_rates(root, r);
    add_steps(root, r);
    add_verdicts(root, r);
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (!text) return ls_fail(LS_ERR_NO_MEMORY, "no memory for gpu_check.json");
    ls_status status = bench_write_file(folder, "gpu_check.json", text);
    free(text);
    if (status == LS_OK) printf("\nwritten: %s/gpu_check.json\n", folder);
    fflush(stdout); /* before a last word on stderr */
    return status;
}
