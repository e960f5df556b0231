/* files: the columns of a row in text, CSV and JSON; the report, and the results in machine-readable form. */
#include <math.h>

#include "labs/bench/gpt/bench_gpt.h"

#define MIB 1048576.0

/* --- columns ------------------------------------------------------------------------------------------------------ */

BENCH_TEXT_OF(part_of, gpt_row, row->kind < GPT_SCORES ? "step" : "attention")
BENCH_TEXT_OF(name_of, gpt_row, gpt_name(row->kind))
BENCH_TEXT_OF(note_of, gpt_row,
              row->failed           ? "failed"
              : row->missing        ? "not here"
              : row->oversubscribed ? "oversubscribed"
                                    : "")
BENCH_NUMBER_OF(tokens_of, gpt_row,
                row->kind == GPT_PRODUCTS || row->kind >= GPT_SCORES ? NAN : 1e3 * row->batch * row->context / row->ms)

#define AT(field) BENCH_AT(BENCH_DOUBLE, gpt_row, field)
#define COUNT(field) BENCH_AT(BENCH_INT, gpt_row, field)

/* The columns of the files. */
static const bench_column all_columns[] = {
    {.name = "part", .text = part_of},
    {.name = "form", .text = name_of},
    {.name = "n", COUNT(n)},
    {.name = "context", COUNT(context)},
    {.name = "batch", COUNT(batch)},
    {.name = "runs", COUNT(run_count)},
    {.name = "ms", AT(ms)},
    {.name = "ms_min", AT(ms_min)},
    {.name = "ms_max", AT(ms_max)},
    {.name = "tokens_per_s", .number = tokens_of},
    {.name = "speed", AT(speed)},
    {.name = "speed_min", AT(speed_min)},
    {.name = "speed_max", AT(speed_max)},
    {.name = "kept_bytes", AT(kept_bytes)},
    {.name = "activations_bytes", AT(activation_bytes)},
    {.name = "note", .text = note_of},
    {.kind = BENCH_END},
};

#define MILLISECONDS                                                                                                   \
    BENCH_COLUMN(.head = "\nms", AT(ms), .decimals = 2), BENCH_COLUMN(.head = "least\nms", AT(ms_min), .decimals = 2), \
        BENCH_COLUMN(.head = "most\nms", AT(ms_max), .decimals = 2)

static const bench_column step_columns[] = {
    {.head = "a step", .text = name_of},
    {.head = "N", COUNT(n)},
    MILLISECONDS,
    {.head = "tokens/s", .number = tokens_of},
    {.head = "speed,\nlockstep = 1", AT(speed), .decimals = 2},
    {.head = "", .text = note_of},
    {.kind = BENCH_END},
};

static const bench_column attention_columns[] = {
    {.head = "T", COUNT(context)},
    {.head = "attention", .text = name_of},
    MILLISECONDS,
    {.head = "speed,\nscores = 1", AT(speed), .decimals = 2},
    {.head = "kept for\nbackward MiB", AT(kept_bytes), .per = MIB, .decimals = 3},
    {.head = "network's\nactivations MiB", AT(activation_bytes), .per = MIB, .decimals = 1},
    {.head = "", .text = note_of},
    {.kind = BENCH_END},
};

/* --- CSV and JSON ------------------------------------------------------------------------------------------------- */

static ls_status put_rows(FILE *file, const void *of) {
    const gpt_results *results = of;
    fputs("bench", file);
    bench_put_names(file, all_columns);
    fputs(",weights,pytorch", file);
    bench_put_names(file, bench_machine_columns);
    fputc('\n', file);
    for (const gpt_row *row = results->rows; row < results->rows + results->row_count; row++) {
        bool is_pytorch = row->kind == GPT_EAGER || row->kind == GPT_COMPILED;
        fputs("gpt", file);
        bench_put_columns(file, all_columns, row);
        fprintf(file, ",%s,", row->weights);
        bench_put_text(file, is_pytorch ? results->pytorch : "");
        bench_put_columns(file, bench_machine_columns, results->machine);
        fputc('\n', file);
    }
    return LS_OK;
}

static ls_status put_json(FILE *file, const void *of) {
    const gpt_results *results = of;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "bench", "gpt");
    cJSON_AddItemToObject(object, "machine", bench_machine_object(results->machine));
    cJSON_AddStringToObject(object, "pytorch", results->pytorch);
    bench_add_number(object, "steps", results->settings->steps);
    bench_add_number(object, "product_flops", gpt_product_flops(results->settings));
    bench_add_number(object, "product_rate", results->rate);
    bench_add_number(object, "products_own_shapes_ms", results->own_ms);
    cJSON *rows = cJSON_AddArrayToObject(object, "rows");
    for (const gpt_row *row = results->rows; row < results->rows + results->row_count; row++) {
        cJSON *values = cJSON_CreateObject();
        bench_add_columns(values, all_columns, row);
        cJSON_AddStringToObject(values, "weights", row->weights);
        cJSON_AddItemToObject(values, "run_ms", cJSON_CreateDoubleArray(row->run_ms, row->run_count));
        cJSON_AddItemToArray(rows, values);
    }
    return bench_put_json(file, object);
}

/* --- the report --------------------------------------------------------------------------------------------------- */

static ls_status print_attention(FILE *file, const gpt_results *results) {
    const ls_int_list *contexts = &results->settings->contexts;
    bench_table table = {.columns = attention_columns};
    for (int i = 0; i < contexts->count; i++)
        for (gpt_kind kind = GPT_SCORES; kind <= GPT_TILES; kind++)
            bench_table_line(&table, gpt_find(results, kind, contexts->values[i]));
    return bench_table_finish(&table, file);
}

static ls_status put_report(FILE *file, const void *of) {
    const gpt_results *results = of;
    const gpt_settings *s = results->settings;
    bench_table steps = {.columns = step_columns};
    gpt_put_answers(file, results);
    fputc('\n', file);
    bench_print_machine(file, results->machine);
    fprintf(file, "\nmeasured: %d run%s of %d steps a row, all rows in turn; N = 1 on one core\n\n", s->rounds,
            s->rounds == 1 ? "" : "s", s->steps);
    for (const gpt_row *row = results->rows; row->kind < GPT_SCORES; row++) bench_table_line(&steps, row);
    ls_status status = bench_table_finish(&steps, file);
    fprintf(file,
            "\nAttention of one layer, forward and backward, %d heads of %d channels, %d sequences: measured, %d run%s "
            "on one core; the "
            "network's\nactivations with as many sequences: counted in a step on a meta device\n\n",
            s->sizes.heads, s->sizes.channels / s->sizes.heads, GPT_ATTENTION_SEQUENCES, s->rounds,
            s->rounds == 1 ? "" : "s");
    return status == LS_OK ? print_attention(file, results) : status;
}

ls_status gpt_report(const gpt_results *results) {
    const char *folder = results->settings->folder;
    ls_status status = put_report(stdout, results);
    printf("\nThe same and the numbers: %s/" GPT_REPORT_FILE ", gpt.csv, gpt.json\n", folder);
    return status;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static const bench_file outputs[] = {
    {"gpt.csv", put_rows}, {"gpt.json", put_json}, {GPT_REPORT_FILE, put_report}, {NULL, NULL}};

ls_status gpt_prepare_files(const char *folder) { return bench_prepare_folder(&(ls_named_files){0}, folder, outputs); }

ls_status gpt_write_files(const gpt_results *results, const char *folder) {
    return bench_write_outputs(folder, outputs, results);
}
