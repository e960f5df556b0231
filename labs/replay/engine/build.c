/* build — host threads, streams and edges, from which build_dp.c and build_ddp.c make steps.
 *   idea  : the programs' calls, one by one, with tasks in place of work. What a program does is told by the two
 *           files; here is what a launch, a wait and a copy come to
 *   times : kernels by cost.h, once for each number of samples that occurs; the host by the node, or by what was
 *           measured with the workload; copies between devices by the links they cross, and within one by its memory
 *   ahead : a host thread that does not run its device's work itself goes on at once. What holds it back is its
 *           batch: it waits, at the end of a step, for the copy of that step's batch, which waits for a free place;
 *           with two places it is at most a step ahead
 *   nodes : ranks beyond the node's devices sit in further nodes, each of which is like it. Their batches arrive as
 *           if nobody else's crossed the links
 *   cost  : tasks; for each of them the adding to the trace */
#include "labs/replay/engine/build_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/chunk.h"
#include "common/base/log.h"

/* A CPU device's host thread runs such a copy itself: waking the copy stream's thread takes longer (device_cpu.c). */
static const uint64_t brief_copy_bytes = 256 << 10;

struct ls_build_options ls_build_defaults(ls_build_mode mode, int devices, double batch) {
    return (struct ls_build_options){
        .mode = mode,
        .devices = devices,
        .batch = batch,
        .steps = 4,
        .precision = LS_FP32,
        .overlap = true,
        .first_bucket_bytes = (uint64_t)1 << 20,
        .bucket_bytes = (uint64_t)25 << 20,
        .gradient_element_bytes = sizeof(float),
        .collectives = LS_BUILD_BY_COST,
        .pattern = LS_PATTERN_RING,
    };
}

double ls_build_aligned(double count) { return 16 * ceil(count / 16); }

double ls_build_rows(const struct ls_build_options *o, int d) {
    if (!ls_build_is_whole(o->batch)) return o->batch / o->devices;
    size_t begin, count;
    ls_chunk((size_t)o->batch, o->devices, d, &begin, &count);
    return (double)count;
}

/* Traces have whole bytes and flops, of which no task has as many as fit. */
static uint64_t whole(double value) { return value < 9e18 ? (uint64_t)llround(value) : (uint64_t)9e18; }

/* --- host threads ------------------------------------------------------------------------------------------------ */

/* Adds a task to a lane, behind what the lane waits for. */
static int add(ls_builder *b, struct ls_build_device *device, ls_lane_kind lane, struct ls_task *task) {
    task->lane = device->lane[lane];
    task->phase = b->phase;
    task->step = b->step;
    int index = ls_trace_add_task(b->trace, task);
    for (int i = 0; i < device->wait_count[lane]; i++) {
        if (device->waits[lane][i] != index) ls_trace_add_edge(b->trace, device->waits[lane][i], index);
    }
    device->wait_count[lane] = 0;
    device->last[lane] = index;
    if (lane == LS_LANE_HOST && device->next_host) *device->next_host = index;
    if (lane == LS_LANE_HOST) device->next_host = NULL;
    return index;
}

void ls_build_await(struct ls_build_device *device, ls_lane_kind lane, int task) {
    int count = device->wait_count[lane];
    bool known = task == LS_NONE || (count > 0 && device->waits[lane][count - 1] == task);
    if (!known && count < LS_BUILD_MAX_WAITS) device->waits[lane][device->wait_count[lane]++] = task;
}

int ls_build_host(ls_builder *b, struct ls_build_device *device, const char *name, double us, bool locked) {
    struct ls_task task = ls_task_default(LS_TASK_HOST, name, 0);
    task.us = us + device->owed_us;
    if (locked) task.lock = 0;
    device->owed_us = 0;
    return add(b, device, LS_LANE_HOST, &task);
}

