/* training: one run of dp_train, ddp_train or PyTorch's script as a child process. It measures the programs that users
 * run, with their own clocks: a run's time is the median of the steps after its warm-up.
 *   one core : the rows of one device are children that may use the first core only, PyTorch's too */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cores.h"
#include "common/base/log.h"
#include "labs/bench/gpt/bench_gpt.h"
#include "labs/bench/shared/command.h"

/* --- what they write ---------------------------------------------------------------------------------------------- */

static const char *text_of(const cJSON *object, const char *name) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text ? text : "";
}

/* The activations of the device that has most. */
static double read_activations(const cJSON *devices) {
    double most = NAN;
    const cJSON *device;
    cJSON_ArrayForEach(device, devices) {
        const cJSON *peaks = cJSON_GetObjectItemCaseSensitive(device, "peak_bytes");
        most = fmax(most, bench_number_of(peaks, ls_memory_name(LS_MEMORY_ACTIVATION)));
    }
    return most;
}

ls_status gpt_read_summary(gpt_row *row, const char *json) {
    cJSON *wrapper = cJSON_Parse(json);
    const cJSON *summary = cJSON_GetObjectItemCaseSensitive(wrapper, "summary");
    const char *weights = text_of(summary, "parameter_hash");
    double ms = bench_number_of(summary, "median_step_ms");
    row->activation_bytes = read_activations(cJSON_GetObjectItemCaseSensitive(summary, "device_table"));
    bool right = bench_number_of(summary, "devices") == row->n &&
                 bench_number_of(summary, "batch_size") == (double)row->batch && row->activation_bytes > 0;
    if (right && row->kind <= GPT_DDP) {
        right = ms > 0 && weights[0] != '\0';
        row->repeats = row->repeats && (row->run_count == 0 || strcmp(row->weights, weights) == 0);
        snprintf(row->weights, sizeof row->weights, "%s", weights);
        row->run_ms[row->run_count] = ms;
        row->run_count += right;
    }
    cJSON_Delete(wrapper);
    if (right) return LS_OK;
    return ls_fail(LS_ERR_FORMAT, "the summary of %s on %d devices cannot be read: %.100s", gpt_name(row->kind), row->n,
                   json[0] ? json : "(nothing)");
}

ls_status gpt_read_pytorch(gpt_row *row, gpt_results *results, const char *json) {
    cJSON *object = cJSON_Parse(json);
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(object, "version");
    const cJSON *ms = cJSON_GetObjectItemCaseSensitive(object, row->kind == GPT_EAGER ? "eager_ms" : "compiled_ms");
    bool right = version && ms;
    row->missing = right && cJSON_IsNull(ms);
    if (right && cJSON_IsString(version))
        snprintf(results->pytorch, sizeof results->pytorch, "%s", version->valuestring);
    if (right && !row->missing) row->run_ms[row->run_count++] = cJSON_GetNumberValue(ms);
    cJSON_Delete(object);
    if (right) return LS_OK;
    return ls_fail(LS_ERR_FORMAT, "the line of bench_pytorch_gpt.py cannot be read: %.100s", json);
}

/* --- the runs ----------------------------------------------------------------------------------------------------- */

/* Relative to the root of the tree, where make runs. */
static const char script[] = "labs/bench/peers/bench_pytorch_gpt.py";

static void add_pytorch(bench_command *command, const gpt_row *row, const gpt_settings *s) {
    const struct ls_gpt_sizes *g = &s->sizes;
    const int numbers[] = {g->layers, g->heads, g->channels, g->context, g->vocabulary, s->batch, s->steps};
    bench_command_add(command, "%s", script);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) bench_command_add(command, "%d", numbers[i]);
    bench_command_add(command, "%s", row->kind == GPT_EAGER ? "eager" : "compiled");
}

static void add_training(bench_command *command, const gpt_row *row, const gpt_settings *s) {
    char model[LS_GPT_TEXT_NBYTES];
    struct ls_gpt_sizes sizes = s->sizes;
    sizes.context = row->context;
    sizes.scores = row->kind == GPT_SCORES;
    ls_gpt_describe(&sizes, model, sizeof model);
    if (row->n == 1) bench_command_add(command, "--single");
    if (row->kind == GPT_DP) bench_command_add(command, "--devices=%d", row->n);
    if (row->kind == GPT_DDP) bench_command_add(command, "--spawn=%d", row->n);
    if (row->kind == GPT_DDP) bench_command_add(command, "--shard=contiguous");
    bench_command_add(command, "--device-kind=%s", row->kind >= GPT_SCORES ? "meta" : "cpu");
    bench_command_add(command, "--model=%s", model);
    bench_command_add(command, "--data=random:0");
    bench_command_add(command, "--optimizer=adamw");
    bench_command_add(command, "--lr=0.001");
    bench_command_add(command, "--batch-size=%d", row->batch);
    bench_command_add(command, "--steps=%d", row->kind >= GPT_SCORES ? 2 : s->steps);
    bench_command_add(command, "--no-evaluate");
    bench_command_add(command, "--quiet");
    bench_command_add(command, "--summary=-");
}

static ls_status run(const bench_command *command, const gpt_row *row, const gpt_settings *s, bench_output *output) {
    if (row->n == 1) ls_run_on_core(0, 1);
    ls_status status = bench_command_run(command, s->timeout_s, output);
    ls_run_on_any_core();
    return status;
}

ls_status gpt_train(gpt_row *row, gpt_results *results) {
    bench_command *command = malloc(sizeof *command);
    bench_output *output = malloc(sizeof *output);
    ls_status status = command && output ? bench_command_begin(command, row->kind == GPT_DDP ? "ddp_train" : "dp_train")
                                         : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a run");
    if (status == LS_OK) add_training(command, row, results->settings);
    if (status == LS_OK) status = run(command, row, results->settings, output);
    if (status == LS_OK) status = gpt_read_summary(row, bench_last_line(output->out));
    free(command);
    free(output);
    return status;
}

ls_status gpt_run_pytorch(gpt_row *row, gpt_results *results) {
    const gpt_settings *s = results->settings;
    if (row->missing) return LS_OK;
    bench_command *command = malloc(sizeof *command);
    bench_output *output = malloc(sizeof *output);
    ls_status status = command && output ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a run");
    row->missing = status == LS_OK && (access(script, R_OK) != 0 || !bench_command_begin_tool(command, s->python));
    bool due = status == LS_OK && !row->missing;
    if (due) add_pytorch(command, row, s);
    if (due) status = run(command, row, s, output);
    if (due && status == LS_OK) status = gpt_read_pytorch(row, results, bench_last_line(output->out));
    free(command);
    free(output);
    return status;
}
