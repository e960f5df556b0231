/* Node files: a node that opens has finite figures within their limits, paths that connect all its devices, and costs
 * that are positive and finite. (They are read by common/base/json.h, so this tests the JSON reader, too.) */
#include <math.h>

#include "common/trace/trace.h"
#include "labs/replay/engine/cost.h"
#include "tests/fuzz/targets/targets.h"

static void check_route(const ls_node *node, int from, int to) {
    const struct ls_route *route = ls_node_route(node, from, to);
    int host = ls_node_device_count(node), at = from == LS_HOST_MEMORY ? host : from;
    fuzz_require(route && route->count >= 0 && route->count <= LS_NODE_MAX_ROUTE, "a route is there and not too long");
    for (int i = 0; i < route->count; i++) {
        const struct ls_node_link *link = ls_node_link(node, route->link[i]);
        fuzz_require(link && (route->forwards[i] ? link->from : link->to) == at, "a route hangs together");
        fuzz_require(i == 0 || at >= host, "devices pass nothing on");
        at = route->forwards[i] ? link->to : link->from;
    }
    fuzz_require(at == (to == LS_HOST_MEMORY ? host : to), "a route ends where it should");
    fuzz_require(isfinite(route->latency_us) && route->latency_us >= 0, "a route's latency is finite");
}

static void check_costs(const ls_node *node) {
    static const double bytes[] = {0, 1, 1e3, 1e6, 1e12};
    for (size_t b = 0; b < sizeof bytes / sizeof *bytes; b++) {
        double us = ls_cost_kernel_us(node, bytes[b], bytes[b], b % 2, LS_FP32);
        fuzz_require(isfinite(us) && us >= 0, "a kernel's cost is finite");
        for (int ranks = 1; ranks < 20; ranks += 3) {
            us = ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, ranks, bytes[b]);
            fuzz_require(isfinite(us) && us >= 0, "an all-reduce's cost is finite");
        }
    }
}

void fuzz_node(const uint8_t *data, size_t nbytes) {
    ls_node *node = NULL;
    ls_status status = ls_node_parse(&node, "node", (const char *)data, nbytes);
    fuzz_require((status == LS_OK) == (node != NULL), "a node is there if and only if it was read");
    if (!node) return;
    int devices = ls_node_device_count(node);
    fuzz_require(devices >= 1 && devices <= LS_NODE_MAX_DEVICES, "a node has 1 to 64 devices");
    for (int from = LS_HOST_MEMORY; from < devices; from++)
        for (int to = LS_HOST_MEMORY; to < devices; to++) check_route(node, from, to);
    check_costs(node);
    ls_node_close(node);
}
