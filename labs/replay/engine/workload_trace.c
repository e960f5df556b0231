/* workload_trace — derives the operations of a step from the trace of one device.
 *   idea  : the operations are the kernels of the device's compute stream in the four phases that every mode has. Each
 *           step must have the same kernels; their times are medians over the steps. A step with a smaller batch (the
 *           last one of an epoch) has fewer flops and bytes than the others and does not count. Each step's own times
 *           are kept, too: a median hides the machine's jitter
 *   host  : the host thread's work in those phases up to a kernel's launch is that kernel's host time; its other work
 *           in a step is the step's share of the loader. The cost of recording is subtracted: a run without --trace is
 *           predicted, and the smaller the share of a device, the more that cost would matter. Time under an emulated
 *           lock (--host-lock) is neither: it is the node's lock_us
 *   micro : of a step in several micro-batches, the operations of the first count, which has most samples, and the
 *           update. Later ones also read the gradients to which they add, which is left out
 *   fixed : a kernel's bytes grow with the batch, except those of the parameters. A multiply of the batch's matrix with
 *           one of P = flops / (2 rows) elements reads or writes these P whatever the batch: P follows from the flops.
 *           The batch's matrix has a row for each label: a text has many. (A convolution's weights are few compared
 *           with its images, and are ignored)
 *   ready : a parameter's gradient is complete after the kernel before its mark; without marks, all are complete after
 *           backward
 *   cost  : tasks, and for each operation a sort of its times */
#include "labs/replay/engine/workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/statistics.h"
#include "labs/replay/engine/workload_parts.h"

static const char *const phases[] = {"forward", "loss", "backward", "optimizer"};

static bool is_work_phase(const char *phase) {
    for (size_t p = 0; p < sizeof phases / sizeof *phases; p++) {
        if (strcmp(phases[p], phase) == 0) return true;
    }
    return false;
}

/* The kernels of one step, in order. */
struct step {
    int number, count;
    const int *kernels; /* tasks */
    int left_out;       /* the last kernel of further micro-batches; LS_NONE */
    double flops, bytes, loader_us;
    double *host_us; /* of each kernel */
};

struct source {
    const ls_trace *trace;
    const struct ls_trace_about *about;
    int compute, host; /* lanes */
    int *kernels;      /* of all steps */
    double *host_us;
    struct step *steps;
    int step_count;
    const struct step *whole; /* the first of those with most flops, which the others must match */
    double rows;              /* of a sample */
};

/* --- which tasks
 * ------------------------------------------------------------------------------------------------- */

/* The lane of a kind that belongs to the first device; -1: there is none. */
static int find_lane(const ls_trace *trace, ls_lane_kind kind, int device) {
    for (int l = 0; l < ls_trace_lane_count(trace); l++) {
        const struct ls_lane *lane = ls_trace_lane(trace, l);
        if (lane->kind == kind && lane->device == device) return l;
    }
    return -1;
}

static ls_status check_about(const struct ls_trace_about *about) {
    bool one = about->devices == 1 || about->recorded_ranks == 1;
    if (!one || about->devices < 1) {
        return ls_fail(LS_ERR_INVALID,
                       "a trace of %d devices cannot be a workload: record one device, or one rank of meta devices",
                       about->devices);
    }
    if (about->batch_size < 1) return ls_fail(LS_ERR_INVALID, "the trace does not record how many samples a step has");
    return LS_OK;
}

/* Whether the host computed the updates, with gradients that were copied to it on the copy stream. */
static bool is_offloaded(const ls_trace *trace) {
    for (int t = 0; t < ls_trace_task_count(trace); t++) {
        const struct ls_task *task = ls_trace_task(trace, t);
        if (ls_trace_lane(trace, task->lane)->kind == LS_LANE_COPY && strcmp(task->phase, "optimizer") == 0)
            return true;
    }
    return false;
}

/* A copy of a gradient that two layers read, for one of them. */
static bool is_copy(const struct ls_task *task) { return task->kind == LS_TASK_COPY && task->from == task->to; }

/* Averaging of gradients belongs to a mode, not to the network. */
static bool is_of_the_network(const struct source *s, const struct ls_task *task) {
    if (task->kind != LS_TASK_KERNEL && !is_copy(task)) return false;
    if (task->step < 0 || !is_work_phase(task->phase)) return false;
    bool averages = strcmp(task->name, "scale") == 0 || strcmp(task->name, "divide") == 0;
    return !(averages && s->about->world_size > 1 && strcmp(task->phase, "backward") == 0);
}

