/* inputs: opens the node, workload and trace, and applies the settings to them. */
#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "common/trace/chrome.h"
#include "labs/replay/replay/replay.h"

#define CALIBRATION_ERROR 0.01

enum { STEPS = 4 };

/* 1, 2, 4, ... up to the node's devices, times the number of ranks that share layers. */
static void settle_n(replay_settings *settings, const ls_node *node) {
    if (settings->modes[LS_PLAN_SINGLE]) settings->n = (ls_int_list){.count = 1, .values = {1}};
    if (settings->n.count > 0) return;
    int n = settings->tensor;
    do settings->n.values[settings->n.count++] = n;
    while ((n *= 2) <= ls_node_device_count(node));
}

/* Takes the workload's defaults for options that were not given. */
static void settle_defaults(replay_settings *settings, const ls_workload *workload, const ls_trace *trace) {
    int recorded = trace ? ls_trace_what(trace)->micro_batches : 1;
    if (settings->accumulate == 0) settings->accumulate = recorded > 1 ? recorded : 1;
    const struct ls_workload_defaults *defaults = &workload->defaults;
    if (!settings->precision_given) settings->precision = defaults->precision;
    if (settings->batch == 0 && settings->per_device_batch == 0) settings->batch = defaults->batch;
    if (settings->by_copies || settings->by_collectives) return;
    settings->by_collectives = defaults->collectives;
    settings->by_copies = defaults->copies || !defaults->collectives;
}

/* A trace was recorded with a batch; a file describes one sample. */
static ls_status settle_batch(replay_settings *settings, const ls_workload *workload, const ls_trace *trace) {
    int most = settings->n.values[settings->n.count - 1];
    bool given = settings->batch > 0 || settings->per_device_batch > 0;
    if (!given && !settings->trace)
        return ls_fail(LS_ERR_USAGE, "%s is described per sample: give --batch (of all devices) or --per-device-batch",
                       workload->name);
    if (!given) settings->batch = (double)ls_trace_what(trace)->batch_size / ls_trace_what(trace)->devices;
    if (settings->per_device_batch > 0 || settings->batch >= most / settings->tensor) return LS_OK;
    return ls_fail(LS_ERR_USAGE, "a batch of %g samples leaves some of %d devices without any", settings->batch, most);
}

static bool is_measured(const ls_workload *workload) {
    for (int i = 0; i < workload->work_count; i++)
        if (workload->work[i].us >= 0) return true;
    return false;
}

static ls_status calibrate(replay_inputs *inputs, const replay_settings *settings) {
    if (is_measured(inputs->workload))
        return ls_fail(LS_ERR_USAGE, "--calibrate-t1: the trace's operations have measured times already");
    double samples = settings->per_device_batch > 0 ? settings->per_device_batch : settings->batch;
    double wanted_ms = settings->calibrate_t1_ms;
    ls_status status = ls_cost_calibrate(&inputs->factor, inputs->node, inputs->workload, samples, settings->precision,
                                         1e3 * wanted_ms);
    if (status != LS_OK) return status;
    struct ls_node_device *device = ls_node_change_device(inputs->node);
    device->fp32_GFLOPs *= inputs->factor;
    device->fp16_GFLOPs *= inputs->factor;
    device->memory_GBps *= inputs->factor;

    /* The fit includes kernels and launches, but neither a lock nor the batch's copies: checks that it gives the step
     * of the tables. */
    replay_row row = {.mode = LS_PLAN_SINGLE, .n = 1, .batch = samples, .cap_mb = NAN};
    replay_run run;
    status = replay_run_row(&row, &run, inputs, settings);
    if (status != LS_OK) return status;
    replay_run_free(&run);
    if (fabs(row.step_ms / wanted_ms - 1) <= CALIBRATION_ERROR) return LS_OK;
    return ls_fail(LS_ERR_INVALID,
                   "--calibrate-t1: with all rates times %.4g one device's step takes %.4g ms, not %g: launches%s, "
                   "waits and copies of the batch, which rates do not affect, take too large a part",
                   inputs->factor, row.step_ms, wanted_ms,
                   ls_node_host(inputs->node)->lock_us > 0 ? " under the host's lock" : "");
}

