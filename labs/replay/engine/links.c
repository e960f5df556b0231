/* links — max-min fair rates by progressive filling.
 *   idea  : raise the rates of all flows together until a link is full. The rates of its flows are then fixed; the
 *           others keep rising, until all are fixed. The link that is full first is the one with the least (rate left)
 *           / (flows not fixed yet), so each round finds that link and fixes its flows
 *   terms : resource = a link in one direction, or both directions of one that is not duplex, with a capacity in bytes
 *           per microsecond; hop = one flow on one resource, and a member of that resource's list; component = flows
 *           and resources that are connected by hops. Changes in one component affect no rate in another
 *   cost  : of a recomputation, in the components that changed: flows x their hops, + resources x rounds (one per full
 *           link)
 *   order : resources and flows are visited in the order of their lists, which depends only on the calls made: the same
 *           calls give the same bits
 *   exact : a flow ends at the time computed for it, not when its remaining bytes seem to be 0, so rounding can neither
 *           lose a flow nor keep it for ever; a flow whose rate does not change keeps its end; and since no round may
 *           give less than the one before, rounding cannot leave a flow without a rate */
#include "labs/replay/engine/links.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/log.h"

#define NO_HOP (-1)

struct resource {
    double capacity; /* bytes per microsecond */
    int first_hop;
    bool changed;
    unsigned met; /* the last search that visited it */
    /* while rates are computed */
    double left;
    int open; /* hops whose flow has no rate yet */
};

/* Hop h of flow f has number f * LS_NODE_MAX_ROUTE + h. */
struct flow {
    const struct ls_route *route;
    uint64_t bytes;
    double left_bytes, since_us; /* left at since_us */
    double rate, end_us;
    double new_rate; /* < 0: none yet */
    unsigned met;
    int resource[LS_NODE_MAX_ROUTE], after[LS_NODE_MAX_ROUTE], before[LS_NODE_MAX_ROUTE]; /* of each hop */
};

/* A link in one direction, for the records. */
struct direction {
    int flows;
    double since_us, busy_us, bytes;
};

struct ls_links {
    const ls_node *node;
    struct resource *resources; /* 2 of each link; of a link that is not duplex, the second has no hops */
    struct direction *directions;
    struct flow *flows;
    unsigned search;
    int *changed, *component, *held, *moved; /* resources; resources; flows; flows */
    int changed_count, component_count, held_count, moved_count;
};

static ls_status check_links(const ls_node *node) {
    for (int i = 0; i < ls_node_link_count(node); i++) {
        const struct ls_node_link *link = ls_node_link(node, i);
        if (!(link->GBps > 0) || !isfinite(link->GBps) || !(link->latency_us >= 0) || !isfinite(link->latency_us))
            return ls_fail(LS_ERR_INVALID, "node %s: link %s has %g GB/s and %g us; expected finite positive rates",
                           ls_node_name(node), link->name, link->GBps, link->latency_us);
    }
    return LS_OK;
}

static bool allocate(ls_links *links, size_t directions, size_t flows) {
    links->resources = calloc(directions + 1, sizeof *links->resources); /* + 1: not 0 without links */
    links->directions = calloc(directions + 1, sizeof *links->directions);
    links->changed = calloc(directions + 1, sizeof *links->changed);
    links->component = calloc(directions + 1, sizeof *links->component);
    links->flows = calloc(flows + 1, sizeof *links->flows);
    links->held = calloc(flows + 1, sizeof *links->held);
    links->moved = calloc(flows + 1, sizeof *links->moved);
    return links->resources && links->directions && links->changed && links->component && links->flows && links->held &&
           links->moved;
}

ls_status ls_links_create(ls_links **out, const ls_node *node, int flow_count) {
    *out = NULL;
    int link_count = node ? ls_node_link_count(node) : 0;
    ls_status status = node ? check_links(node) : LS_OK;
    if (status != LS_OK) return status;
    ls_links *links = calloc(1, sizeof *links);
    if (!links || !allocate(links, 2 * (size_t)link_count, node ? (size_t)flow_count : 0)) {
        ls_links_destroy(links);
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for %d transfers over %d links", flow_count,
                       link_count);
    }
    links->node = node;
    for (int i = 0; i < 2 * link_count; i++) {
        links->resources[i].capacity = 1e3 * ls_node_link(node, i / 2)->GBps; /* 1e9 bytes/s = 1e3 bytes/us */
        links->resources[i].first_hop = NO_HOP;
    }
    *out = links;
    return LS_OK;
}

void ls_links_destroy(ls_links *links) {
    if (!links) return;
    free(links->resources);
    free(links->directions);
    free(links->changed);
    free(links->component);
    free(links->flows);
    free(links->held);
    free(links->moved);
    free(links);
}

/* --- flows in flight --------------------------------------------------------------------------------------------- */

static int direction_of(int link, bool forwards) { return 2 * link + (forwards ? 0 : 1); }

static struct flow *flow_of(const ls_links *links, int hop) { return &links->flows[hop / LS_NODE_MAX_ROUTE]; }

static void mark_changed(ls_links *links, int resource) {
    if (links->resources[resource].changed) return;
    links->resources[resource].changed = true;
    links->changed[links->changed_count++] = resource;
}

static void add_hop(ls_links *links, int resource, int hop) {
    struct flow *flow = flow_of(links, hop);
    int h = hop % LS_NODE_MAX_ROUTE, first = links->resources[resource].first_hop;
    flow->resource[h] = resource;
    flow->before[h] = NO_HOP;
    flow->after[h] = first;
    if (first != NO_HOP) flow_of(links, first)->before[first % LS_NODE_MAX_ROUTE] = hop;
    links->resources[resource].first_hop = hop;
    mark_changed(links, resource);
}

