/* tables: the columns of a row in text, CSV and JSON, and the table. */
#include "labs/bench/memory/bench_memory.h"

#define MIB 1048576.0

/* --- columns ------------------------------------------------------------------------------------------------------ */

BENCH_TEXT_OF(model_of, memory_row, row->model->name)
BENCH_TEXT_OF(technique_of, memory_row, row->technique->name)
BENCH_TEXT_OF(how_of, memory_row, row->is_measured ? "measured" : "replayed")
BENCH_TEXT_OF(note_of, memory_row, row->failed ? "failed" : row->oversubscribed ? "oversubscribed" : "")
BENCH_NUMBER_OF(batch_of, memory_row, (double)row->model->batch)

/* DDP's gradients are in its buckets. */
BENCH_NUMBER_OF(gradients_of, memory_row, row->bytes[LS_MEMORY_GRADIENT] + row->bytes[LS_MEMORY_BUCKET])
BENCH_NUMBER_OF(others_of, memory_row,
                row->bytes[LS_MEMORY_INPUT] + row->bytes[LS_MEMORY_GATHERED_OUTPUT] + row->bytes[LS_MEMORY_WORKSPACE])

#define AT(field) BENCH_AT(BENCH_DOUBLE, memory_row, field)
#define BYTES(of) AT(bytes[LS_MEMORY_##of])
#define MIBS .per = MIB, .decimals = 1

const bench_column memory_columns[] = {
    {.name = "model", .head = "network", .text = model_of},
    {.name = "n", .head = "N", BENCH_AT(BENCH_INT, memory_row, n)},
    {.name = "how", .head = "", .text = how_of},
    {.name = "technique", .head = "technique", .text = technique_of},
    {.name = "batch", .number = batch_of},
    {.name = "runs", BENCH_AT(BENCH_INT, memory_row, run_count)},
    {.name = "step_ms", .head = "step\nms", AT(step_ms), .decimals = 3},
    {.name = "step_ms_min", AT(step_ms_min)},
    {.name = "step_ms_max", AT(step_ms_max)},
    {.name = "step_ratio", .head = "to\nplain", AT(step_ratio), .decimals = 2},
    {.name = "parameters_bytes", .head = "para-\nmeters", BYTES(PARAMETER), MIBS},
    {.name = "gradients_bytes", BYTES(GRADIENT)},
    {.name = "buckets_bytes", BYTES(BUCKET)},
    {.head = "gra-\ndients", .number = gradients_of, MIBS},
    {.name = "optimizer_bytes", .head = "opti-\nmizer", BYTES(OPTIMIZER), MIBS},
    {.name = "activations_bytes", .head = "acti-\nvations", BYTES(ACTIVATION), MIBS},
    {.name = "input_bytes", BYTES(INPUT)},
    {.name = "gathered_output_bytes", BYTES(GATHERED_OUTPUT)},
    {.name = "workspace_bytes", BYTES(WORKSPACE)},
    {.head = "others", .number = others_of, MIBS},
    {.name = "total_bytes", .head = "together\nMiB", AT(total_bytes), MIBS},
    {.name = "total_ratio", .head = "to\nplain", AT(total_ratio), .decimals = 2},
    {.name = "sent_bytes", .head = "sent\nMiB", AT(sent_bytes), MIBS},
    {.name = "note", .head = "", .text = note_of},
    {.kind = BENCH_END},
};

/* --- the table ---------------------------------------------------------------------------------------------------- */

ls_status memory_print_table(FILE *file, const memory_results *results, bool all) {
    const memory_settings *s = results->settings;
    int first = s->n.values[0], last = s->n.values[s->n.count - 1];
    bench_table table = {.columns = memory_columns};
    fprintf(file,
            "\nA device's memory in MiB by category, what a step takes, and what a device sends in it; measured: %d "
            "run%s a row "
            "on %d core%s; replayed: %s; buckets of %g MiB\n\n",
            s->rounds, s->rounds == 1 ? "" : "s", s->cores, s->cores == 1 ? "" : "s", s->node, s->bucket_cap_mb);
    for (const memory_row *row = results->rows; row < results->rows + results->row_count; row++)
        if (all || row->n == first || row->n == last) bench_table_line(&table, row);
    ls_status status = bench_table_finish(&table, file);
    fputs("\ngradients: with DDP's buckets, in which they lie; others: input, workspace, gathered output; to plain: "
          "relative to plain DDP\non as many devices, found in the same way\n",
          file);
    return status;
}
