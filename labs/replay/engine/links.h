/* links — transfers that share a node's links fairly, and the bytes that each link carried.
 *
 * A flow is one transfer in flight: a number of bytes over a route. Flows that cross the same link in the same
 * direction (of a link that is not duplex: in any) share its rate, max-min fair: no flow can have more without taking
 * it from one that has no more. Rates hold until a flow begins or ends. Time never decreases from call to call. */
#ifndef LABS_REPLAY_ENGINE_LINKS_H
#define LABS_REPLAY_ENGINE_LINKS_H

#include "labs/replay/engine/node.h"

typedef struct ls_links ls_links;

/* For flows numbered from 0 to flow_count - 1. The caller owns `node`; NULL: no links. LS_ERR_INVALID: a link that
 * carries nothing in finite time (rate or latency not finite, or no rate); LS_ERR_NO_MEMORY. */
ls_status ls_links_create(ls_links **out, const ls_node *node, int flow_count);
void ls_links_destroy(ls_links *links); /* NULL is a no-op */

/* Begins a flow that is not in flight; or ends one that has carried all of its bytes, at now_us. `route` must have
 * links and stay valid meanwhile. */
void ls_links_begin(ls_links *links, int flow, const struct ls_route *route, uint64_t bytes, double now_us);
void ls_links_end(ls_links *links, int flow, double now_us);

/* Whether a flow has begun or ended since rates were computed. */
bool ls_links_changed(const ls_links *links);

/* Recomputes the rates of all flows that are connected, by shared links, to one that began or ended. Returns the flows
 * whose end changes, valid until the next call, and their number. Several changes of the same moment need one call. */
const int *ls_links_share(ls_links *links, double now_us, int *count);

/* When a flow in flight has carried all of its bytes, if nothing changes. */
double ls_links_end_us(const ls_links *links, int flow);

/* The bytes of ended flows that a link carried in one direction, and the time in which it was busy. */
double ls_links_bytes(const ls_links *links, int link, bool forwards);
double ls_links_busy_us(const ls_links *links, int link, bool forwards);

#endif
