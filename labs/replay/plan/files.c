/* files: the columns of a row in text, CSV and JSON; and the results in machine-readable form. */
#include <math.h>

#include "common/base/file.h"
#include "labs/bench/shared/output.h"
#include "labs/replay/engine/library.h"
#include "labs/replay/plan/planner.h"

#define MIB 1048576.0

static const char *const verdicts[] = {"fits", "does not fit", "cannot be combined", "not planned"};

BENCH_TEXT_OF(program_of, planner_row, planner_program(row))
BENCH_TEXT_OF(verdict_of, planner_row, verdicts[row->verdict])
BENCH_MADE_TEXT_OF(command_of, planner_row, true, "%s %s", planner_program(row), row->options)
BENCH_NUMBER_OF(gradients_of, planner_row, planner_gradients(row))
BENCH_NUMBER_OF(others_of, planner_row, planner_others(row))

static const char *mostly_of(char cell[BENCH_CELL], const void *of) {
    const planner_row *row = of;
    const struct {
        const char *name;
        double part;
    } parts[] = {
        {"compute", row->compute}, {"communication", row->communication}, {"host", row->host}, {"idle", row->idle}};
    size_t most = 0;
    for (size_t i = 1; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].part > parts[most].part) most = i;
    if (!isnan(row->step_ms)) snprintf(cell, BENCH_CELL, "%s %.0f %%", parts[most].name, 100 * parts[most].part);
    return cell;
}

static const char *because_of(char cell[BENCH_CELL], const void *of) {
    const planner_row *row = of;
    if (row->verdict == PLANNER_TOO_LARGE) snprintf(cell, BENCH_CELL, "%s", planner_largest(row));
    return cell;
}

static const char *reason_of(char cell[BENCH_CELL], const void *of) {
    (void)cell;
    return ((const planner_row *)of)->reason;
}

#define AT(field) BENCH_AT(BENCH_DOUBLE, planner_row, field)
#define MIBS .per = MIB, .decimals = 1
#define CATEGORIES(column)                                                                                             \
    column("parameters_bytes", "para-\nmeters", AT(bytes[LS_MEMORY_PARAMETER])),                                       \
        column("gradients_bytes", "gra-\ndients", .number = gradients_of),                                             \
        column("optimizer_bytes", "opti-\nmizer", AT(bytes[LS_MEMORY_OPTIMIZER])),                                     \
        column("activations_bytes", "acti-\nvations", AT(bytes[LS_MEMORY_ACTIVATION])),                                \
        column("others_bytes", "others", .number = others_of)
#define FILED(text, title, ...) BENCH_COLUMN(.name = text, __VA_ARGS__)
#define SHOWN(text, title, ...) BENCH_COLUMN(.head = title, __VA_ARGS__, MIBS)

/* The columns of the files. */
const bench_column planner_columns[] = {
    {.name = "program", .text = program_of},
    {.name = "options", BENCH_AT(BENCH_CHARS, planner_row, options)},
    {.name = "verdict", .text = verdict_of},
    {.name = "step_ms", AT(step_ms)},
    {.name = "samples_per_s", AT(samples_per_s)},
    {.name = "memory_bytes", AT(total_bytes)},
    {.name = "over_bytes", AT(over_bytes)},
    {.name = "device", BENCH_AT(BENCH_INT, planner_row, device)},
    CATEGORIES(FILED),
    {.name = "compute_share", AT(compute)},
    {.name = "communication_share", AT(communication)},
    {.name = "host_share", AT(host)},
    {.name = "idle_share", AT(idle)},
    {.name = "reason", .text = reason_of},
    {.kind = BENCH_END},
};

const bench_column planner_fitting_columns[] = {
    {.head = "options", .text = command_of},
    {.head = "memory\nMiB", AT(total_bytes), MIBS},
    {.head = "step\nms", AT(step_ms), .decimals = 3},
    {.head = "samples\na second", AT(samples_per_s), .decimals = 0},
    {.head = "mostly", .text = mostly_of},
    {.kind = BENCH_END},
};

const bench_column planner_too_large_columns[] = {
    {.head = "options", .text = command_of},
    {.head = "memory\nMiB", AT(total_bytes), MIBS},
    {.head = "too many\nbytes", AT(over_bytes), .decimals = 0},
    CATEGORIES(SHOWN),
    {.head = "most of it", .text = because_of},
    {.kind = BENCH_END},
};

/* --- files -------------------------------------------------------------------------------------------------------- */

static ls_status put_rows(FILE *file, const void *of) {
    const planner_results *results = of;
    const planner_settings *s = results->settings;
    fputs("how,network,devices,batch,limit_bytes", file);
    bench_put_names(file, planner_columns);
    fputc('\n', file);
    for (const planner_row *row = results->rows; row < results->rows + results->count; row++) {
        bench_put_text(file, results->on);
        fputc(',', file);
        bench_put_text(file, s->model ? s->model : s->workload);
        fprintf(file, ",%d,%.0f,%.0f", s->devices, results->batch, results->memory_bytes);
        bench_put_columns(file, planner_columns, row);
        fputc('\n', file);
    }
    return LS_OK;
}

static ls_status put_json(FILE *file, const void *of) {
    const planner_results *results = of;
    const planner_settings *s = results->settings;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "program", "plan");
    cJSON_AddStringToObject(object, "how", results->on);
    cJSON_AddStringToObject(object, "node", ls_node_name(results->node));
    cJSON_AddStringToObject(object, s->model ? "model" : "workload", s->model ? s->model : s->workload);
    bench_add_number(object, "devices", s->devices);
    bench_add_number(object, "batch", results->batch);
    bench_add_number(object, "limit_bytes", results->memory_bytes);
    cJSON *rows = cJSON_AddArrayToObject(object, "rows");
    for (const planner_row *row = results->rows; row < results->rows + results->count; row++) {
        cJSON *values = cJSON_CreateObject();
        bench_add_columns(values, planner_columns, row);
        cJSON_AddItemToArray(rows, values);
    }
    cJSON *omitted = cJSON_AddArrayToObject(object, "not_planned");
    for (const struct planner_omission *o = planner_omissions; o->options; o++) {
        cJSON *values = cJSON_CreateObject();
        cJSON_AddStringToObject(values, "options", o->options);
        cJSON_AddStringToObject(values, "reason", o->reason);
        cJSON_AddItemToArray(omitted, values);
    }
    return bench_put_json(file, object);
}

static const bench_file outputs[] = {{"plan.csv", put_rows}, {"plan.json", put_json}, {NULL, NULL}};

ls_status planner_prepare_files(const planner_settings *s) {
    char workload[LS_SHIPPED_PATH], node[LS_SHIPPED_PATH];
    ls_status status = ls_library_find(node, LS_NODES_FOLDER, s->node);
    if (status == LS_OK && s->workload) status = ls_library_find(workload, LS_WORKLOADS_FOLDER, s->workload);
    if (status != LS_OK) return status;
    const ls_named_file named[] = {{.option = "--node", .path = node},
                                   {.option = "--workload", .path = s->workload ? workload : NULL},
                                   {.option = "--json", .path = s->json, .is_output = true}};
    ls_named_files files = {0};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) ls_named_files_add(&files, &named[i]);
    status = bench_prepare_folder(&files, s->folder, outputs);
    return status == LS_OK && s->json ? ls_file_check(s->json) : status;
}

ls_status planner_write_files(const planner_results *results) {
    const planner_settings *s = results->settings;
    ls_status status = s->folder ? bench_write_outputs(s->folder, outputs, results) : LS_OK;
    return status == LS_OK && s->json ? bench_write_to(s->json, put_json, results) : status;
}
