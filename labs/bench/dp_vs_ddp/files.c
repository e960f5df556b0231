/* files: the report, and the results in machine-readable form. The report is the first screen, with the answers and a
 * table per model, and the details, which are all other tables; stdout has the screen, and with --all the details. CSV
 * has one row per measurement, with the machine in every row, so that files of several machines can be concatenated;
 * JSON has each fact once, and every run. */
#include <cjson/cJSON.h>
#include <stdio.h>

#include "common/train/loop.h"
#include "labs/bench/dp_vs_ddp/bench.h"

/* For the rows of DP and DDP: whether both have the same weights; "" for the others. */
static const char *same_weights(const bench_model *model, const bench_row *row) {
    if (row->mode == BENCH_SINGLE || !bench_have_weights(model, row->n)) return "";
    return bench_same_weights(model, row->n) ? "yes" : "no";
}

static const char *scaling(const bench_plan *plan) { return plan->weak ? "weak" : "strong"; }

/* --- CSV --------------------------------------------------------------------------------------------------------- */

static ls_status put_rows(FILE *file, const void *of) {
    const bench_results *results = of;
    fputs("model,mode,n,batch,per_device_batch,steps,runs,how", file);
    bench_put_names(file, bench_measured_columns);
    fputs(",weights,same_weights,oversubscribed,backend,device,device_name", file);
    bench_put_names(file, bench_machine_columns);
    fputs(",scaling\n", file);
    for (const bench_model *model = results->models; model < results->models + results->model_count; model++) {
        for (const bench_row *row = model->rows; row < model->rows + model->row_count; row++) {
            bench_put_text(file, model->plan->model);
            fprintf(file, ",%s,%d,%lld,%lld,%d,%d,measured", bench_mode_name(row->mode), row->n,
                    (long long)row->per_device_batch * row->n, (long long)row->per_device_batch, model->plan->steps,
                    row->run_count);
            bench_put_columns(file, bench_measured_columns, row);
            fprintf(file, ",%s,%s,%s,", row->weights, same_weights(model, row), row->oversubscribed ? "yes" : "no");
            bench_put_text(file, row->backend);
            fprintf(file, ",%s,", results->settings->device);
            bench_put_text(file, results->device_name);
            bench_put_columns(file, bench_machine_columns, results->machine);
            fprintf(file, ",%s\n", scaling(model->plan));
        }
    }
    return LS_OK;
}

/* A model's rows that were measured in another way: under the lock, or in virtual time. */
struct others {
    const char *how;
    int steps, count;
    const bench_row *rows;
    const bench_column *columns;
    double host_lock_us;
};

static struct others locked_of(const bench_model *m) {
    return (struct others){"measured",     m->locked_plan.steps, m->locked_count,
                           m->locked_rows, bench_locked_columns, BENCH_LOCK_US};
}

static struct others virtual_of(const bench_model *m) {
    int steps = m->virtual_plan.steps - LS_WARMUP_STEPS;
    return (struct others){"virtual", steps, m->virtual_count, m->virtual_rows, bench_virtual_columns, 0};
}

static ls_status put_others(FILE *file, const bench_results *results, struct others (*of)(const bench_model *model)) {
    fputs("model,mode,n,batch,runs,steps", file);
    bench_put_names(file, of(&results->models[0]).columns);
    fputs(",how,host_lock_us,device_kind,device_name", file);
    bench_put_names(file, bench_machine_columns);
    fputs(",per_device_batch,scaling\n", file);
    for (const bench_model *model = results->models; model < results->models + results->model_count; model++) {
        const struct others others = of(model);
        for (const bench_row *row = others.rows; row < others.rows + others.count; row++) {
            bench_put_text(file, model->plan->model);
            fprintf(file, ",%s,%d,%lld,%d,%d", bench_mode_name(row->mode), row->n,
                    (long long)row->per_device_batch * row->n, row->run_count, others.steps);
            bench_put_columns(file, others.columns, row);
            fprintf(file, ",%s,%g,%s,", others.how, others.host_lock_us, results->settings->device);
            bench_put_text(file, results->device_name);
            bench_put_columns(file, bench_machine_columns, results->machine);
            fprintf(file, ",%lld,%s\n", (long long)row->per_device_batch, scaling(model->plan));
        }
    }
    return LS_OK;
}

static ls_status put_locked_rows(FILE *file, const void *results) { return put_others(file, results, locked_of); }
static ls_status put_virtual_rows(FILE *file, const void *results) { return put_others(file, results, virtual_of); }

/* --- JSON -------------------------------------------------------------------------------------------------------- */

static cJSON *options_object(const bench_results *results) {
    const bench_settings *settings = results->settings;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddItemToObject(object, "n", cJSON_CreateIntArray(settings->n.values, settings->n.count));
    bench_add_number(object, "rounds", settings->rounds);
    bench_add_number(object, "timeout_s", settings->timeout_s);
    cJSON_AddStringToObject(object, "device", settings->device);
    if (settings->gpus) bench_add_number(object, "gpus", settings->processors);
    if (settings->gpus) cJSON_AddStringToObject(object, "device_name", results->device_name);
    return object;
}