/* Whether the kernel belongs to a micro-batch after the step's first one: `last` is the previous one that counts. */
static bool is_of_another_micro_batch(const struct step *step, const struct ls_task *task, const struct ls_task *last) {
    if (step->left_out != LS_NONE) return strcmp(task->phase, "optimizer") != 0;
    return strcmp(last->phase, "backward") == 0 && strcmp(task->phase, "forward") == 0;
}

/* Steps and their kernels, in the order of the compute stream. */
static ls_status find_steps(struct source *s) {
    int count, kernel_count = 0;
    const int *tasks = ls_trace_lane_tasks(s->trace, s->compute, &count);
    s->kernels = calloc((size_t)count + 1, sizeof *s->kernels);
    s->host_us = calloc((size_t)count + 1, sizeof *s->host_us);
    s->steps = calloc((size_t)count + 1, sizeof *s->steps);
    if (!s->kernels || !s->host_us || !s->steps)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a workload");
    for (int i = 0; i < count; i++) {
        const struct ls_task *task = ls_trace_task(s->trace, tasks[i]);
        if (!is_of_the_network(s, task)) continue;
        struct step *step = s->step_count > 0 ? &s->steps[s->step_count - 1] : NULL;
        if (!step || step->number != task->step) {
            step = &s->steps[s->step_count++];
            *step = (struct step){task->step, .kernels = s->kernels + kernel_count, .left_out = LS_NONE,
                                  .host_us = s->host_us + kernel_count};
        }
        const struct ls_task *last = step->count > 0 ? ls_trace_task(s->trace, s->kernels[kernel_count - 1]) : task;
        if (is_of_another_micro_batch(step, task, last)) {
            step->left_out = tasks[i];
            continue;
        }
        s->kernels[kernel_count++] = tasks[i];
        step->count++;
        step->flops += (double)task->flops;
        step->bytes += (double)task->bytes;
    }
    bool graphs =
        s->step_count == 0 && count > 0 && strcmp(ls_trace_task(s->trace, tasks[count - 1])->phase, "graph") == 0;
    if (graphs)
        return ls_fail(LS_ERR_INVALID, "the trace's steps are CUDA graphs, whose kernels are not recorded: record "
                                       "without --cuda-graph, and replay with it");
    if (s->step_count == 0) return ls_fail(LS_ERR_INVALID, "the trace has no step with a kernel");
    if (is_offloaded(s->trace))
        return ls_fail(LS_ERR_INVALID,
                       "the trace's updates ran on the host, whose kernels are not recorded: record without --offload");
    s->whole = &s->steps[0];
    for (int i = 1; i < s->step_count; i++) {
        const struct step *step = &s->steps[i];
        if (step->flops + step->bytes > s->whole->flops + s->whole->bytes) s->whole = step;
    }
    return LS_OK;
}

static const struct ls_task *kernel_of(const struct source *s, const struct step *step, int i) {
    return ls_trace_task(s->trace, step->kernels[i]);
}

static bool is_whole(const struct source *s, const struct step *step) {
    return step->flops == s->whole->flops && step->bytes == s->whole->bytes;
}

static ls_status compare_steps(const struct source *s) {
    for (int i = 0; i < s->step_count; i++) {
        const struct step *step = &s->steps[i];
        bool same = step->count == s->whole->count;
        for (int k = 0; same && k < step->count; k++) {
            const struct ls_task *task = kernel_of(s, step, k), *other = kernel_of(s, s->whole, k);
            same = strcmp(task->name, other->name) == 0 && strcmp(task->phase, other->phase) == 0;
            if (is_whole(s, step)) same = same && task->flops == other->flops && task->bytes == other->bytes;
        }
        if (!same) {
            return ls_fail(LS_ERR_INVALID,
                           "a workload needs equal steps; steps %d and %d of the trace differ in their operations",
                           s->whole->number, step->number);
        }
    }
    return LS_OK;
}

/* --- the host's share
 * -------------------------------------------------------------------------------------------- */

/* The task of the host's lane that launched this kernel. */
static int launch_of(const struct source *s, int kernel) {
    int count, last = LS_NONE;
    const int *before = ls_trace_before(s->trace, kernel, &count);
    for (int i = 0; i < count; i++) {
        if (ls_trace_task(s->trace, before[i])->lane == s->host && before[i] > last) last = before[i];
    }
    return last;
}

