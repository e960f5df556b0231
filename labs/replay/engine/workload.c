/* workload — from a description layer by layer to the operations of a training step.
 *   idea  : layers (blocks unfolded) are collected in the order of the forward pass; then come forward, the loss, the
 *           layers once more in reverse order for backward, and the optimizer. What a kind of layer computes on the
 *           way back, and what it reads and writes, follows from one of four rules (below), so the file says nothing
 *           of it
 *   ready : parameters are ready layer by layer in reverse order, within a layer the last one first
 *           (common/nn/passes.c)
 *   cost  : linear in the unfolded layers, of which there are at most LS_MAX_LAYERS: they are counted before they are
 *           unfolded
 *   fails : everything is refused at its line; what the layers add up to must be what the file promises */
#include "labs/replay/engine/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "labs/replay/engine/library.h"
#include "labs/replay/engine/workload_parts.h"

enum { LS_MAX_LAYERS = 10000, LS_MAX_DEPTH = 4, LS_MAX_KERNELS = 16, LS_MAX_NAME = 80, LS_MAX_PATH = 800 };

/* No layer of any network has more, a sample: elements, flops. Sums over all layers stay exact in doubles. */
static const int64_t max_elements = INT64_C(100000000000);
static const double max_flops = 1e16;

/* --- the four rules ----------------------------------------------------------------------------------------------
 * */

/* e: bytes of an element; x, y: elements of input and output; w: of the parameters that it reads.
 *
 *              forward         backward, kernel by kernel
 *     WEIGHTS  e (x + y + w)   gradient of the input e (x + y + w), unless nothing lies before the layer;
 *                              gradient of the parameters e (x + y) + 4 w. As many flops as forward, each
 *     FACTORS  e (x + y)       the gradients of both factors: e (x + y) and as many flops as forward, each
 *     TABLE    2 e y           2 e y + 4 w: the rows' gradients are added to a table of zeros
 *     PASS     e (x + y + w)   e (2 x + y + w): reads x and the gradient of y, writes that of x. As many flops as
 *     forward
 *
 * What goes with w does not grow with the number of samples. */
enum rule { RULE_WEIGHTS, RULE_FACTORS, RULE_TABLE, RULE_PASS };

static const struct kind {
    const char *name;
    enum rule rule;
} kinds[] = {
    {"conv", RULE_WEIGHTS},    {"linear", RULE_WEIGHTS}, {"attention", RULE_FACTORS}, {"embedding", RULE_TABLE},
    {"norm", RULE_PASS},       {"pool", RULE_PASS},      {"add", RULE_PASS},          {"softmax", RULE_PASS},
    {"activation", RULE_PASS}, {"dropout", RULE_PASS},
};

static const struct optimizer {
    const char *name;
    int states; /* floats per parameter */
} optimizers[] = {{"sgd", 0}, {"sgd-momentum", 1}, {"adam", 2}};

struct layer {
    const char *name;
    const struct kind *kind;
    double flops, input, output, kept, weights;
    int kernels, first_parameter, parameter_count;
};

struct reader {
    ls_json *json;
    struct ls_workload_parts *parts;
    struct layer *layers;
    int count;
    double total_flops;
};

/* --- one layer ---------------------------------------------------------------------------------------------------
 * */

static const char *const layer_members[] = {"name", "kind",       "what",    "flops",   "input",   "output",
                                            "kept", "parameters", "weights", "buffers", "kernels", NULL};
static const char *const block_members[] = {"name", "source", "repeat", "first", "layers", NULL};

static double number_or(struct reader *r, const cJSON *object, const char *name, double otherwise) {
    return ls_json_has(object, name) ? ls_json_number(r->json, object, name, 0, (double)max_elements) : otherwise;
}

static const struct kind *find_kind(struct reader *r, const cJSON *object) {
    const char *name = ls_json_text(r->json, object, "kind");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (strcmp(kinds[k].name, name) == 0) return &kinds[k];
    }
    char known[200] = "";
    for (size_t k = 0, length = 0; k < sizeof kinds / sizeof *kinds; k++) {
        length += (size_t)snprintf(known + length, sizeof known - length, " %s", kinds[k].name);
    }
    ls_json_refuse(r->json, cJSON_GetObjectItemCaseSensitive(object, "kind"),
                   "no kind of layer is called %.40s; there are%s", name, known);
    return &kinds[0];
}

/* The name of a layer or block behind that of the block around it, with a dot in between; "" adds nothing. */
static void join_name(struct reader *r, const cJSON *object, const char *around, char *path) {
    const char *name = ls_json_text(r->json, object, "name");
    if (strlen(name) > LS_MAX_NAME) {
        ls_json_refuse(r->json, object, "a name of %zu characters is too long; %d are enough", strlen(name),
                       LS_MAX_NAME);
        name = "";
    }
    snprintf(path, LS_MAX_PATH, "%s%s%s", around, around[0] && name[0] ? "." : "", name);
}

