/* recost — turns a recording into a trace with times, of all ranks.
 *   idea  : lane by lane each recorded task is added, with its price, once for each rank; then the edges. `first` and
 *           `last` map a recorded task to its tasks in the trace: they differ if a collective became messages
 *   order : comm lanes come last and together, since a message needs both of its ends
 *   stages: of a pipeline, one rank of each stage was recorded, and all ranks of that stage get its tasks
 *   cost  : tasks and edges, of all ranks */
#include "labs/replay/engine/recost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/engine/price.h"

enum { MAX_GROUPS = 512 }; /* of a pipeline: several for each stage, and two for each pair of neighbours */

struct recost {
    const ls_trace *recorded;
    ls_trace *out;
    const ls_workload *workload;
    const struct ls_plan *options;
    struct ls_price price;
    int ranks, tasks;               /* ranks that get the recorded tasks, per stage; recorded tasks */
    int *first, *last;              /* [rank * tasks + recorded task]: the task or tasks in `out` */
    int *launcher;                  /* of each recorded task of a stream: the host's task that launched it; LS_NONE */
    int *next;                      /* of each recorded task: the next one of its lane; LS_NONE */
    const char *groups[MAX_GROUPS]; /* the recording's texts */
    int group_count;
    int step;      /* of the last task of the host's lane in progress */
    bool captured; /* that lane is within a captured part of a step, whose launch has been counted */
    int *lane_of;  /* [recorded lane]: device * LS_LANE_COUNT + kind, of the first rank */
};

static const struct ls_lane *lane_of(const struct recost *r, int task) {
    return ls_trace_lane(r->recorded, ls_trace_task(r->recorded, task)->lane);
}

static bool is_of_host(const struct recost *r, int task) { return lane_of(r, task)->kind == LS_LANE_HOST; }

static int *first_of(const struct recost *r, int rank, int task) { return &r->first[(size_t)rank * r->tasks + task]; }
static int *last_of(const struct recost *r, int rank, int task) { return &r->last[(size_t)rank * r->tasks + task]; }

/* --- host tasks -------------------------------------------------------------------------------------------------- */

/* The task that the host's task launches; LS_NONE. */
static int launched_by(const struct recost *r, int task) {
    int count;
    const int *after = ls_trace_after(r->recorded, task, &count);
    for (int i = 0; i < count; i++)
        if (!is_of_host(r, after[i])) return after[i];
    return LS_NONE;
}

enum waiting { FOR_NOTHING, FOR_A_THREAD, FOR_A_STREAM };

/* *step: the step of the awaited thread, which may be later than that in which the wait began. */
static enum waiting waits(const struct recost *r, int task, int *step) {
    int count;
    const int *before = ls_trace_before(r->recorded, task, &count);
    enum waiting waiting = FOR_NOTHING;
    for (int i = 0; i < count; i++) {
        /* work that the thread runs itself has ended when it reaches the wait */
        bool own = r->price.host->runs_compute && lane_of(r, before[i])->kind == LS_LANE_COMPUTE;
        if (is_of_host(r, before[i])) {
            *step = ls_trace_task(r->recorded, before[i])->step;
            return FOR_A_THREAD;
        }
        if (!own) waiting = FOR_A_STREAM;
    }
    return waiting;
}

/* Tasks of a thread between its last signal and its next wait belong to the step of the signal: by the recording's
 * clock, the wait may begin in either of two steps. */
static void settle_step(struct recost *r, struct ls_task *task) {
    if (strcmp(task->name, "host") == 0) task->step = r->step;
    r->step = task->step;
}

/* With a graph, all tasks from the first phase after the batch's copy to the update are one launch: the first. */
static bool is_paid_for(struct recost *r, const struct ls_task *task) {
    static const char *const outside[] = {"", "loader", "input", "other"};
    bool before = r->captured;
    if (!r->options->graph) return false;
    r->captured = true;
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (strcmp(task->phase, outside[i]) == 0) r->captured = false;
    return before && r->captured;
}

static void price_host(struct recost *r, struct ls_task *task, int number) {
    const struct ls_node_host *host = r->price.host;
    int launched = launched_by(r, number);
    enum waiting waiting = waits(r, number, &task->step);
    task->us = 0;
    if (is_paid_for(r, task)) return;
    if (launched != LS_NONE) {
        task->us = ls_price_launch_us(&r->price, ls_trace_task(r->recorded, launched));
        if (r->options->gil) task->lock = 0;
    } else if (waiting == FOR_A_THREAD) {
        task->us = host->hand_over_us;
        task->hand_over = true;
    } else if (waiting == FOR_A_STREAM) {
        task->us = host->sync_us;
    } else if (strcmp(task->phase, "loader") == 0) {
        task->us = r->workload->loader_us;
    }
    task->us += task->events * host->event_us;
}

