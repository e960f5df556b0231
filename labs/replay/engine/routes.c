/* routes — finds the links that a transfer crosses.
 *   idea  : from each device and from the host, breadth first over the links. All vertices at the same distance make a
 *           level; a vertex of the next level is reached from the vertex of this one that gives the least latency, then
 *           the widest route (its narrowest link counts), then by the link that comes first in the file. The best route
 *           to a vertex begins with the best route to the one before it, so a search level by level finds it
 *   ends  : devices do not forward: only the host and switches lead to further levels, as GPUs do not forward either. A
 *           copy between devices without a link or switch in common goes through the host
 *   cost  : devices x levels x links
 *   fails : if a device cannot be reached, or only over more than LS_NODE_MAX_ROUTE links */
#include <stdlib.h>

#include "labs/replay/engine/node_internal.h"

/* The best route found so far from a source to a vertex. */
struct way {
    int level;    /* number of links; -1: no route found */
    int via;      /* the last of them, and */
    int previous; /* the vertex before it */
    double latency_us, GBps;
};

static bool is_better(const struct way *a, const struct way *b) {
    if (b->level < 0) return true;
    return a->latency_us < b->latency_us || (a->latency_us == b->latency_us && a->GBps > b->GBps);
}

/* Tries to reach `to` by crossing a link at `from`, which is of the level before. */
static bool try_link(const ls_node *node, struct way *ways, int from, int to, int link, int level) {
    const struct ls_node_link *crossed = &node->links[link];
    const struct way *before = &ways[from];
    bool passes_on = level == 1 || from >= node->device_count;
    if (before->level != level - 1 || !passes_on) return false;
    if (ways[to].level >= 0 && ways[to].level < level) return false;
    struct way way = {level, link, from, before->latency_us + crossed->latency_us, before->GBps};
    if (level == 1 || crossed->GBps < way.GBps) way.GBps = crossed->GBps;
    if (!is_better(&way, &ways[to])) return false;
    ways[to] = way;
    return true;
}

static void find_ways(const ls_node *node, int source, struct way ways[LS_NODE_MAX_VERTICES]) {
    for (int v = 0; v < node->vertex_count; v++) ways[v] = (struct way){.level = -1};
    ways[source].level = 0;
    bool found = true;
    for (int level = 1; found; level++) {
        found = false;
        for (int i = 0; i < node->link_count; i++) {
            int from = node->links[i].from, to = node->links[i].to;
            if (try_link(node, ways, from, to, i, level)) found = true;
            if (try_link(node, ways, to, from, i, level)) found = true;
        }
    }
}

/* Writes the route, from its end to its source. */
static ls_status keep(const ls_node *node, struct ls_route *route, const struct way *ways, int source, int to) {
    const cJSON *links = cJSON_GetObjectItemCaseSensitive(ls_json_root(node->json), "links");
    const char *begin = node->vertices[source], *end = node->vertices[to];
    if (ways[to].level < 0)
        ls_json_refuse(node->json, links, "%s and %s are not joined by links (devices pass nothing on)", begin, end);
    if (ways[to].level > LS_NODE_MAX_ROUTE)
        ls_json_refuse(node->json, links, "there are more than %d links from %s to %s", LS_NODE_MAX_ROUTE, begin, end);
    if (ls_json_failed(node->json)) return LS_ERR_INVALID;
    *route = (struct ls_route){.count = ways[to].level, .latency_us = ways[to].latency_us};
    for (int v = to; v != source; v = ways[v].previous) {
        int place = ways[v].level - 1;
        route->link[place] = ways[v].via;
        route->forwards[place] = node->links[ways[v].via].to == v;
    }
    return LS_OK;
}

ls_status ls_node_find_routes(ls_node *node) {
    int ends = node->device_count + 1; /* the devices and the host */
    node->routed = node->device_count;
    struct way *ways = calloc(LS_NODE_MAX_VERTICES, sizeof *ways);
    node->routes = calloc((size_t)ends * (size_t)ends, sizeof *node->routes);
    ls_status status = ways && node->routes ? LS_OK : LS_ERR_NO_MEMORY;
    for (int from = 0; from < ends && status == LS_OK; from++) {
        find_ways(node, from, ways);
        for (int to = 0; to < ends && status == LS_OK; to++)
            status = keep(node, &node->routes[from * ends + to], ways, from, to);
    }
    free(ways);
    return status;
}
