#include "common/report/summary.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>

static void add_number(cJSON *object, const char *name, double value) {
    if (isfinite(value)) {
        cJSON_AddNumberToObject(object, name, value);
    } else {
        cJSON_AddNullToObject(object, name);
    }
}

/* A step's average time and bytes, phase by phase. */
static void add_phases(cJSON *device, const struct ls_device_row *row, double steps) {
    cJSON *ms = cJSON_AddObjectToObject(device, "ms_per_step_by_phase");
    cJSON *bytes = cJSON_AddObjectToObject(device, "bytes_per_step_by_phase");
    for (int p = 0; p < LS_PHASE_COUNT; p++) {
        if (row->us[p] > 0) add_number(ms, ls_phase_name((ls_phase)p), row->us[p] / 1e3 / steps);
        if (row->bytes[p] > 0) add_number(bytes, ls_phase_name((ls_phase)p), row->bytes[p] / steps);
    }
}

static cJSON *device_object(const struct ls_device_row *row, double steps) {
    cJSON *device = cJSON_CreateObject();
    add_number(device, "rank", row->rank);
    add_number(device, "device", row->device);
    add_number(device, "busy_share", ls_device_row_busy(row));
    add_number(device, "communication_share", ls_device_row_communication(row));
    add_phases(device, row, steps);
    add_number(device, "current_bytes", row->current_bytes);
    cJSON *peak = cJSON_AddObjectToObject(device, "peak_bytes");
    for (int c = 0; c < LS_MEMORY_COUNT; c++) {
        add_number(peak, ls_memory_name((ls_memory_category)c), row->peak_bytes[c]);
    }
    add_number(peak, "total", row->peak_total_bytes);
    return device;
}

/* The row that waited for its loader for the largest share of its time. */
static const struct ls_device_row *slowest_loader(const struct ls_device_row *rows, int count) {
    const struct ls_device_row *slowest = rows;
    for (int i = 1; i < count; i++) {
        if (ls_device_row_loader(&rows[i]) > ls_device_row_loader(slowest)) slowest = &rows[i];
    }
    return slowest;
}

double ls_summary_loader_share(const struct ls_device_row *rows, int count) {
    return ls_device_row_loader(slowest_loader(rows, count));
}

/* Describes the devices. Those of other processes are assumed to be like the first of this one. */
static void add_devices(cJSON *summary, const ls_parallel *parallel) {
    const ls_device *first = parallel->devices[0];
    bool gpus = ls_device_kind_of(first) == LS_DEVICE_CUDA;
    cJSON_AddStringToObject(summary, "device_kind", ls_device_kind_name(ls_device_kind_of(first)));
    if (gpus) add_number(summary, "gpus", parallel->gpu_count);
    cJSON *names = cJSON_AddArrayToObject(summary, "device_names");
    for (int d = 0; d < parallel->device_count; d++) {
        const ls_device *device = d < parallel->local_device_count ? parallel->devices[d] : first;
        cJSON_AddItemToArray(names, cJSON_CreateString(ls_device_model_name(device)));
    }
    if (parallel->backend) cJSON_AddStringToObject(summary, "backend", parallel->backend);
    cJSON_AddStringToObject(summary, "phase_times",
                            ls_device_runs_behind(first) || !ls_device_computes(first) ? "enqueueing" : "work");
}

bool ls_summary_scaler(const ls_parallel *parallel, struct ls_scaler_state *state) {
    const ls_grad_scaler *scaler = parallel->optimizer ? ls_optimizer_scaler(parallel->optimizer) : NULL;
    return scaler && ls_device_computes(parallel->devices[0]) && ls_grad_scaler_read(scaler, state) == LS_OK;
}

/* Adds the rules by which weights change from step to step. */
static void add_recipe(cJSON *summary, const ls_train_options *o, const ls_parallel *parallel) {
    ls_schedule schedule = ls_train_schedule(o, ls_parallel_replicas(parallel), 0);
    struct ls_scaler_state scaler = {.scale = NAN};
    (void)ls_summary_scaler(parallel, &scaler);
    add_number(summary, "lr", o->learning_rate);
    add_number(summary, "lr_effective", schedule.rate); /* after --lr-scale, before any decay */
    cJSON_AddStringToObject(summary, "schedule", ls_schedule_names[schedule.kind]);
    add_number(summary, "warmup_steps", (double)schedule.warmup_steps);
    add_number(summary, "accumulate", o->accumulate);
    add_number(summary, "clip_norm", o->clip_norm > 0 ? o->clip_norm : NAN);
    cJSON_AddStringToObject(summary, "precision", ls_dtype_name((ls_dtype)o->precision));
    cJSON_AddStringToObject(summary, "compress", ls_parallel_sent_as(parallel));
    add_number(summary, "loss_scale", (double)scaler.scale); /* at the end; null: no loss scaling */
    add_number(summary, "skipped_steps", (double)scaler.skipped);
}

