#include "tests/replay/scene.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"

void scene_begin(struct scene *scene) {
    *scene = (struct scene){.step = LS_NONE};
    assert_int_equal(ls_trace_create(&scene->trace), LS_OK);
}

void scene_end(struct scene *scene) {
    ls_timeline_free(scene->timeline);
    ls_node_close(scene->node);
    ls_trace_destroy(scene->trace);
}

/* --- building ----------------------------------------------------------------------------------------------------- */

int scene_lane(struct scene *scene, ls_lane_kind kind, int rank, int device) {
    return ls_trace_add_lane(
        scene->trace, &(struct ls_lane){.name = ls_lane_kind_name(kind), .kind = kind, .rank = rank, .device = device});
}

static int add(struct scene *scene, struct ls_task task, double us) {
    task.us = us;
    task.step = scene->step;
    task.phase = scene->phase ? scene->phase : "";
    return ls_trace_add_task(scene->trace, &task);
}

int scene_host(struct scene *scene, int lane, double us) {
    return add(scene, ls_task_default(LS_TASK_HOST, "host", lane), us);
}

int scene_hand_over(struct scene *scene, int lane, double us) {
    struct ls_task task = ls_task_default(LS_TASK_HOST, "hand-over", lane);
    task.hand_over = true;
    return add(scene, task, us);
}

int scene_locked(struct scene *scene, int lane, int lock, double us) {
    struct ls_task task = ls_task_default(LS_TASK_HOST, "launch", lane);
    task.lock = lock;
    return add(scene, task, us);
}

int scene_kernel(struct scene *scene, int lane, double us) {
    return add(scene, ls_task_default(LS_TASK_KERNEL, "kernel", lane), us);
}

int scene_copy(struct scene *scene, int lane, int from, int to, uint64_t bytes) {
    struct ls_task task = ls_task_default(LS_TASK_COPY, "copy", lane);
    task.from = from;
    task.to = to;
    task.bytes = bytes;
    return add(scene, task, -1);
}

int scene_collective(struct scene *scene, int lane, int number, int ranks, double us) {
    struct ls_task task = ls_task_default(LS_TASK_COLLECTIVE, "all_reduce", lane);
    task.meeting = ls_trace_join_meeting(
        scene->trace,
        &(struct ls_meeting){
            .group = "world", .number = (uint32_t)number, .operation = "all_reduce", .algorithm = "", .ranks = ranks});
    return add(scene, task, us);
}

int scene_after(struct scene *scene, int before, int task) {
    ls_trace_add_edge(scene->trace, before, task);
    return task;
}

void scene_node(struct scene *scene, int devices, double slow_down, const struct scene_link *links) {
    char *text;
    size_t nbytes;
    FILE *file = open_memstream(&text, &nbytes);
    assert_non_null(file);
    fprintf(file, "{\"description\": \"a scene\", \"devices\": %d,\n", devices);
    fputs(
        "\"device\": {\"name\": \"any\", \"fp32_GFLOPs\": 1, \"fp16_GFLOPs\": 1, \"memory_GBps\": 1, \"kernel_us\": 0, "
        "\"memory_bytes\": 0},\n\"host\": {\"launch_us\": 0, \"event_us\": 0, \"sync_us\": 0, \"hand_over_us\": 0, "
        "\"collective_us\": 0, \"lock_us\": 0, \"runs_compute\": false},\n\"links\": [",
        file);
    for (int i = 0; links[i].from; i++)
        fprintf(file,
                "%s\n{\"name\": \"link %d\", \"from\": \"%s\", \"to\": \"%s\", \"GBps\": %.17g, \"latency_us\": %.17g, "
                "\"duplex\": %s}",
                i > 0 ? "," : "", i, links[i].from, links[i].to, links[i].GBps, links[i].latency_us,
                links[i].one_way_at_a_time ? "false" : "true");
    fprintf(file,
            "],\n\"collectives\": {\"base_us\": 0, \"hop_us\": 0, \"bus_GBps\": 1, \"slow_down\": %.17g},\n"
            "\"sources\": {\"device\": \"none\", \"host\": \"none\", \"links\": \"none\", \"collectives\": \"none\"}}",
            slow_down);
    fclose(file);
    ls_node_close(scene->node);
    assert_int_equal(ls_node_parse(&scene->node, "scene", text, nbytes), LS_OK);
    free(text);
}

void scene_star(struct scene *scene, int devices, double GBps, double latency_us) {
    struct scene_link links[LS_NODE_MAX_DEVICES + 2] = {{0}}; /* the host, and the terminator */
    char names[LS_NODE_MAX_DEVICES][16];
    links[0] = (struct scene_link){"host", "switch", GBps, latency_us / 2, false};
    for (int i = 0; i < devices; i++) {
        snprintf(names[i], sizeof names[i], "gpu%d", i);
        links[i + 1] = (struct scene_link){names[i], "switch", GBps, latency_us / 2, false};
    }
    scene_node(scene, devices, 1, links);
}

/* --- results ------------------------------------------------------------------------------------------------------ */

void scene_seal(struct scene *scene) { assert_int_equal(ls_trace_seal(scene->trace), LS_OK); }

