/* runs — one training run of a program, as a user would start it, read from its summary. */
#include <cjson/cJSON.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "labs/bench_shared/child.h"
#include "labs/gpu_check/gpu_check.h"

enum { ARGUMENTS_MAX = 40 };

static double number_of(const cJSON *object, const char *name) {
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

static double largest_peak(const cJSON *devices) {
    double largest = 0;
    const cJSON *device;
    cJSON_ArrayForEach(device, devices) {
        double peak = number_of(cJSON_GetObjectItemCaseSensitive(device, "peak_bytes"), "total");
        if (peak > largest) largest = peak;
    }
    return largest;
}

static bool read_summary(gpu_check_run *run, const char *line) {
    cJSON *wrapper = cJSON_Parse(line);
    const cJSON *summary = cJSON_GetObjectItemCaseSensitive(wrapper, "summary");
    const char *weights = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(summary, "parameter_hash"));
    run->step_ms = number_of(summary, "median_step_ms");
    run->samples_per_s = number_of(summary, "samples_per_s");
    run->final_loss = number_of(summary, "final_loss");
    run->loader_share = number_of(summary, "loader_wait_share");
    run->peak_bytes = largest_peak(cJSON_GetObjectItemCaseSensitive(summary, "device_table"));
    snprintf(run->weights, sizeof run->weights, "%s", weights ? weights : "");
    cJSON_Delete(wrapper);
    return weights != NULL;
}

bool gpu_check_train(gpu_check_run *run, const char *program, const char *const *arguments,
                     const gpu_check_settings *settings) {
    static bench_output output;
    static char path[BENCH_PATH_CAPACITY];
    char *argv[ARGUMENTS_MAX + 2] = {path};
    int count = 1;
    for (; arguments[count - 1] && count < ARGUMENTS_MAX; count++) argv[count] = (char *)arguments[count - 1];
    argv[count] = "--summary=-";
    *run = (gpu_check_run){
        .step_ms = NAN, .samples_per_s = NAN, .final_loss = NAN, .loader_share = NAN, .peak_bytes = NAN};
    double left_s = (settings->end_us - ls_now_us()) * 1e-6;
    run->left_out = !(left_s > 0);
    if (run->left_out) {
        snprintf(run->note, sizeof run->note, "no time left of %g s (--budget)", settings->budget_s);
        return false;
    }
    ls_status status = bench_find_program(path, program);
    if (status == LS_OK) status = bench_child_run(argv, fmin(settings->timeout_s, left_s), &output);
    if (status == LS_OK && read_summary(run, bench_last_line(output.out))) return true;
    const char *said = status == LS_OK ? "no summary" : bench_last_line(output.err);
    snprintf(run->note, sizeof run->note, "%.*s", GPU_CHECK_TEXT - 1, said[0] ? said : ls_status_text(status));
    return false;
}
