/* runs: one training run as a child process.
 *   idea    : measures the programs that users run, with their own clock: the step time is the median over the steps
 *             after the warm-up, so it includes neither the start of the processes nor that of the summary's pipe.
 *             --drop-last makes every step a whole batch, and --shard contiguous gives DDP the chunks that DP scatters.
 *   exposed : the communication that a step waits for.
 *             DDP: rank 0's share of its time in broadcast and in all-reduce, where the latter is only the part that
 *                  the backward pass did not hide (and, since all ranks leave it together, the wait for the slowest
 *                  rank).
 *             DP: the other devices' threads copy while device 0's thread waits, then device 0 sums the gradients; so
 *                 it is the share of the busiest other device plus that of device 0.
 *             The shares are means over the run; they are multiplied by the median step time, so that the parts of a
 *             row add up. On GPUs, whose threads only enqueue, they are meaningless, and exposed_ms is NAN. */
#include <cjson/cJSON.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "labs/bench/dp_vs_ddp/bench.h"
#include "labs/bench/shared/command.h"
#include "labs/replay/record/record.h"

const char *bench_mode_name(bench_mode mode) {
    static const char *const names[] = {"single", "DP", "DDP"};
    return names[mode];
}

/* --- the summary ------------------------------------------------------------------------------------------------- */

static const char *text_of(const cJSON *object, const char *name) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text ? text : "";
}

static double exposed_share(const bench_run *run, const cJSON *devices) {
    double first = bench_number_of(cJSON_GetArrayItem(devices, 0), "communication_share"), busiest = 0;
    for (int d = 1; run->mode == BENCH_DP && d < cJSON_GetArraySize(devices); d++) {
        double share = bench_number_of(cJSON_GetArrayItem(devices, d), "communication_share");
        if (share > busiest) busiest = share;
    }
    return first + busiest;
}

static bool is_of(const cJSON *summary, const bench_run *run) {
    bool is_locked = run->host_lock_us == 0 || bench_number_of(summary, "host_lock_us") == run->host_lock_us;
    return is_locked && strcmp(text_of(summary, "mode"), record_modes[run->mode].mode->name) == 0 &&
           bench_number_of(summary, "devices") == (double)run->n &&
           bench_number_of(summary, "batch_size") == (double)run->batch;
}

ls_status bench_read_summary(bench_run *run, const char *json) {
    cJSON *wrapper = cJSON_Parse(json);
    const cJSON *summary = cJSON_GetObjectItemCaseSensitive(wrapper, "summary");
    bool right = summary && is_of(summary, run);
    if (right) {
        run->step_ms = bench_number_of(summary, "median_step_ms");
        bool enqueued = strcmp(text_of(summary, "phase_times"), "enqueueing") == 0;
        double share = exposed_share(run, cJSON_GetObjectItemCaseSensitive(summary, "device_table"));
        run->exposed_ms = enqueued ? NAN : run->step_ms * share;
        run->final_loss = bench_number_of(summary, "final_loss");
        snprintf(run->weights, sizeof run->weights, "%s", text_of(summary, "parameter_hash"));
        const cJSON *names = cJSON_GetObjectItemCaseSensitive(summary, "device_names");
        const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(names, 0));
        snprintf(run->device_name, sizeof run->device_name, "%s", name ? name : "");
        snprintf(run->backend, sizeof run->backend, "%s", text_of(summary, "backend"));
        right = run->step_ms > 0 && share >= 0 && run->weights[0] != '\0'; /* false for NAN too */
    }
    cJSON_Delete(wrapper);
    if (right) return LS_OK;
    return ls_fail(LS_ERR_FORMAT, "the summary of %s on %d devices cannot be read: %.100s", bench_mode_name(run->mode),
                   run->n, json[0] ? json : "(nothing)");
}

/* --- the command ------------------------------------------------------------------------------------------------- */

/* Assigns GPUs round-robin if there are more devices than GPUs, as ddp_train's ranks do. */
static void add_shared_gpus(bench_command *command, int devices, int gpus) {
    char ids[176] = "";
    size_t length = 0;
    for (int i = 0; i < devices && length < sizeof ids; i++) {
        length += (size_t)snprintf(ids + length, sizeof ids - length, i ? ",%d" : "%d", i % gpus);
    }
    bench_command_add(command, "--device-ids=%s", ids);
}

static ls_status build_command(bench_command *command, const bench_run *run, const bench_plan *plan,
                               const bench_settings *settings) {
    ls_status status = bench_command_begin(command, run->mode == BENCH_DDP ? "ddp_train" : "dp_train");
    if (run->mode == BENCH_SINGLE) bench_command_add(command, "--single");
    if (run->mode == BENCH_DP && settings->gpus) add_shared_gpus(command, run->n, settings->processors);
    if (run->mode == BENCH_DP && !settings->gpus) bench_command_add(command, "--devices=%d", run->n);
    if (run->mode == BENCH_DDP) {
        bench_command_add(command, "--spawn=%d", run->n);
        bench_command_add(command, "--shard=contiguous");
    }
    bench_command_add(command, "--device-kind=%s", settings->device);
    bench_command_add(command, "--model=%s", plan->model);
    bench_command_add(command, "--data=%s", plan->data);
    for (int i = 0; plan->recipe[i]; i++) bench_command_add(command, "%s", plan->recipe[i]);
    bench_command_add(command, "--batch-size=%lld", (long long)run->batch);
    bench_command_add(command, "--drop-last");
    bench_command_add(command, "--steps=%d", plan->steps);
    bench_command_add(command, "--no-evaluate");
    bench_command_add(command, "--quiet");
    bench_command_add(command, "--summary=-");
    if (run->host_lock_us > 0) bench_command_add(command, "--host-lock=%g", run->host_lock_us);
    if (run->trace) {
        bench_command_add(command, "--virtual-time");
        bench_command_add(command, "--trace=%s", run->trace);
    }
    return status;
}

ls_status bench_train(bench_run *run, const bench_plan *plan, const bench_settings *settings) {
    bench_command *command = malloc(sizeof *command);
    bench_output *output = malloc(sizeof *output);
    ls_status status = command && output ? build_command(command, run, plan, settings)
                                         : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a run");
    if (status == LS_OK) status = bench_command_run(command, settings->timeout_s, output);
    if (status == LS_OK) status = bench_read_summary(run, bench_last_line(output->out));
    free(command);
    free(output);
    return status;
}