/* Adds the results that only texts have; their accuracy is that of the next token. */
static void add_text_results(cJSON *summary, const ls_train_result *result) {
    add_number(summary, "tokens_per_sample", (double)result->tokens);
    add_number(summary, "tokens_per_s", result->samples_per_s * (double)result->tokens);
    add_number(summary, "test_loss", result->test_loss); /* per token */
    add_number(summary, "test_perplexity", exp(result->test_loss));
    if (result->answers == 0) return;
    add_number(summary, "held_out_sums", (double)result->answers);
    add_number(summary, "held_out_sums_right", (double)result->answers_right);
}

static cJSON *summary_object(const ls_train_options *options, const ls_parallel *parallel,
                             const ls_train_result *result, const struct ls_device_row *rows) {
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)result->parameter_hash);
    cJSON *wrapper = cJSON_CreateObject(), *summary = cJSON_AddObjectToObject(wrapper, "summary");
    cJSON_AddStringToObject(summary, "mode", parallel->mode->name);
    cJSON_AddStringToObject(summary, "model", options->model);
    cJSON_AddStringToObject(summary, "data", options->data);
    add_devices(summary, parallel);
    cJSON_AddStringToObject(summary, "streams", ls_device_stream_mode(parallel->devices[0]));
    add_number(summary, "devices", parallel->device_count);
    add_number(summary, "batch_size", (double)options->batch_size);
    add_number(summary, "resident_batches", options->resident_batches); /* 0: each step loads its own */
    add_number(summary, "seed", (double)options->seed);
    add_recipe(summary, options, parallel);
    add_number(summary, "steps", (double)result->steps);
    add_number(summary, "epochs", (double)result->epochs);
    bool computed = ls_device_computes(parallel->devices[0]);
    cJSON_AddStringToObject(summary, "how",
                            !computed               ? "nothing was computed"
                            : options->virtual_time ? "measured, all devices in turn on one core"
                                                    : "measured");
    add_number(summary, "host_lock_us", options->host_lock_us); /* per launch */
    add_number(summary, "timed_steps", (double)result->timed_steps);
    add_number(summary, "steps_per_time", (double)result->steps_per_time);
    add_number(summary, "median_step_ms", result->median_step_ms);
    add_number(summary, "p10_step_ms", result->p10_step_ms);
    add_number(summary, "p90_step_ms", result->p90_step_ms);
    add_number(summary, "samples_per_s", result->samples_per_s);
    add_number(summary, "final_loss", result->final_loss);
    add_number(summary, "test_accuracy", result->accuracy);
    if (result->tokens > 0) add_text_results(summary, result);
    if (computed) cJSON_AddStringToObject(summary, "parameter_hash", hash);
    int shown = computed ? parallel->device_count : parallel->local_device_count; /* only one meta rank runs */
    const struct ls_device_row *waiting = slowest_loader(rows, shown);
    add_number(summary, "loader_wait_ms", waiting->us[LS_PHASE_LOADER] / 1e3); /* over the timed steps */
    add_number(summary, "loader_wait_share", ls_device_row_loader(waiting));
    const ls_offload_report *offload = parallel->optimizer ? ls_optimizer_offload_report(parallel->optimizer) : NULL;
    if (offload) add_number(summary, "offload_host_bytes", (double)offload->host_nbytes); /* of this process */
    cJSON *devices = cJSON_AddArrayToObject(summary, "device_table");
    int64_t clocked_steps = result->clocked_steps > 0 ? result->clocked_steps : 1;
    for (int d = 0; d < shown; d++) {
        cJSON_AddItemToArray(devices, device_object(&rows[d], (double)clocked_steps));
    }
    return wrapper;
}

char *ls_summary_text(const ls_train_options *options, const ls_parallel *parallel, const ls_train_result *result,
                      const struct ls_device_row *rows) {
    cJSON *summary = summary_object(options, parallel, result, rows);
    char *text = cJSON_PrintUnformatted(summary);
    cJSON_Delete(summary);
    return text;
}
