#include "common/train/report.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"

struct ls_report {
    const ls_train_options *options;
    FILE *metrics, *losses;
};

static ls_status open_lines(FILE **out, const char *path) {
    *out = path ? fopen(path, "w") : NULL;
    if (path && !*out) return ls_fail(LS_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    return LS_OK;
}

/* Closes the file (NULL: none). After an earlier failure, `status`, nothing more is reported. */
static ls_status close_lines(ls_status status, FILE *file, const char *path) {
    if (!file) return status;
    bool failed = ferror(file) != 0;
    errno = EIO; /* what is said if an earlier write failed, and this last one does not */
    failed = fclose(file) != 0 || failed;
    if (status != LS_OK || !failed) return status;
    return ls_fail(LS_ERR_IO, "cannot write all of %s: %s", path, strerror(errno));
}

/* "-" is standard output, where the text is the last line. */
static ls_status write_text(const char *path, const char *text) {
    ls_file_writer *writer;
    if (strcmp(path, "-") == 0) {
        if (text) puts(text);
        return fflush(stdout) == 0 ? LS_OK : ls_fail(LS_ERR_IO, "cannot write standard output: %s", strerror(errno));
    }
    ls_status status = ls_file_writer_open(&writer, path);
    if (status != LS_OK) return status;
    if (text) status = ls_file_writer_put(writer, text, strlen(text));
    if (status == LS_OK && text) return ls_file_writer_commit(writer);
    ls_file_writer_abort(writer);
    return status;
}

/* Lines go to whatever can be opened for writing, a pipe or a terminal too. */
static ls_status check_lines(const char *path) {
    struct stat info;
    char folder[PATH_MAX];
    int error = 0;
    if (stat(path, &info) == 0) {
        error = S_ISDIR(info.st_mode) ? EISDIR : access(path, W_OK) != 0 ? errno : 0;
    } else if (snprintf(folder, sizeof folder, "%s", path) < (int)sizeof folder) {
        char *slash = strrchr(folder, '/');
        if (slash) slash[1] = '\0';
        error = access(slash ? folder : ".", W_OK | X_OK) != 0 ? errno : 0;
    } else {
        error = ENAMETOOLONG;
    }
    if (error == 0) return LS_OK;
    return ls_fail(LS_ERR_IO, "cannot write %s: %s", path, strerror(error));
}

ls_status ls_report_check(const ls_train_options *options) {
    ls_status status = LS_OK;
    if (options->metrics) status = check_lines(options->metrics);
    if (status == LS_OK && options->dump_losses) status = check_lines(options->dump_losses);
    if (status == LS_OK && options->summary) status = write_text(options->summary, NULL);
    if (status == LS_OK && options->save) status = write_text(options->save, NULL);
    return status;
}

ls_status ls_report_open(ls_report **out, const ls_train_options *options, const ls_parallel *parallel) {
    *out = NULL;
    ls_report *report = calloc(1, sizeof *report);
    if (!report) return ls_fail(LS_ERR_NO_MEMORY, "no memory for a report");
    report->options = options;
    ls_status status = ls_report_check(options); /* all of them, before the first is emptied */
    if (status == LS_OK) status = open_lines(&report->metrics, options->metrics);
    if (status == LS_OK) status = open_lines(&report->losses, options->dump_losses);
    if (status != LS_OK) {
        (void)ls_report_close(report, parallel, NULL);
        return status;
    }
    printf("%s on %d CPU device%s: %s, global batch %lld, %s streams\n", parallel->ops->name, parallel->device_count,
           parallel->device_count == 1 ? "" : "s", options->model, (long long)options->batch_size,
           ls_device_stream_mode(parallel->devices[0]));
    fflush(stdout);
    *out = report;
    return LS_OK;
}

void ls_report_step(ls_report *report, int64_t step, int64_t epoch, double loss, double step_ms) {
    if (report->losses) fprintf(report->losses, "%.9g\n", loss);
    if (!report->metrics) return;
    double samples_per_s = step_ms > 0 ? (double)report->options->batch_size / step_ms * 1e3 : 0;
    fprintf(
        report->metrics,
        "{\"step\": %lld, \"epoch\": %lld, \"loss\": %.9g, \"lr\": %.9g, \"step_ms\": %.4f, \"samples_per_s\": %.1f}\n",
        (long long)step, (long long)epoch, loss, report->options->learning_rate, step_ms, samples_per_s);
}

void ls_report_epoch(ls_report *report, int64_t epoch, double mean_loss, double accuracy, double seconds) {
    (void)report;
    printf("epoch %3lld  loss %.4f", (long long)epoch + 1, mean_loss);
    if (!isnan(accuracy)) printf("  test accuracy %5.1f %%", 100 * accuracy);
    printf("  %.2f s\n", seconds);
    fflush(stdout);
}

/* --- the summary ------------------------------------------------------------------------------------------------- */

static void add_number(cJSON *object, const char *name, double value) {
    if (isfinite(value)) {
        cJSON_AddNumberToObject(object, name, value);
    } else {
        cJSON_AddNullToObject(object, name);
    }
}

static cJSON *device_object(const ls_parallel *parallel, int index, int64_t steps) {
    const struct ls_phase_clock *clock = &parallel->clocks[index];
    cJSON *device = cJSON_CreateObject(), *ms = cJSON_CreateObject(), *bytes = cJSON_CreateObject(),
          *peak = cJSON_CreateObject();
    double total_us = 0, communication_us = 0, busy_us = 0;
    for (int p = 0; p < LS_PHASE_COUNT; p++) {
        total_us += clock->us[p];
        if (ls_phase_is_communication((ls_phase)p)) communication_us += clock->us[p];
        if (p != LS_PHASE_OTHER && p != LS_PHASE_LOADER) busy_us += clock->us[p];
        if (clock->us[p] > 0) add_number(ms, ls_phase_name((ls_phase)p), clock->us[p] / 1e3 / (double)steps);
        if (clock->bytes[p] > 0) add_number(bytes, ls_phase_name((ls_phase)p), (double)clock->bytes[p] / (double)steps);
    }
    ls_memory_report memory;
    ls_device_memory(parallel->devices[index], &memory);
    for (int c = 0; c < LS_MEMORY_COUNT; c++) {
        add_number(peak, ls_memory_name((ls_memory_category)c), (double)memory.peak_bytes[c]);
    }
    add_number(peak, "total", (double)memory.peak_total_bytes);
    add_number(device, "device", ls_device_index(parallel->devices[index]));
    add_number(device, "busy_share", total_us > 0 ? busy_us / total_us : 0);
    add_number(device, "communication_share", total_us > 0 ? communication_us / total_us : 0);
    cJSON_AddItemToObject(device, "ms_per_step_by_phase", ms);
    cJSON_AddItemToObject(device, "bytes_per_step_by_phase", bytes);
    cJSON_AddItemToObject(device, "peak_bytes", peak);
    return device;
}

static cJSON *summary_object(const ls_report *report, const ls_parallel *parallel, const ls_train_result *result) {
    const ls_train_options *options = report->options;
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)result->parameter_hash);
    cJSON *wrapper = cJSON_CreateObject(), *summary = cJSON_AddObjectToObject(wrapper, "summary");
    cJSON_AddStringToObject(summary, "mode", parallel->ops->name);
    cJSON_AddStringToObject(summary, "model", options->model);
    cJSON_AddStringToObject(summary, "data", options->data);
    cJSON_AddStringToObject(summary, "device_kind", "cpu");
    cJSON_AddStringToObject(summary, "streams", ls_device_stream_mode(parallel->devices[0]));
    add_number(summary, "devices", parallel->device_count);
    add_number(summary, "batch_size", (double)options->batch_size);
    add_number(summary, "seed", (double)options->seed);
    add_number(summary, "lr", options->learning_rate);
    add_number(summary, "steps", (double)result->steps);
    add_number(summary, "epochs", (double)result->epochs);
    cJSON_AddStringToObject(summary, "how", "measured");
    add_number(summary, "timed_steps", (double)result->timed_steps);
    add_number(summary, "median_step_ms", result->median_step_ms);
    add_number(summary, "p10_step_ms", result->p10_step_ms);
    add_number(summary, "p90_step_ms", result->p90_step_ms);
    add_number(summary, "samples_per_s", result->samples_per_s);
    add_number(summary, "final_loss", result->final_loss);
    add_number(summary, "test_accuracy", result->accuracy);
    cJSON_AddStringToObject(summary, "parameter_hash", hash);
    cJSON *devices = cJSON_AddArrayToObject(summary, "devices_of_this_process");
    int64_t clocked_steps = result->timed_steps > 0 ? result->timed_steps : result->steps;
    for (int d = 0; d < parallel->local_device_count; d++) {
        cJSON_AddItemToArray(devices, device_object(parallel, d, clocked_steps));
    }
    return wrapper;
}