/* --- tasks ------------------------------------------------------------------------------------------------------- */

static int device_of(const struct recost *r, int rank, int task) { return lane_of(r, task)->device + rank; }

static int lane_in_out(const struct recost *r, int rank, int task) {
    return r->lane_of[ls_trace_task(r->recorded, task)->lane] + rank * LS_LANE_COUNT;
}

/* A recording names groups by addresses; here they are numbered in the order of their first use. */
static int number_group(struct recost *r, const char *group) {
    int number = 0;
    while (number < r->group_count && r->groups[number] != group) number++;
    if (number == r->group_count && number < MAX_GROUPS) r->groups[r->group_count++] = group;
    return number;
}

/* In a grid, the ranks of one axis meet: neighbours that share layers, ranks with the same position among these, or two
 * stages of one replica. `rank` is counted within the stage. */
static int join_meeting(struct recost *r, const struct ls_task *task, int rank) {
    struct ls_meeting meeting = *ls_trace_meeting(r->recorded, task->meeting);
    int tensor = r->options->tensor;
    bool on_tensor_axis = ls_price_of_tensor_axis(&r->price, task);
    bool between_stages = ls_price_between_stages(&r->price, task);
    char group[48];
    int length = snprintf(group, sizeof group, "group %d", number_group(r, meeting.group));
    if (between_stages)
        snprintf(group + length, sizeof group - (size_t)length, " of rank %d", rank);
    else if (tensor > 1)
        snprintf(group + length, sizeof group - (size_t)length, on_tensor_axis ? " of replica %d" : " of part %d",
                 on_tensor_axis ? rank / tensor : rank % tensor);
    meeting.group = group;
    if (!between_stages) meeting.ranks = on_tensor_axis ? tensor : ls_plan_replicas(r->options);
    meeting.tasks = 0;
    return ls_trace_join_meeting(r->out, &meeting);
}

static void add_task(struct recost *r, int rank, int number) {
    struct ls_task task = *ls_trace_task(r->recorded, number);
    bool collective = task.kind == LS_TASK_COLLECTIVE;
    const struct ls_meeting *meeting = collective ? ls_trace_meeting(r->recorded, task.meeting) : NULL;
    task.us = -1;
    task.probes_us = 0;
    task.lock = LS_NONE;
    task.launched_us = task.start_us = task.end_us = ls_task_default(task.kind, "", 0).start_us;
    if (task.from >= 0) task.from += rank;
    if (task.to >= 0) task.to += rank;
    task.lane = lane_in_out(r, rank, number);
    if (is_of_host(r, number)) {
        price_host(r, &task, number);
        settle_step(r, &task);
    } else {
        ls_price_task(&r->price, &task, device_of(r, rank, number), meeting);
    }
    if (collective) task.meeting = join_meeting(r, &task, rank);
    *first_of(r, rank, number) = *last_of(r, rank, number) = ls_trace_add_task(r->out, &task);
}

/* Adds the all-reduce of all ranks as messages, after a task of each rank that waits for its launch and its bucket. */
static void add_messages(struct recost *r, int number) {
    const struct ls_task *task = ls_trace_task(r->recorded, number);
    int lanes[LS_NODE_MAX_DEVICES], tasks[LS_NODE_MAX_DEVICES];
    for (int rank = 0; rank < r->ranks; rank++) {
        struct ls_task begin = ls_task_default(LS_TASK_COPY, task->name, lane_in_out(r, rank, number));
        begin.phase = task->phase;
        begin.step = task->step;
        begin.us = 0;
        begin.from = begin.to = device_of(r, rank, number);
        *first_of(r, rank, number) = ls_trace_add_task(r->out, &begin);
        lanes[rank] = begin.lane;
        tasks[rank] = LS_NONE; /* the stream's order suffices */
    }
    ls_plan_messages(r->out, r->options->pattern, lanes, tasks, r->ranks, (double)task->bytes, task->step);
    for (int rank = 0; rank < r->ranks; rank++) *last_of(r, rank, number) = tasks[rank];
}

static void add_lane_tasks(struct recost *r, int lane) {
    int count;
    const int *tasks = ls_trace_lane_tasks(r->recorded, lane, &count);
    for (int rank = 0; rank < r->ranks; rank++) {
        r->step = 0;
        r->captured = false;
        for (int i = 0; i < count; i++) add_task(r, rank, tasks[i]);
    }
}

