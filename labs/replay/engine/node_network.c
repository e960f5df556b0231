/* node_network — the second level: nodes that a network connects (node.h).
 *   keep   : a job that uses only some of each node's devices runs on smaller nodes
 *   view   : a group's share of its nodes and of their network. A ring enters each node once per turn, so a node sends
 *            as much as one of its ranks; groups in the same nodes share the network evenly
 *   routes : a message to another node goes to its host as a copy would, over its node's network link, over the switch
 *            if that is a limit, and to the device at the other end. Transfers share the rates of links (links.h), so a
 *            node's transfers share its network link, and those of all nodes the switch
 *   cost   : a copy of the node for a view; a pass over each pair of devices for routes */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/trace/trace.h"
#include "labs/replay/engine/node_internal.h"

/* --- fewer devices ------------------------------------------------------------------------------------------------ */

/* Drops rows of more ranks than are left, if they were ranks of one node. */
static void drop_rows(struct ls_node_measured *rows, struct ls_node_table *table, int left, int before) {
    int kept = 0;
    for (int i = 0; i < table->count; i++)
        if (rows[i].ranks <= left || rows[i].ranks > before) rows[kept++] = rows[i];
    *table = (struct ls_node_table){kept > 0 ? rows : NULL, kept};
}

/* The routes are moved up; the host's are the last. */
ls_status ls_node_keep(ls_node *node, int devices) {
    int before = node->device_count;
    if (devices > before)
        return ls_fail(LS_ERR_INVALID, "%s has %d devices in each node, not %d", node->name, before, devices);
    for (int from = 0; from <= devices; from++) {
        for (int to = 0; to <= devices; to++) {
            int old_from = from < devices ? from : before, old_to = to < devices ? to : before;
            node->routes[from * (devices + 1) + to] = node->routes[old_from * (before + 1) + old_to];
        }
    }
    for (int i = 0; i < LS_NODE_OPERATIONS; i++)
        drop_rows(node->tables[i], &node->collectives.tables[i], devices, before);
    node->device_count = node->routed = devices;
    return LS_OK;
}

/* --- views -------------------------------------------------------------------------------------------------------- */

static bool has_ranks(const struct ls_node_table *table, int ranks) {
    for (int i = 0; i < table->count; i++)
        if (table->rows[i].ranks == ranks) return true;
    return false;
}

ls_status ls_node_view(ls_node **out, const ls_node *node, int ranks, int stride, int nodes) {
    int devices = node->device_count, own = stride < devices ? devices / stride : 1;
    bool beyond = ranks > own, aligned = stride < devices ? devices % stride == 0 : stride % devices == 0;
    *out = NULL;
    if (beyond && !aligned)
        return ls_fail(LS_ERR_INVALID, "groups of ranks that are %d apart differ between nodes of %d devices", stride,
                       devices);
    ls_node *view = malloc(sizeof *view);
    if (!view) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a view of the node %s", node->name);
    *view = *node;
    view->json = NULL;
    view->name = NULL;
    view->routes = NULL;
    view->link_names = NULL;
    memset(view->tables, 0, sizeof view->tables);
    view->device_count = own;
    struct ls_node_collectives *seen = &view->collectives;
    seen->network_GBps =
        fmin(seen->network_GBps, seen->network_switch_GBps / nodes) / (stride < devices ? stride : devices);
    if (beyond && stride > 1) memset(seen->tables, 0, sizeof seen->tables);
    if (beyond && has_ranks(&seen->tables[LS_NODE_BETWEEN], ranks))
        seen->tables[LS_NODE_ALL_REDUCE] = seen->tables[LS_NODE_BETWEEN];
    *out = view;
    return LS_OK;
}

/* --- routes ------------------------------------------------------------------------------------------------------- */

/* Links of one node are followed by those of the next, then by the nodes' network links, then by the switch. */
struct network {
    ls_node *node;
    int nodes, links; /* links of one node */
    struct ls_route *routes;
};

static void add_link(ls_node *node, struct ls_node_link link, const char *name) {
    char *to = node->link_names[node->link_count];
    snprintf(to, LS_NODE_VERTEX_CAPACITY, "%s", name);
    link.name = to;
    node->links[node->link_count++] = link;
}

