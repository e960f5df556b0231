#include "common/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/print_bytes.h"
#include "common/base/results.h"
#include "common/report/lines.h"
#include "common/report/summary.h"

struct ls_report {
    const ls_train_options *options;
    size_t tokens; /* per sample; 0: not a text */
    struct ls_lines metrics, losses;
};

/* "-" is standard output, on which the text is the last line. */
static ls_status write_text(const char *path, const char *text) {
    if (strcmp(path, "-") == 0) {
        ls_print("%s\n", text);
        return LS_OK;
    }
    return ls_file_write_text(path, text);
}

/* --- the run ------------------------------------------------------------------------------------------------------ */

/* "4 CPU devices", "2 GPUs (NVIDIA H200)", "4 devices on 1 GPU (NVIDIA H200)" */
static void describe_devices(const ls_parallel *p, char *text, size_t capacity) {
    const ls_device *first = p->devices[0];
    const char *plural = p->device_count == 1 ? "" : "s";
    if (ls_device_kind_of(first) != LS_DEVICE_CUDA) {
        const char *kind = ls_device_computes(first) ? "CPU" : "meta";
        snprintf(text, capacity, "%d %s device%s", p->device_count, kind, plural);
    } else if (p->gpu_count > 0 && p->gpu_count < p->device_count) {
        snprintf(text, capacity, "%d devices on %d GPU%s (%s)", p->device_count, p->gpu_count,
                 p->gpu_count == 1 ? "" : "s", ls_device_model_name(first));
    } else {
        snprintf(text, capacity, "%d GPU%s (%s)", p->device_count, plural, ls_device_model_name(first));
    }
}

/* Formats the beginning of each line of ls_report_step. */
static void format_begin(char *text, size_t capacity, int64_t step) {
    snprintf(text, capacity, "{\"step\": %" PRId64 ", ", step);
}

static ls_status keep_lines(ls_report *report, int64_t steps, double last_loss) {
    char begin[64], loss[64], metric[96];
    if (steps == LS_REPORT_SAME_RUN) {
        ls_status kept = ls_lines_keep_all(&report->losses);
        return kept == LS_OK ? ls_lines_keep_all(&report->metrics) : kept;
    }
    snprintf(loss, sizeof loss, "%.9g\n", last_loss);
    ls_status status = ls_lines_keep(&report->losses, "--dump-losses", steps, loss, "");
    format_begin(begin, sizeof begin, steps - 1);
    snprintf(metric, sizeof metric, "\"loss\": %.9g, ", last_loss);
    return status == LS_OK ? ls_lines_keep(&report->metrics, "--metrics", steps, begin, metric) : status;
}

static void print_run(const ls_train_options *options, const ls_parallel *parallel) {
    char devices[256];
    describe_devices(parallel, devices, sizeof devices);
    ls_print("%s on %s%s%s%s: %s, global batch %lld, %s streams", parallel->mode->name, devices,
             parallel->why_not_gpu ? " (no GPU: " : "", parallel->why_not_gpu ? parallel->why_not_gpu : "",
             parallel->why_not_gpu ? ")" : "", options->model, (long long)options->batch_size,
             ls_device_stream_mode(parallel->devices[0]));
    if (ls_device_kind_of(parallel->devices[0]) == LS_DEVICE_CUDA && parallel->backend)
        ls_print(", %s", parallel->backend);
    ls_print("\n");
    fflush(ls_results());
}

ls_status ls_report_open(ls_report **out, const ls_train_options *options, const ls_parallel *parallel, int64_t steps,
                         double last_loss) {
    *out = NULL;
    ls_report *report = calloc(1, sizeof *report);
    if (!report) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a report");
    report->options = options;
    report->tokens = parallel->model ? ls_train_sample_tokens(parallel->model) : 0;
    ls_status status =
        steps == LS_REPORT_SAME_RUN ? LS_OK : ls_report_check(options); /* all of them, before the first is emptied */
    if (status == LS_OK) status = ls_lines_open(&report->metrics, options->metrics);
    if (status == LS_OK) status = ls_lines_open(&report->losses, options->dump_losses);
    if (status == LS_OK) status = keep_lines(report, steps, last_loss);
    if (status == LS_OK) status = ls_lines_begin(&report->metrics);
    if (status == LS_OK) status = ls_lines_begin(&report->losses);
    if (status != LS_OK) {
        (void)ls_report_close(report, parallel, NULL, NULL);
        return status;
    }
    if (steps != LS_REPORT_SAME_RUN) print_run(options, parallel);
    *out = report;
    return LS_OK;
}

