/* gpu_check — see gpu_check.h. Runs what the command line selects: the check itself, a summary of a file, or one of the
 * parts that the check starts in separate processes. */
#include "labs/bench/gpu_check/gpu_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/named_files.h"
#include "common/base/options.h"
#include "common/base/results.h"

struct request {
    gpu_check check;
    bool find;
    const char *summary, *reference;
    int part;
};

static const char *const part_names[] = {"gpu", "start", "hold", "peaks", "rates", NULL};

#define HEADING(title)                                                                                                 \
    { .kind = LS_OPTION_HEADING, .help = title }
#define FLAG(option, field, says)                                                                                      \
    { .kind = LS_OPTION_FLAG, .name = option, .to.flag = (field), .help = says }
#define TEXT(option, field, value, without, says)                                                                      \
    { .kind = LS_OPTION_STRING, .name = option, .to.text = (field), .argument = value, .empty = without, .help = says }

static ls_status parse(struct request *request, int argc, char **argv, bool *help) {
    gpu_check *c = &request->check;
    const ls_option rows[] = {
        HEADING("The check"),
        {.kind = LS_OPTION_DOUBLE,
         .name = "budget",
         .to.real = &c->budget_s,
         .argument = "SECONDS",
         .limits = LS_ABOVE(0),
         .help = "seconds for all stages; each stage gets its share, and the time that others leave; stages without "
                 "time are not run"},
        TEXT("only", &c->only, "STAGES", "all",
             "look, kernels, training, peaks, rates, steps, agree, memcheck, racecheck, matrix: some, with commas"),
        FLAG("continue", &c->go_on, "keep DIR/gpu_check.jsonl, and repeat the stages that failed or did not run"),
        TEXT("out", &c->out, "DIR", NULL,
             "folder for gpu_check.jsonl, a line for each result at once, and gpu_check.json"),
        {.kind = LS_OPTION_INT,
         .name = "gpu",
         .to.number = &c->gpu,
         .argument = "G",
         .limits = LS_BETWEEN(0, 1023),
         .help = "CUDA's number of the GPU"},
        TEXT("pytorch", &c->pytorch, "FILE", "none", "bench_pytorch_gpu.py, for PyTorch's times beside ours"),
        FLAG("quick", &c->quick, "small arrays and few steps: only whether all of it works"),
        HEADING("Instead"),
        FLAG("find", &request->find, "only say which GPU there is"),
        TEXT("summary", &request->summary, "FILE", "none", "a screen of a gpu_check.jsonl, also of one that was cut"),
        TEXT("reference", &request->reference, "FILE", "none",
             "with --summary: writes it as one object, as plots/reference has them"),
        {.kind = LS_OPTION_CHOICE,
         .name = "part",
         .to.number = &request->part,
         .choices = part_names,
         .empty = "none",
         .help = "what the check runs as processes of their own"},
    };
    ls_command command = {.purpose =
                              "Checks and measures a GPU in stages, the most knowledge first. TESTs are the test "
                              "programs for GPUs.",
                          .options = rows,
                          .count = sizeof rows / sizeof *rows,
                          .operands = "[TEST...]"};
    ls_parsed parsed;
    ls_status status = ls_options_parse(&command, argc, argv, &parsed);
    *help = status == LS_OK && parsed.help;
    if (status != LS_OK || *help) return status;
    c->tests = argv + parsed.first_operand;
    c->test_count = argc - parsed.first_operand;
    return LS_OK;
}

static ls_status find(gpu_check *check) {
    ls_gpu_facts gpu;
    char why[400] = "";
    ls_find_gpus(&check->gpu_count, why, sizeof why);
    if (check->gpu_count == 0) {
        return ls_fail(LS_ERR_UNSUPPORTED, "there is no GPU to check: %s. Nothing was checked, so nothing passed", why);
    }
    const struct ls_cuda_plugin *plugin = gpu_check_plugin();
    ls_status status = plugin ? plugin->describe(check->gpu, &gpu) : LS_ERR_UNSUPPORTED;
    if (status != LS_OK) return status;
    printf("%s (compute capability %d.%d, %d multiprocessors, %.1f GiB), one of %d; driver for CUDA %d.%d, runtime "
           "%d.%d\n",
           gpu.name, gpu.capability_major, gpu.capability_minor, gpu.multiprocessors,
           (double)gpu.memory_bytes / (1 << 30), check->gpu_count, gpu.driver_version / 1000,
           gpu.driver_version % 1000 / 10, gpu.runtime_version / 1000, gpu.runtime_version % 1000 / 10);
    return LS_OK;
}

static ls_status run_part(gpu_check *check, int part) {
    static ls_status (*const parts[])(gpu_check *) = {gpu_check_part_gpu, gpu_check_part_start, gpu_check_part_hold,
                                                      gpu_check_part_peaks, gpu_check_part_rates};
    static const gpu_check_stage stages[] = {GPU_CHECK_look, GPU_CHECK_look, GPU_CHECK_look, GPU_CHECK_peaks,
                                             GPU_CHECK_rates};
    check->stage = stages[part];
    ls_status status = parts[part](check);
    return status == LS_OK && check->log_failed ? LS_ERR_IO : status;
}

static ls_status summarise(const char *path, const char *reference) {
    cJSON *lines;
    int held = 0, broken = 0;
    ls_named_files files = {0};
    ls_named_files_add(&files, &(ls_named_file){.option = "--summary", .path = path});
    ls_named_files_add(&files, &(ls_named_file){.option = "--reference", .path = reference, .is_output = true});
    ls_status status = ls_named_files_check(&files);
    if (status == LS_OK) status = gpu_check_read(path, &lines);
    if (status != LS_OK) return status;
    if (cJSON_GetArraySize(lines) == 0)
        status = ls_fail(LS_ERR_FORMAT, "%s has no line of a gpu_check; expected a gpu_check.jsonl", path);
    if (status == LS_OK) broken = gpu_check_print_summary(lines, &held);
    if (status == LS_OK && reference) status = gpu_check_write_reference(lines, reference);
    cJSON_Delete(lines);
    return status == LS_OK && broken > 0 ? LS_ERR_INVALID : status;
}

int main(int argc, char **argv) {
    static struct request request = {.check = {.out = "build/results", .budget_s = 540}, .part = -1};
    gpu_check *check = &request.check;
    double begin_us = ls_now_us();
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = parse(&request, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    check->stage_end_us = begin_us + check->budget_s * 1e6;
    if (snprintf(check->path, sizeof check->path, "%s/gpu_check.jsonl", check->out) >= (int)sizeof check->path)
        status = ls_fail(LS_ERR_USAGE, "--out: the folder's name is too long: %.60s...", check->out);
    else if (request.reference && !request.summary)
        status = ls_fail(LS_ERR_USAGE, "--reference needs --summary FILE, whose lines it writes");
    else if (request.find)
        status = find(check);
    else if (request.summary)
        status = summarise(request.summary, request.reference);
    else if (request.part >= 0)
        status = run_part(check, request.part);
    else
        status = gpu_check_conduct(check);
    return ls_status_exit_code(ls_results_written(status));
}
