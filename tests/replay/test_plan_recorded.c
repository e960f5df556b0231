/* A step on meta devices, with a network from a trace of one device, compared with the same step computed: kernels,
 * copies and collectives, stream by stream, in the same order and with the same bytes, and the order that the program's
 * own edges require. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/trace/chrome.h"
#include "labs/replay/engine/account.h"
#include "labs/replay/engine/plan.h"
#include "labs/replay/record/record.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"
#include "tests/replay/model_work.h"
#include "tests/replay/planned.h"
#include "tests/trace/happens_before.h"

enum { BATCH = 16, DEVICES = 2, STEP = 10, REPLAYED_STEP = 1, MAX_TASKS = 1024 };

static ls_trace *record(const char *name, const char *start, const char *model, int micro_batches,
                        const char *options) {
    static program p;
    ls_trace *trace = NULL;
    const char *folder = scratch_path(name);
    program_run(&p,
                "%s --device-kind cpu --model %s --batch-size %d --accumulate %d --steps 12 --no-evaluate --quiet "
                "--trace %s %s",
                start, model, BATCH, micro_batches, folder, options);
    if (p.status != 0) fail_msg("%s: %s", start, p.err_text);
    assert_int_equal(ls_trace_read(&trace, folder), LS_OK);
    return trace;
}

/* The counts that joining ranks exchange are between a run's steps, but within a replay's. */
static bool is_between_steps(const ls_trace *trace, const struct ls_task *task) {
    return task->kind == LS_TASK_COLLECTIVE && strcmp(task->phase, "broadcast") == 0 &&
           strcmp(ls_trace_meeting(trace, task->meeting)->operation, "all_gather") == 0;
}

/* Gets the tasks of a device's stream in a step. Returns their number. */
static int stream_tasks(const ls_trace *trace, int device, ls_lane_kind kind, int step, const struct ls_task **tasks) {
    int found = 0, count = 0;
    for (int l = 0; l < ls_trace_lane_count(trace); l++) {
        const struct ls_lane *lane = ls_trace_lane(trace, l);
        if (lane->kind != kind || lane->device != device) continue;
        const int *all = ls_trace_lane_tasks(trace, l, &count);
        for (int i = 0; i < count; i++) {
            const struct ls_task *task = ls_trace_task(trace, all[i]);
            if (task->step != step || found == MAX_TASKS || is_between_steps(trace, task)) continue;
            tasks[found++] = task;
        }
    }
    return found;
}

/* Bytes of kernels and optimizers are exact except those of convolutions' weights and biases' gradients, whose share
 * grows with micro-batches; all others agree to the byte. */
static bool is_alike(const ls_trace *replayed, const struct ls_task *b, const ls_trace *recorded,
                     const struct ls_task *r) {
    bool operation = b->kind == LS_TASK_KERNEL && r->kind == LS_TASK_COPY; /* a copy within the network counts */
    if ((b->kind != r->kind && !operation) || strcmp(b->phase, r->phase) != 0) return false;
    if (operation) return strcmp(b->name, "gradient copy") == 0 && b->bytes == 2 * r->bytes && r->from == r->to;
    if (b->kind == LS_TASK_COPY) return b->bytes == r->bytes && b->from == r->from && b->to == r->to;
    if (b->kind == LS_TASK_COLLECTIVE) {
        const struct ls_meeting *m = ls_trace_meeting(replayed, b->meeting),
                                *n = ls_trace_meeting(recorded, r->meeting);
        return strcmp(m->operation, n->operation) == 0 && m->bytes == n->bytes && m->ranks == n->ranks;
    }
    /* over several ranks a batch norm is three operations, one of which is described with the time of all */
    bool norms = strncmp(b->name, "batchnorm_", 10) == 0 && strncmp(r->name, "batchnorm_", 10) == 0;
    if (norms && strcmp(b->name, r->name) != 0)
        return strcmp(b->name + 10, "train") == 0 || strcmp(b->name + 10, "backward") == 0;
    if (norms && b->bytes == 0) return true;
    int micro_batches = ls_trace_what(recorded)->micro_batches;
    double off = fabs((double)b->bytes - (double)r->bytes);
    /* accumulated gradients are also read, which replays leave out */
    if (micro_batches > 1 && b->bytes <= r->bytes && strcmp(b->phase, "backward") == 0) off = 0;
    return strcmp(b->name, r->name) == 0 && b->flops == r->flops && off <= 0.1 * micro_batches * (double)r->bytes;
}

