/* node_read — reads a node from its JSON (format: labs/replay/nodes/README.md).
 *   idea  : the figures of the three groups device, host and collectives are rows of tables: name, offset, limits. The
 *           same tables list the allowed members and the figures that need a source. Links and curves (multiplies by
 *           their rows, measured collectives) are read one by one
 *   fails : json.h reports the first error, with its line; reading continues with zeros, and the node is then
 *           dropped */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/engine/node_internal.h"

#define LS_MAX_US 1e9
#define LS_MAX_RATE 1e9    /* GFLOPs, GBps */
#define LS_LEAST_RATE 1e-3 /* rates are divisors */
#define LS_LEAST_SHARE 1e-6
#define LS_MAX_BYTES (1LL << 50)
#define LS_MAX_RANKS 1000000

enum figure_kind { REAL, WHOLE, FLAG };

struct figure {
    const char *name;
    size_t offset; /* in the group's struct */
    double lowest, highest;
    enum figure_kind kind;
    bool may_lack;
};

static const struct figure device_figures[] = {
    {"fp32_GFLOPs", offsetof(struct ls_node_device, fp32_GFLOPs), LS_LEAST_RATE, LS_MAX_RATE, REAL, false},
    {"fp16_GFLOPs", offsetof(struct ls_node_device, fp16_GFLOPs), LS_LEAST_RATE, LS_MAX_RATE, REAL, false},
    {"memory_GBps", offsetof(struct ls_node_device, memory_GBps), LS_LEAST_RATE, LS_MAX_RATE, REAL, false},
    {"kernel_us", offsetof(struct ls_node_device, kernel_us), 0, LS_MAX_US, REAL, false},
    {"memory_bytes", offsetof(struct ls_node_device, memory_bytes), 0, (double)LS_MAX_BYTES, WHOLE, false},
    {"product_crowding", offsetof(struct ls_node_device, product_crowding), 1, 100, REAL, true},
    {"memory_crowding", offsetof(struct ls_node_device, memory_crowding), 1, 100, REAL, true},
    {"reclaim_GBps", offsetof(struct ls_node_device, reclaim_GBps), LS_LEAST_RATE, LS_MAX_RATE, REAL, true},
    {"reclaim_bytes", offsetof(struct ls_node_device, reclaim_bytes), 0, (double)LS_MAX_BYTES, WHOLE, true},
    {0},
};

static const struct figure host_figures[] = {
    {"launch_us", offsetof(struct ls_node_host, launch_us), 0, LS_MAX_US, REAL, false},
    {"event_us", offsetof(struct ls_node_host, event_us), 0, LS_MAX_US, REAL, false},
    {"sync_us", offsetof(struct ls_node_host, sync_us), 0, LS_MAX_US, REAL, false},
    {"hand_over_us", offsetof(struct ls_node_host, hand_over_us), 0, LS_MAX_US, REAL, false},
    {"collective_us", offsetof(struct ls_node_host, collective_us), 0, LS_MAX_US, REAL, false},
    {"lock_us", offsetof(struct ls_node_host, lock_us), 0, LS_MAX_US, REAL, false},
    {"spin_us", offsetof(struct ls_node_host, spin_us), 0, LS_MAX_US, REAL, true},
    {"awake_us", offsetof(struct ls_node_host, awake_us), 0, LS_MAX_US, REAL, true},
    {"runs_compute", offsetof(struct ls_node_host, runs_compute), 0, 1, FLAG, false},
    {"cores", offsetof(struct ls_node_host, cores), 0, LS_MAX_RANKS, WHOLE, true},
    {0},
};

static const struct figure collectives_figures[] = {
    {"base_us", offsetof(struct ls_node_collectives, base_us), 0, LS_MAX_US, REAL, false},
    {"hop_us", offsetof(struct ls_node_collectives, hop_us), 0, LS_MAX_US, REAL, false},
    {"bus_GBps", offsetof(struct ls_node_collectives, bus_GBps), LS_LEAST_RATE, LS_MAX_RATE, REAL, false},
    {"all_gather_GBps", offsetof(struct ls_node_collectives, all_gather_GBps), LS_LEAST_RATE, LS_MAX_RATE, REAL, true},
    {"reduce_scatter_GBps", offsetof(struct ls_node_collectives, reduce_scatter_GBps), LS_LEAST_RATE, LS_MAX_RATE, REAL,
     true},
    {"slow_down", offsetof(struct ls_node_collectives, slow_down), 1, 100, REAL, false},
    {"network_hop_us", offsetof(struct ls_node_collectives, network_hop_us), 0, LS_MAX_US, REAL, true},
    {"network_GBps", offsetof(struct ls_node_collectives, network_GBps), LS_LEAST_RATE, LS_MAX_RATE, REAL, true},
    {"network_switch_GBps", offsetof(struct ls_node_collectives, network_switch_GBps), LS_LEAST_RATE, LS_MAX_RATE, REAL,
     true},
    {0},
};

