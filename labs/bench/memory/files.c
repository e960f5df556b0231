/* files: the report, and the results in machine-readable form. */
#include "labs/bench/memory/bench_memory.h"

/* --- CSV and JSON -------------------------------------------------------------------------------------------------- */

static ls_status put_rows(FILE *file, const void *of) {
    const memory_results *results = of;
    fputs("bench", file);
    bench_put_names(file, memory_columns);
    fputs(",weights,node", file);
    bench_put_names(file, bench_machine_columns);
    fputc('\n', file);
    for (const memory_row *row = results->rows; row < results->rows + results->row_count; row++) {
        fputs("memory", file);
        bench_put_columns(file, memory_columns, row);
        fprintf(file, ",%s,", row->weights);
        bench_put_text(file, row->is_measured ? "" : results->settings->node);
        bench_put_columns(file, bench_machine_columns, results->machine);
        fputc('\n', file);
    }
    return LS_OK;
}

static ls_status put_json(FILE *file, const void *of) {
    const memory_results *results = of;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "bench", "memory");
    cJSON_AddItemToObject(object, "machine", bench_machine_object(results->machine));
    cJSON_AddStringToObject(object, "node", results->settings->node);
    bench_add_number(object, "bucket_cap_mb", results->settings->bucket_cap_mb);
    cJSON *rows = cJSON_AddArrayToObject(object, "rows");
    for (const memory_row *row = results->rows; row < results->rows + results->row_count; row++) {
        cJSON *values = cJSON_CreateObject();
        bench_add_columns(values, memory_columns, row);
        cJSON_AddStringToObject(values, "weights", row->weights);
        cJSON_AddItemToObject(values, "run_ms", cJSON_CreateDoubleArray(row->run_ms, row->run_count));
        cJSON_AddItemToArray(rows, values);
    }
    return bench_put_json(file, object);
}

/* --- the report --------------------------------------------------------------------------------------------------- */

static ls_status put_screen(FILE *file, const memory_results *results, bool all) {
    ls_status status = memory_put_answers(file, results);
    fputc('\n', file);
    bench_print_machine(file, results->machine);
    return status == LS_OK ? memory_print_table(file, results, all) : status;
}

static ls_status put_report(FILE *file, const void *results) { return put_screen(file, results, true); }

ls_status memory_report(const memory_results *results) {
    const char *folder = results->settings->folder;
    ls_status status = put_screen(stdout, results, results->settings->all);
    printf("Every N: %s/" MEMORY_REPORT_FILE ", or --all (make: ALL=1). The numbers: %s/memory.csv, memory.json\n",
           folder, folder);
    return status;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static const bench_file outputs[] = {
    {"memory.csv", put_rows}, {"memory.json", put_json}, {MEMORY_REPORT_FILE, put_report}, {NULL, NULL}};

ls_status memory_prepare_files(const char *folder) {
    return bench_prepare_folder(&(ls_named_files){0}, folder, outputs);
}

ls_status memory_write_files(const memory_results *results, const char *folder) {
    return bench_write_outputs(folder, outputs, results);
}