void ls_build_hand_over(ls_builder *b, struct ls_build_device *device, const char *name) {
    struct ls_task task = ls_task_default(LS_TASK_HOST, name, 0);
    task.us = b->host->hand_over_us;
    task.hand_over = true;
    (void)add(b, device, LS_LANE_HOST, &task);
}

int ls_build_launch(ls_builder *b, struct ls_build_device *device, const char *name, double us) {
    return ls_build_host(b, device, name, us, b->options->gil);
}

static double launch_us(const ls_builder *b) { return b->options->gil ? b->host->lock_us : b->host->launch_us; }

int ls_build_task(ls_builder *b, struct ls_build_device *device, ls_lane_kind lane, int launch, struct ls_task *task) {
    ls_build_await(device, lane, launch);
    int index = add(b, device, lane, task);
    bool brief = task->kind == LS_TASK_COPY && task->bytes <= brief_copy_bytes;
    bool on_host = b->host->runs_compute && (lane == LS_LANE_COMPUTE || (lane == LS_LANE_COPY && brief));
    /* what a collective keeps waiting is known when all ranks' parts are there: build_ddp.c */
    if (on_host || (b->in_line && lane == LS_LANE_COPY)) ls_build_await(device, LS_LANE_HOST, index);
    return index;
}

int ls_build_record(const ls_builder *b, struct ls_build_device *device, ls_lane_kind lane) {
    device->owed_us += b->host->event_us;
    return device->last[lane];
}

void ls_build_wait(const ls_builder *b, struct ls_build_device *device, ls_lane_kind lane, int task) {
    device->owed_us += b->host->event_us;
    ls_build_await(device, lane, task);
}

/* --- work -------------------------------------------------------------------------------------------------------- */

/* At the same time: of DP's devices the first one takes the loss and updates while the others wait. */
static int devices_at_work(const ls_builder *b, const char *phase) {
    static const char *const alone[] = {"loss", "optimizer"};
    for (size_t i = 0; b->options->mode == LS_BUILD_DP && i < sizeof alone / sizeof *alone; i++) {
        if (strcmp(phase, alone[i]) == 0) return 1;
    }
    return b->active;
}

int ls_build_kernel(ls_builder *b, struct ls_build_device *device, ls_lane_kind lane, const char *name, double flops,
                    double bytes) {
    char launch[80];
    snprintf(launch, sizeof launch, "launch %s", name);
    int launched = ls_build_launch(b, device, launch, launch_us(b));
    struct ls_task task = ls_task_default(LS_TASK_KERNEL, name, 0);
    task.us = ls_cost_kernel_us(b->node, flops, bytes, false, LS_FP32);
    task.flops = whole(flops);
    task.bytes = whole(bytes);
    return ls_build_task(b, device, lane, launched, &task);
}

/* A copy that no link of the node carries in the trace: within a device (it reads and writes), or to one of another
 * node. */
static double unshared_copy_us(const ls_builder *b, double bytes, int from, int to) {
    if (from == to) return ls_cost_kernel_us(b->node, 0, 2 * bytes, false, LS_FP32);
    int devices = ls_node_device_count(b->node);
    const struct ls_route *route = ls_node_route(b->node, from < 0 ? from : from % devices, to < 0 ? to : to % devices);
    double GBps = INFINITY;
    for (int i = 0; route && i < route->count; i++) GBps = fmin(GBps, ls_node_link(b->node, route->link[i])->GBps);
    return route ? route->latency_us + bytes / (GBps * 1e3) : 0;
}

static int copy_on(ls_builder *b, struct ls_build_device *device, ls_lane_kind lane, const char *name, double bytes,
                   int from, int to) {
    int launched = ls_build_launch(b, device, "launch copy", launch_us(b));
    int devices = ls_node_device_count(b->node);
    struct ls_task task = ls_task_default(LS_TASK_COPY, name, 0);
    task.bytes = whole(bytes);
    task.from = from;
    task.to = to;
    if (from == to || from >= devices || to >= devices) task.us = unshared_copy_us(b, bytes, from, to);
    return ls_build_task(b, device, lane, launched, &task);
}