static void read_parameters(struct reader *r, const cJSON *object, const char *path, struct layer *layer) {
    const cJSON *parameters = ls_json_object(r->json, object, "parameters"), *child;
    char name[LS_MAX_PATH + LS_MAX_NAME];
    cJSON_ArrayForEach(child, parameters) {
        int64_t count = ls_json_whole(r->json, parameters, child->string, 1, max_elements);
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

static void read_layer(struct reader *r, const cJSON *object, const char *around) {
    char path[LS_MAX_PATH];
    ls_json_only(r->json, object, layer_members);
    join_name(r, object, around, path);
    struct layer *layer = &r->layers[r->count];
    *layer = (struct layer){.kind = find_kind(r, object), .first_parameter = r->parts->workload.parameter_count};
    if (ls_json_has(object, "what")) (void)ls_json_text(r->json, object, "what");
    layer->name = ls_workload_text(r->parts, path);
    layer->flops = ls_json_number(r->json, object, "flops", 0, max_flops);
    layer->output = ls_json_number(r->json, object, "output", 0, (double)max_elements);
    layer->kept = number_or(r, object, "kept", layer->output);
    layer->kernels =
        ls_json_has(object, "kernels") ? (int)ls_json_whole(r->json, object, "kernels", 1, LS_MAX_KERNELS) : 1;
    if (r->count == 0 || ls_json_has(object, "input")) {
        layer->input = ls_json_number(r->json, object, "input", 0, (double)max_elements);
    } else {
        layer->input = r->layers[r->count - 1].output;
    }
    layer->weights = number_or(r, object, "weights", 0);
    if (ls_json_has(object, "parameters")) read_parameters(r, object, path, layer);
    r->parts->workload.buffer_bytes += sizeof(float) * number_or(r, object, "buffers", 0);
    r->total_flops += layer->flops;
    r->count++;
}

/* --- blocks ------------------------------------------------------------------------------------------------------
 * */

static int64_t repeats(struct reader *r, const cJSON *block) {
    return ls_json_has(block, "repeat") ? ls_json_whole(r->json, block, "repeat", 1, LS_MAX_LAYERS) : 1;
}

/* How many layers a list unfolds to; refused beyond LS_MAX_LAYERS, so the counts stay small. */
static int64_t count_layers(struct reader *r, const cJSON *list, int depth) {
    int64_t count = 0;
    const cJSON *item;
    if (depth > LS_MAX_DEPTH) ls_json_refuse(r->json, list, "blocks lie in each other more than %d deep", LS_MAX_DEPTH);
    cJSON_ArrayForEach(item, list) {
        if (ls_json_failed(r->json)) return 0;
        bool is_block = ls_json_has(item, "layers");
        count += is_block ? repeats(r, item) * count_layers(r, ls_json_array(r->json, item, "layers"), depth + 1) : 1;
        if (count > LS_MAX_LAYERS) ls_json_refuse(r->json, item, "these are more than %d layers", LS_MAX_LAYERS);
    }
    if (list && count == 0) ls_json_refuse(r->json, list, "there must be a layer");
    return count;
}

static void read_list(struct reader *r, const cJSON *list, const char *around, bool outermost);

/* NAME if it is there once, otherwise NAME.0, NAME.1, ... (from "first" on). */
static void read_block(struct reader *r, const cJSON *block, const char *around, bool outermost) {
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
        read_list(r, layers, numbered, false);
    }
}

/* The outermost list has blocks only, each with its source. */
static void read_list(struct reader *r, const cJSON *list, const char *around, bool outermost) {
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

/* --- the operations of a step ------------------------------------------------------------------------------------
 * */

/* `kernels` operations that share the flops; each moves all of the bytes. */
static struct ls_work *add_work(struct reader *r, const char *name, const char *phase, int kernels, double flops,
                                double bytes, double fixed_bytes) {
    struct ls_work work = {.name = name,
                           .phase = phase,
                           .flops = flops / kernels,
                           .bytes = bytes + fixed_bytes,
                           .fixed_bytes = fixed_bytes,
                           .us = -1,
                           .host_us = -1};
    ls_workload *w = &r->parts->workload;
    for (int k = 0; k < kernels; k++) ls_workload_add_work(r->parts, &work);
    return r->parts->failed ? NULL : &w->work[w->work_count - kernels];
}

static bool is_product(const struct layer *layer) {
    return layer->kind->rule == RULE_WEIGHTS || layer->kind->rule == RULE_FACTORS;
}

static void add_forward(struct reader *r, const struct layer *layer) {
    double e = r->parts->workload.element_bytes, x = layer->input, y = layer->output, w = layer->weights;
    bool table = layer->kind->rule == RULE_TABLE;
    struct ls_work *work = add_work(r, layer->name, "forward", layer->kernels, layer->flops,
                                    e * (table ? 2 * y : x + y), table ? 0 : e * w);
    for (int k = 0; work && k < layer->kernels; k++) work[k].is_product = is_product(layer);
}

/* Returns the last of its operations. */
static struct ls_work *add_backward(struct reader *r, const struct layer *layer, bool is_first) {
    double e = r->parts->workload.element_bytes, x = layer->input, y = layer->output, w = layer->weights;
    double flops = layer->flops;
    struct ls_work *work = NULL;
    int k = layer->kernels;
    switch (layer->kind->rule) {
    case RULE_WEIGHTS:
        work = is_first ? NULL : add_work(r, layer->name, "backward", k, flops, e * (x + y), e * w);
        for (int i = 0; work && i < k; i++) work[i].is_product = true;
        work = add_work(r, layer->name, "backward", k, flops, e * (x + y), sizeof(float) * w);
        break;
    case RULE_FACTORS:
        k *= 2;
        work = add_work(r, layer->name, "backward", k, 2 * flops, e * (x + y), 0);
        break;
    case RULE_TABLE: work = add_work(r, layer->name, "backward", k, flops, 2 * e * y, sizeof(float) * w); break;
    case RULE_PASS: work = add_work(r, layer->name, "backward", k, flops, e * (2 * x + y), e * w); break;
    }
    for (int i = 0; work && i < k; i++) work[i].is_product = is_product(layer);
    return work ? work + k - 1 : NULL;
}

static void add_ready(struct reader *r, const struct layer *layer, struct ls_work *last) {
    last->first_ready = r->parts->workload.ready_count;
    last->ready_count = layer->parameter_count;
    for (int p = layer->parameter_count; p > 0; p--) ls_workload_add_ready(r->parts, layer->first_parameter + p - 1);
}

static void add_step(struct reader *r) {
    ls_workload *w = &r->parts->workload;
    double largest = 0, outputs = w->output_bytes / w->element_bytes;
    for (int l = 0; l < r->count; l++) {
        const struct layer *layer = &r->layers[l];
        add_forward(r, layer);
        w->activation_bytes += w->element_bytes * layer->kept;
        if (l > 0) largest = fmax(largest, layer->input);
    }
    w->exchange_bytes = 2 * w->element_bytes * largest;
    (void)add_work(r, "loss", "loss", 1, 5 * outputs, 3 * w->output_bytes + w->answer_bytes, 0);
    for (int l = r->count; l > 0; l--) {
        struct ls_work *last = add_backward(r, &r->layers[l - 1], l == 1);
        if (last) add_ready(r, &r->layers[l - 1], last);
    }
    /* reads parameter, gradient and states, writes parameter and states, all in fp32 */
    double parameters = (double)ls_workload_parameters(w);
    (void)add_work(r, "optimizer", "optimizer", 1, (2 + 4 * w->optimizer_states) * parameters, 0,
                   (12 + 8 * w->optimizer_states) * parameters);
}

/* --- the file ----------------------------------------------------------------------------------------------------
 * */

static const char *const file_members[] = {"name",         "source",        "notes",     "input_bytes", "answer_bytes",
                                           "output_bytes", "element_bytes", "optimizer", "parameters",  "forward_flops",
                                           "layers",       "defaults",      NULL};
static const char *const default_members[] = {"batch", "precision", "replicate", NULL};

static int read_optimizer(struct reader *r, const cJSON *root) {
    const char *name = ls_json_text(r->json, root, "optimizer");
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        if (strcmp(optimizers[i].name, name) == 0) return optimizers[i].states;
    }
    ls_json_refuse(r->json, cJSON_GetObjectItemCaseSensitive(root, "optimizer"),
                   "no optimizer is called %.40s; there are sgd, sgd-momentum and adam", name);
    return 0;
}

static void check_notes(struct reader *r, const cJSON *root) {
    if (!ls_json_has(root, "notes")) return;
    const cJSON *notes = ls_json_array(r->json, root, "notes"), *note;
    cJSON_ArrayForEach(note, notes) {
        if (!cJSON_IsString(note)) ls_json_refuse(r->json, note, "a note is a text");
    }
}

/* The index of a member's text in a list that ends with NULL; refused if it is not there. */
static int read_choice(struct reader *r, const cJSON *object, const char *name, const char *const *choices) {
    const char *text = ls_json_text(r->json, object, name);
    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], text) == 0) return i;
    }
    ls_json_refuse(r->json, cJSON_GetObjectItemCaseSensitive(object, name), "%s cannot be %.40s", name, text);
    return 0;
}

