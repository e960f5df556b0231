/* workload — reads a file that describes a network layer by layer.
 *   idea  : layers are read in the order of the forward pass (workload_layers.c); the operations of a step are derived
 *           from them by rules (workload_step.c), so the file does not contain operations
 *   fails : errors are reported with their line; the layers' totals must equal those in the file */
#include "labs/replay/engine/workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "labs/replay/engine/library.h"
#include "labs/replay/engine/workload_layers.h"

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
                   "unknown optimizer %.40s; expected sgd, sgd-momentum or adam", name);
    return 0;
}

static void check_notes(struct ls_workload_reader *r, const cJSON *root) {
    if (!ls_json_has(root, "notes")) return;
    const cJSON *notes = ls_json_array(r->json, root, "notes"), *note;
    cJSON_ArrayForEach(note, notes) {
        if (!cJSON_IsString(note)) ls_json_refuse(r->json, note, "a note must be a string");
    }
}

/* The index of a member's text in a list that ends with NULL; refused if it is not in the list. */
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

/* Compares the layers' totals with those in the file, which finds typing errors. */
static void check_totals(struct ls_workload_reader *r, const cJSON *root) {
    double promised =
        (double)ls_json_whole(r->json, root, "parameters", 0, INT64_C(10) * LS_MAX_ELEMENTS * LS_MAX_KERNELS);
    double parameters = (double)ls_workload_parameters(&r->parts->workload);
    if (parameters != promised) {
        ls_json_refuse(r->json, cJSON_GetObjectItemCaseSensitive(root, "parameters"),
                       "the layers have %.0f parameters together; expected %.0f", parameters, promised);
    }
    promised = ls_json_number(r->json, root, "forward_flops", 0, LS_MAX_FLOPS * LS_MAX_LAYERS);
    if (!(fabs(r->total_flops - promised) <= 1e-9 * promised)) {
        ls_json_refuse(r->json, cJSON_GetObjectItemCaseSensitive(root, "forward_flops"),
                       "the layers have %.0f flops together; expected %.0f", r->total_flops, promised);
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
    if (status == LS_OK && !list)
        status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for %lld layers", (long long)count);
    if (status == LS_OK) {
        ls_workload_read_layers(&r, layers);
        if (!ls_json_failed(json)) check_totals(&r, root);
        if (!ls_json_failed(json)) ls_workload_add_step(r.parts);
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
    char path[LS_SHIPPED_PATH];
    ls_json *json;
    *out = NULL;
    ls_status status = ls_library_find(path, LS_WORKLOADS_FOLDER, name);
    if (status == LS_OK) status = ls_json_open(&json, path);
    if (status != LS_OK) return status;
    status = read_workload(out, json);
    ls_json_close(json);
    return status;
}