static const char *const tables[LS_NODE_TABLES] = {[LS_NODE_ALL_REDUCE] = "all_reduce_us",
                                                   [LS_NODE_ALL_GATHER] = "all_gather_us",
                                                   [LS_NODE_REDUCE_SCATTER] = "reduce_scatter_us",
                                                   [LS_NODE_BETWEEN] = "network_all_reduce_us"};

/* Figures that other functions read, for the check of sources. */
static const struct figure link_figures[] = {{.name = "GBps"}, {.name = "latency_us"}, {0}};

static const struct group {
    const char *name;
    const struct figure *figures;
    size_t offset;             /* in ls_node */
    const char *const *beside; /* other members of the group */
} groups[] = {
    {"device", device_figures, offsetof(ls_node, device), (const char *const[]){"name", "product_shares", NULL}},
    {"host", host_figures, offsetof(ls_node, host), (const char *const[]){NULL}},
    {"collectives", collectives_figures, offsetof(ls_node, collectives),
     (const char *const[]){"all_reduce_us", "all_gather_us", "reduce_scatter_us", "network_all_reduce_us", NULL}},
    {"links", link_figures, 0, (const char *const[]){NULL}},
};

enum { GROUPS = sizeof groups / sizeof *groups, LINKS = GROUPS - 1, MAX_NAMES = 16 };

static void read_figure(ls_json *json, const cJSON *object, const struct figure *figure, char *place) {
    void *to = place + figure->offset;
    if (figure->may_lack && !ls_json_has(object, figure->name)) return;
    if (figure->kind == REAL)
        *(double *)to = ls_json_number(json, object, figure->name, figure->lowest, figure->highest);
    if (figure->kind == WHOLE)
        *(uint64_t *)to = (uint64_t)ls_json_whole(json, object, figure->name, 0, (int64_t)figure->highest);
    if (figure->kind == FLAG) *(bool *)to = ls_json_bool(json, object, figure->name);
}

static const cJSON *read_group(ls_node *node, const struct group *group) {
    const char *names[MAX_NAMES];
    size_t count = 0;
    const cJSON *object = ls_json_object(node->json, ls_json_root(node->json), group->name);
    for (const struct figure *figure = group->figures; figure->name; figure++) {
        read_figure(node->json, object, figure, (char *)node + group->offset);
        names[count++] = figure->name;
    }
    for (const char *const *name = group->beside; *name; name++) names[count++] = *name;
    names[count] = NULL;
    ls_json_only(node->json, object, names);
    return object;
}

/* --- links -------------------------------------------------------------------------------------------------------- */

/* A device's number, or -1: the name is not a device's, -2: the node does not have that device. */
static int device_of(const ls_node *node, const char *name) {
    char canonical[LS_NODE_VERTEX_CAPACITY];
    if (strncmp(name, "gpu", 3) != 0) return -1;
    for (int d = 0; d < node->device_count; d++) {
        snprintf(canonical, sizeof canonical, "gpu%d", d);
        if (strcmp(canonical, name) == 0) return d;
    }
    return -2;
}