static void add_comm_tasks(struct recost *r, int lane) {
    int count;
    const int *tasks = ls_trace_lane_tasks(r->recorded, lane, &count);
    for (int i = 0; i < count; i++) {
        const struct ls_task *task = ls_trace_task(r->recorded, tasks[i]);
        bool all_reduce = task->kind == LS_TASK_COLLECTIVE &&
                          strcmp(ls_trace_meeting(r->recorded, task->meeting)->operation, "all_reduce") == 0;
        if (all_reduce && r->ranks > 1 && r->options->collectives == LS_PLAN_BY_MESSAGES) {
            add_messages(r, tasks[i]);
            continue;
        }
        for (int rank = 0; rank < r->ranks; rank++) add_task(r, rank, tasks[i]);
    }
}

static void add_tasks(struct recost *r) {
    for (int comm = 0; comm < 2; comm++) {
        for (int lane = 0; lane < ls_trace_lane_count(r->recorded); lane++) {
            bool is_comm = ls_trace_lane(r->recorded, lane)->kind == LS_LANE_COMM;
            if (comm && is_comm) add_comm_tasks(r, lane);
            if (!comm && !is_comm) add_lane_tasks(r, lane);
        }
    }
}

/* --- edges ------------------------------------------------------------------------------------------------------- */

static void add_edges_of(struct recost *r, int rank, int task) {
    int count, begin = *first_of(r, rank, task), end = *last_of(r, rank, task);
    const int *before = ls_trace_before(r->recorded, task, &count);
    for (int i = 0; i < count; i++) ls_trace_add_edge(r->out, *last_of(r, rank, before[i]), begin);
    if (is_of_host(r, task) || r->launcher[task] == LS_NONE) return;
    /* the thread that ran it continues after it */
    int next = r->next[r->launcher[task]];
    bool on_host = ls_price_runs_on_host(&r->price, ls_trace_task(r->out, end), lane_of(r, task)->kind);
    if (on_host && next != LS_NONE) ls_trace_add_edge(r->out, end, *first_of(r, rank, next));
}

static void add_marks(struct recost *r) {
    for (int m = 0; m < ls_trace_mark_count(r->recorded); m++) {
        struct ls_mark mark = *ls_trace_mark(r->recorded, m);
        if (strcmp(mark.name, "gradient ready") != 0 || ls_trace_lane(r->recorded, mark.lane)->device != 0) continue;
        mark.lane = r->lane_of[mark.lane];
        if (mark.after != LS_NONE) mark.after = *last_of(r, 0, mark.after);
        mark.at_us = ls_task_default(LS_TASK_HOST, "", 0).start_us;
        (void)ls_trace_add_mark(r->out, &mark);
    }
}

/* --- a trace ----------------------------------------------------------------------------------------------------- */

static const char *const mode_names[] = {"single", "dp", "ddp"};
static const char *const optimizer_names[] = {"sgd", "sgd-momentum", "adam"}; /* by states */

static void describe(const struct recost *r) {
    const struct ls_plan *o = r->options;
    struct ls_trace_about *about = ls_trace_about(r->out);
    const ls_workload *w = r->workload;
    about->mode = ls_trace_text(r->out, mode_names[o->mode]);
    about->model = ls_trace_text(r->out, w->name);
    about->precision = ls_trace_text(r->out, ls_dtype_name(o->precision));
    about->optimizer = ls_trace_text(r->out, optimizer_names[w->optimizer_states]);
    about->device_kind = about->backend = about->stream_mode = ls_trace_text(r->out, "");
    about->device_name = ls_trace_text(r->out, ls_node_device(r->price.node)->name);
    about->algorithm = ls_trace_text(r->out, o->collectives == LS_PLAN_BY_MESSAGES ? ls_pattern_name(o->pattern) : "");
    about->devices = o->devices;
    about->recorded_ranks = about->world_size = o->mode == LS_PLAN_DDP ? o->devices : 1;
    about->batch_size = (int64_t)o->batch;
    about->micro_batches = o->micro_batches;
    about->input_bytes = ls_workload_whole(w->input_bytes);
    about->output_bytes = ls_workload_whole(w->output_bytes);
    about->answer_bytes = ls_workload_whole(w->answer_bytes);
    about->first_bucket_bytes = o->first_bucket_bytes;
    about->bucket_bytes = o->bucket_bytes;
    about->overlap = o->overlap;
    about->first_step = 0;
    about->steps = o->steps;
    about->median_step_ms = ls_task_default(LS_TASK_HOST, "", 0).start_us; /* NAN */
    for (int p = 0; p < w->parameter_count; p++) {
        const struct ls_trace_parameter parameter = {w->parameter_names[p], w->parameter_counts[p]};
        (void)ls_trace_add_parameter(r->out, &parameter);
    }
}

