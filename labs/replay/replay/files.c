/* files: the rows in machine-readable form. replay.csv has a row per mode and N, with the columns of bench_dp_vs_ddp's,
 * so that fit_tn reads both; replay_devices.csv has device 0 and the others of each row, by phase and by category of
 * memory; JSON has all data. */
#include <cjson/cJSON.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>

#include "common/base/file.h"
#include "common/trace/chrome.h"
#include "labs/replay/engine/library.h"
#include "labs/replay/replay/replay.h"

/* "gathered output" as "gathered_output" */
static const char *identifier(char text[64], const char *name) {
    snprintf(text, 64, "%s", name);
    for (char *at = text; *at; at++)
        if (!isalnum((unsigned char)*at)) *at = '_';
    return text;
}

/* --- CSV --------------------------------------------------------------------------------------------------------- */

static void put_common_head(FILE *file) {
    fputs("model,mode,n,batch,per_device_batch,precision,bucket_cap_mb,how,node,host_lock_us", file);
}

static void put_common(FILE *file, const replay_row *row, const replay_rows *rows) {
    const ls_node *node = rows->inputs->node;
    bench_put_text(file, rows->inputs->workload->name);
    fprintf(file, ",%s,%d", replay_row_name(row, rows->settings), row->n);
    bench_put_number(file, row->batch);
    bench_put_number(file, row->mode == LS_PLAN_SINGLE ? row->batch : row->batch / row->n);
    fprintf(file, ",%s", ls_dtype_name(rows->settings->precision));
    bench_put_number(file, row->cap_mb);
    fputs(",replayed,", file);
    bench_put_text(file, ls_node_name(node));
    bench_put_number(file, ls_node_host(node)->lock_us); /* of each launch, in all modes */
}

/* Empty: unknown. */
static const char *fits_text(const replay_row *row, double bytes) {
    if (isnan(row->device_memory_bytes)) return "";
    return replay_fits(row, bytes) ? "yes" : "no";
}

static ls_status put_rows(FILE *file, const void *results) {
    const replay_rows *rows = results;
    put_common_head(file);
    bench_put_names(file, replay_row_columns);
    bench_put_names(file, replay_device_columns);
    fputs(",link,overlapped,fits,tasks\n", file);
    for (const replay_row *row = rows->rows; row < rows->rows + rows->count; row++) {
        put_common(file, row, rows);
        bench_put_columns(file, replay_row_columns, row);
        bench_put_columns(file, replay_device_columns, &row->mean);
        fputc(',', file);
        bench_put_text(file, row->link);
        fprintf(file, ",%s,%s,%d\n",
                row->mode != LS_PLAN_DDP  ? ""
                : rows->settings->overlap ? "yes"
                                          : "no",
                fits_text(row, row->memory_bytes), row->tasks);
    }
    return LS_OK;
}

static void put_device(FILE *file, const replay_rows *rows, const replay_row *row, const replay_share *share,
                       const char *devices) {
    put_common(file, row, rows);
    fprintf(file, ",%s", devices);
    bench_put_number(file, row->step_ms);
    bench_put_columns(file, replay_device_columns, share);
    for (int p = 0; p < REPLAY_PHASES; p++) bench_put_number(file, share->phase_ms[p]);
    bench_put_columns(file, replay_memory_columns, share);
    bench_put_number(file, row->device_memory_bytes);
    fprintf(file, ",%s\n", fits_text(row, share->memory_total_bytes));
}

static ls_status put_devices(FILE *file, const void *results) {
    const replay_rows *rows = results;
    char name[64];
    put_common_head(file);
    fputs(",device,step_ms", file);
    bench_put_names(file, replay_device_columns);
    for (int p = 0; p < REPLAY_PHASES; p++) fprintf(file, ",phase_%s_ms", identifier(name, replay_phase_name(p)));
    for (const bench_column *c = replay_memory_columns; c->name; c++)
        fprintf(file, ",%s_bytes", identifier(name, c->name));
    fputs(",device_memory_bytes,fits\n", file);
    for (const replay_row *row = rows->rows; row < rows->rows + rows->count; row++) {
        put_device(file, rows, row, &row->first, "0");
        if (row->mode != LS_PLAN_SINGLE && row->n > 1) put_device(file, rows, row, &row->others, "others");
    }
    return LS_OK;
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

static cJSON *share_object(const replay_share *share, bool has_memory) {
    cJSON *object = cJSON_CreateObject();
    bench_add_columns(object, replay_device_columns, share);
    cJSON *phases = cJSON_AddObjectToObject(object, "phase_ms");
    for (int p = 0; p < REPLAY_PHASES; p++) bench_add_number(phases, replay_phase_name(p), share->phase_ms[p]);
    if (has_memory) bench_add_columns(cJSON_AddObjectToObject(object, "memory_bytes"), replay_memory_columns, share);
    return object;
}

static cJSON *row_object(const replay_row *row, const replay_settings *settings, const ls_node *node) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "mode", replay_row_name(row, settings));
    bench_add_number(object, "n", row->n);
    bench_add_number(object, "batch", row->batch);
    if (row->mode == LS_PLAN_DDP) bench_add_number(object, "bucket_cap_mb", row->cap_mb);
    bench_add_columns(object, replay_row_columns, row);
    cJSON_AddStringToObject(object, "busiest_link", row->link);
    cJSON *links = cJSON_AddObjectToObject(object, "links");
    for (int i = 0; i < ls_node_link_count(node); i++)
        bench_add_number(links, ls_node_link(node, i)->name, row->links[i]);
    bench_add_number(object, "tasks", row->tasks);
    cJSON_AddItemToObject(object, "mean", share_object(&row->mean, false));
    cJSON_AddItemToObject(object, "device_0", share_object(&row->first, true));
    if (row->mode != LS_PLAN_SINGLE && row->n > 1)
        cJSON_AddItemToObject(object, "other_devices", share_object(&row->others, true));
    return object;
}