/* Refuses rows that cannot be replayed, before any replay. */
static ls_status check_rows(const replay_inputs *inputs, const replay_settings *settings) {
    ls_status status = LS_OK;
    for (int mode = 0; mode <= LS_PLAN_DDP; mode++) {
        for (int i = 0; settings->modes[mode] && i < settings->n.count; i++) {
            for (int c = 0; status == LS_OK && c < (mode == LS_PLAN_DDP ? settings->cap_count : 1); c++) {
                int n = settings->n.values[i];
                double batch = settings->per_device_batch > 0 ? settings->per_device_batch * n : settings->batch;
                const replay_row row = {.mode = (ls_plan_mode)mode,
                                        .n = n,
                                        .batch = batch,
                                        .by_collectives = mode == LS_PLAN_DP && settings->by_collectives,
                                        .cap_mb = settings->caps_mb[c]};
                struct ls_plan options = replay_options(settings, inputs, &row);
                status = ls_plan_check(inputs->workload, inputs->node, &options);
            }
        }
    }
    return status;
}

static ls_status settle_steps(replay_settings *settings, const ls_workload *workload) {
    if (settings->vary && workload->step_count < 2)
        return ls_fail(LS_ERR_USAGE, "--vary: %s has %d steps of the whole batch with times; expected at least two",
                       settings->trace, workload->step_count);
    if (settings->steps == 0) settings->steps = settings->vary ? workload->step_count + 1 : STEPS;
    return LS_OK;
}

/* Messages to further nodes need routes. */
static ls_status join_nodes(replay_inputs *inputs, const replay_settings *settings) {
    int devices = ls_node_device_count(inputs->node), most = settings->n.values[settings->n.count - 1];
    bool wanted = settings->modes[LS_PLAN_DDP] && settings->collectives == LS_PLAN_BY_MESSAGES && most > devices;
    return wanted ? ls_node_repeat(inputs->node, (most + devices - 1) / devices) : LS_OK;
}

static ls_status settle(replay_inputs *inputs, replay_settings *settings) {
    settle_n(settings, inputs->node);
    settle_defaults(settings, inputs->workload, inputs->trace);
    ls_status status = settle_batch(settings, inputs->workload, inputs->trace);
    if (status == LS_OK) status = settle_steps(settings, inputs->workload);
    if (settings->host_lock_us >= 0) ls_node_change_host(inputs->node)->lock_us = settings->host_lock_us;
    if (status == LS_OK) status = join_nodes(inputs, settings);
    if (status == LS_OK) status = check_rows(inputs, settings);
    if (status == LS_OK && settings->calibrate_t1_ms > 0) status = calibrate(inputs, settings);
    double lock_us = ls_node_host(inputs->node)->lock_us;
    char lock[80] = "";
    if (lock_us > 0) snprintf(lock, sizeof lock, ", a host lock of %g us per launch in every mode", lock_us);
    snprintf(inputs->on, sizeof inputs->on, "replayed on %s (figures from its file%s), workload %s%s%s",
             ls_node_name(inputs->node), settings->calibrate_t1_ms > 0 ? ", rates calibrated by T1" : "",
             inputs->workload->name,
             !settings->trace ? ""
             : settings->vary ? " with the times of its trace, step by step"
                              : " with the times of its trace",
             lock);
    return status;
}

ls_status replay_open(replay_inputs *inputs, replay_settings *settings) {
    *inputs = (replay_inputs){.factor = 1};
    ls_status status = LS_OK;
    if (settings->trace) status = ls_trace_read(&inputs->trace, settings->trace);
    if (status == LS_OK && settings->node) status = ls_node_open(&inputs->node, settings->node);
    if (status == LS_OK && settings->as_recorded) return LS_OK;
    if (status == LS_OK)
        status = settings->trace ? ls_workload_from_trace(&inputs->workload, inputs->trace)
                                 : ls_workload_open(&inputs->workload, settings->workload);
    if (status == LS_OK && settings->devices_per_node > 0)
        status = ls_node_keep(inputs->node, settings->devices_per_node);
    if (status == LS_OK) status = settle(inputs, settings);
    if (status != LS_OK) replay_close(inputs);
    return status;
}

void replay_close(replay_inputs *inputs) {
    ls_trace_destroy(inputs->trace);
    ls_workload_close(inputs->workload);
    ls_node_close(inputs->node);
    *inputs = (replay_inputs){.factor = 1};
}