/* "name": value, or null if it is not finite, which JSON cannot express. */
static void put_number(FILE *file, const char *name, double value) {
    if (isfinite(value)) {
        fprintf(file, ", \"%s\": %.9g", name, value);
    } else {
        fprintf(file, ", \"%s\": null", name);
    }
}

static void put_update(FILE *file, const ls_train_options *options, const struct ls_update_state *update) {
    put_number(file, "lr", update ? update->learning_rate : NAN);
    put_number(file, "loss_scale", update && options->precision == LS_FP16 ? (double)update->scale : NAN);
    put_number(file, "grad_norm", update ? (double)update->norm : NAN);
    fprintf(file, ", \"skipped\": %s", update && update->found_inf != 0 ? "true" : "false");
}

void ls_report_step(ls_report *report, const struct ls_report_line *line) {
    const struct ls_embedding *embedding = report->options->embedding;
    if (embedding && embedding->on_step) embedding->on_step(embedding->context, line);
    if (ls_lines_go_on(&report->losses)) fprintf(report->losses.file, "%.9g\n", line->loss);
    if (!ls_lines_go_on(&report->metrics)) return;
    FILE *file = report->metrics.file;
    double samples_per_s = line->step_ms > 0 ? (double)report->options->batch_size / line->step_ms * 1e3 : 0;
    char begin[64];
    format_begin(begin, sizeof begin, line->step);
    fprintf(file, "%s\"epoch\": %" PRId64, begin, line->epoch);
    put_number(file, "loss", line->loss);
    put_update(file, report->options, line->update);
    fprintf(file, ", \"step_ms\": %.4f, \"loader_wait_ms\": %.4f, \"samples_per_s\": %.1f", line->step_ms,
            line->loader_wait_ms, samples_per_s);
    if (report->tokens > 0) fprintf(file, ", \"tokens_per_s\": %.1f", samples_per_s * (double)report->tokens);
    fputs("}\n", file);
}

void ls_report_flush(ls_report *report) {
    ls_lines_flush(&report->metrics);
    ls_lines_flush(&report->losses);
}

/* Prints the results on the test samples, if they were requested, each after `comma`. */
static void print_measured(const ls_train_result *result, const char *comma, int width) {
    bool is_text = result->tokens > 0;
    if (isnan(result->accuracy)) return;
    if (is_text) ls_print("%stest loss %.4f%sperplexity %.4g", comma, result->test_loss, comma, exp(result->test_loss));
    ls_print("%s%s %*.1f %%", comma, is_text ? "next-token accuracy" : "test accuracy", width, 100 * result->accuracy);
    if (result->answers > 0)
        ls_print("%s%" PRId64 " of %" PRId64 " held-out sums right", comma, result->answers_right, result->answers);
}