static void read_defaults(struct reader *r, const cJSON *root) {
    static const char *const precisions[] = {"fp32", "fp16", "bf16", NULL}; /* the order of ls_dtype */
    static const char *const replications[] = {"copies", "collectives", "both", NULL};
    struct ls_workload_defaults *defaults = &r->parts->workload.defaults;
    if (!ls_json_has(root, "defaults")) return;
    const cJSON *object = ls_json_object(r->json, root, "defaults");
    ls_json_only(r->json, object, default_members);
    if (ls_json_has(object, "batch")) defaults->batch = ls_json_number(r->json, object, "batch", 1, 1e9);
    if (ls_json_has(object, "precision"))
        defaults->precision = (ls_dtype)read_choice(r, object, "precision", precisions);
    if (!ls_json_has(object, "replicate")) return;
    int replicate = read_choice(r, object, "replicate", replications);
    defaults->copies = replicate != 1;
    defaults->collectives = replicate != 0;
}

static void read_head(struct reader *r, const cJSON *root) {
    ls_workload *w = &r->parts->workload;
    ls_json_only(r->json, root, file_members);
    w->name = ls_workload_text(r->parts, ls_json_text(r->json, root, "name"));
    w->source = ls_workload_text(r->parts, ls_json_text(r->json, root, "source"));
    check_notes(r, root);
    w->input_bytes = ls_json_number(r->json, root, "input_bytes", 0, (double)max_elements);
    w->answer_bytes = ls_json_number(r->json, root, "answer_bytes", 0, (double)max_elements);
    w->output_bytes = ls_json_number(r->json, root, "output_bytes", 0, (double)max_elements);
    int64_t element = ls_json_whole(r->json, root, "element_bytes", 2, 4);
    if (element == 3) ls_json_refuse(r->json, root, "element_bytes must be 2 or 4");
    w->element_bytes = (double)element;
    w->optimizer_states = read_optimizer(r, root);
    read_defaults(r, root);
}

