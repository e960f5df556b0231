#include "common/train/report.h"

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
#include "common/train/summary.h"

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

/* "4 CPU devices", "2 GPUs (NVIDIA H200)", "4 devices on 1 GPU (NVIDIA H200)" */
static void describe_devices(const ls_parallel *p, char *text, size_t capacity) {
    const ls_device *first = p->devices[0];
    const char *plural = p->device_count == 1 ? "" : "s";
    if (ls_device_kind_of(first) == LS_DEVICE_CPU) {
        snprintf(text, capacity, "%d CPU device%s", p->device_count, plural);
    } else if (p->gpu_count > 0 && p->gpu_count < p->device_count) {
        snprintf(text, capacity, "%d devices on %d GPU%s (%s)", p->device_count, p->gpu_count,
                 p->gpu_count == 1 ? "" : "s", ls_device_model_name(first));
    } else {
        snprintf(text, capacity, "%d GPU%s (%s)", p->device_count, plural, ls_device_model_name(first));
    }
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
        (void)ls_report_close(report, parallel, NULL, NULL);
        return status;
    }
    char devices[256];
    describe_devices(parallel, devices, sizeof devices);
    printf("%s on %s: %s, global batch %lld, %s streams", parallel->ops->name, devices, options->model,
           (long long)options->batch_size, ls_device_stream_mode(parallel->devices[0]));
    if (ls_device_kind_of(parallel->devices[0]) == LS_DEVICE_CUDA && parallel->backend)
        printf(", %s", parallel->backend);
    printf("\n");
    fflush(stdout);
    *out = report;
    return LS_OK;
}

void ls_report_step(ls_report *report, int64_t step, int64_t epoch, double loss, double step_ms,
                    double loader_wait_ms) {
    if (report->losses) fprintf(report->losses, "%.9g\n", loss);
    if (!report->metrics) return;
    double samples_per_s = step_ms > 0 ? (double)report->options->batch_size / step_ms * 1e3 : 0;
    fprintf(
        report->metrics,
        "{\"step\": %lld, \"epoch\": %lld, \"loss\": %.9g, \"lr\": %.9g, \"step_ms\": %.4f, \"loader_wait_ms\": %.4f, "
        "\"samples_per_s\": %.1f}\n",
        (long long)step, (long long)epoch, loss, report->options->learning_rate, step_ms, loader_wait_ms,
        samples_per_s);
}

void ls_report_epoch(ls_report *report, int64_t epoch, double mean_loss, double accuracy, double seconds) {
    (void)report;
    printf("epoch %3lld  loss %.4f", (long long)epoch + 1, mean_loss);
    if (!isnan(accuracy)) printf("  test accuracy %5.1f %%", 100 * accuracy);
    printf("  %.2f s\n", seconds);
    fflush(stdout);
}

/* --- the end ----------------------------------------------------------------------------------------------------- */

static ls_status write_summary(ls_report *report, const ls_parallel *parallel, const ls_train_result *result,
                               const struct ls_device_row *rows) {
    char *text = ls_summary_text(report->options, parallel, result, rows);
    if (!text) return ls_fail(LS_ERR_NO_MEMORY, "no memory for the summary");
    ls_status status = LS_OK;
    if (report->metrics) fprintf(report->metrics, "%s\n", text);
    if (report->options->summary) status = write_text(report->options->summary, text);
    free(text);
    return status;
}

/* Waiting that is worth a line; below it is the hand-over of batches. */
#define LOADER_SHARE_TO_MENTION 0.05

static void print_times(const ls_report *report, const ls_train_result *result, double waited_share) {
    char what[64] = "measured steps";
    int64_t each = result->steps_per_time > 1 ? result->steps_per_time : 1;
    if (each > 1) snprintf(what, sizeof what, "measured blocks of %lld steps", (long long)each);
    printf("step time %.3f ms, median of %lld %s (10 %% to 90 %%: %.3f to %.3f ms); %.0f samples/s\n",
           result->median_step_ms, (long long)(result->timed_steps / each), what, result->p10_step_ms,
           result->p90_step_ms, result->samples_per_s);
    if (waited_share <= LOADER_SHARE_TO_MENTION) return;
    printf("the loader kept the devices waiting %.0f %% of the time: raise --workers (now %d) if cores are free\n",
           100 * waited_share, report->options->workers);
}

static ls_status print_result(const ls_report *report, const ls_parallel *parallel, const ls_train_result *result,
                              const struct ls_device_row *rows) {
    if (result->timed_steps > 0) {
        print_times(report, result, ls_summary_loader_share(rows, parallel->device_count));
    }
    printf("final loss %.6f", result->final_loss);
    if (!isnan(result->accuracy)) printf(", test accuracy %.1f %%", 100 * result->accuracy);
    printf(", weights %016llx\n", (unsigned long long)result->parameter_hash);
    if (!report->options->metrics && !report->options->summary) return LS_OK;
    return ls_device_table_print(stdout, rows, parallel->device_count, parallel->device_count);
}

ls_status ls_report_close(ls_report *report, const ls_parallel *parallel, const ls_train_result *result,
                          const struct ls_device_row *rows) {
    if (!report) return LS_OK;
    ls_status status = LS_OK;
    if (result) {
        status = print_result(report, parallel, result, rows);
        if (status == LS_OK) status = write_summary(report, parallel, result, rows);
    }
    status = close_lines(status, report->metrics, report->options->metrics);
    status = close_lines(status, report->losses, report->options->dump_losses);
    free(report);
    if (status != LS_OK || !result) return status;
    return fflush(stdout) == 0 && !ferror(stdout) ? LS_OK : ls_fail(LS_ERR_IO, "cannot write the results to stdout");
}