int ls_build_copy(ls_builder *b, struct ls_build_device *device, const char *name, double bytes, int from, int to) {
    return copy_on(b, device, LS_LANE_COPY, name, bytes, from, to);
}

void ls_build_check_loss(ls_builder *b, struct ls_build_device *device) {
    if (!b->host->runs_compute) return;
    (void)copy_on(b, device, LS_LANE_COMPUTE, "loss", sizeof(float), device->number, LS_HOST_MEMORY);
}

struct ls_task ls_build_collective(ls_builder *b, ls_collective what, const char *name, uint32_t number, double bytes) {
    struct ls_task task = ls_task_default(LS_TASK_COLLECTIVE, name, 0);
    struct ls_meeting meeting = {.group = "all devices",
                                 .number = number,
                                 .operation = name,
                                 .algorithm = "",
                                 .ranks = b->options->devices,
                                 .bytes = whole(bytes)};
    task.us = ls_cost_collective_us(b->node, what, b->options->devices, bytes);
    task.bytes = meeting.bytes;
    task.meeting = ls_trace_join_meeting(b->trace, &meeting);
    return task;
}

/* Computed at the first use of a number of samples. */
static const double *costs_of(ls_builder *b, double samples) {
    struct ls_build_costs *c = b->costs, *end = b->costs + LS_BUILD_MAX_COSTS - 1;
    while (c < end && c->used && c->samples != samples) c++;
    if (c->used && c->samples == samples) return c->us;
    c->used = true;
    c->samples = samples;
    for (int w = 0; w < b->workload->work_count; w++) {
        const struct ls_work *work = &b->workload->work[w];
        c->us[w] = ls_cost_work_us(b->node, work, b->workload, samples, b->options->precision,
                                   devices_at_work(b, work->phase));
    }
    return c->us;
}

/* The host's time for an operation: as measured, or the node's; with a GIL the lock's on top of what was measured. */
static double host_us(const ls_builder *b, const struct ls_work *work) {
    if (b->options->gil) return b->host->lock_us + (work->host_us > 0 ? work->host_us : 0);
    return work->host_us >= 0 ? work->host_us : b->host->launch_us;
}

/* How many times as long as the median a recorded step's operation took. Devices begin spread over the steps; more
 * devices than steps share them. A factor: with half of the batch a step that was disturbed is so by half of that. */
static double variation(const ls_builder *b, const struct ls_build_device *device, int index) {
    const ls_workload *w = b->workload;
    if (!b->options->vary || w->step_count == 0 || !(w->work[index].us > 0)) return 1;
    int64_t first = (int64_t)device->number * w->step_count / b->options->devices;
    int64_t step = (b->step + first) % w->step_count;
    return w->step_us[step * w->work_count + index] / w->work[index].us;
}

/* One operation of the workload; its task. */
static int build_work(ls_builder *b, struct ls_build_device *device, const struct ls_work *work, double samples) {
    const ls_workload *w = b->workload;
    ptrdiff_t index = work - w->work;
    bool fixed = strcmp(work->phase, "optimizer") == 0;
    double share = fixed ? 1 : samples / w->samples;
    int launched = ls_build_launch(b, device, b->launch_names[index], host_us(b, work));
    struct ls_task task = ls_task_default(LS_TASK_KERNEL, work->name, 0);
    task.us = costs_of(b, samples)[index] * variation(b, device, (int)index);
    if (fixed && b->update_bytes > 0) task.us += b->reclaim_us * work->bytes / b->update_bytes;
    task.flops = whole(work->flops * share);
    task.bytes = whole(fixed ? work->bytes : work->fixed_bytes + (work->bytes - work->fixed_bytes) * share);
    task.fixed_bytes = work->fixed_bytes;
    return ls_build_task(b, device, LS_LANE_COMPUTE, launched, &task);
}