static int read_vertex(ls_node *node, const cJSON *link, const char *end) {
    const char *name = ls_json_text(node->json, link, end);
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(link, end);
    if (ls_json_failed(node->json)) return 0;
    int device = device_of(node, name);
    if (device >= 0) return device;
    if (device == -2)
        ls_json_refuse(node->json, value, "%s: unknown device %.40s; expected gpu0 to gpu%d", end, name,
                       node->device_count - 1);
    if (*name == '\0' || strlen(name) >= LS_NODE_VERTEX_CAPACITY)
        ls_json_refuse(node->json, value, "%s: the name must have 1 to %d characters", end,
                       LS_NODE_VERTEX_CAPACITY - 1);
    if (ls_json_failed(node->json)) return 0;
    for (int v = node->device_count; v < node->vertex_count; v++)
        if (strcmp(node->vertices[v], name) == 0) return v;
    if (node->vertex_count == LS_NODE_MAX_VERTICES) {
        ls_json_refuse(node->json, value, "a node has too many switches; expected at most %d", LS_NODE_MAX_LINKS);
        return 0;
    }
    snprintf(node->vertices[node->vertex_count], LS_NODE_VERTEX_CAPACITY, "%s", name);
    return node->vertex_count++;
}

static void read_link(ls_node *node, const cJSON *object) {
    static const char *const names[] = {"name", "from", "to", "GBps", "latency_us", "duplex", NULL};
    ls_json *json = node->json;
    ls_json_only(json, object, names);
    struct ls_node_link link = {
        .name = ls_json_text(json, object, "name"),
        .from = read_vertex(node, object, "from"),
        .to = read_vertex(node, object, "to"),
        .GBps = ls_json_number(json, object, "GBps", LS_LEAST_RATE, LS_MAX_RATE),
        .latency_us = ls_json_number(json, object, "latency_us", 0, LS_MAX_US),
        .duplex = ls_json_bool(json, object, "duplex"),
    };
    if (ls_json_failed(json)) return;
    if (link.from == link.to)
        ls_json_refuse(json, object, "the link %.60s joins %s to itself", link.name, node->vertices[link.from]);
    for (int i = 0; i < node->link_count; i++)
        if (strcmp(node->links[i].name, link.name) == 0)
            ls_json_refuse(json, object, "the link %.60s occurs twice", link.name);
    node->links[node->link_count++] = link;
}

/* A switch with a single link leads nowhere: most likely its name is misspelt. */
static void check_switches(ls_node *node, const cJSON *links) {
    int known[LS_NODE_MAX_VERTICES] = {0};
    for (int i = 0; i < node->link_count; i++) {
        known[node->links[i].from]++;
        known[node->links[i].to]++;
    }
    for (int v = node->device_count + 1; v < node->vertex_count; v++)
        if (known[v] == 1)
            ls_json_refuse(node->json, links, "only one link leads to %s: is its name right?", node->vertices[v]);
}

static void read_links(ls_node *node) {
    for (int d = 0; d < node->device_count; d++) snprintf(node->vertices[d], LS_NODE_VERTEX_CAPACITY, "gpu%d", d);
    snprintf(node->vertices[node->device_count], LS_NODE_VERTEX_CAPACITY, "host");
    node->vertex_count = node->device_count + 1;
    const cJSON *links = ls_json_array(node->json, ls_json_root(node->json), groups[LINKS].name), *link;
    cJSON_ArrayForEach(link, links) {
        if (node->link_count == LS_NODE_MAX_LINKS)
            ls_json_refuse(node->json, link, "a node has too many links; expected at most %d", LS_NODE_MAX_LINKS);
        if (ls_json_failed(node->json)) return;
        read_link(node, link);
    }
    check_switches(node, links);
}

/* --- curves ------------------------------------------------------------------------------------------------------- */

/* The rows of an optional member; none after an error. */
static const cJSON *read_rows(ls_node *node, const cJSON *object, const char *name, int most, int *count) {
    *count = 0;
    if (!ls_json_has(object, name)) return NULL;
    const cJSON *rows = ls_json_array(node->json, object, name);
    int there = cJSON_GetArraySize(rows);
    if (there < 1 || there > most)
        ls_json_refuse(node->json, rows, "%s must have 1 to %d rows; found %d", name, most, there);
    if (!ls_json_failed(node->json)) *count = there;
    return rows;
}

static bool read_numbers(ls_node *node, const cJSON *row, const char *what, double *values, int count) {
    bool fits = cJSON_IsArray(row) && cJSON_GetArraySize(row) == count;
    for (int i = 0; fits && i < count; i++) {
        const cJSON *value = cJSON_GetArrayItem(row, i);
        fits = cJSON_IsNumber(value);
        if (fits) values[i] = value->valuedouble;
    }
    if (!fits) ls_json_refuse(node->json, row, "a row of %s is not valid", what);
    return fits;
}