static void add_links(struct network *n) {
    const struct ls_node_collectives *figures = &n->node->collectives;
    struct ls_node_link link = {.GBps = figures->network_GBps, .duplex = true};
    char name[LS_NODE_VERTEX_CAPACITY];
    for (int k = 1; k < n->nodes; k++) {
        for (int i = 0; i < n->links; i++) {
            snprintf(name, sizeof name, "%d:%.32s", k, n->node->links[i].name);
            add_link(n->node, n->node->links[i], name);
        }
    }
    for (int k = 0; k < n->nodes; k++) {
        snprintf(name, sizeof name, "network %d", k);
        add_link(n->node, link, name);
    }
    link.GBps = figures->network_switch_GBps;
    if (isfinite(link.GBps)) add_link(n->node, link, "switch");
}

/* Appends a route of the first node, translated to node k. */
static void append(struct network *n, struct ls_route *route, const struct ls_route *more, int k) {
    for (int i = 0; i < more->count && route->count < LS_NODE_MAX_ROUTE; i++, route->count++) {
        route->link[route->count] = k * n->links + more->link[i];
        route->forwards[route->count] = more->forwards[i];
    }
}

static void append_network(struct network *n, struct ls_route *route, int link, bool forwards) {
    append(n, route, &(struct ls_route){.count = 1, .link = {link}, .forwards = {forwards}}, 0);
}

static void route_between(struct network *n, struct ls_route *route, int from, int to) {
    int devices = n->node->device_count, out = from / devices, in = to / devices;
    const struct ls_route *up = ls_node_route(n->node, from % devices, LS_HOST_MEMORY);
    const struct ls_route *down = ls_node_route(n->node, LS_HOST_MEMORY, to % devices);
    append(n, route, up, out);
    append_network(n, route, n->nodes * n->links + out, true);
    if (isfinite(n->node->collectives.network_switch_GBps)) append_network(n, route, n->nodes * (n->links + 1), true);
    append_network(n, route, n->nodes * n->links + in, false);
    append(n, route, down, in);
    route->latency_us = n->node->collectives.hop_us + n->node->collectives.network_hop_us;
}

static void route_within(struct network *n, struct ls_route *route, int from, int to, int k) {
    int devices = n->node->device_count, host = devices * n->nodes;
    const struct ls_route *own = ls_node_route(n->node, from == host ? LS_HOST_MEMORY : from % devices,
                                               to == host ? LS_HOST_MEMORY : to % devices);
    append(n, route, own, k);
    route->latency_us = own->latency_us;
}

static void find_routes(struct network *n) {
    int devices = n->node->device_count, host = devices * n->nodes;
    for (int from = 0; from <= host; from++) {
        for (int to = 0; to <= host; to++) {
            struct ls_route *route = &n->routes[from * (host + 1) + to];
            bool one_node = from == host || to == host || from / devices == to / devices;
            if (one_node)
                route_within(n, route, from, to, from < host ? from / devices : to < host ? to / devices : 0);
            else
                route_between(n, route, from, to);
        }
    }
}

/* The number of links on the longest route from one node to another. */
static int longest_way(const ls_node *node) {
    int up = 0, down = 0;
    for (int d = 0; d < node->device_count; d++) {
        int to_host = ls_node_route(node, d, LS_HOST_MEMORY)->count,
            back = ls_node_route(node, LS_HOST_MEMORY, d)->count;
        if (to_host > up) up = to_host;
        if (back > down) down = back;
    }
    return up + 2 + isfinite(node->collectives.network_switch_GBps) + down;
}

ls_status ls_node_repeat(ls_node *node, int nodes) {
    struct network n = {.node = node, .nodes = nodes, .links = node->link_count};
    int devices = node->device_count * nodes, links = nodes * (n.links + 1) + 1;
    if (!(node->collectives.network_GBps > 0))
        return ls_fail(LS_ERR_INVALID, "%s has %d devices, but no network to other nodes", node->name,
                       node->device_count);
    if (devices > LS_NODE_MAX_DEVICES || links > LS_NODE_MAX_LINKS || longest_way(node) > LS_NODE_MAX_ROUTE)
        return ls_fail(LS_ERR_INVALID,
                       "messages between %d nodes of %s are too many to model: at most %d devices, %d links, and %d of "
                       "these one after another",
                       nodes, node->name, LS_NODE_MAX_DEVICES, LS_NODE_MAX_LINKS, LS_NODE_MAX_ROUTE);
    n.routes = calloc((size_t)(devices + 1) * (size_t)(devices + 1), sizeof *n.routes);
    node->link_names = calloc(LS_NODE_MAX_LINKS, sizeof *node->link_names);
    if (!n.routes || !node->link_names) {
        free(n.routes);
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the routes of %d devices", devices);
    }
    add_links(&n);
    find_routes(&n);
    free(node->routes);
    node->routes = n.routes;
    node->routed = devices;
    return LS_OK;
}
