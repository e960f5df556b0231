/* build_ddp — ddp_procs/ddp_step.c and reducer.c, written down instead of run; and, with one rank,
 * common/train/single.c.
 *   idea  : rank by rank: what the host thread launches, and what the compute and copy streams do. What the ranks do
 *           together comes behind all of them, since a message needs both of its ends: the broadcast of buffers and
 *           the buckets' all-reduces, whose places between launches and waits the ranks' parts have noted down
 *   times : the averaging by 1 / W is an operation of each gradient where the host runs the compute stream (CPU
 *           devices), and of each full bucket elsewhere, as in the reducer
 *   first : all steps have the buckets that the real program has from its second step on
 *   cost  : beside the tasks, 8 bytes for each bucket of each rank */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/engine/build_internal.h"

/* --- buckets ----------------------------------------------------------------------------------------------------- */

void ls_build_free_buckets(struct ls_build_buckets *buckets) {
    free(buckets->bucket_of);
    free(buckets->members);
    free(buckets->floats);
    *buckets = (struct ls_build_buckets){0};
}

/* ddp_procs/buckets.c's rule: parameters in the order in which their gradients are ready; a bucket is closed as soon
 * as it reaches its limit, so that it may exceed it by almost one tensor. */
ls_status ls_build_assign_buckets(struct ls_build_buckets *out, const ls_workload *w,
                                  const struct ls_build_options *o) {
    size_t room = (size_t)w->parameter_count + 1;
    struct ls_build_buckets b = {.bucket_of = calloc(room, sizeof *b.bucket_of),
                                 .members = calloc(room, sizeof *b.members),
                                 .floats = calloc(room, sizeof *b.floats)};
    *out = (struct ls_build_buckets){0};
    if (!b.bucket_of || !b.members || !b.floats) {
        ls_build_free_buckets(&b);
        return ls_fail(LS_ERR_NO_MEMORY, "no memory for the list of buckets");
    }
    uint64_t first = o->first_bucket_bytes < o->bucket_bytes ? o->first_bucket_bytes : o->bucket_bytes;
    uint64_t open_bytes = 0;
    for (int i = 0; i < w->ready_count; i++) {
        int parameter = w->ready[i];
        b.bucket_of[parameter] = b.count;
        b.members[b.count]++;
        b.floats[b.count] += ls_build_aligned((double)w->parameter_counts[parameter]);
        open_bytes += w->parameter_counts[parameter] * sizeof(float);
        if (open_bytes < (b.count == 0 ? first : o->bucket_bytes) && i + 1 < w->ready_count) continue;
        b.count++;
        open_bytes = 0;
    }
    *out = b;
    return LS_OK;
}

/* --- a step, rank by rank ---------------------------------------------------------------------------------------- */

struct bucket {
    int launched, ready; /* the host's task, and the compute stream's that completed the bucket */
    int next;            /* the host's task behind the launch */
};

/* What one rank has noted down of the step in progress. */
struct rank {
    int used[2]; /* of each place for a batch */
    int buffers_launched, buffers_next, buffers_idle, first_forward, first_update;
    int reduced;  /* the last task of what the ranks did together */
    int *pending; /* of each bucket: gradients that are not ready yet */
    int next;     /* bucket to be launched */
    struct bucket *buckets;
};

struct ddp {
    ls_builder *b;
    struct ls_build_buckets plan;
    struct rank *ranks;
    int *lanes, *tasks; /* of all ranks, for messages */
    uint32_t collectives;
};

static bool alone(const struct ddp *ddp) { return ddp->b->options->devices == 1; }
static bool compresses(const struct ddp *ddp) { return ddp->b->options->gradient_element_bytes < sizeof(float); }