static void read_product(ls_node *node, const cJSON *row, struct ls_node_product *product) {
    double values[2];
    if (!read_numbers(node, row, "product_shares is [rows, share]", values, 2)) return;
    *product = (struct ls_node_product){values[0], values[1]};
    if (!(product->rows >= 1 && product->rows <= LS_MAX_RATE) ||
        !(product->share >= LS_LEAST_SHARE && product->share <= 1))
        ls_json_refuse(node->json, row, "rows must lie between 1 and %g, shares between %g and 1", LS_MAX_RATE,
                       LS_LEAST_SHARE);
}

/* More rows must take longer, even if only slightly. */
static bool ascends(const struct ls_node_product *before, const struct ls_node_product *product) {
    return before->rows < product->rows && before->rows / before->share <= product->rows / product->share;
}

static void read_products(ls_node *node, const cJSON *device) {
    int count, filled = 0;
    const cJSON *rows = read_rows(node, device, "product_shares", LS_NODE_MAX_PRODUCTS, &count), *row;
    struct ls_node_product *products = node->device.products;
    if (count == 0) return;
    cJSON_ArrayForEach(row, rows) {
        read_product(node, row, &products[filled]);
        if (filled > 0 && !ls_json_failed(node->json) && !ascends(&products[filled - 1], &products[filled]))
            ls_json_refuse(node->json, row, "product_shares must ascend by rows, and by what they take, rows / share");
        filled++;
    }
    node->device.product_count = count;
}

static struct ls_node_measured read_measured(ls_node *node, const cJSON *row, const char *name) {
    struct ls_node_measured measured = {0};
    char what[60];
    double values[3];
    snprintf(what, sizeof what, "%s is [ranks, bytes, us]", name);
    if (!read_numbers(node, row, what, values, 3)) return measured;
    double n = values[0], nbytes = values[1], time_us = values[2];
    if (!(n >= 2 && n <= LS_MAX_RANKS) || n != (int)n) {
        ls_json_refuse(node->json, row, "ranks must be a whole number between 2 and %d", LS_MAX_RANKS);
    } else if (!(nbytes >= 1 && nbytes <= (double)LS_MAX_BYTES) || nbytes != (double)(int64_t)nbytes) {
        ls_json_refuse(node->json, row, "bytes must be a whole number between 1 and %lld", LS_MAX_BYTES);
    } else if (!(time_us > 0 && time_us <= LS_MAX_US)) {
        ls_json_refuse(node->json, row, "us must lie between 0 and %g; found %g", LS_MAX_US, time_us);
    } else {
        measured = (struct ls_node_measured){(int)n, (uint64_t)nbytes, time_us};
    }
    return measured;
}

static bool in_order(const struct ls_node_measured *before, const struct ls_node_measured *row) {
    return before->ranks < row->ranks || (before->ranks == row->ranks && before->bytes < row->bytes);
}

static ls_status read_table(ls_node *node, const cJSON *collectives, int operation) {
    int count, filled = 0;
    const cJSON *rows = read_rows(node, collectives, tables[operation], LS_NODE_MAX_ROWS, &count), *row;
    if (count == 0) return LS_OK; /* ls_node_read checks for failures */
    struct ls_node_measured *table = node->tables[operation] = calloc((size_t)count, sizeof *table);
    if (!table) return LS_ERR_NO_MEMORY;
    cJSON_ArrayForEach(row, rows) {
        table[filled] = read_measured(node, row, tables[operation]);
        if (filled > 0 && !in_order(&table[filled - 1], &table[filled]))
            ls_json_refuse(node->json, row, "rows of %s must ascend by ranks, then by bytes", tables[operation]);
        filled++;
    }
    node->collectives.tables[operation] = (struct ls_node_table){table, count};
    return LS_OK;
}

static ls_status read_tables(ls_node *node, const cJSON *collectives) {
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < LS_NODE_TABLES; i++) status = read_table(node, collectives, i);
    return status;
}

