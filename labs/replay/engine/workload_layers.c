/* workload_layers — the layers of a workload's file, blocks unfolded, in the order of the forward pass.
 *   cost  : linear in the unfolded layers, of which there are at most LS_MAX_LAYERS: they are counted before they are
 *           unfolded
 *   fails : errors are reported with their line */
#include "labs/replay/engine/workload_layers.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LS_MAX_DEPTH = 4, LS_MAX_NAME = 80, LS_MAX_PATH = 800 };

static const struct kind {
    const char *name;
    enum ls_layer_rule rule;
} kinds[] = {
    {"conv", LS_RULE_WEIGHTS},    {"linear", LS_RULE_WEIGHTS}, {"attention", LS_RULE_FACTORS},
    {"embedding", LS_RULE_TABLE}, {"norm", LS_RULE_PASS},      {"pool", LS_RULE_PASS},
    {"add", LS_RULE_PASS},        {"softmax", LS_RULE_PASS},   {"activation", LS_RULE_PASS},
    {"dropout", LS_RULE_PASS},
};

/* --- one layer ---------------------------------------------------------------------------------------------------- */

static const char *const layer_members[] = {"name",       "kind",    "what",    "flops",   "input", "output", "kept",
                                            "parameters", "weights", "buffers", "kernels", "cut",   "heads",  NULL};
static const char *const block_members[] = {"name", "source", "repeat", "first", "layers", NULL};

static double number_or(struct ls_workload_reader *r, const cJSON *object, const char *name, double otherwise) {
    return ls_json_has(object, name) ? ls_json_number(r->json, object, name, 0, (double)LS_MAX_ELEMENTS) : otherwise;
}

static enum ls_layer_rule find_rule(struct ls_workload_reader *r, const cJSON *object) {
    const char *name = ls_json_text(r->json, object, "kind");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (strcmp(kinds[k].name, name) == 0) return kinds[k].rule;
    }
    char known[200] = "";
    for (size_t k = 0, length = 0; k < sizeof kinds / sizeof *kinds; k++) {
        length += (size_t)snprintf(known + length, sizeof known - length, " %s", kinds[k].name);
    }
    ls_json_refuse(r->json, cJSON_GetObjectItemCaseSensitive(object, "kind"),
                   "unknown kind of layer %.40s; expected one of%s", name, known);
    return kinds[0].rule;
}

/* Appends the name of a layer or block to that of the enclosing block, with a dot in between; "" adds nothing. */
static void join_name(struct ls_workload_reader *r, const cJSON *object, const char *around, char *path) {
    const char *name = ls_json_text(r->json, object, "name");
    if (strlen(name) > LS_MAX_NAME) {
        ls_json_refuse(r->json, object, "a name of %zu characters is too long; expected at most %d", strlen(name),
                       LS_MAX_NAME);
        name = "";
    }
    snprintf(path, LS_MAX_PATH, "%s%s%s", around, around[0] && name[0] ? "." : "", name);
}

static void read_parameters(struct ls_workload_reader *r, const cJSON *object, const char *path,
                            struct ls_workload_layer *layer) {
    const cJSON *parameters = ls_json_object(r->json, object, "parameters"), *child;
    char name[LS_MAX_PATH + LS_MAX_NAME];
    cJSON_ArrayForEach(child, parameters) {
        int64_t count = ls_json_whole(r->json, parameters, child->string, 1, LS_MAX_ELEMENTS);
        if (layer->parameter_count == LS_MAX_KERNELS || strlen(child->string) > LS_MAX_NAME) {
            ls_json_refuse(r->json, child, "a layer has at most %d parameters, with names of at most %d characters",
                           LS_MAX_KERNELS, LS_MAX_NAME);
        }
        if (ls_json_failed(r->json)) return;
        snprintf(name, sizeof name, "%s.%s", path, child->string);
        (void)ls_workload_add_parameter(r->parts, name, (uint64_t)count);
        layer->parameter_count++;
        layer->weights += (double)count;
    }
}

static enum ls_workload_cut read_cut(struct ls_workload_reader *r, const cJSON *object) {
    if (!ls_json_has(object, "cut")) return LS_WORKLOAD_UNCUT;
    const char *name = ls_json_text(r->json, object, "cut");
    if (strcmp(name, "outputs") == 0) return LS_WORKLOAD_BY_OUTPUTS;
    if (strcmp(name, "inputs") == 0) return LS_WORKLOAD_BY_INPUTS;
    ls_json_refuse(r->json, cJSON_GetObjectItemCaseSensitive(object, "cut"),
                   "a layer is cut by outputs or inputs, not by %.40s", name);
    return LS_WORKLOAD_UNCUT;
}

