/* workload — from a description layer by layer to the operations of a training step.
 *   idea  : layers are read in the order of the forward pass (workload_layers.c); then come forward, the loss, the
 *           layers once more in reverse order for backward, and the optimizer. What a kind of layer computes on the
 *           way back, and what it reads and writes, follows from one of four rules (below), so the file says nothing
 *           of it
 *   ready : parameters are ready layer by layer in reverse order, within a layer the last one first
 *           (common/nn/passes.c)
 *   fails : everything is refused at its line; what the layers add up to must be what the file promises */
#include "labs/replay/engine/workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "labs/replay/engine/library.h"
#include "labs/replay/engine/workload_layers.h"

/* --- the operations of a step ------------------------------------------------------------------------------------- */

/* e: bytes of an element; x, y: elements of input and output; w: of the parameters that it reads.
 *
 *              forward         backward, kernel by kernel
 *     WEIGHTS  e (x + y + w)   gradient of the input e (x + y + w), unless nothing lies before the layer;
 *                              gradient of the parameters e (x + y) + 4 w. As many flops as forward, each
 *     FACTORS  e (x + y)       the gradients of both factors: e (x + y) and as many flops as forward, each
 *     TABLE    2 e y           2 e y + 4 w: the rows' gradients are added to a table of zeros
 *     PASS     e (x + y + w)   e (2 x + y + w): reads x and the gradient of y, writes that of x. Flops as forward
 *
 * What goes with w does not grow with the number of samples. */

/* `kernels` operations that share the flops; each moves all of the bytes. */
static struct ls_work *add_work(struct ls_workload_reader *r, const char *name, const char *phase, int kernels,
                                double flops, double bytes, double fixed_bytes) {
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

static bool is_product(const struct ls_workload_layer *layer) {
    return layer->rule == LS_RULE_WEIGHTS || layer->rule == LS_RULE_FACTORS;
}

static void add_forward(struct ls_workload_reader *r, struct ls_workload_layer *layer) {
    double e = r->parts->workload.element_bytes, x = layer->input, y = layer->output, w = layer->weights;
    bool table = layer->rule == LS_RULE_TABLE;
    layer->first_forward = r->parts->workload.work_count;
    struct ls_work *work = add_work(r, layer->name, "forward", layer->kernels, layer->flops,
                                    e * (table ? 2 * y : x + y), table ? 0 : e * w);
    for (int k = 0; work && k < layer->kernels; k++) work[k].is_product = is_product(layer);
    if (work) work[0].channels = layer->channels;
    layer->end_forward = r->parts->workload.work_count;
}

/* Returns the last of its operations. */
static struct ls_work *add_backward(struct ls_workload_reader *r, const struct ls_workload_layer *layer,
                                    bool is_first) {
    double e = r->parts->workload.element_bytes, x = layer->input, y = layer->output, w = layer->weights;
    double flops = layer->flops;
    struct ls_work *work = NULL;
    int k = layer->kernels;
    switch (layer->rule) {
    case LS_RULE_WEIGHTS:
        work = is_first ? NULL : add_work(r, layer->name, "backward", k, flops, e * (x + y), e * w);
        for (int i = 0; work && i < k; i++) work[i].is_product = true;
        work = add_work(r, layer->name, "backward", k, flops, e * (x + y), sizeof(float) * w);
        break;
    case LS_RULE_FACTORS:
        k *= 2;
        work = add_work(r, layer->name, "backward", k, 2 * flops, e * (x + y), 0);
        break;
    case LS_RULE_TABLE: work = add_work(r, layer->name, "backward", k, flops, 2 * e * y, sizeof(float) * w); break;
    case LS_RULE_PASS: work = add_work(r, layer->name, "backward", k, flops, e * (2 * x + y), e * w); break;
    }
    for (int i = 0; work && i < k; i++) work[i].is_product = is_product(layer);
    if (work) work[k - 1].channels = layer->channels;
    return work ? work + k - 1 : NULL;
}

static void add_ready(struct ls_workload_reader *r, const struct ls_workload_layer *layer, struct ls_work *last) {
    last->first_ready = r->parts->workload.ready_count;
    last->ready_count = layer->parameter_count;
    for (int p = layer->parameter_count; p > 0; p--) ls_workload_add_ready(r->parts, layer->first_parameter + p - 1);
}

static void add_step(struct ls_workload_reader *r) {
    ls_workload *w = &r->parts->workload;
    double largest = 0, outputs = w->output_bytes / w->element_bytes;
    for (int l = 0; l < w->layer_count; l++) {
        struct ls_workload_layer *layer = &w->layers[l];
        add_forward(r, layer);
        w->activation_bytes += w->element_bytes * layer->kept;
        if (l > 0) largest = fmax(largest, layer->input);
    }
    w->exchange_bytes = 2 * w->element_bytes * largest;
    (void)add_work(r, "loss", "loss", 1, 5 * outputs, 3 * w->output_bytes + w->answer_bytes, 0);
    for (int l = w->layer_count; l > 0; l--) {
        struct ls_workload_layer *layer = &w->layers[l - 1];
        layer->first_backward = w->work_count;
        struct ls_work *last = add_backward(r, layer, l == 1);
        if (last) add_ready(r, layer, last);
        layer->end_backward = w->work_count;
    }
    /* reads parameter, gradient and states, writes parameter and states, all in fp32 */
    double parameters = (double)ls_workload_parameters(w);
    (void)add_work(r, "optimizer", "optimizer", 1, (2 + 4 * w->optimizer_states) * parameters, 0,
                   (12 + 8 * w->optimizer_states) * parameters);
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static const char *const file_members[] = {"name",         "source",        "notes",     "input_bytes", "answer_bytes",
                                           "output_bytes", "element_bytes", "optimizer", "parameters",  "forward_flops",
                                           "layers",       "defaults",      NULL};
static const char *const default_members[] = {"batch", "precision", "replicate", NULL};

static const struct optimizer {
    const char *name;
    int states; /* floats per parameter */
} optimizers[] = {{"sgd", 0}, {"sgd-momentum", 1}, {"adam", 2}};

static int read_optimizer(struct ls_workload_reader *r, const cJSON *root) {
    const char *name = ls_json_text(r->json, root, "optimizer");
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        if (strcmp(optimizers[i].name, name) == 0) return optimizers[i].states;
    }
    ls_json_refuse(r->json, cJSON_GetObjectItemCaseSensitive(root, "optimizer"),
                   "no optimizer is called %.40s; there are sgd, sgd-momentum and adam", name);
    return 0;
}

static void check_notes(struct ls_workload_reader *r, const cJSON *root) {
    if (!ls_json_has(root, "notes")) return;
    const cJSON *notes = ls_json_array(r->json, root, "notes"), *note;
    cJSON_ArrayForEach(note, notes) {
        if (!cJSON_IsString(note)) ls_json_refuse(r->json, note, "a note is a text");
    }
}

/* The index of a member's text in a list that ends with NULL; refused if it is not there. */
static int read_choice(struct ls_workload_reader *r, const cJSON *object, const char *name,
                       const char *const *choices) {
    const char *text = ls_json_text(r->json, object, name);
    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], text) == 0) return i;
    }
    ls_json_refuse(r->json, cJSON_GetObjectItemCaseSensitive(object, name), "%s cannot be %.40s", name, text);
    return 0;
}