/* Adds host thread and streams of each device, or of each rank if there are several. */
static void add_lanes(struct recost *r) {
    static const char *const names[] = {
        [LS_LANE_HOST] = "", [LS_LANE_COMPUTE] = "compute", [LS_LANE_COPY] = "copy", [LS_LANE_COMM] = "comm"};
    bool dp = r->options->mode == LS_PLAN_DP;
    for (int d = 0; d < r->options->devices; d++) {
        char name[40];
        snprintf(name, sizeof name, dp ? "replica %d" : "rank %d", d);
        for (int k = 0; k < LS_LANE_COUNT; k++) {
            const struct ls_lane lane = {
                .name = k == LS_LANE_HOST ? name : names[k], .kind = (ls_lane_kind)k, .rank = dp ? 0 : d, .device = d};
            (void)ls_trace_add_lane(r->out, &lane);
        }
    }
}

static ls_status index_lanes(struct recost *r) {
    for (int lane = 0; lane < ls_trace_lane_count(r->recorded); lane++) {
        const struct ls_lane *l = ls_trace_lane(r->recorded, lane);
        int count, *before = NULL;
        const int *tasks = ls_trace_lane_tasks(r->recorded, lane, &count);
        if (count > 0 && (l->device < 0 || l->device + r->ranks > r->options->devices))
            return ls_fail(LS_ERR_INVALID, "the lane \"%s\" of the recording is of device %d, but there are only %d",
                           l->name, l->device, r->options->devices);
        r->lane_of[lane] = l->device * LS_LANE_COUNT + (int)l->kind;
        for (int i = 0; i < count; i++) {
            if (before) *before = tasks[i];
            before = &r->next[tasks[i]];
            *before = LS_NONE;
            int launched = l->kind == LS_LANE_HOST ? launched_by(r, tasks[i]) : LS_NONE;
            if (launched != LS_NONE) r->launcher[launched] = tasks[i];
        }
    }
    return LS_OK;
}

static ls_status prepare(struct recost *r) {
    size_t tasks = (size_t)r->tasks + 1, all = (size_t)r->ranks * tasks;
    ls_status status = ls_trace_create(&r->out);
    if (status != LS_OK) return status;
    r->first = malloc(all * sizeof *r->first);
    r->last = malloc(all * sizeof *r->last);
    r->launcher = malloc(tasks * sizeof *r->launcher);
    r->next = malloc(tasks * sizeof *r->next);
    r->lane_of = calloc((size_t)ls_trace_lane_count(r->recorded) + 1, sizeof *r->lane_of);
    if (!r->first || !r->last || !r->launcher || !r->next || !r->lane_of)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to give %d tasks of %d ranks their times", r->tasks,
                       r->ranks);
    for (size_t i = 0; i < tasks; i++) r->launcher[i] = LS_NONE;
    describe(r);
    add_lanes(r);
    return index_lanes(r);
}

/* Bytes of the optimizer's kernels in a step of the first device that updates. */
static double bytes_of_updates(const struct recost *r) {
    double bytes = 0;
    for (int task = 0; task < r->tasks; task++) {
        const struct ls_task *t = ls_trace_task(r->recorded, task);
        if (t->kind == LS_TASK_KERNEL && t->step == 0 && strcmp(t->phase, "optimizer") == 0) bytes += (double)t->bytes;
    }
    return bytes;
}

ls_status ls_recost(ls_trace **out, const ls_trace *recorded, const ls_workload *workload, const ls_node *node,
                    const struct ls_plan *options) {
    *out = NULL;
    struct recost r = {.recorded = recorded,
                       .workload = workload,
                       .options = options,
                       .ranks = options->mode == LS_PLAN_DDP ? options->devices / options->pipeline : 1,
                       .tasks = ls_trace_task_count(recorded)};
    ls_status status = ls_price_open(&r.price, workload, node, options);
    if (status != LS_OK) return status;
    if (options->whole_rows > 0) r.price.update_bytes = bytes_of_updates(&r);
    status = prepare(&r);
    if (status == LS_OK) {
        add_tasks(&r);
        for (int rank = 0; rank < r.ranks; rank++)
            for (int task = 0; task < r.tasks; task++) add_edges_of(&r, rank, task);
        add_marks(&r);
        status = ls_trace_seal(r.out);
    }
    ls_price_close(&r.price);
    free(r.first);
    free(r.last);
    free(r.launcher);
    free(r.next);
    free(r.lane_of);
    if (status == LS_OK)
        *out = r.out;
    else
        ls_trace_destroy(r.out);
    return status;
}