static void read_layer(struct ls_workload_reader *r, const cJSON *object, const char *around) {
    char path[LS_MAX_PATH];
    ls_json_only(r->json, object, layer_members);
    join_name(r, object, around, path);
    ls_workload *w = &r->parts->workload;
    struct ls_workload_layer *layer = &w->layers[w->layer_count];
    *layer = (struct ls_workload_layer){
        .rule = find_rule(r, object), .first_parameter = w->parameter_count, .begins_block = r->begins_block};
    r->begins_block = false;
    if (ls_json_has(object, "what")) (void)ls_json_text(r->json, object, "what");
    layer->name = ls_workload_text(r->parts, path);
    layer->flops = ls_json_number(r->json, object, "flops", 0, LS_MAX_FLOPS);
    layer->output = ls_json_number(r->json, object, "output", 0, (double)LS_MAX_ELEMENTS);
    layer->kept = number_or(r, object, "kept", layer->output);
    layer->kernels =
        ls_json_has(object, "kernels") ? (int)ls_json_whole(r->json, object, "kernels", 1, LS_MAX_KERNELS) : 1;
    if (w->layer_count == 0 || ls_json_has(object, "input")) {
        layer->input = ls_json_number(r->json, object, "input", 0, (double)LS_MAX_ELEMENTS);
    } else {
        layer->input = w->layers[w->layer_count - 1].output;
    }
    layer->weights = number_or(r, object, "weights", 0);
    layer->cut = read_cut(r, object);
    if (ls_json_has(object, "heads")) layer->heads = (int)ls_json_whole(r->json, object, "heads", 1, 100000);
    if (ls_json_has(object, "parameters")) read_parameters(r, object, path, layer);
    double buffers = number_or(r, object, "buffers", 0); /* a mean and a variance per channel */
    w->buffer_bytes += sizeof(float) * buffers;
    if (layer->rule == LS_RULE_PASS) layer->channels = (int)fmin(buffers / 2, INT_MAX);
    r->total_flops += layer->flops;
    w->layer_count++;
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

static int64_t repeats(struct ls_workload_reader *r, const cJSON *block) {
    return ls_json_has(block, "repeat") ? ls_json_whole(r->json, block, "repeat", 1, LS_MAX_LAYERS) : 1;
}

static int64_t count_layers(struct ls_workload_reader *r, const cJSON *list, int depth) {
    int64_t count = 0;
    const cJSON *item;
    if (depth > LS_MAX_DEPTH) ls_json_refuse(r->json, list, "blocks are nested more than %d deep", LS_MAX_DEPTH);
    cJSON_ArrayForEach(item, list) {
        if (ls_json_failed(r->json)) return 0;
        bool is_block = ls_json_has(item, "layers");
        count += is_block ? repeats(r, item) * count_layers(r, ls_json_array(r->json, item, "layers"), depth + 1) : 1;
        if (count > LS_MAX_LAYERS)
            ls_json_refuse(r->json, item, "a workload has too many layers; expected at most %d", LS_MAX_LAYERS);
    }
    if (list && count == 0) ls_json_refuse(r->json, list, "a workload must have at least one layer");
    return count;
}

static void read_list(struct ls_workload_reader *r, const cJSON *list, const char *around, bool outermost);

/* NAME if the block occurs once, otherwise NAME.0, NAME.1, ... (from "first" on). */
static void read_block(struct ls_workload_reader *r, const cJSON *block, const char *around, bool outermost) {
    char path[LS_MAX_PATH], numbered[LS_MAX_PATH + 24];
    ls_json_only(r->json, block, block_members);
    if (outermost || ls_json_has(block, "source")) (void)ls_json_text(r->json, block, "source");
    join_name(r, block, around, path);
    int64_t first = ls_json_has(block, "first") ? ls_json_whole(r->json, block, "first", 0, LS_MAX_LAYERS) : 0;
    int64_t count = repeats(r, block);
    const cJSON *layers = ls_json_array(r->json, block, "layers");
    for (int64_t i = 0; i < count && !ls_json_failed(r->json); i++) {
        snprintf(numbered, sizeof numbered, "%s", path);
        if (ls_json_has(block, "repeat")) {
            snprintf(numbered, sizeof numbered, "%s%s%lld", path, path[0] ? "." : "", (long long)first + (long long)i);
        }
        r->begins_block = true;
        read_list(r, layers, numbered, false);
    }
    r->begins_block = true;
}

/* The outermost list has blocks only, each with its source. */
static void read_list(struct ls_workload_reader *r, const cJSON *list, const char *around, bool outermost) {
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        if (ls_json_failed(r->json)) return;
        if (outermost || ls_json_has(item, "layers")) {
            read_block(r, item, around, outermost);
        } else {
            read_layer(r, item, around);
        }
    }
}

int64_t ls_workload_count_layers(struct ls_workload_reader *r, const cJSON *list) { return count_layers(r, list, 0); }

void ls_workload_read_layers(struct ls_workload_reader *r, const cJSON *list) { read_list(r, list, "", true); }