/* reducer.c, launch_ready: every bucket whose turn it is. */
static void launch_ready(struct ddp *ddp, int r) {
    ls_builder *b = ddp->b;
    struct rank *rank = &ddp->ranks[r];
    const char *before = b->phase;
    b->phase = "all-reduce";
    for (; rank->next < ddp->plan.count && rank->pending[rank->next] == 0; rank->next++) {
        struct ls_build_device *device = &b->devices[r];
        device->owed_us += 2 * b->host->event_us; /* the comm stream waits; its work is recorded */
        rank->buckets[rank->next].launched = ls_build_launch(b, device, "launch all_reduce", b->host->collective_us);
        device->next_host = &rank->buckets[rank->next].next;
    }
    b->phase = before;
}

/* reducer.c, mark_ready. */
static void mark_ready(struct ddp *ddp, int r, int parameter) {
    ls_builder *b = ddp->b;
    struct rank *rank = &ddp->ranks[r];
    struct ls_build_device *device = &b->devices[r];
    int bucket = ddp->plan.bucket_of[parameter];
    bool averages = !compresses(ddp), each = b->host->runs_compute;
    double count = (double)b->workload->parameter_counts[parameter];
    if (averages && each) (void)ls_build_kernel(b, device, LS_LANE_COMPUTE, "divide", count, 8 * count);
    if (--rank->pending[bucket] > 0) return;
    count = ddp->plan.floats[bucket];
    if (averages && !each) (void)ls_build_kernel(b, device, LS_LANE_COMPUTE, "divide", count, 8 * count);
    rank->buckets[bucket].ready = ls_build_record(b, device, LS_LANE_COMPUTE);
    if (b->options->overlap) launch_ready(ddp, r);
}

/* What PyTorch's DDP does for each gradient, on one device, too. */
static void add_hook(struct ddp *ddp, int r) {
    ls_builder *b = ddp->b;
    struct ls_build_device *device = &b->devices[r];
    if (b->options->mode != LS_BUILD_DDP || !(b->options->tensor_us > 0)) return;
    int launched = ls_build_launch(b, device, "launch hook", b->host->launch_us);
    struct ls_task task = ls_task_default(LS_TASK_KERNEL, "hook", 0);
    task.us = b->options->tensor_us;
    (void)ls_build_task(b, device, LS_LANE_COMPUTE, launched, &task);
}

static void backward(struct ddp *ddp, int r, double rows) {
    ls_builder *b = ddp->b;
    struct rank *rank = &ddp->ranks[r];
    b->phase = "backward";
    memcpy(rank->pending, ddp->plan.members, (size_t)ddp->plan.count * sizeof *rank->pending);
    rank->next = 0;
    for (int w = 0; w < b->workload->work_count; w++) {
        const struct ls_work *work = &b->workload->work[w];
        ls_build_backward_work(b, &b->devices[r], work, rows);
        for (int i = 0; i < work->ready_count; i++) {
            add_hook(ddp, r);
            if (!alone(ddp)) mark_ready(ddp, r, b->workload->ready[work->first_ready + i]);
        }
    }
    rank->used[b->step % b->places] = ls_build_record(b, &b->devices[r], LS_LANE_COMPUTE);
}

/* buffers.c: the host's part. */
static void launch_buffers(struct ddp *ddp, int r) {
    ls_builder *b = ddp->b;
    struct ls_build_device *device = &b->devices[r];
    b->phase = "broadcast";
    ddp->ranks[r].buffers_launched = LS_NONE;
    if (alone(ddp) || b->workload->buffer_bytes == 0) return;
    ddp->ranks[r].buffers_idle = ls_build_record(b, device, LS_LANE_COMPUTE);
    device->owed_us += b->host->event_us;
    ddp->ranks[r].buffers_launched = ls_build_launch(b, device, "launch broadcast", b->host->collective_us);
    device->next_host = &ddp->ranks[r].buffers_next;
    device->owed_us += 2 * b->host->event_us;
}