void ls_report_epoch(ls_report *report, int64_t epoch, double mean_loss, const ls_train_result *result,
                     double seconds) {
    (void)report;
    ls_print("epoch %3lld  loss %.4f", (long long)epoch + 1, mean_loss);
    print_measured(result, "  ", 5);
    ls_print("  %.2f s\n", seconds);
    fflush(ls_results());
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static ls_status write_summary(ls_report *report, const ls_parallel *parallel, const ls_train_result *result,
                               const struct ls_device_row *rows) {
    char *text = ls_summary_text(report->options, parallel, result, rows);
    if (!text) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the summary");
    ls_status status = LS_OK;
    if (ls_lines_go_on(&report->metrics)) fprintf(report->metrics.file, "%s\n", text);
    if (report->options->summary) status = write_text(report->options->summary, text);
    free(text);
    return status;
}

/* Shares of waiting above this are reported; smaller ones are the hand-off of batches. */
#define LOADER_SHARE_TO_MENTION 0.05

static void print_times(const ls_report *report, const ls_train_result *result, double waited_share) {
    char what[64] = "measured steps";
    int64_t each = result->steps_per_time > 1 ? result->steps_per_time : 1;
    if (each > 1) snprintf(what, sizeof what, "measured blocks of %lld steps", (long long)each);
    ls_print("step time %.3f ms, median of %lld %s (10 %% to 90 %%: %.3f to %.3f ms); %.0f samples/s",
             result->median_step_ms, (long long)(result->timed_steps / each), what, result->p10_step_ms,
             result->p90_step_ms, result->samples_per_s);
    if (result->tokens > 0) ls_print(", %.0f tokens/s", result->samples_per_s * (double)result->tokens);
    ls_print("\n");
    if (report->options->virtual_time)
        ls_print(
            "these times only show time-slicing: all devices shared one core (--virtual-time); build/replay says what "
            "a core for each gives\n");
    if (waited_share <= LOADER_SHARE_TO_MENTION) return;
    ls_print("the loader kept the devices waiting %.0f %% of the time: raise --workers (now %d) if cores are free\n",
             100 * waited_share, report->options->workers);
}

/* Prints the results of loss scaling. */
static void print_scaler(const ls_parallel *parallel, const ls_train_result *result) {
    struct ls_scaler_state scaler;
    if (!ls_summary_scaler(parallel, &scaler)) return;
    ls_print("loss scale %.9g at the end; %" PRId64 " of %" PRId64 " steps skipped for infinite gradients\n",
             (double)scaler.scale, scaler.skipped, result->steps);
}

/* Prints the results of meta devices. */
static ls_status print_meta(const ls_parallel *p, const ls_train_result *result, const struct ls_device_row *rows) {
    ls_print("nothing was computed: %" PRId64 " step%s enqueued on meta devices; bytes of memory%s:\n", result->steps,
             result->steps == 1 ? " was" : "s were", p->world_size > 1 ? " of rank 0, which stands for all" : "");
    return ls_memory_table_print(ls_results(), rows, p->local_device_count);
}

/* Prints the text that --generate requested. */
static void print_text(const ls_report *report, const ls_train_result *result) {
    const ls_train_options *o = report->options;
    if (!result->text) return;
    ls_print("the test set begins with these %zu tokens:\n", result->tokens);
    ls_print_bytes(ls_results(), result->text, result->tokens);
    ls_print("\nand the model goes on with %" PRId64 " tokens", o->generate);
    if (o->temperature > 0)
        ls_print(" drawn at temperature %g from seed %" PRId64 ":\n", o->temperature, o->seed);
    else
        ls_print(", each the likeliest:\n");
    ls_print_bytes(ls_results(), result->text + result->tokens, (size_t)o->generate);
    ls_print("\n");
}

static ls_status print_result(const ls_report *report, const ls_parallel *parallel, const ls_train_result *result,
                              const struct ls_device_row *rows) {
    if (!ls_device_computes(parallel->devices[0])) return print_meta(parallel, result, rows);
    if (result->timed_steps > 0) {
        print_times(report, result, ls_summary_loader_share(rows, parallel->device_count));
    }
    print_scaler(parallel, result);
    ls_print("final loss %.6f", result->final_loss);
    print_measured(result, ", ", 0);
    ls_print(", weights %016llx%s\n", (unsigned long long)result->parameter_hash,
             result->strided ? " (strided; dp_train's bits need --shard contiguous)" : "");
    print_text(report, result);
    if (!report->options->metrics && !report->options->summary) return LS_OK;
    return ls_device_table_print(ls_results(), rows, parallel->device_count, parallel->device_count);
}

ls_status ls_report_close(ls_report *report, const ls_parallel *parallel, const ls_train_result *result,
                          const struct ls_device_row *rows) {
    if (!report) return LS_OK;
    ls_status status = LS_OK;
    if (result) {
        status = print_result(report, parallel, result, rows);
        if (status == LS_OK) status = write_summary(report, parallel, result, rows);
    }
    ls_status lines = ls_lines_close(&report->metrics), losses = ls_lines_close(&report->losses);
    free(report);
    if (status == LS_OK) status = lines;
    return status == LS_OK ? losses : status;
}