static void compare(const ls_trace *replayed, const ls_trace *recorded, const char *what) {
    const struct ls_task *b[MAX_TASKS], *r[MAX_TASKS];
    int compared = 0;
    for (int d = 0; d < DEVICES; d++) {
        for (ls_lane_kind kind = LS_LANE_COMPUTE; kind < LS_LANE_COUNT; kind++) {
            int count = stream_tasks(replayed, d, kind, REPLAYED_STEP, b),
                others = stream_tasks(recorded, d, kind, STEP, r);
            for (int i = 0; i < count && i < others; i++, compared++) {
                if (is_alike(replayed, b[i], recorded, r[i])) continue;
                fail_msg("%s, %s stream of device %d, task %d: replayed %s [%s] %llu bytes, recorded %s [%s] %llu",
                         what, ls_lane_kind_name(kind), d, i, b[i]->name, b[i]->phase, (unsigned long long)b[i]->bytes,
                         r[i]->name, r[i]->phase, (unsigned long long)r[i]->bytes);
            }
            if (count != others) {
                fail_msg("%s, %s stream of device %d: %d tasks replayed, %d recorded", what, ls_lane_kind_name(kind), d,
                         count, others);
            }
        }
    }
    assert_true(compared >= 2 * 14);
}

/* All device tasks of a step and the next one, device by device and stream by stream. */
static int step_tasks(const ls_trace *trace, int step, int *tasks) {
    int found = 0, count;
    for (int d = 0; d < DEVICES; d++) {
        for (ls_lane_kind kind = LS_LANE_COMPUTE; kind < LS_LANE_COUNT; kind++) {
            for (int l = 0; l < ls_trace_lane_count(trace); l++) {
                const struct ls_lane *lane = ls_trace_lane(trace, l);
                if (lane->kind != kind || lane->device != d) continue;
                const int *all = ls_trace_lane_tasks(trace, l, &count);
                for (int i = 0; i < count; i++) {
                    const struct ls_task *task = ls_trace_task(trace, all[i]);
                    bool counts = (task->step == step || task->step == step + 1) && found < MAX_TASKS;
                    if (counts && !is_between_steps(trace, task)) tasks[found++] = all[i];
                }
            }
        }
    }
    return found;
}

/* For each pair of tasks: whether one must come before the other. If a copy stream's thread was busy, it has run a
 * short copy that the host could have run: then the recorded order requires less. */
static void compare_order(const ls_trace *replayed, const ls_trace *recorded, const char *what) {
    bool has_threads = strcmp(ls_trace_what(recorded)->stream_mode, "threads") == 0;
    int b[MAX_TASKS], r[MAX_TASKS], count = step_tasks(replayed, REPLAYED_STEP, b);
    assert_int_equal(step_tasks(recorded, STEP, r), count);
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < count; j++) {
            bool before = happens_before(replayed, b[i], b[j]);
            bool asked = happens_before(recorded, r[i], r[j]);
            if (before == asked || (has_threads && before)) continue;
            const struct ls_task *first = ls_trace_task(replayed, b[i]), *second = ls_trace_task(replayed, b[j]);
            fail_msg("%s: %s [%s] of device %d must%s come before %s [%s] of device %d, but recorded it %s", what,
                     first->name, first->phase, ls_trace_lane(replayed, first->lane)->device, before ? "" : " not",
                     second->name, second->phase, ls_trace_lane(replayed, second->lane)->device,
                     before ? "need not" : "must");
        }
    }
}

static ls_trace *plan(const ls_workload *w, ls_plan_mode mode, const ls_trace *recorded, const char *options) {
    struct planned b;
    ls_trace *trace;
    planned_begin(&b, mode, DEVICES, BATCH, 1);
    ls_node_change_host(b.node)->runs_compute = true;
    b.options.micro_batches = ls_trace_what(recorded)->micro_batches;
    b.options.sync_bn = strstr(options, "--sync-bn") != NULL;
    b.options.join = strstr(options, "--join") != NULL;
    bool in_line = strcmp(ls_trace_what(recorded)->stream_mode, "inline") == 0;
    ls_node_change_host(b.node)->cores = DEVICES + !in_line;
    assert_int_equal(record_steps(&trace, w, b.node, &b.options), LS_OK);
    planned_end(&b);
    return trace;
}