/* What the layers add up to, against what the file promises: a figure with a slip of the pen is found here. */
static void check_totals(struct reader *r, const cJSON *root) {
    double promised =
        (double)ls_json_whole(r->json, root, "parameters", 0, INT64_C(10) * max_elements * LS_MAX_KERNELS);
    double parameters = (double)ls_workload_parameters(&r->parts->workload);
    if (parameters != promised) {
        ls_json_refuse(r->json, cJSON_GetObjectItemCaseSensitive(root, "parameters"),
                       "the layers have %.0f parameters together, not %.0f", parameters, promised);
    }
    promised = ls_json_number(r->json, root, "forward_flops", 0, max_flops * LS_MAX_LAYERS);
    if (!(fabs(r->total_flops - promised) <= 1e-9 * promised)) {
        ls_json_refuse(r->json, cJSON_GetObjectItemCaseSensitive(root, "forward_flops"),
                       "the layers have %.0f flops together, not %.0f", r->total_flops, promised);
    }
}

static ls_status read_workload(ls_workload **out, ls_json *json) {
    *out = NULL;
    struct reader r = {.json = json, .parts = ls_workload_begin()};
    if (!r.parts) return LS_ERR_NO_MEMORY;
    const cJSON *root = ls_json_root(json);
    read_head(&r, root);
    const cJSON *layers = ls_json_array(json, root, "layers");
    int64_t count = count_layers(&r, layers, 0);
    ls_status status = ls_json_failed(json) ? LS_ERR_INVALID : LS_OK;
    if (status == LS_OK) r.layers = calloc((size_t)count + 1, sizeof *r.layers);
    if (status == LS_OK && !r.layers) status = ls_fail(LS_ERR_NO_MEMORY, "no memory for %lld layers", (long long)count);
    if (status == LS_OK) {
        read_list(&r, layers, "", true);
        if (!ls_json_failed(json)) check_totals(&r, root);
        if (!ls_json_failed(json)) add_step(&r);
        if (ls_json_failed(json)) status = LS_ERR_INVALID;
    }
    free(r.layers);
    return ls_workload_finish(r.parts, status, out);
}

ls_status ls_workload_parse(ls_workload **out, const char *name, const char *text, size_t nbytes) {
    ls_json *json;
    *out = NULL;
    ls_status status = ls_json_parse(&json, name, 1, text, nbytes);
    if (status != LS_OK) return status;
    status = read_workload(out, json);
    ls_json_close(json);
    return status;
}

ls_status ls_workload_open(ls_workload **out, const char *name) {
    char path[LS_LIBRARY_PATH];
    ls_json *json;
    *out = NULL;
    ls_status status = ls_library_find(path, "labs/replay/workloads", name);
    if (status == LS_OK) status = ls_json_open(&json, path);
    if (status != LS_OK) return status;
    status = read_workload(out, json);
    ls_json_close(json);
    return status;
}