void scene_run(struct scene *scene) {
    scene_seal(scene);
    assert_int_equal(ls_engine_run(&scene->timeline, scene->trace, scene->node), LS_OK);
}

void scene_expect_refusal(struct scene *scene, const char *text, const char *another) {
    scene_seal(scene);
    scene->timeline = (ls_timeline *)scene; /* to be overwritten */
    assert_int_equal(ls_engine_run(&scene->timeline, scene->trace, scene->node), LS_ERR_INVALID);
    assert_null(scene->timeline);
    scratch_expect_error(text, another);
}

void expect_us(double got_us, double wanted_us) {
    if (!(fabs(got_us - wanted_us) <= 1e-9 * fabs(wanted_us))) fail_msg("%.17g is not %.17g", got_us, wanted_us);
}

void scene_expect(const struct scene *scene, int task, double start_us, double end_us) {
    expect_us(scene->timeline->start_us[task], start_us);
    expect_us(scene->timeline->end_us[task], end_us);
}

/* --- rules that every timeline keeps ------------------------------------------------------------------------------ */

static bool not_before(double late, double early) { return late >= early - 1e-9 * fabs(early); }

static void check_order(const struct scene *scene, int task) {
    const ls_timeline *t = scene->timeline;
    const struct ls_task *it = ls_trace_task(scene->trace, task);
    int count, ranks;
    const int *before = ls_trace_before(scene->trace, task, &count);
    for (int i = 0; i < count; i++) assert_true(t->ready_us[task] >= t->end_us[before[i]]);
    assert_true(t->ready_us[task] >= 0 && t->start_us[task] >= t->ready_us[task]);
    assert_true(t->end_us[task] >= t->start_us[task] && t->end_us[task] <= t->makespan_us);
    if (it->us >= 0 && it->kind != LS_TASK_COLLECTIVE) /* no work is left out */
        assert_true(not_before(t->end_us[task], t->start_us[task] + it->us));
    if (it->kind != LS_TASK_COLLECTIVE) return;
    const int *others = ls_trace_meeting_tasks(scene->trace, it->meeting, &ranks);
    for (int i = 0; i < ranks; i++) {
        assert_true(t->start_us[task] == t->start_us[others[i]] && t->end_us[task] == t->end_us[others[i]]);
        assert_true(t->start_us[task] >= t->ready_us[others[i]]);
    }
}

/* Two tasks that need the same device or lock do not run at the same time. */
static void check_alone(const struct scene *scene, int a, int b) {
    const struct ls_task *one = ls_trace_task(scene->trace, a), *other = ls_trace_task(scene->trace, b);
    const struct ls_lane *lane = ls_trace_lane(scene->trace, one->lane),
                         *lane_b = ls_trace_lane(scene->trace, other->lane);
    if (one->kind != other->kind) return;
    bool device = one->kind == LS_TASK_KERNEL && lane->device == lane_b->device;
    bool lock =
        one->kind == LS_TASK_HOST && one->lock != LS_NONE && one->lock == other->lock && lane->rank == lane_b->rank;
    const ls_timeline *t = scene->timeline;
    if (!device && !lock) return;
    assert_true(t->end_us[a] <= t->start_us[b] || t->end_us[b] <= t->start_us[a]);
    if (t->ready_us[a] < t->ready_us[b])
        assert_true(t->start_us[a] <= t->start_us[b]); /* and the earlier one is first */
}

static void check_links(const struct scene *scene) {
    const ls_timeline *t = scene->timeline;
    double sent = 0, carried = 0;
    for (int i = 0; i < t->task_count; i++) {
        const struct ls_task *task = ls_trace_task(scene->trace, i);
        if (task->kind == LS_TASK_COPY && task->us < 0)
            sent += (double)task->bytes * ls_node_route(scene->node, task->from, task->to)->count;
    }
    for (int link = 0; link < t->link_count; link++) {
        const struct ls_node_link *l = ls_node_link(scene->node, link);
        double bytes = 0;
        for (int way = 0; way < 2; way++) {
            assert_true(t->link_busy_us[way][link] <= t->makespan_us * (1 + 1e-9));
            assert_true(not_before(1e3 * l->GBps * t->link_busy_us[way][link], t->link_bytes[way][link]));
            bytes += t->link_bytes[way][link];
        }
        if (!l->duplex) assert_true(not_before(1e3 * l->GBps * t->makespan_us, bytes));
        carried += bytes;
    }
    expect_us(carried, sent);
}

void scene_check(const struct scene *scene) {
    for (int lane = 0, count; lane < ls_trace_lane_count(scene->trace); lane++) {
        const int *tasks = ls_trace_lane_tasks(scene->trace, lane, &count);
        for (int i = 1; i < count; i++)
            assert_true(scene->timeline->ready_us[tasks[i]] >= scene->timeline->end_us[tasks[i - 1]]);
    }
    for (int i = 0; i < scene->timeline->task_count; i++) {
        check_order(scene, i);
        for (int j = 0; j < i; j++) check_alone(scene, i, j);
    }
    if (scene->node) check_links(scene);
}
