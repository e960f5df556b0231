/* Shared by node.c (the handle), node_read.c (JSON) and routes.c (routes). */
#ifndef LABS_REPLAY_ENGINE_NODE_INTERNAL_H
#define LABS_REPLAY_ENGINE_NODE_INTERNAL_H

#include "common/base/json.h"
#include "labs/replay/engine/node.h"

/* A switch with only one link is refused, so there are at most as many switches as links. */
#define LS_NODE_MAX_VERTICES (LS_NODE_MAX_DEVICES + 1 + LS_NODE_MAX_LINKS)
#define LS_NODE_MAX_ROWS 4096 /* of the measured table */
#define LS_NODE_VERTEX_CAPACITY 48

struct ls_node {
    ls_json *json; /* owns the texts */
    char *name;
    const char *description;
    const cJSON *sources;
    int device_count, link_count, vertex_count;
    struct ls_node_device device;
    struct ls_node_host host;
    struct ls_node_collectives collectives;
    struct ls_node_measured *tables[LS_NODE_TABLES]; /* to which collectives.tables point */
    struct ls_node_link links[LS_NODE_MAX_LINKS];
    char vertices[LS_NODE_MAX_VERTICES][LS_NODE_VERTEX_CAPACITY];
    int routed;              /* devices that have routes: those of all nodes (ls_node_repeat) */
    struct ls_route *routes; /* from vertex `from` to `to`, both devices or the host: [from (routed + 1) + to] */
    char (*link_names)[LS_NODE_VERTEX_CAPACITY]; /* of further nodes' links; NULL: none */
};

/* Fills the node from node->json; reports errors. LS_ERR_INVALID, LS_ERR_NO_MEMORY. (node_read.c) */
ls_status ls_node_read(ls_node *node);

/* Finds all routes of a node whose links are set. LS_ERR_INVALID: a vertex is not connected, with node->json's name in
 * the message; LS_ERR_NO_MEMORY. (routes.c) */
ls_status ls_node_find_routes(ls_node *node);

#endif
