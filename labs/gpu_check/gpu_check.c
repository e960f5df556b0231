/* gpu_check — see gpu_check.h. `make gpu-check` runs the tests and compute-sanitizer first (gpu_check.sh) and hands
 * over what came of them. */
#include "labs/gpu_check/gpu_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/options.h"
#include "common/base/results.h"
#include "labs/bench_shared/output.h"

struct request {
    gpu_check_settings settings;
    bool find;
};

static ls_status parse(struct request *request, int argc, char **argv, bool *help) {
    gpu_check_settings *s = &request->settings;
    const ls_option rows[] = {
        {.kind = LS_OPTION_FLAG, .name = "find", .to.flag = &request->find, .help = "only say which GPU there is"},
        {.kind = LS_OPTION_FLAG,
         .name = "quick",
         .to.flag = &s->quick,
         .help = "small arrays and few steps: only whether all of it works"},
        {.kind = LS_OPTION_INT,
         .name = "gpu",
         .to.number = &s->gpu,
         .argument = "G",
         .limits = LS_BETWEEN(0, 1023),
         .help = "CUDA's number of the GPU"},
        {.kind = LS_OPTION_STRING,
         .name = "out",
         .to.text = &s->out,
         .argument = "DIR",
         .help = "folder for gpu_check.json"},
        {.kind = LS_OPTION_STRING,
         .name = "tests",
         .to.text = &s->tests,
         .argument = "FILE",
         .help = "what checks made before said",
         .empty = "none"},
        {.kind = LS_OPTION_DOUBLE,
         .name = "timeout",
         .to.real = &s->timeout_s,
         .argument = "S",
         .limits = LS_ABOVE(0),
         .help = "of one training run"},
        {.kind = LS_OPTION_DOUBLE,
         .name = "budget",
         .to.real = &s->budget_s,
         .argument = "S",
         .limits = LS_ABOVE(0),
         .help = "of everything; what has not begun by then is left out, and what was measured is kept"},
    };
    ls_command command = {.purpose = "Measures kernels and steps on a GPU and checks that the modes agree there.",
                          .options = rows,
                          .count = sizeof rows / sizeof *rows};
    ls_parsed parsed;
    ls_status status = ls_options_parse(&command, argc, argv, &parsed);
    *help = status == LS_OK && parsed.help;
    return status;
}

static ls_status find_gpu(gpu_check_result *result, int gpu) {
    char why[400] = "";
    ls_find_gpus(&result->gpu_count, why, sizeof why);
    if (result->gpu_count == 0) {
        return ls_fail(LS_ERR_UNSUPPORTED, "there is no GPU to check: %s. Nothing was checked, which is not a pass",
                       why);
    }
    const struct ls_cuda_plugin *plugin = gpu_check_plugin();
    return plugin ? plugin->describe(gpu, &result->gpu) : LS_ERR_UNSUPPORTED;
}

static void print_gpu(const gpu_check_result *r) {
    printf("%s (compute capability %d.%d, %d multiprocessors, %.1f GiB), one of %d; driver for CUDA %d.%d, runtime "
           "%d.%d\n",
           r->gpu.name, r->gpu.capability_major, r->gpu.capability_minor, r->gpu.multiprocessors,
           (double)r->gpu.memory_bytes / (1 << 30), r->gpu_count, r->gpu.driver_version / 1000,
           r->gpu.driver_version % 1000 / 10, r->gpu.runtime_version / 1000, r->gpu.runtime_version % 1000 / 10);
    fflush(stdout);
}

enum { MOST_BYTES = 1 << 20 };

/* A line is "name<TAB>verdict<TAB>detail". */
static ls_status read_tests(gpu_check_result *result, const char *path) {
    if (!path) return LS_OK;
    char *text, *line_rest, *rest;
    size_t nbytes;
    ls_status status = ls_file_read(path, MOST_BYTES, &text, &nbytes);
    if (status != LS_OK) return status;
    for (char *line = strtok_r(text, "\n", &line_rest); line; line = strtok_r(NULL, "\n", &line_rest)) {
        const char *name = strtok_r(line, "\t", &rest), *verdict = strtok_r(NULL, "\t", &rest);
        const char *detail = strtok_r(NULL, "\t", &rest);
        if (!name || !verdict) continue;
        gpu_check_judge(result, strcmp(verdict, "passed") == 0, name, "%s", detail ? detail : "");
        if (strcmp(verdict, "not run") == 0) result->verdicts[result->verdict_count - 1].ran = false;
    }
    free(text);
    return LS_OK;
}

/* A check that did not run is not a pass either. */
static ls_status overall(const gpu_check_result *r) {
    int bad = 0, without_number = 0;
    for (int i = 0; i < r->verdict_count; i++) bad += !r->verdicts[i].ran || !r->verdicts[i].passed;
    for (int i = 0; i < r->step_count; i++) without_number += r->steps[i].note[0] != '\0';
    if (bad + without_number == 0) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "%d checks did not pass and %d runs have no figures, see above", bad,
                   without_number);
}

static ls_status check(gpu_check_result *result, const gpu_check_settings *settings) {
    const char *const names[] = {"gpu_check.json"};
    ls_status status = bench_prepare_folder(settings->out, names, 1);
    if (status == LS_OK) status = read_tests(result, settings->tests);
    if (status == LS_OK) status = gpu_check_measure_peaks(result, settings);
    if (status == LS_OK) status = gpu_check_measure_rates(result, settings);
    if (status == LS_OK)
        status = gpu_check_write(result, settings->out); /* so much stays if the rest runs out of time */
    if (status != LS_OK) return status;
    gpu_check_measure_steps(result, settings);
    (void)gpu_check_write(result, settings->out);
    gpu_check_invariants(result, settings);
    gpu_check_print(result);
    status = gpu_check_write(result, settings->out);
    return status == LS_OK ? overall(result) : status;
}

int main(int argc, char **argv) {
    struct request request = {.settings = {.out = "build/results", .timeout_s = 300, .budget_s = 540}};
    static gpu_check_result result;
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = parse(&request, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    request.settings.end_us = ls_now_us() + request.settings.budget_s * 1e6;
    bench_describe_machine(&result.machine);
    status = find_gpu(&result, request.settings.gpu);
    if (status == LS_OK) print_gpu(&result);
    if (status == LS_OK && !request.find) status = check(&result, &request.settings);
    return ls_status_exit_code(ls_results_written(status));
}
