#include "tests/replay/planned.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/replay/record/record.h"
#include "tests/base/test.h"
#include "tests/trace/happens_before.h"

static ls_node *make_node(int devices, double GBps) {
    char text[8000];
    ls_node *node = NULL;
    size_t length = (size_t)snprintf(
        text, sizeof text,
        "{\"description\": \"a star\", \"devices\": %d, \"device\": {\"name\": \"any\", \"fp32_GFLOPs\": 1000, "
        "\"fp16_GFLOPs\": 1000, \"memory_GBps\": 1e6, \"kernel_us\": 0, \"memory_bytes\": 0}, \"host\": "
        "{\"launch_us\": 0, "
        "\"event_us\": 0, \"sync_us\": 0, \"hand_over_us\": 0, \"collective_us\": 0, \"lock_us\": 0, \"runs_compute\": "
        "false},"
        "\"collectives\": {\"base_us\": 10, \"hop_us\": 1, \"bus_GBps\": 1, \"slow_down\": 1},\"sources\": "
        "{\"device\": "
        "\"none\", \"host\": \"none\", \"links\": \"none\", \"collectives\": \"none\"}, \"links\": [",
        devices);
    for (int d = -1; d < devices; d++) {
        char from[16] = "host";
        if (d >= 0) snprintf(from, sizeof from, "gpu%d", d);
        length += (size_t)snprintf(text + length, sizeof text - length,
                                   "%s{\"name\": \"%s\", \"from\": \"%s\", \"to\": \"switch\", \"GBps\": %.17g, "
                                   "\"latency_us\": 0, \"duplex\": true}",
                                   d >= 0 ? "," : "", from, from, GBps);
    }
    length += (size_t)snprintf(text + length, sizeof text - length, "]}");
    assert_true(length < sizeof text);
    assert_int_equal(ls_node_parse(&node, "star", text, length), LS_OK);
    ls_node_change_device(node)->memory_GBps = 1e18;
    return node;
}

void planned_begin(struct planned *b, ls_plan_mode mode, int devices, double batch, double GBps) {
    *b = (struct planned){.node = make_node(devices, GBps), .options = ls_plan_defaults(mode, devices, batch)};
    b->workload = (ls_workload){.name = "chain",
                                .source = "a test",
                                .samples = 1,
                                .work = b->work,
                                .parameter_names = b->names,
                                .parameter_counts = b->counts,
                                .ready = b->ready,
                                .element_bytes = 4};
}

static struct ls_work *add_work(struct planned *b, const char *name, const char *phase, double us) {
    struct ls_work *work = &b->work[b->workload.work_count++];
    *work = (struct ls_work){.name = name, .phase = phase, .us = us, .host_us = -1};
    return work;
}

void planned_network(struct planned *b, const struct planned_layer *layers, int count, double loss_us,
                     double optimizer_us) {
    b->workload.work_count = 0;
    b->workload.parameter_count = b->workload.ready_count = count;
    for (int l = 0; l < count; l++) {
        (void)add_work(b, "layer", "forward", layers[l].forward_us);
        b->names[l] = "layer.weight";
        b->counts[l] = layers[l].count;
    }
    (void)add_work(b, "loss", "loss", loss_us);
    for (int l = count; l > 0; l--) {
        struct ls_work *work = add_work(b, "layer", "backward", layers[l - 1].backward_us);
        work->first_ready = count - l;
        work->ready_count = 1;
        b->ready[count - l] = l - 1;
    }
    (void)add_work(b, "update", "optimizer", optimizer_us);
}

void planned_end(struct planned *b) {
    ls_timeline_free(b->timeline);
    ls_trace_destroy(b->trace);
    ls_node_close(b->node);
}

void planned_make(struct planned *b) {
    ls_timeline_free(b->timeline);
    ls_trace_destroy(b->trace);
    b->timeline = NULL;
    assert_int_equal(record_steps(&b->trace, &b->workload, b->node, &b->options), LS_OK);
}

void planned_run(struct planned *b) {
    planned_make(b);
    assert_int_equal(ls_engine_run(&b->timeline, b->trace, b->node), LS_OK);
}

static int search(const struct planned *b, int device, ls_lane_kind kind, int step, const char *phase, const char *name,
                  int n, int *found) {
    *found = 0;
    for (int t = 0; t < ls_trace_task_count(b->trace); t++) {
        const struct ls_task *task = ls_trace_task(b->trace, t);
        const struct ls_lane *lane = ls_trace_lane(b->trace, task->lane);
        bool here = lane->device == device && lane->kind == kind && task->step == step;
        if (!here || (phase && strcmp(task->phase, phase) != 0) || (name && strcmp(task->name, name) != 0)) continue;
        if ((*found)++ == n) return t;
    }
    return LS_NONE;
}

int planned_find(const struct planned *b, int device, ls_lane_kind lane, int step, const char *phase, const char *name,
                 int n) {
    int found;
    return search(b, device, lane, step, phase, name, n, &found);
}

int planned_count(const struct planned *b, int device, ls_lane_kind lane, int step, const char *phase,
                  const char *name) {
    int found;
    (void)search(b, device, lane, step, phase, name, -1, &found);
    return found;
}

bool planned_before(const struct planned *b, int first, int second) {
    assert_true(first >= 0);
    assert_true(second >= 0);
    return happens_before(b->trace, first, second);
}

void planned_expect_us(double got_us, double wanted_us) {
    if (!(fabs(got_us - wanted_us) <= 1e-9 * fabs(wanted_us))) fail_msg("%.17g us, not %.17g", got_us, wanted_us);
}
