#include "labs/replay/tables/messages.h"

#include "labs/replay/engine/engine.h"
#include "labs/replay/engine/library.h"
#include "labs/replay/engine/plan.h"

static ls_status build(ls_trace **out, ls_pattern pattern, int ranks, double bytes) {
    int lanes[LS_NODE_MAX_DEVICES], tasks[LS_NODE_MAX_DEVICES];
    ls_trace *trace;
    *out = NULL;
    ls_status status = ls_trace_create(&trace);
    if (status != LS_OK) return status;
    for (int r = 0; r < ranks; r++) {
        const struct ls_lane lane = {.name = "comm", .kind = LS_LANE_COMM, .rank = r, .device = r};
        lanes[r] = ls_trace_add_lane(trace, &lane);
        tasks[r] = LS_NONE;
    }
    struct ls_trace_about *about = ls_trace_about(trace);
    about->devices = about->world_size = ranks;
    ls_plan_messages(trace, pattern, lanes, tasks, ranks, bytes, 0);
    status = ls_trace_seal(trace);
    if (status == LS_OK) {
        *out = trace;
    } else {
        ls_trace_destroy(trace);
    }
    return status;
}

ls_status tables_message_us(double *us, ls_pattern pattern, int ranks, double bytes, const ls_hockney *link) {
    char path[LS_SHIPPED_PATH];
    ls_node *node = NULL;
    ls_trace *trace = NULL;
    ls_timeline *timeline = NULL;
    ls_status status = ls_library_find(path, "labs/replay/tables", "star");
    if (status == LS_OK) status = ls_node_open(&node, path);
    if (status == LS_OK) ls_node_change_links(node, link->GBps, link->alpha_us);
    if (status == LS_OK) status = build(&trace, pattern, ranks, bytes);
    if (status == LS_OK) status = ls_engine_run(&timeline, trace, node);
    if (status == LS_OK) *us = timeline->makespan_us;
    ls_timeline_free(timeline);
    ls_trace_destroy(trace);
    ls_node_close(node);
    return status;
}
