#define _GNU_SOURCE
#include "labs/replay/tables/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/engine/engine.h"
#include "labs/replay/engine/plan.h"

/* A star around the host. Only its links are used. */
static char *star_text(int devices, const ls_hockney *link) {
    char *text = NULL;
    size_t nbytes = 0;
    FILE *file = open_memstream(&text, &nbytes);
    if (!file) return NULL;
    fprintf(
        file,
        "{\"description\": \"a star\", \"devices\": %d, \"device\": {\"name\": \"any\", \"fp32_GFLOPs\": 1, "
        "\"fp16_GFLOPs\": 1, \"memory_GBps\": 1, \"kernel_us\": 0, \"memory_bytes\": 0}, \"host\": {\"launch_us\": 0, "
        "\"event_us\": 0, \"sync_us\": 0, \"hand_over_us\": 0, \"collective_us\": 0, \"lock_us\": 0, "
        "\"runs_compute\": false}, \"collectives\": {\"base_us\": 0, \"hop_us\": 0, \"bus_GBps\": 1, "
        "\"slow_down\": 1}, \"links\": [",
        devices);
    for (int d = 0; d < devices; d++)
        fprintf(
            file,
            "%s{\"name\": \"link%d\", \"from\": \"gpu%d\", \"to\": \"host\", \"GBps\": %.17g, \"latency_us\": %.17g, "
            "\"duplex\": true}",
            d > 0 ? ", " : "", d, d, link->GBps, link->alpha_us / 2);
    fprintf(file, "]");
    static const char *const figures[] = {"device.fp32_GFLOPs", "device.fp16_GFLOPs",   "device.memory_GBps",
                                          "device.kernel_us",   "device.memory_bytes",  "host.launch_us",
                                          "host.event_us",      "host.sync_us",         "host.hand_over_us",
                                          "host.collective_us", "host.lock_us",         "host.runs_compute",
                                          "links.GBps",         "links.latency_us",     "collectives.base_us",
                                          "collectives.hop_us", "collectives.bus_GBps", "collectives.slow_down"};
    fprintf(file, ", \"sources\": {");
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        fprintf(file, "%s\"%s\": \"given\"", i > 0 ? ", " : "", figures[i]);
    fprintf(file, "}}");
    if (fclose(file) == 0) return text;
    free(text);
    return NULL;
}

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
    ls_node *node = NULL;
    ls_trace *trace = NULL;
    ls_timeline *timeline = NULL;
    char *text = star_text(ranks, link);
    ls_status status = text ? ls_node_parse(&node, "star", text, strlen(text))
                            : ls_fail(LS_ERR_NO_MEMORY, "no memory for a node of %d devices", ranks);
    if (status == LS_OK) status = build(&trace, pattern, ranks, bytes);
    if (status == LS_OK) status = ls_engine_run(&timeline, trace, node);
    if (status == LS_OK) *us = timeline->makespan_us;
    ls_timeline_free(timeline);
    ls_trace_destroy(trace);
    ls_node_close(node);
    free(text);
    return status;
}