static void step_of_rank(struct ddp *ddp, int r) {
    ls_builder *b = ddp->b;
    struct ls_build_device *device = &b->devices[r];
    struct rank *rank = &ddp->ranks[r];
    double rows = ls_build_rows(b->options, r);
    ls_build_begin_step(b, device);
    b->phase = "input";
    int batch_copied = ls_build_upload(b, device, rows, rows, rank->used[b->step % b->places]);
    device->owed_us += b->host->event_us; /* its record */
    launch_buffers(ddp, r);
    ls_build_wait(b, device, LS_LANE_COMPUTE, batch_copied);

    b->phase = "forward";
    rank->first_forward = ls_build_works(b, device, rows);
    b->phase = "loss";
    (void)ls_build_works(b, device, rows);
    ls_build_check_loss(b, device);
    backward(ddp, r, rows);

    b->phase = "all-reduce";
    launch_ready(ddp, r);
    for (int k = 0; k < ddp->plan.count && !b->options->overlap; k++) {
        rank->buckets[k].ready = device->last[LS_LANE_COMPUTE]; /* nothing travels before all of backward is over */
    }
    if (!alone(ddp)) device->owed_us += ddp->plan.count * b->host->event_us; /* the compute stream waits for each */
    b->phase = "optimizer";
    rank->first_update = ls_build_works(b, device, rows);
    ls_build_end_step(b, device, batch_copied);
}

/* --- what the ranks do together ---------------------------------------------------------------------------------- */

/* A task of a rank's comm stream, behind the launch of the bucket (-1: of the buffers) and what completed it. */
static void add_comm_task(struct ddp *ddp, int r, struct ls_task *task, int bucket) {
    struct rank *rank = &ddp->ranks[r];
    struct ls_build_device *device = &ddp->b->devices[r];
    int ready = bucket < 0 ? rank->buffers_idle : rank->buckets[bucket].ready;
    int launched = bucket < 0 ? rank->buffers_launched : rank->buckets[bucket].launched;
    ls_build_await(device, LS_LANE_COMM, ready);
    rank->reduced = ls_build_task(ddp->b, device, LS_LANE_COMM, launched, task);
    int next = bucket < 0 ? rank->buffers_next : rank->buckets[bucket].next;
    if (ddp->b->in_line) ls_trace_add_edge(ddp->b->trace, rank->reduced, next);
}

static void add_collective(struct ddp *ddp, ls_collective what, const char *name, double bytes, int bucket) {
    for (int r = 0; r < ddp->b->options->devices; r++) {
        struct ls_task task = ls_build_collective(ddp->b, what, name, ddp->collectives, bytes);
        add_comm_task(ddp, r, &task, bucket);
    }
    ddp->collectives++;
}

/* The casts of a compressed bucket. */
static void add_cast(struct ddp *ddp, const char *name, double floats, int bucket) {
    double bytes = (sizeof(float) + ddp->b->options->gradient_element_bytes) * floats;
    struct ls_task task = ls_task_default(LS_TASK_KERNEL, name, 0);
    task.us = ls_cost_kernel_us(ddp->b->node, 0, bytes, false, LS_FP32);
    task.bytes = (uint64_t)bytes;
    for (int r = 0; r < ddp->b->options->devices; r++) add_comm_task(ddp, r, &task, bucket);
}

/* Its first task on each stream waits for launch and bucket; the messages come behind it. */
static void add_messages(struct ddp *ddp, double bytes, int bucket) {
    ls_builder *b = ddp->b;
    int count = b->options->devices;
    for (int r = 0; r < count; r++) {
        struct ls_task begin = ls_task_default(LS_TASK_COPY, "all_reduce", 0);
        begin.us = 0;
        begin.from = begin.to = r;
        add_comm_task(ddp, r, &begin, bucket);
        ddp->lanes[r] = b->devices[r].lane[LS_LANE_COMM];
        ddp->tasks[r] = LS_NONE; /* the order of the stream */
    }
    ls_build_messages(b->trace, b->options->pattern, ddp->lanes, ddp->tasks, count, bytes, b->step);
    for (int r = 0; r < count; r++) {
        ddp->ranks[r].reduced = b->devices[r].last[LS_LANE_COMM] = ddp->tasks[r];
        if (b->in_line) ls_trace_add_edge(b->trace, ddp->tasks[r], ddp->ranks[r].buckets[bucket].next);
    }
}

