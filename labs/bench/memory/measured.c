/* measured: one run of ddp_train as a child process.
 *   idea  : measures the program that users run, with its own clock and its own memory counters: the summary has the
 *           median of the steps after the warm-up, and each rank's peak of each category of memory
 *   bytes : the bytes that a rank sends are derived from those that its phases handle, as rings send them */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/bench/memory/bench_memory.h"
#include "labs/bench/shared/command.h"

/* --- the summary -------------------------------------------------------------------------------------------------- */

double memory_sent_bytes(const cJSON *bytes_by_phase, int n, bool is_split) {
    static const struct {
        const char *phase;
        bool within_a_split;
        double parts, whole; /* the bytes sent, as a multiple of (N - 1) / N of the bytes, and of the bytes */
    } rules[] = {{"all-reduce", false, 2, 0}, {"reduce", false, 1, 0}, {"gather", false, 1, 0},
                 {"broadcast", false, 0, 1},  {"tensor", true, 2, 0},  {"stages", true, 0, 1}};
    double sent = 0;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const cJSON *phase = cJSON_GetObjectItemCaseSensitive(bytes_by_phase, rules[i].phase);
        if (phase && rules[i].within_a_split == is_split)
            sent += phase->valuedouble * (rules[i].parts * (n - 1.0) / n + rules[i].whole);
    }
    return sent;
}

static const char *text_of(const cJSON *object, const char *name) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text ? text : "";
}

/* Reads the figures of the rank that holds most, and of the one that sends most. False if a figure is missing. */
static bool read_rank(memory_row *row, const cJSON *rank) {
    const cJSON *peaks = cJSON_GetObjectItemCaseSensitive(rank, "peak_bytes");
    double total = bench_number_of(peaks, "total");
    bool is_most = !(total <= row->total_bytes);
    if (is_most) row->total_bytes = total;
    for (int c = 0; c < LS_MEMORY_COUNT; c++) {
        double bytes = bench_number_of(peaks, ls_memory_name((ls_memory_category)c));
        if (!(bytes >= 0)) return false;
        if (is_most) row->bytes[c] = bytes;
    }
    double sent = memory_sent_bytes(cJSON_GetObjectItemCaseSensitive(rank, "bytes_per_step_by_phase"), row->n,
                                    row->technique->split != NULL);
    row->sent_bytes = fmax(row->sent_bytes, sent);
    return total >= 0;
}

bool memory_read_ranks(memory_row *row, const cJSON *ranks) {
    row->total_bytes = -1;
    row->sent_bytes = 0;
    bool right = cJSON_GetArraySize(ranks) > 0;
    const cJSON *rank;
    cJSON_ArrayForEach(rank, ranks) right = right && read_rank(row, rank);
    return right;
}

ls_status memory_read_summary(memory_row *row, const char *json) {
    cJSON *wrapper = cJSON_Parse(json);
    const cJSON *summary = cJSON_GetObjectItemCaseSensitive(wrapper, "summary");
    double ms = bench_number_of(summary, "median_step_ms");
    const char *weights = text_of(summary, "parameter_hash");
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(summary, "device_table");
    bool right = summary && strcmp(text_of(summary, "model"), row->model->name) == 0 &&
                 bench_number_of(summary, "devices") == row->n &&
                 bench_number_of(summary, "batch_size") == (double)row->model->batch && ms > 0 && weights[0] != '\0' &&
                 cJSON_GetArraySize(ranks) == row->n && memory_read_ranks(row, ranks);
    if (right) {
        row->repeats = row->repeats && (row->run_count == 0 || strcmp(row->weights, weights) == 0);
        snprintf(row->weights, sizeof row->weights, "%s", weights);
        row->run_ms[row->run_count++] = ms;
    }
    cJSON_Delete(wrapper);
    if (right) return LS_OK;
    return ls_fail(LS_ERR_FORMAT, "the summary of %s, %s on %d ranks, cannot be read: %.100s", row->model->name,
                   row->technique->name, row->n, json[0] ? json : "(nothing)");
}

/* --- the run ------------------------------------------------------------------------------------------------------ */

static ls_status build_command(bench_command *command, const memory_row *row, const memory_settings *settings) {
    const memory_model *model = row->model;
    ls_status status = bench_command_begin(command, "ddp_train");
    bench_command_add(command, "--spawn=%d", row->n);
    bench_command_add(command, "--model=%s", model->name);
    bench_command_add(command, "--data=%s", model->data);
    bench_command_add(command, "--optimizer=%s", model->optimizer);
    bench_command_add(command, "--batch-size=%lld", (long long)model->batch);
    bench_command_add(command, "--drop-last");
    bench_command_add(command, "--bucket-cap-mb=%g", settings->bucket_cap_mb);
    bench_command_add(command, "--steps=%d", model->steps);
    bench_command_add(command, "--no-evaluate");
    bench_command_add(command, "--quiet");
    bench_command_add(command, "--summary=-");
    if (row->technique->split) bench_command_add(command, "%s=%d", row->technique->split, row->n);
    if (row->technique->option) bench_command_add(command, "%s", row->technique->option);
    return status;
}

ls_status memory_measure(memory_row *row, const memory_settings *settings) {
    bench_command *command = malloc(sizeof *command);
    bench_output *output = malloc(sizeof *output);
    ls_status status = command && output ? build_command(command, row, settings)
                                         : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a run");
    if (status == LS_OK) status = bench_command_run(command, settings->timeout_s, output);
    if (status == LS_OK) status = memory_read_summary(row, bench_last_line(output->out));
    free(command);
    free(output);
    return status;
}
