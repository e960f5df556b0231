/* runs — one training run of a program, as a user would start it, read from its summary. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/bench/gpu_check/gpu_check.h"

enum { ARGUMENTS_MAX = 40, LIMIT_S = 60 };

static double largest_peak(const cJSON *devices) {
    double largest = 0;
    const cJSON *device;
    cJSON_ArrayForEach(device, devices) {
        double peak = bench_number_of(cJSON_GetObjectItemCaseSensitive(device, "peak_bytes"), "total");
        if (peak > largest) largest = peak;
    }
    return largest;
}

static bool read_summary(gpu_check_training *run, const char *line) {
    cJSON *wrapper = cJSON_Parse(line);
    const cJSON *summary = cJSON_GetObjectItemCaseSensitive(wrapper, "summary");
    run->step_ms = bench_number_of(summary, "median_step_ms");
    run->samples_per_s = bench_number_of(summary, "samples_per_s");
    run->final_loss = bench_number_of(summary, "final_loss");
    run->loader_share = bench_number_of(summary, "loader_wait_share");
    run->peak_bytes = largest_peak(cJSON_GetObjectItemCaseSensitive(summary, "device_table"));
    snprintf(run->weights, sizeof run->weights, "%s", gpu_check_text(summary, "parameter_hash"));
    cJSON_Delete(wrapper);
    return run->weights[0] != '\0';
}

void gpu_check_train(gpu_check *check, gpu_check_training *run, const char *program, const char *const *arguments) {
    static bench_output output;
    static char path[BENCH_PATH_CAPACITY];
    char *argv[ARGUMENTS_MAX + 2] = {path};
    int count = 1;
    for (; arguments[count - 1] && count < ARGUMENTS_MAX; count++) argv[count] = (char *)arguments[count - 1];
    argv[count] = "--summary=-";
    *run = (gpu_check_training){.step_ms = NAN,
                                .samples_per_s = NAN,
                                .final_loss = NAN,
                                .loader_share = NAN,
                                .peak_bytes = NAN,
                                .end = GPU_CHECK_FAILED,
                                .why = "the program is not beside gpu_check"};
    if (bench_find_program(path, program) != LS_OK) return;
    run->end = gpu_check_run(check, argv, LIMIT_S, &output, run->why, &run->seconds);
    if (run->end != GPU_CHECK_WELL || read_summary(run, bench_last_line(output.out))) return;
    run->end = GPU_CHECK_FAILED;
    snprintf(run->why, sizeof run->why, "it wrote no summary");
}

void gpu_check_list_ids(char *text, size_t capacity, int devices, int gpu) {
    size_t length = 0;
    text[0] = '\0';
    for (int d = 0; d < devices && length < capacity; d++) {
        length += (size_t)snprintf(text + length, capacity - length, "%s%d", d ? "," : "", gpu < 0 ? d : gpu);
    }
}