static cJSON *options_object(const replay_settings *settings, const replay_inputs *inputs) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "precision", ls_dtype_name(settings->precision));
    cJSON_AddStringToObject(object, "scaling", settings->per_device_batch > 0 ? "weak" : "strong");
    bench_add_number(object, "steps", settings->steps);
    cJSON_AddBoolToObject(object, "overlap", settings->overlap);
    cJSON_AddBoolToObject(object, "compress", settings->compression.half != LS_FP32);
    bench_add_number(object, "top_k", settings->compression.fraction);
    cJSON_AddBoolToObject(object, "vary", settings->vary);
    bench_add_number(object, "micro_batches", settings->accumulate);
    const char *every = settings->checkpoint_activations;
    cJSON_AddStringToObject(object, "checkpoint_activations", every ? every : "none");
    bench_add_number(object, "tensor", settings->tensor);
    cJSON_AddBoolToObject(object, "sequence_parallel", settings->sequence_parallel);
    bench_add_number(object, "shard_state", settings->shard_state);
    bench_add_number(object, "prefetch_blocks", settings->prefetch_blocks);
    cJSON_AddBoolToObject(object, "sync_bn", settings->sync_bn);
    cJSON_AddBoolToObject(object, "join", settings->join);
    cJSON_AddBoolToObject(object, "cuda_graph", settings->graph);
    bench_add_number(object, "spread_percent", settings->spread_percent);
    cJSON_AddStringToObject(object, "collectives",
                            settings->collectives == LS_PLAN_BY_MESSAGES ? ls_pattern_name(settings->pattern) : "cost");
    cJSON_AddStringToObject(object, "replicate",
                            !settings->by_collectives ? "copies"
                            : settings->by_copies     ? "both"
                                                      : "collectives");
    bench_add_number(object, "host_lock_us", ls_node_host(inputs->node)->lock_us);
    bench_add_number(object, "rates_times", inputs->factor);
    return object;
}

static ls_status put_json(FILE *file, const void *results) {
    const replay_rows *rows = results;
    const replay_inputs *inputs = rows->inputs;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "program", "replay");
    cJSON_AddStringToObject(object, "how", inputs->on);
    cJSON_AddStringToObject(object, "node", ls_node_name(inputs->node));
    cJSON_AddStringToObject(object, "node_is", ls_node_description(inputs->node));
    cJSON_AddStringToObject(object, "workload", inputs->workload->name);
    cJSON_AddStringToObject(object, "workload_source", inputs->workload->source);
    cJSON_AddItemToObject(object, "options", options_object(rows->settings, inputs));
    cJSON *array = cJSON_AddArrayToObject(object, "rows");
    for (int i = 0; i < rows->count; i++)
        cJSON_AddItemToArray(array, row_object(&rows->rows[i], rows->settings, inputs->node));
    return bench_put_json(file, object);
}

/* --- files ------------------------------------------------------------------------------------------------------- */

static const bench_file outputs[] = {
    {"replay.csv", put_rows}, {"replay_devices.csv", put_devices}, {"replay.json", put_json}, {NULL, NULL}};

ls_status replay_prepare_files(const replay_settings *s) {
    char node[LS_SHIPPED_PATH], workload[LS_SHIPPED_PATH];
    ls_status status = s->node ? ls_library_find(node, LS_NODES_FOLDER, s->node) : LS_OK;
    if (status == LS_OK && s->workload) status = ls_library_find(workload, LS_WORKLOADS_FOLDER, s->workload);
    if (status != LS_OK) return status;
    const ls_named_file named[] = {{.option = "--trace", .path = s->trace, .owns = ls_trace_owns_name},
                                   {.option = "--node", .path = s->node ? node : NULL},
                                   {.option = "--workload", .path = s->workload ? workload : NULL},
                                   {.option = "--json", .path = s->json, .is_output = true},
                                   {.option = "--timeline", .path = s->timeline, .is_output = true},
                                   {.option = "--gantt", .path = s->gantt, .is_output = true}};
    ls_named_files files = {0};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) ls_named_files_add(&files, &named[i]);
    status = bench_prepare_folder(&files, s->folder, outputs);
    for (int i = 3; status == LS_OK && i < 6; i++)
        if (named[i].path) status = ls_file_check(named[i].path);
    return status;
}

ls_status replay_write_files(const replay_rows *rows) {
    const replay_settings *settings = rows->settings;
    ls_status status = settings->folder ? bench_write_outputs(settings->folder, outputs, rows) : LS_OK;
    return status == LS_OK && settings->json ? bench_write_to(settings->json, put_json, rows) : status;
}
