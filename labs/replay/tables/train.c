#include "labs/replay/tables/train.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "labs/bench/shared/child.h"

enum { ARGUMENTS_MAX = 16, EXTRA_MAX = 8, ARGUMENT_CAPACITY = 64 };

struct command {
    int count;
    char program[BENCH_PATH_CAPACITY];
    char texts[ARGUMENTS_MAX][ARGUMENT_CAPACITY];
    char *argv[ARGUMENTS_MAX + EXTRA_MAX + 2];
};

static char *next_text(struct command *command) {
    char *text = command->texts[command->count++];
    command->argv[command->count] = text;
    command->argv[command->count + 1] = NULL;
    return text;
}

static void add_text(struct command *command, const char *name, const char *value) {
    snprintf(next_text(command), ARGUMENT_CAPACITY, "--%s%s%s", name, value[0] ? "=" : "", value);
}

static void add_number(struct command *command, const char *name, int value) {
    snprintf(next_text(command), ARGUMENT_CAPACITY, "--%s=%d", name, value);
}

static ls_status build(struct command *command, const struct tables_run *run) {
    *command = (struct command){.argv = {command->program}};
    if (run->mode == TABLES_SINGLE) add_text(command, "single", "");
    if (run->mode == TABLES_DP) add_number(command, "devices", run->devices);
    if (run->mode == TABLES_DDP) add_number(command, "spawn", run->devices);
    add_text(command, "device-kind", "cpu");
    add_text(command, "model", run->model);
    add_text(command, "data", "random:0");
    add_text(command, "optimizer", run->optimizer);
    add_text(command, "precision", run->precision);
    add_number(command, "batch-size", run->batch);
    add_number(command, "steps", run->steps);
    add_text(command, "drop-last", "");
    add_text(command, "no-evaluate", "");
    add_text(command, "quiet", "");
    add_text(command, "summary", "-");
    for (int i = 0; run->extra && run->extra[i]; i++) {
        if (i == EXTRA_MAX)
            return ls_fail(LS_ERR_INVALID, "a training run takes at most %d further arguments", EXTRA_MAX);
        command->argv[command->count + 1 + i] = (char *)(uintptr_t)run->extra[i]; /* execv's, which changes nothing */
        command->argv[command->count + 2 + i] = NULL;
    }
    return bench_find_program(command->program, run->mode == TABLES_DDP ? "ddp_train" : "dp_train");
}

ls_status tables_train(cJSON **summary, const struct tables_run *run, double timeout_s) {
    struct command *command = malloc(sizeof *command);
    bench_output *output = malloc(sizeof *output);
    *summary = NULL;
    ls_status status =
        command && output ? build(command, run) : ls_fail(LS_ERR_NO_MEMORY, "no memory for a training run");
    if (status == LS_OK) status = bench_child_run(command->argv, timeout_s, output);
    if (status == LS_OK) {
        cJSON *wrapper = cJSON_Parse(bench_last_line(output->out));
        *summary = cJSON_DetachItemFromObjectCaseSensitive(wrapper, "summary");
        cJSON_Delete(wrapper);
        const cJSON *devices = cJSON_GetObjectItemCaseSensitive(*summary, "device_table");
        if (cJSON_GetArraySize(devices) != run->devices) {
            status = ls_fail(LS_ERR_FORMAT, "the summary of %s on %d devices is not what was expected",
                             command->program, run->devices);
        }
    }
    if (status != LS_OK) {
        cJSON_Delete(*summary);
        *summary = NULL;
    }
    free(command);
    free(output);
    return status;
}

static const cJSON *device_of(const cJSON *summary, int device) {
    return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(summary, "device_table"), device);
}

double tables_step_ms(const cJSON *summary) { return bench_number_of(summary, "median_step_ms"); }

double tables_device_share(const cJSON *summary, int device, const char *name) {
    return bench_number_of(device_of(summary, device), name);
}

double tables_peak_bytes(const cJSON *summary, int device, const char *category) {
    return bench_number_of(cJSON_GetObjectItemCaseSensitive(device_of(summary, device), "peak_bytes"), category);
}

double tables_phase_bytes(const cJSON *summary, int device, const char *phase) {
    return bench_number_of(cJSON_GetObjectItemCaseSensitive(device_of(summary, device), "bytes_per_step_by_phase"),
                           phase);
}