static void remove_hop(ls_links *links, int hop) {
    const struct flow *flow = flow_of(links, hop);
    int h = hop % LS_NODE_MAX_ROUTE, before = flow->before[h], after = flow->after[h];
    if (before != NO_HOP)
        flow_of(links, before)->after[before % LS_NODE_MAX_ROUTE] = after;
    else
        links->resources[flow->resource[h]].first_hop = after;
    if (after != NO_HOP) flow_of(links, after)->before[after % LS_NODE_MAX_ROUTE] = before;
    mark_changed(links, flow->resource[h]);
}

void ls_links_begin(ls_links *links, int flow, const struct ls_route *route, uint64_t bytes, double now_us) {
    struct flow *f = &links->flows[flow];
    *f = (struct flow){
        .route = route, .bytes = bytes, .left_bytes = (double)bytes, .since_us = now_us, .end_us = INFINITY};
    for (int h = 0; h < route->count; h++) {
        int link = route->link[h];
        bool one = !ls_node_link(links->node, link)->duplex;
        add_hop(links, one ? direction_of(link, true) : direction_of(link, route->forwards[h]),
                flow * LS_NODE_MAX_ROUTE + h);
        struct direction *direction = &links->directions[direction_of(link, route->forwards[h])];
        if (direction->flows++ == 0) direction->since_us = now_us;
    }
}

void ls_links_end(ls_links *links, int flow, double now_us) {
    const struct ls_route *route = links->flows[flow].route;
    for (int h = 0; h < route->count; h++) {
        remove_hop(links, flow * LS_NODE_MAX_ROUTE + h);
        struct direction *direction = &links->directions[direction_of(route->link[h], route->forwards[h])];
        direction->bytes += (double)links->flows[flow].bytes;
        if (--direction->flows == 0) direction->busy_us += now_us - direction->since_us;
    }
}

/* --- rates -------------------------------------------------------------------------------------------------------- */

static void meet_resource(ls_links *links, int resource) {
    if (links->resources[resource].met == links->search) return;
    links->resources[resource].met = links->search;
    links->component[links->component_count++] = resource;
}

static void meet_flow(ls_links *links, int flow) {
    struct flow *f = &links->flows[flow];
    if (f->met == links->search) return;
    f->met = links->search;
    f->new_rate = -1;
    links->held[links->held_count++] = flow;
    for (int h = 0; h < f->route->count; h++) meet_resource(links, f->resource[h]);
}

/* Finds the component of `resource`. */
static void find_component(ls_links *links, int resource) {
    links->component_count = links->held_count = 0;
    meet_resource(links, resource);
    for (int i = 0; i < links->component_count; i++) {
        struct resource *r = &links->resources[links->component[i]];
        r->left = r->capacity;
        r->open = 0;
        for (int hop = r->first_hop; hop != NO_HOP; hop = flow_of(links, hop)->after[hop % LS_NODE_MAX_ROUTE]) {
            r->open++;
            meet_flow(links, hop / LS_NODE_MAX_ROUTE);
        }
    }
}

/* The resource that is full first when the rates of all flows that have none yet rise together. */
static const struct resource *first_full(const ls_links *links) {
    const struct resource *full = NULL;
    for (int i = 0; i < links->component_count; i++) {
        const struct resource *r = &links->resources[links->component[i]];
        if (r->open > 0 && (!full || r->left / r->open < full->left / full->open)) full = r;
    }
    return full;
}

static void fix_rate(ls_links *links, struct flow *flow, double rate) {
    flow->new_rate = rate;
    for (int h = 0; h < flow->route->count; h++) {
        links->resources[flow->resource[h]].left -= rate;
        links->resources[flow->resource[h]].open--;
    }
}

static void fill(ls_links *links) {
    double rate = 0;
    for (const struct resource *full; (full = first_full(links));) {
        rate = fmax(rate, full->left / full->open);
        for (int hop = full->first_hop, next; hop != NO_HOP; hop = next) {
            struct flow *flow = flow_of(links, hop);
            next = flow->after[hop % LS_NODE_MAX_ROUTE];
            if (flow->new_rate < 0) fix_rate(links, flow, rate);
        }
    }
}

static void take_new_rates(ls_links *links, double now_us) {
    for (int i = 0; i < links->held_count; i++) {
        struct flow *flow = &links->flows[links->held[i]];
        if (flow->new_rate == flow->rate) continue;
        flow->left_bytes = fmax(0, flow->left_bytes - flow->rate * (now_us - flow->since_us));
        flow->since_us = now_us;
        flow->rate = flow->new_rate;
        flow->end_us = now_us + flow->left_bytes / flow->rate;
        links->moved[links->moved_count++] = links->held[i];
    }
}

bool ls_links_changed(const ls_links *links) { return links->changed_count > 0; }

const int *ls_links_share(ls_links *links, double now_us, int *count) {
    links->moved_count = 0;
    links->search++;
    for (int i = 0; i < links->changed_count; i++) {
        int resource = links->changed[i];
        links->resources[resource].changed = false;
        if (links->resources[resource].met == links->search) continue;
        find_component(links, resource);
        fill(links);
        take_new_rates(links, now_us);
    }
    links->changed_count = 0;
    *count = links->moved_count;
    return links->moved;
}

double ls_links_end_us(const ls_links *links, int flow) { return links->flows[flow].end_us; }

double ls_links_bytes(const ls_links *links, int link, bool forwards) {
    return links->directions[direction_of(link, forwards)].bytes;
}

double ls_links_busy_us(const ls_links *links, int link, bool forwards) {
    return links->directions[direction_of(link, forwards)].busy_us;
}