static void share_host_time(struct source *s) {
    int count, at = 0;
    const int *tasks = ls_trace_lane_tasks(s->trace, s->host, &count);
    for (int i = 0; i < s->step_count; i++) {
        struct step *step = &s->steps[i];
        double pending_us = 0;
        int kernel = 0, launch = launch_of(s, step->kernels[0]);
        int left_out = step->left_out == LS_NONE ? LS_NONE : launch_of(s, step->left_out);
        while (at < count && ls_trace_task(s->trace, tasks[at])->step < step->number) at++;
        for (; at < count && ls_trace_task(s->trace, tasks[at])->step == step->number; at++) {
            const struct ls_task *task = ls_trace_task(s->trace, tasks[at]);
            double us = task->us > 0 && task->lock == LS_NONE ? task->us - task->probes_us : 0;
            bool counts = is_work_phase(task->phase);
            if (counts) pending_us += us;
            if (tasks[at] == left_out) pending_us = 0; /* the time of further micro-batches */
            if (!counts) step->loader_us += us;
            while (kernel < step->count && launch == tasks[at]) {
                step->host_us[kernel] = pending_us;
                pending_us = 0;
                if (++kernel < step->count) launch = launch_of(s, step->kernels[kernel]);
            }
        }
        step->loader_us += pending_us;
    }
}

/* --- the operations
 * ---------------------------------------------------------------------------------------------- */

static double element_bytes(const struct ls_trace_about *about) {
    return strcmp(about->precision, "fp16") == 0 || strcmp(about->precision, "bf16") == 0 ? 2 : 4;
}

/* Samples in the device's share of a step, or in its first micro-batch. */
static double samples_of(const struct ls_trace_about *about) {
    double samples = (double)about->batch_size / (double)about->devices;
    return about->micro_batches > 1 ? ceil(samples / about->micro_batches) : samples;
}

/* Labels of a sample; one, if the loss has no labels. */
static double rows_of_a_sample(const struct source *s) {
    for (int k = 0; k < s->whole->count; k++)
        if (strcmp(kernel_of(s, s->whole, k)->name, "cross_entropy") == 0)
            return fmax(1, (double)s->about->answer_bytes / sizeof(int64_t));
    return 1;
}

static double fixed_bytes(const struct source *s, const struct ls_task *task) {
    if (strcmp(task->phase, "optimizer") == 0) return (double)task->bytes;
    if (task->fixed_bytes > 0) return task->fixed_bytes;
    if (!ls_workload_kernel_is(task->name, "gemm")) return 0;
    double rows = samples_of(s->about) * s->rows;
    return fmin((double)task->bytes, element_bytes(s->about) * (double)task->flops / (2 * rows));
}

/* Medians over the whole steps; `values` has room for all of them. */
static double median_us(const struct source *s, double *values, int kernel, bool host) {
    size_t count = 0;
    for (int i = 0; i < s->step_count; i++) {
        const struct step *step = &s->steps[i];
        if (!is_whole(s, step)) continue;
        values[count] = host ? step->host_us[kernel] : kernel_of(s, step, kernel)->us;
        if (!(values[count++] >= 0)) return -1;
    }
    ls_sort(values, count);
    return ls_quantile(values, count, 0.5);
}

static ls_status add_operations(struct source *s, struct ls_workload_parts *parts) {
    double *values = calloc((size_t)s->step_count, sizeof *values);
    if (!values) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a workload");
    for (int k = 0; k < s->whole->count; k++) {
        const struct ls_task *task = kernel_of(s, s->whole, k);
        struct ls_work work = {.name = ls_workload_text(parts, is_copy(task) ? "gradient copy" : task->name),
                               .phase = ls_workload_text(parts, task->phase),
                               .flops = (double)task->flops,
                               .bytes = (double)task->bytes * (is_copy(task) ? 2 : 1), /* read and written */
                               .fixed_bytes = fixed_bytes(s, task),
                               .is_product = ls_workload_kernel_is_product(task->name),
                               .us = median_us(s, values, k, false),
                               .host_us = s->host >= 0 ? median_us(s, values, k, true) : -1};
        if (work.us < 0) work.host_us = -1; /* a meta device, whose host time is meaningless */
        ls_workload_add_work(parts, &work);
    }
    size_t whole = 0;
    for (int i = 0; i < s->step_count; i++) {
        if (is_whole(s, &s->steps[i])) values[whole++] = s->steps[i].loader_us;
    }
    ls_sort(values, whole);
    parts->workload.loader_us = parts->failed || parts->workload.work[0].us < 0 ? 0 : ls_quantile(values, whole, 0.5);
    free(values);
    return LS_OK;
}

/* Adds each step's own times, if all are measured. */
static ls_status add_steps(const struct source *s, struct ls_workload_parts *parts) {
    ls_workload *w = &parts->workload;
    for (int k = 0; k < w->work_count; k++) {
        if (!(w->work[k].us >= 0)) return LS_OK;
    }
    w->step_us = calloc((size_t)s->step_count * (size_t)w->work_count, sizeof *w->step_us);
    if (!w->step_us) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a workload");
    for (int i = 0; i < s->step_count; i++) {
        if (!is_whole(s, &s->steps[i])) continue;
        double *us = w->step_us + (size_t)w->step_count++ * (size_t)w->work_count;
        for (int k = 0; k < w->work_count; k++) us[k] = kernel_of(s, &s->steps[i], k)->us;
    }
    return LS_OK;
}