static void read_defaults(struct ls_workload_reader *r, const cJSON *root) {
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

static void read_head(struct ls_workload_reader *r, const cJSON *root) {
    ls_workload *w = &r->parts->workload;
    ls_json_only(r->json, root, file_members);
    w->name = ls_workload_text(r->parts, ls_json_text(r->json, root, "name"));
    w->source = ls_workload_text(r->parts, ls_json_text(r->json, root, "source"));
    check_notes(r, root);
    w->input_bytes = ls_json_number(r->json, root, "input_bytes", 0, (double)LS_MAX_ELEMENTS);
    w->answer_bytes = ls_json_number(r->json, root, "answer_bytes", 0, (double)LS_MAX_ELEMENTS);
    w->output_bytes = ls_json_number(r->json, root, "output_bytes", 0, (double)LS_MAX_ELEMENTS);
    int64_t element = ls_json_whole(r->json, root, "element_bytes", 2, 4);
    if (element == 3) ls_json_refuse(r->json, root, "element_bytes must be 2 or 4");
    w->element_bytes = (double)element;
    w->optimizer_states = read_optimizer(r, root);
    read_defaults(r, root);
}

/* What the layers add up to, against what the file promises: a figure with a slip of the pen is found here. */
static void check_totals(struct ls_workload_reader *r, const cJSON *root) {
    double promised =
        (double)ls_json_whole(r->json, root, "parameters", 0, INT64_C(10) * LS_MAX_ELEMENTS * LS_MAX_KERNELS);
    double parameters = (double)ls_workload_parameters(&r->parts->workload);
    if (parameters != promised) {
        ls_json_refuse(r->json, cJSON_GetObjectItemCaseSensitive(root, "parameters"),
                       "the layers have %.0f parameters together, not %.0f", parameters, promised);
    }
    promised = ls_json_number(r->json, root, "forward_flops", 0, LS_MAX_FLOPS * LS_MAX_LAYERS);
    if (!(fabs(r->total_flops - promised) <= 1e-9 * promised)) {
        ls_json_refuse(r->json, cJSON_GetObjectItemCaseSensitive(root, "forward_flops"),
                       "the layers have %.0f flops together, not %.0f", r->total_flops, promised);
    }
}

static ls_status read_workload(ls_workload **out, ls_json *json) {
    *out = NULL;
    struct ls_workload_reader r = {.json = json, .parts = ls_workload_begin()};
    if (!r.parts) return LS_ERR_NO_MEMORY;
    const cJSON *root = ls_json_root(json);
    read_head(&r, root);
    const cJSON *layers = ls_json_array(json, root, "layers");
    int64_t count = ls_workload_count_layers(&r, layers);
    ls_status status = ls_json_failed(json) ? LS_ERR_INVALID : LS_OK;
    struct ls_workload_layer *list = status == LS_OK ? calloc((size_t)count + 1, sizeof *list) : NULL;
    r.parts->workload.layers = list;
    if (status == LS_OK && !list) status = ls_fail(LS_ERR_NO_MEMORY, "no memory for %lld layers", (long long)count);
    if (status == LS_OK) {
        ls_workload_read_layers(&r, layers);
        if (!ls_json_failed(json)) check_totals(&r, root);
        if (!ls_json_failed(json)) add_step(&r);
        if (ls_json_failed(json)) status = LS_ERR_INVALID;
    }
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
    ls_status status = ls_library_find(path, LS_WORKLOADS_FOLDER, name);
    if (status == LS_OK) status = ls_json_open(&json, path);
    if (status != LS_OK) return status;
    status = read_workload(out, json);
    ls_json_close(json);
    return status;
}
