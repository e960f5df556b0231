/* node — the handle of a modelled machine: opens, reads and changes it. */
#include "labs/replay/engine/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/trace/trace.h"
#include "labs/replay/engine/library.h"
#include "labs/replay/engine/node_internal.h"

/* The file's name without folder and ".json". */
static char *name_of(const char *path) {
    const char *slash = strrchr(path, '/'), *begin = slash ? slash + 1 : path;
    size_t length = strlen(begin);
    if (length > 5 && strcmp(begin + length - 5, ".json") == 0) length -= 5;
    char *name = malloc(length + 1);
    if (!name) return NULL;
    memcpy(name, begin, length);
    name[length] = '\0';
    return name;
}

/* Takes ownership of the JSON. */
static ls_status make(ls_node **out, ls_json *json, const char *path) {
    ls_status status = LS_ERR_NO_MEMORY;
    ls_node *node = calloc(1, sizeof *node);
    if (!node) {
        ls_json_close(json);
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the node %s", path);
    }
    node->json = json;
    node->name = name_of(path);
    if (node->name) status = ls_node_read(node);
    if (status == LS_OK) status = ls_node_find_routes(node);
    if (status == LS_ERR_NO_MEMORY) ls_fail(status, "cannot allocate memory for the node %s", path);
    if (status == LS_OK) {
        *out = node;
    } else {
        ls_node_close(node);
    }
    return status;
}

ls_status ls_node_open(ls_node **out, const char *name) {
    char path[LS_SHIPPED_PATH];
    ls_json *json;
    *out = NULL;
    ls_status status = ls_library_find(path, LS_NODES_FOLDER, name);
    if (status == LS_OK) status = ls_json_open(&json, path);
    return status == LS_OK ? make(out, json, path) : status;
}

ls_status ls_node_parse(ls_node **out, const char *name, const char *text, size_t nbytes) {
    ls_json *json;
    *out = NULL;
    ls_status status = ls_json_parse(&json, name, 1, text, nbytes);
    return status == LS_OK ? make(out, json, name) : status;
}

void ls_node_close(ls_node *node) {
    if (!node) return;
    ls_json_close(node->json);
    free(node->name);
    for (int i = 0; i < LS_NODE_TABLES; i++) free(node->tables[i]);
    free(node->routes);
    free(node->link_names);
    free(node);
}

const char *ls_node_name(const ls_node *node) { return node->name; }
const char *ls_node_description(const ls_node *node) { return node->description; }
int ls_node_device_count(const ls_node *node) { return node->device_count; }
const struct ls_node_device *ls_node_device(const ls_node *node) { return &node->device; }
const struct ls_node_host *ls_node_host(const ls_node *node) { return &node->host; }
const struct ls_node_collectives *ls_node_collectives(const ls_node *node) { return &node->collectives; }
int ls_node_link_count(const ls_node *node) { return node->link_count; }

const struct ls_node_link *ls_node_link(const ls_node *node, int link) {
    return link >= 0 && link < node->link_count ? &node->links[link] : NULL;
}

const struct ls_route *ls_node_route(const ls_node *node, int from, int to) {
    int host = node->routed;
    if (from < LS_HOST_MEMORY || from >= host || to < LS_HOST_MEMORY || to >= host) return NULL;
    if (from == LS_HOST_MEMORY) from = host;
    if (to == LS_HOST_MEMORY) to = host;
    return &node->routes[from * (host + 1) + to];
}

struct ls_node_device *ls_node_change_device(ls_node *node) {
    return &node->device;
}
struct ls_node_host *ls_node_change_host(ls_node *node) {
    return &node->host;
}
struct ls_node_collectives *ls_node_change_collectives(ls_node *node) {
    return &node->collectives;
}

void ls_node_change_links(ls_node *node, double GBps_factor, double latency_factor) {
    int routes = (node->routed + 1) * (node->routed + 1);
    for (int i = 0; i < node->link_count; i++) {
        node->links[i].GBps *= GBps_factor;
        node->links[i].latency_us *= latency_factor;
    }
    for (int i = 0; i < routes; i++) node->routes[i].latency_us *= latency_factor;
}
