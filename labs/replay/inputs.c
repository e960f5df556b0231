/* inputs: opens what is named, and makes of it what the settings say. */
#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "common/trace/chrome.h"
#include "labs/replay/replay.h"

/* 1, 2, 4, ... up to the node's devices. */
static void settle_n(replay_settings *settings, const ls_node *node) {
    if (settings->modes[LS_BUILD_SINGLE]) settings->n = (ls_int_list){.count = 1, .values = {1}};
    for (int n = 1; settings->n.count == 0 || (n > 1 && n <= ls_node_device_count(node)); n *= 2)
        settings->n.values[settings->n.count++] = n;
}

/* What a trace was recorded with is a batch; a file describes one sample. */
static ls_status settle_batch(replay_settings *settings, const ls_workload *workload) {
    int most = settings->n.values[settings->n.count - 1];
    bool given = settings->batch > 0 || settings->per_device_batch > 0;
    if (!given && !settings->trace)
        return ls_fail(LS_ERR_USAGE,
                       "give a --batch (of all devices) or a --per-device-batch: %s is described by the sample",
                       workload->name);
    if (!given) settings->batch = workload->samples;
    if (settings->per_device_batch > 0 || settings->batch >= most) return LS_OK;
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
    ls_status status = ls_cost_calibrate(&inputs->factor, inputs->node, inputs->workload, samples, settings->precision,
                                         1e3 * settings->calibrate_t1_ms);
    if (status != LS_OK) return status;
    struct ls_node_device *device = ls_node_change_device(inputs->node);
    device->fp32_GFLOPs *= inputs->factor;
    device->fp16_GFLOPs *= inputs->factor;
    device->memory_GBps *= inputs->factor;
    return LS_OK;
}

static ls_status settle(replay_inputs *inputs, replay_settings *settings) {
    settle_n(settings, inputs->node);
    ls_status status = settle_batch(settings, inputs->workload);
    if (settings->host_lock_us >= 0) ls_node_change_host(inputs->node)->lock_us = settings->host_lock_us;
    if (status == LS_OK && settings->calibrate_t1_ms > 0) status = calibrate(inputs, settings);
    snprintf(inputs->on, sizeof inputs->on, "replayed on %s (figures from its file%s), workload %s%s",
             ls_node_name(inputs->node), settings->calibrate_t1_ms > 0 ? ", rates calibrated by T1" : "",
             inputs->workload->name, settings->trace ? " with the times of its trace" : "");
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