/* Figures that must be given in pairs. */
static void check_pairs(ls_node *node) {
    static const struct {
        const char *group, *what, *one, *other;
    } pairs[] = {{"collectives", "a network", "network_hop_us", "network_GBps"},
                 {"host", "a thread that spins", "spin_us", "awake_us"},
                 {"device", "taking lines back", "reclaim_GBps", "reclaim_bytes"}};
    static const char *const of_network[] = {"network_switch_GBps", "network_all_reduce_us"};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const cJSON *group = ls_json_object(node->json, ls_json_root(node->json), pairs[i].group);
        if (ls_json_has(group, pairs[i].one) != ls_json_has(group, pairs[i].other))
            ls_json_refuse(node->json, group, "%s needs %s and %s", pairs[i].what, pairs[i].one, pairs[i].other);
    }
    const cJSON *collectives = ls_json_object(node->json, ls_json_root(node->json), "collectives");
    for (size_t i = 0; i < sizeof of_network / sizeof *of_network; i++)
        if (ls_json_has(collectives, of_network[i]) && !ls_json_has(collectives, "network_GBps"))
            ls_json_refuse(node->json, collectives, "%s needs network_hop_us and network_GBps", of_network[i]);
}

/* --- sources ------------------------------------------------------------------------------------------------------ */

/* Whether "device" or "device.kernel_us" names a group, or an existing figure. */
static bool is_figure(const ls_node *node, const char *name) {
    const cJSON *root = ls_json_root(node->json);
    for (int g = 0; g < GROUPS; g++) {
        size_t length = strlen(groups[g].name);
        if (strncmp(name, groups[g].name, length) != 0) continue;
        if (name[length] == '\0') return true;
        if (name[length] != '.') continue;
        for (const struct figure *figure = groups[g].figures; figure->name; figure++)
            if (strcmp(figure->name, name + length + 1) == 0)
                return g == LINKS || ls_json_has(cJSON_GetObjectItemCaseSensitive(root, groups[g].name), figure->name);
        for (int i = 0; strcmp(groups[g].name, "collectives") == 0 && i < LS_NODE_TABLES; i++)
            if (strcmp(name + length + 1, tables[i]) == 0) return node->tables[i] != NULL;
        if (strcmp(name, "device.product_shares") == 0) return node->device.product_count > 0;
    }
    return false;
}

static void check_figure(ls_node *node, const char *group, const char *figure) {
    char name[80];
    snprintf(name, sizeof name, "%s.%s", group, figure);
    if (is_figure(node, name) && !ls_json_has(node->sources, group) && !ls_json_has(node->sources, name))
        ls_json_refuse(node->json, node->sources, "%s has no source; add where the figure comes from", name);
}

static void check_sources(ls_node *node) {
    const cJSON *source;
    cJSON_ArrayForEach(source, node->sources) {
        if (!is_figure(node, source->string))
            ls_json_refuse(node->json, source, "%.60s names no figure of this file", source->string);
        if (!cJSON_IsString(source) || *source->valuestring == '\0')
            ls_json_refuse(node->json, source, "the source of %.60s must be a string", source->string);
    }
    for (int g = 0; g < GROUPS && !ls_json_failed(node->json); g++)
        for (const struct figure *figure = groups[g].figures; figure->name; figure++)
            check_figure(node, groups[g].name, figure->name);
    for (int i = 0; i < LS_NODE_TABLES; i++) check_figure(node, "collectives", tables[i]);
    check_figure(node, "device", "product_shares");
}

/* ------------------------------------------------------------------------------------------------------------------ */

ls_status ls_node_read(ls_node *node) {
    static const char *const names[] = {"description", "devices",     "device",  "host",
                                        "links",       "collectives", "sources", NULL};
    ls_json *json = node->json;
    const cJSON *root = ls_json_root(json), *collectives = NULL;
    ls_json_only(json, root, names);
    node->device.product_crowding = node->device.memory_crowding = 1;
    node->device.reclaim_GBps = node->collectives.network_switch_GBps = INFINITY;
    node->description = ls_json_text(json, root, "description");
    node->device_count = (int)ls_json_whole(json, root, "devices", 1, LS_NODE_MAX_DEVICES);
    for (int g = 0; g < LINKS; g++) collectives = read_group(node, &groups[g]);
    const cJSON *device = ls_json_object(json, root, "device");
    node->device.name = ls_json_text(json, device, "name");
    read_products(node, device);
    if (!ls_json_failed(json)) read_links(node);
    check_pairs(node);
    ls_status status = read_tables(node, collectives);
    node->sources = ls_json_object(json, root, "sources");
    check_sources(node);
    if (status != LS_OK) return status;
    return ls_json_failed(json) ? LS_ERR_INVALID : LS_OK;
}