int ls_build_works(ls_builder *b, struct ls_build_device *device, double samples) {
    int first = LS_NONE;
    for (int w = 0; w < b->workload->work_count; w++) {
        const struct ls_work *work = &b->workload->work[w];
        if (strcmp(work->phase, b->phase) != 0) continue;
        int task = build_work(b, device, work, samples);
        if (first == LS_NONE) first = task;
    }
    return first;
}

void ls_build_backward_work(ls_builder *b, struct ls_build_device *device, const struct ls_work *work, double samples) {
    if (strcmp(work->phase, "backward") != 0) return;
    int task = build_work(b, device, work, samples);
    for (int i = 0; device->number == 0 && i < work->ready_count; i++) {
        struct ls_mark mark = {.name = "gradient ready",
                               .lane = device->lane[LS_LANE_COMPUTE],
                               .step = b->step,
                               .number = b->workload->ready[work->first_ready + i],
                               .after = task,
                               .at_us = NAN};
        (void)ls_trace_add_mark(b->trace, &mark);
    }
}

void ls_build_begin_step(ls_builder *b, struct ls_build_device *device) {
    b->phase = "loader";
    (void)ls_build_host(b, device, "next batch", b->workload->loader_us, false);
}

void ls_build_end_step(ls_builder *b, struct ls_build_device *device, int batch_copied) {
    b->phase = "other";
    ls_build_await(device, LS_LANE_HOST, batch_copied);
    (void)ls_build_host(b, device, "batch copied", b->host->sync_us, false);
}

int ls_build_upload(ls_builder *b, struct ls_build_device *device, double inputs, double answers, int place_used) {
    ls_build_wait(b, device, LS_LANE_COPY, place_used);
    (void)ls_build_copy(b, device, "inputs", inputs * b->workload->input_bytes, LS_HOST_MEMORY, device->number);
    return ls_build_copy(b, device, "answers", answers * b->workload->answer_bytes, LS_HOST_MEMORY, device->number);
}

/* --- a trace ----------------------------------------------------------------------------------------------------- */

static const char *const mode_names[] = {"single", "dp", "ddp"};
static const char *const optimizer_names[] = {"sgd", "sgd-momentum", "adam"}; /* by states */

static void describe(const ls_builder *b) {
    const struct ls_build_options *o = b->options;
    struct ls_trace_about *about = ls_trace_about(b->trace);
    const ls_workload *w = b->workload;
    about->mode = ls_trace_text(b->trace, mode_names[o->mode]);
    about->model = ls_trace_text(b->trace, w->name);
    about->precision = ls_trace_text(b->trace, ls_dtype_name(o->precision));
    about->optimizer = ls_trace_text(b->trace, optimizer_names[w->optimizer_states]);
    about->device_kind = about->backend = about->stream_mode = ls_trace_text(b->trace, "");
    about->device_name = ls_trace_text(b->trace, ls_node_device(b->node)->name);
    about->algorithm =
        ls_trace_text(b->trace, o->collectives == LS_BUILD_BY_MESSAGES ? ls_pattern_name(o->pattern) : "");
    about->devices = o->devices;
    about->recorded_ranks = about->world_size = o->mode == LS_BUILD_DDP ? o->devices : 1;
    about->batch_size = (int64_t)o->batch;
    about->micro_batches = 1;
    about->input_bytes = whole(w->input_bytes);
    about->output_bytes = whole(w->output_bytes);
    about->answer_bytes = whole(w->answer_bytes);
    about->first_bucket_bytes = o->first_bucket_bytes;
    about->bucket_bytes = o->bucket_bytes;
    about->overlap = o->overlap;
    about->first_step = 0;
    about->steps = o->steps;
    about->median_step_ms = NAN;
    for (int p = 0; p < w->parameter_count; p++) {
        const struct ls_trace_parameter parameter = {w->parameter_names[p], w->parameter_counts[p]};
        (void)ls_trace_add_parameter(b->trace, &parameter);
    }
}