static cJSON *row_object(const bench_model *model, const bench_row *row) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "mode", bench_mode_name(row->mode));
    bench_add_number(object, "n", row->n);
    bench_add_number(object, "per_device_batch", (double)row->per_device_batch);
    cJSON_AddBoolToObject(object, "oversubscribed", row->oversubscribed);
    bench_add_columns(object, bench_measured_columns, row);
    cJSON_AddStringToObject(object, "weights", row->weights);
    if (row->mode != BENCH_SINGLE) cJSON_AddStringToObject(object, "backend", row->backend);
    cJSON_AddBoolToObject(object, "runs_have_the_same_weights", row->repeats);
    cJSON_AddBoolToObject(object, "failed", row->failed);
    if (row->mode != BENCH_SINGLE) {
        cJSON_AddBoolToObject(object, "dp_and_ddp_have_the_same_weights", bench_same_weights(model, row->n));
    }
    cJSON_AddItemToObject(object, "run_ms", cJSON_CreateDoubleArray(row->run_ms, row->run_count));
    cJSON_AddItemToObject(object, "run_exposed_ms", cJSON_CreateDoubleArray(row->run_exposed_ms, row->run_count));
    return object;
}

static cJSON *others_object(const struct others *others) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "how", others->how);
    bench_add_number(object, "steps", others->steps);
    bench_add_number(object, "host_lock_us", others->host_lock_us);
    cJSON *rows = cJSON_AddArrayToObject(object, "rows");
    for (const bench_row *row = others->rows; row < others->rows + others->count; row++) {
        cJSON *values = cJSON_CreateObject();
        cJSON_AddStringToObject(values, "mode", bench_mode_name(row->mode));
        bench_add_number(values, "n", row->n);
        bench_add_columns(values, others->columns, row);
        cJSON_AddItemToObject(values, "run_ms", cJSON_CreateDoubleArray(row->run_ms, row->run_count));
        cJSON_AddItemToArray(rows, values);
    }
    return object;
}

static cJSON *model_object(const bench_model *model) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "model", model->plan->model);
    cJSON_AddStringToObject(object, "data", model->plan->data);
    cJSON *recipe = cJSON_AddArrayToObject(object, "recipe");
    for (int i = 0; model->plan->recipe[i]; i++) {
        cJSON_AddItemToArray(recipe, cJSON_CreateString(model->plan->recipe[i]));
    }
    bench_add_number(object, "batch", (double)model->plan->batch);
    bench_add_number(object, "steps", model->plan->steps);
    cJSON_AddStringToObject(object, "scaling", scaling(model->plan));
    cJSON *rows = cJSON_AddArrayToObject(object, "rows");
    for (int i = 0; i < model->row_count; i++) cJSON_AddItemToArray(rows, row_object(model, &model->rows[i]));
    const struct others locked = locked_of(model), in_virtual_time = virtual_of(model);
    if (locked.count > 0) cJSON_AddItemToObject(object, "host_lock", others_object(&locked));
    if (in_virtual_time.count > 0) cJSON_AddItemToObject(object, "virtual", others_object(&in_virtual_time));
    return object;
}

static ls_status put_json(FILE *file, const void *of) {
    const bench_results *results = of;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "bench", "dp_vs_ddp");
    cJSON_AddStringToObject(object, "how", "measured");
    cJSON_AddItemToObject(object, "machine", bench_machine_object(results->machine));
    cJSON_AddItemToObject(object, "options", options_object(results));
    cJSON *models = cJSON_AddArrayToObject(object, "models");
    for (int m = 0; m < results->model_count; m++) cJSON_AddItemToArray(models, model_object(&results->models[m]));
    return bench_put_json(file, object);
}

/* --- the report --------------------------------------------------------------------------------------------------- */

static ls_status put_screen(FILE *file, const bench_results *results) {
    const bench_settings *settings = results->settings;
    ls_status status = LS_OK;
    bench_put_answers(file, results);
    fputc('\n', file);
    bench_print_machine(file, results->machine);
    if (settings->gpus) {
        fprintf(file, "devices: %d GPU%s, %s\n", settings->processors, settings->processors == 1 ? "" : "s",
                results->device_name);
    }
    for (int m = 0; status == LS_OK && m < results->model_count; m++)
        status = bench_print_table(file, &results->models[m], settings);
    bench_print_notes(file, results);
    return status;
}

static ls_status put_details(FILE *file, const bench_results *results) {
    ls_status status = LS_OK;
    for (int m = 0; status == LS_OK && m < results->model_count; m++)
        status = bench_print_details(file, &results->models[m], results->settings);
    bench_print_legend(file, results->settings, results->models[0].virtual_count > 0);
    return status;
}

static ls_status put_report(FILE *file, const void *results) {
    ls_status status = put_screen(file, results);
    return status == LS_OK ? put_details(file, results) : status;
}

ls_status bench_report(const bench_results *results, const char *folder) {
    ls_status status = put_screen(stdout, results);
    if (status == LS_OK && results->settings->all) status = put_details(stdout, results);
    printf("\nAll tables and what their columns mean: %s/" BENCH_REPORT_FILE ", or --all (make: ALL=1)\n"
           "The numbers: %s/dp_vs_ddp*.csv, dp_vs_ddp.json\n",
           folder, folder);
    return status;
}

/* --- files ------------------------------------------------------------------------------------------------------- */

static const bench_file outputs[] = {
    {"dp_vs_ddp.csv", put_rows},
    {"dp_vs_ddp_locked.csv", put_locked_rows},
    {"dp_vs_ddp_virtual.csv", put_virtual_rows},
    {"dp_vs_ddp.json", put_json},
    {"dp_vs_ddp_replayed.csv", bench_put_replayed},
    {BENCH_REPORT_FILE, put_report},
    {NULL, NULL},
};

ls_status bench_prepare_files(const char *folder) {
    return bench_prepare_folder(&(ls_named_files){0}, folder, outputs);
}

ls_status bench_write_files(const bench_results *results, const char *folder) {
    return bench_write_outputs(folder, outputs, results);
}