static ls_status write_summary(ls_report *report, const ls_parallel *parallel, const ls_train_result *result) {
    cJSON *summary = summary_object(report, parallel, result);
    char *text = cJSON_PrintUnformatted(summary);
    cJSON_Delete(summary);
    if (!text) return ls_fail(LS_ERR_NO_MEMORY, "no memory for the summary");
    ls_status status = LS_OK;
    if (report->metrics) fprintf(report->metrics, "%s\n", text);
    if (report->options->summary) status = write_text(report->options->summary, text);
    cJSON_free(text);
    return status;
}

static void print_result(const ls_train_result *result) {
    if (result->timed_steps > 0) {
        printf("step time %.3f ms, median of %lld measured steps (10 %% to 90 %%: %.3f to %.3f ms); %.0f samples/s\n",
               result->median_step_ms, (long long)result->timed_steps, result->p10_step_ms, result->p90_step_ms,
               result->samples_per_s);
    }
    printf("final loss %.6f", result->final_loss);
    if (!isnan(result->accuracy)) printf(", test accuracy %.1f %%", 100 * result->accuracy);
    printf(", weights %016llx\n", (unsigned long long)result->parameter_hash);
}

ls_status ls_report_close(ls_report *report, const ls_parallel *parallel, const ls_train_result *result) {
    if (!report) return LS_OK;
    ls_status status = LS_OK;
    if (result) {
        print_result(result);
        status = write_summary(report, parallel, result);
    }
    status = close_lines(status, report->metrics, report->options->metrics);
    status = close_lines(status, report->losses, report->options->dump_losses);
    free(report);
    if (status != LS_OK || !result) return status;
    return fflush(stdout) == 0 && !ferror(stdout) ? LS_OK : ls_fail(LS_ERR_IO, "cannot write the results to stdout");
}
