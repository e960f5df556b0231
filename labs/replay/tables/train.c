#define _GNU_SOURCE
#include "labs/replay/tables/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/bench/shared/child.h"

enum { ARGUMENTS_MAX = 32, ARGUMENT_CAPACITY = BENCH_PATH_CAPACITY + 16 };

static const char common_arguments[] =
    "--device-kind=cpu --drop-last --no-evaluate --quiet --summary=-"; /* of every run */

static ls_status run_program(const struct tables_training *training, char *arguments, bench_output *output,
                             double timeout_s) {
    static const char *const devices[] = {
        [LS_PLAN_SINGLE] = "--single", [LS_PLAN_DP] = "--devices=%d", [LS_PLAN_DDP] = "--spawn=%d"};
    char program[BENCH_PATH_CAPACITY], first[32], trace[ARGUMENT_CAPACITY], *argv[ARGUMENTS_MAX + 4], *rest = arguments;
    int count = 0;
    snprintf(first, sizeof first, devices[training->mode], training->devices);
    snprintf(trace, sizeof trace, "--trace=%s", training->trace ? training->trace : "");
    argv[count++] = program;
    argv[count++] = first;
    while (count < ARGUMENTS_MAX && (argv[count] = strtok_r(rest, " ", &rest))) count++;
    if (training->trace) argv[count++] = trace;
    argv[count] = NULL;
    ls_status status = bench_find_program(program, training->mode == LS_PLAN_DDP ? "ddp_train" : "dp_train");
    return status == LS_OK ? bench_child_run(argv, timeout_s, output) : status;
}

/* Reads the summary from the program's last line. */
static ls_status read_summary(cJSON **summary, const struct tables_training *training, char *out) {
    cJSON *wrapper = cJSON_Parse(bench_last_line(out));
    *summary = cJSON_DetachItemFromObjectCaseSensitive(wrapper, "summary");
    cJSON_Delete(wrapper);
    if (cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(*summary, "device_table")) == training->devices)
        return LS_OK;
    cJSON_Delete(*summary);
    *summary = NULL;
    return ls_fail(LS_ERR_FORMAT, "the summary of a run on %d devices does not list them", training->devices);
}

ls_status tables_train(cJSON **summary, const struct tables_training *training, double timeout_s) {
    bench_output *output = malloc(sizeof *output);
    char *arguments = NULL;
    *summary = NULL;
    if (asprintf(&arguments, "%s %s", training->arguments, common_arguments) < 0) arguments = NULL;
    ls_status status =
        arguments && output ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a training run");
    if (status == LS_OK) status = run_program(training, arguments, output, timeout_s);
    if (status == LS_OK) status = read_summary(summary, training, output->out);
    free(arguments);
    free(output);
    return status;
}

double tables_device_number(const cJSON *summary, int device, const char *group, const char *name) {
    const cJSON *of = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(summary, "device_table"), device);
    return bench_number_of(group ? cJSON_GetObjectItemCaseSensitive(of, group) : of, name);
}