/* The waits of a rank's compute stream that were left out. */
static void add_waits(struct ddp *ddp, bool forward) {
    ls_builder *b = ddp->b;
    for (int r = 0; r < b->options->devices; r++) {
        struct rank *rank = &ddp->ranks[r];
        int task = forward ? rank->first_forward : rank->first_update;
        if (task == LS_NONE) {
            ls_build_await(&b->devices[r], LS_LANE_COMPUTE, rank->reduced);
        } else {
            ls_trace_add_edge(b->trace, rank->reduced, task);
        }
    }
}

static void step_together(struct ddp *ddp) {
    ls_builder *b = ddp->b;
    b->phase = "broadcast";
    if (ddp->ranks[0].buffers_launched != LS_NONE) {
        add_collective(ddp, LS_COLLECTIVE_BROADCAST, "broadcast", b->workload->buffer_bytes, -1);
        add_waits(ddp, true);
    }
    b->phase = "all-reduce";
    for (int k = 0; k < ddp->plan.count; k++) {
        double floats = ddp->plan.floats[k], bytes = floats * b->options->gradient_element_bytes;
        if (compresses(ddp)) add_cast(ddp, "cast_divide", floats, k);
        if (b->options->collectives == LS_BUILD_BY_MESSAGES) {
            add_messages(ddp, bytes, k);
        } else {
            add_collective(ddp, LS_COLLECTIVE_ALL_REDUCE, "all_reduce", bytes, k);
        }
        if (compresses(ddp)) add_cast(ddp, "cast", floats, k);
    }
    if (ddp->plan.count > 0) add_waits(ddp, false);
}

/* --- all steps --------------------------------------------------------------------------------------------------- */

static ls_status alloc_ranks(struct ddp *ddp) {
    size_t count = (size_t)ddp->b->options->devices, buckets = (size_t)ddp->plan.count + 1;
    ddp->ranks = calloc(count, sizeof *ddp->ranks);
    ddp->lanes = calloc(count, sizeof *ddp->lanes);
    ddp->tasks = calloc(count, sizeof *ddp->tasks);
    bool there = ddp->ranks && ddp->lanes && ddp->tasks;
    for (size_t r = 0; there && r < count; r++) {
        struct rank *rank = &ddp->ranks[r];
        rank->used[0] = rank->used[1] = rank->reduced = LS_NONE;
        rank->pending = calloc(buckets, sizeof *rank->pending);
        rank->buckets = calloc(buckets, sizeof *rank->buckets);
        there = rank->pending && rank->buckets;
    }
    return there ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "no memory to build a trace for %zu ranks", count);
}

static void free_ranks(struct ddp *ddp) {
    for (int r = 0; ddp->ranks && r < ddp->b->options->devices; r++) {
        free(ddp->ranks[r].pending);
        free(ddp->ranks[r].buckets);
    }
    free(ddp->ranks);
    free(ddp->lanes);
    free(ddp->tasks);
}

ls_status ls_build_ddp(ls_builder *b) {
    struct ddp ddp = {.b = b};
    ls_status status = ls_build_assign_buckets(&ddp.plan, b->workload, b->options);
    if (status == LS_OK) status = alloc_ranks(&ddp);
    for (b->step = 0; status == LS_OK && b->step < b->options->steps; b->step++) {
        for (int r = 0; r < b->options->devices; r++) step_of_rank(&ddp, r);
        if (!alone(&ddp)) step_together(&ddp);
    }
    free_ranks(&ddp);
    ls_build_free_buckets(&ddp.plan);
    return status;
}