TEST_IN(programs, replayed_steps_are_the_recorded_ones) {
    static const struct {
        const char *model, *streams;
        int micro_batches;
        const char *dp_options, *ddp_options;
    } cases[] = {{"mlp", "inline", 1, "", "--join"},
                 {"convnet", "threads", 1, "", ""},
                 {"convnet", "inline", 1, "--sync-bn", "--sync-bn"},
                 {"mlp:784,640,640,10", "threads", 1, "", ""},
                 {"mlp", "inline", 2, "", ""},
                 {"gpt:2,4,32,16", "inline", 1, "", ""},
                 {"gpt:2,4,32,16,13,scores", "threads", 1, "", ""}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        ls_workload *w;
        char dp_start[80], ddp_start[80];
        snprintf(dp_start, sizeof dp_start, "LS_CPU_STREAMS=%s dp_train --devices 2", cases[c].streams);
        snprintf(ddp_start, sizeof ddp_start, "LS_CPU_STREAMS=%s ddp_train --spawn 2", cases[c].streams);
        ls_trace *one = record("one", "dp_train --single", cases[c].model, 1, "");
        ls_trace *dp = record("dp", dp_start, cases[c].model, cases[c].micro_batches, cases[c].dp_options);
        ls_trace *ddp = record("ddp", ddp_start, cases[c].model, cases[c].micro_batches, cases[c].ddp_options);
        assert_string_equal(ls_trace_what(dp)->stream_mode, cases[c].streams);
        assert_int_equal(ls_workload_from_trace(&w, one), LS_OK);
        ls_trace *replayed_dp = plan(w, LS_PLAN_DP, dp, cases[c].dp_options);
        ls_trace *replayed_ddp = plan(w, LS_PLAN_DDP, ddp, cases[c].ddp_options);
        compare(replayed_dp, dp, "DataParallel");
        compare(replayed_ddp, ddp, "DistributedDataParallel");
        compare_order(replayed_dp, dp, "DataParallel");
        compare_order(replayed_ddp, ddp, "DistributedDataParallel");
        ls_workload_close(w);
        ls_trace_destroy(one);
        ls_trace_destroy(dp);
        ls_trace_destroy(ddp);
        ls_trace_destroy(replayed_dp);
        ls_trace_destroy(replayed_ddp);
    }
}

/* Tasks and edges without start times give the recorded step's time, if everything runs in the recording threads.
 * (Waits between processes are only as exact as their clocks.) */
TEST_IN(programs, a_step_of_a_gpt_replays_as_itself) {
    static const char *const starts[] = {"LS_CPU_STREAMS=inline dp_train --single",
                                         "LS_CPU_STREAMS=inline dp_train --devices 2"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        ls_timeline *timeline;
        struct ls_account *replayed, *recorded;
        ls_trace *trace = record("gpt", starts[i], "gpt:2,4,32,16", 1, "");
        assert_int_equal(ls_engine_run(&timeline, trace, NULL), LS_OK);
        assert_int_equal(ls_account_make(&replayed, trace, timeline, NULL), LS_OK);
        assert_int_equal(ls_account_recorded(&recorded, trace), LS_OK);
        if (!(fabs(replayed->step_us / recorded->step_us - 1) <= 0.02))
            fail_msg("%s: replayed %g us, recorded %g us", starts[i], replayed->step_us, recorded->step_us);
        ls_account_free(recorded);
        ls_account_free(replayed);
        ls_timeline_free(timeline);
        ls_trace_destroy(trace);
    }
}

/* A trace's facts about a model other than its operations, compared with the model. */
TEST_IN(programs, workloads_from_traces_know_their_model) {
    static const char *const models[] = {"mlp", "convnet"};
    static struct model_work m;
    for (size_t i = 0; i < 2; i++) {
        ls_workload *w;
        ls_trace *trace = record("one", "dp_train --single --optimizer sgd", models[i], 1, "");
        assert_int_equal(ls_workload_from_trace(&w, trace), LS_OK);
        model_work_make(&m, models[i], 0);
        const ls_workload *model = &m.workload;
        assert_true(w->samples == BATCH && w->input_bytes == model->input_bytes);
        assert_true(w->output_bytes == model->output_bytes && w->answer_bytes == model->answer_bytes);
        assert_int_equal(w->parameter_count, model->parameter_count);
        assert_memory_equal(w->parameter_counts, model->parameter_counts,
                            (size_t)w->parameter_count * sizeof *m.counts);
        assert_int_equal(w->ready_count, model->ready_count);
        assert_memory_equal(w->ready, model->ready, (size_t)w->ready_count * sizeof *m.ready);
        assert_true(w->buffer_bytes == model->buffer_bytes && w->optimizer_states == 0);
        double off = fabs(w->activation_bytes - model->activation_bytes) / model->activation_bytes;
        if (!(off <= 0.05))
            fail_msg("%s keeps %g bytes, not %g", models[i], w->activation_bytes, model->activation_bytes);
        off = fabs(w->exchange_bytes - model->exchange_bytes) / model->exchange_bytes;
        if (!(off <= 0.05))
            fail_msg("%s exchanges %g bytes, not %g", models[i], w->exchange_bytes, model->exchange_bytes);
        ls_workload_close(w);
        ls_trace_destroy(trace);
    }
}
