/* skeleton */
#include "common/replay/node.h"

ls_status ls_node_open(ls_node **out, const char *name) {
    (void)out;
    (void)name;
    return LS_ERR_UNSUPPORTED;
}
ls_status ls_node_parse(ls_node **out, const char *name, const char *text, size_t nbytes) {
    (void)out;
    (void)name;
    (void)text;
    (void)nbytes;
    return LS_ERR_UNSUPPORTED;
}
void ls_node_close(ls_node *node) { (void)node; }
const char *ls_node_name(const ls_node *node) {
    (void)node;
    return NULL;
}
const char *ls_node_description(const ls_node *node) {
    (void)node;
    return NULL;
}
int ls_node_device_count(const ls_node *node) {
    (void)node;
    return 0;
}
const struct ls_node_device *ls_node_device(const ls_node *node) {
    (void)node;
    return NULL;
}
const struct ls_node_host *ls_node_host(const ls_node *node) {
    (void)node;
    return NULL;
}
const struct ls_node_collectives *ls_node_collectives(const ls_node *node) {
    (void)node;
    return NULL;
}
int ls_node_link_count(const ls_node *node) {
    (void)node;
    return 0;
}
const struct ls_node_link *ls_node_link(const ls_node *node, int link) {
    (void)node;
    (void)link;
    return NULL;
}
const struct ls_route *ls_node_route(const ls_node *node, int from, int to) {
    (void)node;
    (void)from;
    (void)to;
    return NULL;
}
struct ls_node_device *ls_node_change_device(ls_node *node) {
    (void)node;
    return NULL;
}
struct ls_node_host *ls_node_change_host(ls_node *node) {
    (void)node;
    return NULL;
}
struct ls_node_collectives *ls_node_change_collectives(ls_node *node) {
    (void)node;
    return NULL;
}
void ls_node_change_links(ls_node *node, double GBps_factor, double latency_factor) {
    (void)node;
    (void)GBps_factor;
    (void)latency_factor;
}
