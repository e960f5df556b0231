/* files: the results in machine-readable form. CSV has one row per measurement, with the machine in every row, so that
 * files of several machines can be concatenated; JSON has each fact once, and every run. */
#include <cjson/cJSON.h>
#include <stdio.h>

#include "common/base/file.h"
#include "common/comm/reduce_kernels.h"
#include "labs/bench/comm/bench_comm.h"
#include "labs/bench/shared/output.h"

static const char *const agreements[] = {"not compared", "equal", "differs"};

/* --- CSV --------------------------------------------------------------------------------------------------------- */

static void put_row(FILE *file, const comm_results *results, const comm_row *row) {
    bool ours = comm_is_ours(row);
    bench_put_text(file, row->library);
    fprintf(file, ",%s,%s,%s,%s,%d,%zu,%zu,%s,%s,%d,%d,%s", ours ? comm_variant_backend(row->variant) : "",
            ours ? comm_variant_buffers(row->variant) : "private", row->operation->name, row->algorithm, row->n,
            row->nbytes, row->count, ls_dtype_name(results->settings->dtype),
            ls_reduce_op_name(results->settings->reduce), row->run_count, row->iterations,
            row->run_count > 0 ? "measured" : "checked");
    bench_put_columns(file, comm_numbers, row);
    bench_put_columns(file, comm_counts, ours ? row : NULL);
    fprintf(file, ",%s,%s", ours ? agreements[row->agreement] : "", row->oversubscribed ? "yes" : "no");
    bench_put_columns(file, bench_machine_columns, results->machine);
    fputc('\n', file);
}

static ls_status put_rows(FILE *file, const void *of) {
    const comm_results *results = of;
    fputs("library,backend,buffers,op,algorithm,n,bytes,part_count,dtype,reduce,runs,iterations,how", file);
    bench_put_names(file, comm_numbers);
    bench_put_names(file, comm_counts);
    fputs(",counts,oversubscribed", file);
    bench_put_names(file, bench_machine_columns);
    fputc('\n', file);
    for (int i = 0; i < results->row_count; i++) put_row(file, results, &results->rows[i]);
    for (int i = 0; i < results->other_count; i++) put_row(file, results, &results->others[i]);
    return LS_OK;
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

static cJSON *options_object(const comm_settings *settings) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "dtype", ls_dtype_name(settings->dtype));
    bench_add_number(object, "runs", settings->runs);
    bench_add_number(object, "run_ms", settings->run_ms);
    bench_add_number(object, "cache_bytes", (double)settings->cache_bytes);
    cJSON_AddBoolToObject(object, "check_only", settings->check_only);
    return object;
}

static cJSON *row_object(const comm_row *row) {
    cJSON *object = cJSON_CreateObject();
    bool ours = comm_is_ours(row);
    cJSON_AddStringToObject(object, "library", row->library);
    if (ours) cJSON_AddStringToObject(object, "backend", comm_variant_backend(row->variant));
    cJSON_AddStringToObject(object, "buffers", ours ? comm_variant_buffers(row->variant) : "private");
    cJSON_AddStringToObject(object, "op", row->operation->name);
    if (row->algorithm[0]) cJSON_AddStringToObject(object, "algorithm", row->algorithm);
    bench_add_number(object, "n", row->n);
    bench_add_number(object, "bytes", (double)row->nbytes);
    bench_add_number(object, "part_count", (double)row->count);
    cJSON_AddBoolToObject(object, "oversubscribed", row->oversubscribed);
    cJSON_AddBoolToObject(object, "checked", row->checked);
    bench_add_number(object, "iterations", row->iterations);
    bench_add_columns(object, comm_numbers, row);
    bench_add_columns(object, comm_counts, ours ? row : NULL);
    if (ours) cJSON_AddStringToObject(object, "counts", agreements[row->agreement]);
    cJSON_AddItemToObject(object, "run_us", cJSON_CreateDoubleArray(row->run_us, row->run_count));
    return object;
}

static ls_status put_json(FILE *file, const void *of) {
    const comm_results *results = of;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "bench", "comm");
    cJSON_AddStringToObject(object, "how", results->settings->check_only ? "checked" : "measured");
    cJSON_AddItemToObject(object, "machine", bench_machine_object(results->machine));
    cJSON_AddItemToObject(object, "options", options_object(results->settings));
    if (results->absent[0]) cJSON_AddStringToObject(object, "not_installed", results->absent);
    cJSON *rows = cJSON_AddArrayToObject(object, "rows");
    for (int i = 0; i < results->row_count; i++) cJSON_AddItemToArray(rows, row_object(&results->rows[i]));
    for (int i = 0; i < results->other_count; i++) cJSON_AddItemToArray(rows, row_object(&results->others[i]));
    return bench_put_json(file, object);
}

/* --- files ------------------------------------------------------------------------------------------------------- */

static const bench_file outputs[] = {{"comm.csv", put_rows}, {"comm.json", put_json}, {NULL, NULL}};

ls_status comm_prepare_files(const comm_settings *settings) {
    const ls_named_file json = {.option = "--json", .path = settings->json, .is_output = true};
    ls_named_files files = {0};
    ls_named_files_add(&files, &json);
    ls_status status = bench_prepare_folder(&files, settings->folder, outputs);
    return status == LS_OK && settings->json ? ls_file_check(settings->json) : status;
}

ls_status comm_write_files(const comm_results *results) {
    const comm_settings *settings = results->settings;
    ls_status status = bench_write_outputs(settings->folder, outputs, results);
    return status == LS_OK && settings->json ? bench_write_to(settings->json, put_json, results) : status;
}