/* Host thread and streams of each device, which in DDP are those of a rank. */
static void add_lanes(ls_builder *b) {
    static const char *const names[] = {
        [LS_LANE_HOST] = "", [LS_LANE_COMPUTE] = "compute", [LS_LANE_COPY] = "copy", [LS_LANE_COMM] = "comm"};
    for (int d = 0; d < b->options->devices; d++) {
        struct ls_build_device *device = &b->devices[d];
        char name[40];
        bool dp = b->options->mode == LS_BUILD_DP;
        snprintf(name, sizeof name, dp ? "replica %d" : "rank %d", d);
        device->number = d;
        device->rank = dp ? 0 : d;
        for (int k = 0; k < LS_LANE_COUNT; k++) {
            struct ls_lane lane = {.name = k == LS_LANE_HOST ? name : names[k],
                                   .kind = (ls_lane_kind)k,
                                   .rank = device->rank,
                                   .device = d};
            device->lane[k] = ls_trace_add_lane(b->trace, &lane);
            device->last[k] = LS_NONE;
        }
    }
}

static ls_status prepare(ls_builder *b) {
    size_t works = (size_t)b->workload->work_count;
    ls_status status = ls_trace_create(&b->trace);
    if (status != LS_OK) return status;
    b->devices = calloc((size_t)b->options->devices, sizeof *b->devices);
    b->launch_names = calloc(works, sizeof *b->launch_names);
    bool there = b->devices && b->launch_names;
    for (int i = 0; i < LS_BUILD_MAX_COSTS; i++) {
        b->costs[i].us = calloc(works, sizeof(double));
        there = there && b->costs[i].us;
    }
    if (!there) return ls_fail(LS_ERR_NO_MEMORY, "no memory to build a trace for %d devices", b->options->devices);
    for (size_t w = 0; w < works; w++) {
        char name[1000];
        snprintf(name, sizeof name, "launch %s", b->workload->work[w].name);
        b->launch_names[w] = ls_trace_text(b->trace, name);
        if (strcmp(b->workload->work[w].phase, "optimizer") == 0) b->update_bytes += b->workload->work[w].bytes;
    }
    for (int p = 0; p < b->workload->parameter_count; p++) {
        b->parameter_bytes += sizeof(float) * ls_build_aligned((double)b->workload->parameter_counts[p]);
    }
    describe(b);
    add_lanes(b);
    return LS_OK;
}

/* Of a node; further ones are like it. (The programs count their devices, too, with samples or without.) */
static bool has_no_free_core(const ls_builder *b) {
    int devices = ls_node_device_count(b->node);
    if (b->options->devices < devices) devices = b->options->devices;
    return b->host->runs_compute && b->host->cores > 0 && (uint64_t)devices >= b->host->cores;
}

ls_status ls_build(ls_trace **out, const ls_workload *workload, const ls_node *node,
                   const struct ls_build_options *options) {
    *out = NULL;
    ls_status status = ls_build_check(workload, node, options);
    if (status != LS_OK) return status;
    ls_builder b = {.workload = workload, .node = node, .host = ls_node_host(node), .options = options, .phase = ""};
    for (int d = 0; d < options->devices; d++) b.active += ls_build_rows(options, d) > 0;
    b.places = ls_build_places(options, node);
    b.in_line = has_no_free_core(&b);
    status = prepare(&b);
    if (status == LS_OK) status = options->mode == LS_BUILD_DP ? ls_build_dp(&b) : ls_build_ddp(&b);
    if (status == LS_OK) status = ls_trace_seal(b.trace);
    for (int i = 0; i < LS_BUILD_MAX_COSTS; i++) free(b.costs[i].us);
    free((void *)b.launch_names);
    free(b.devices);
    if (status == LS_OK) {
        *out = b.trace;
    } else {
        ls_trace_destroy(b.trace);
    }
    return status;
}