/* --- parameters
 * -------------------------------------------------------------------------------------------------- */

/* The index in the step of the last kernel up to task `after` of the compute stream or, if `after` is the host's, of
 * the last one launched by then. Tasks of a lane are numbered in its order. */
static int kernel_before(const struct source *s, int after) {
    bool by_launch = after != LS_NONE && ls_trace_task(s->trace, after)->lane == s->host;
    int last = -1;
    for (int k = 0; k < s->whole->count; k++) {
        int task = by_launch ? launch_of(s, s->whole->kernels[k]) : s->whole->kernels[k];
        if (task != LS_NONE && task <= after) last = k;
    }
    return last;
}

static int last_of_backward(const ls_workload *w) {
    int last = w->work_count - 1;
    while (last > 0 && strcmp(w->work[last].phase, "backward") != 0) last--;
    return last;
}

static ls_status add_ready_order(const struct source *s, struct ls_workload_parts *parts) {
    ls_workload *w = &parts->workload;
    int behind = last_of_backward(w);
    bool *seen = calloc((size_t)w->parameter_count + 1, sizeof *seen);
    if (!seen) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a workload");
    int at = 0;
    for (int m = 0; m < ls_trace_mark_count(s->trace); m++) {
        const struct ls_mark *mark = ls_trace_mark(s->trace, m);
        bool counts = mark->step == s->whole->number && strcmp(mark->name, "gradient ready") == 0 &&
                      mark->number >= 0 && mark->number < w->parameter_count && !seen[mark->number];
        if (!counts) continue;
        int kernel = kernel_before(s, mark->after);
        if (kernel > at) at = kernel;
        if (w->work[at].ready_count++ == 0) w->work[at].first_ready = w->ready_count;
        seen[mark->number] = true;
        ls_workload_add_ready(parts, (int)mark->number);
    }
    for (int p = w->parameter_count; p > 0; p--) {
        if (seen[p - 1]) continue;
        if (w->work[behind].ready_count++ == 0) w->work[behind].first_ready = w->ready_count;
        ls_workload_add_ready(parts, p - 1);
    }
    free(seen);
    return LS_OK;
}

/* --- all of it
 * --------------------------------------------------------------------------------------------------- */

static ls_status fill(struct source *s, struct ls_workload_parts *parts) {
    ls_workload *w = &parts->workload;
    w->name = ls_workload_text(parts, s->about->model);
    w->source = ls_workload_text(parts, s->about->virtual_time ? "a trace in virtual time" : "a trace");
    w->samples = samples_of(s->about);
    w->input_bytes = (double)s->about->input_bytes;
    w->output_bytes = (double)s->about->output_bytes;
    w->answer_bytes = (double)s->about->answer_bytes;
    w->element_bytes = element_bytes(s->about);
    for (int p = 0; p < ls_trace_parameter_count(s->trace); p++) {
        const struct ls_trace_parameter *parameter = ls_trace_parameter(s->trace, p);
        (void)ls_workload_add_parameter(parts, parameter->name, parameter->count);
    }
    ls_status status = add_operations(s, parts);
    if (status != LS_OK || parts->failed) return status;
    status = add_steps(s, parts);
    if (status == LS_OK) status = add_ready_order(s, parts);
    ls_workload_deduce(w, s->trace);
    return status;
}

ls_status ls_workload_from_trace(ls_workload **out, const ls_trace *trace) {
    struct source s = {.trace = trace, .about = ls_trace_what(trace)};
    *out = NULL;
    ls_status status = check_about(s.about);
    if (status != LS_OK) return status;
    s.compute = find_lane(trace, LS_LANE_COMPUTE, 0);
    s.host = find_lane(trace, LS_LANE_HOST, 0);
    if (s.compute < 0)
        return ls_fail(LS_ERR_INVALID,
                       "a workload needs the compute stream of device 0, which the trace does not have");
    struct ls_workload_parts *parts = ls_workload_begin();
    status = parts ? find_steps(&s) : LS_ERR_NO_MEMORY;
    if (status == LS_OK) status = compare_steps(&s);
    if (status == LS_OK && s.host >= 0) share_host_time(&s);
    if (status == LS_OK) s.rows = rows_of_a_sample(&s);
    if (status == LS_OK) status = fill(&s, parts);
    free(s.kernels);
    free(s.host_us);
    free(s.steps);
    return parts ? ls_workload_finish(parts, status, out) : status;
}
