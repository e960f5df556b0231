/* answers: the first lines, a sentence each: which technique saves most, and at what cost; which is fastest; whether
 * all train to the same weights; when sharding has a cost. */
#include <math.h>
#include <string.h>

#include "labs/bench/memory/bench_memory.h"
#include "labs/replay/engine/cost.h"

#define MIB 1048576.0

static const memory_row *first_row(const memory_results *results) { return results->rows; }
static const memory_row *end_row(const memory_results *results) { return results->rows + results->row_count; }

static const char *how(const memory_row *row) { return row->is_measured ? "measured" : "replayed"; }

/* --- of a network on N devices ------------------------------------------------------------------------------------- */

/* The row with the least value at the offset; NULL if no row has a value. */
static const memory_row *find_least(const memory_results *results, const memory_model *model, int n, size_t offset) {
    const memory_row *least = NULL;
    for (const memory_row *row = first_row(results); row < end_row(results); row++) {
        if (row->model != model || row->n != n) continue;
        double value = *(const double *)((const char *)row + offset);
        if (!isnan(value) && (!least || value < *(const double *)((const char *)least + offset))) least = row;
    }
    return least;
}

/* Says whether two rows' runs overlap. Replays have no spread; that of one run is unknown. */
static const char *spread_of(const memory_row *row, const memory_row *plain) {
    bool apart = row->step_ms_max < plain->step_ms_min || plain->step_ms_max < row->step_ms_min;
    if (!row->is_measured || row == plain) return "";
    return row->run_count == 1 ? " (one run)" : apart ? "" : " (within the spread)";
}

static void put_model(FILE *file, const memory_results *results, const memory_model *model, int n) {
    const memory_row *plain = memory_find(results, model, n, 0);
    const memory_row *least = find_least(results, model, n, offsetof(memory_row, total_bytes));
    const memory_row *fastest = find_least(results, model, n, offsetof(memory_row, step_ms));
    if (plain->failed || !least || !fastest) {
        fprintf(file, "%s, N = %d: plain DDP failed, so nothing is compared\n", model->name, n);
        return;
    }
    fprintf(file, "%s, N = %d, %s: ", model->name, n, how(plain));
    if (least == plain) {
        fprintf(file, "no technique holds less than plain DDP's %.0f MiB", plain->total_bytes / MIB);
    } else {
        int digits = plain->step_ms < 10 ? 2 : plain->step_ms < 100 ? 1 : 0;
        fprintf(file, "%s holds least, %.2fx of plain DDP's %.0f MiB, in %.2fx its %.*f ms%s", least->technique->name,
                least->total_ratio, plain->total_bytes / MIB, least->step_ratio, digits, plain->step_ms,
                spread_of(least, plain));
    }
    if (fastest != least)
        fprintf(file, "; %s is fastest, %.2fx%s", fastest->technique->name, fastest->step_ratio,
                spread_of(fastest, plain));
    fputc('\n', file);
}

/* --- of all ------------------------------------------------------------------------------------------------------- */

static void put_weights(FILE *file, const memory_results *results) {
    bool any = false, same = true, others = false;
    for (const memory_row *row = first_row(results); row < end_row(results); row++) {
        if (!row->is_measured || row->failed) continue;
        any = true;
        same = same && memory_same_weights(results, row->model, row->n);
        others = others || row->technique->other_bits;
    }
    if (!any) return;
    fprintf(file, "Same weights: %s, in every measured run%s\n", same ? "yes, bit for bit" : "no",
            others ? " (a network in parts has its own, the same in every run)" : "");
}

/* Compares an all-reduce with its two halves, which sharding runs in its place. */
static ls_status put_halves(FILE *file, const memory_results *results) {
    const memory_settings *s = results->settings;
    ls_node *node;
    ls_status status = ls_node_open(&node, s->node);
    if (status != LS_OK) return status;
    fprintf(file, "Sharding on %s: reduce-scatter and all-gather take", s->node);
    for (int i = 0; i < s->n.count; i++) {
        int n = s->n.values[i];
        double bytes = 25 * MIB; /* a bucket */
        double halves_us = ls_cost_collective_us(node, LS_COLLECTIVE_REDUCE_SCATTER, n, bytes) +
                           ls_cost_collective_us(node, LS_COLLECTIVE_ALL_GATHER, n, bytes);
        fprintf(file, "%s %.2fx", i > 0 ? "," : "",
                halves_us / ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, n, bytes));
    }
    fprintf(file, " an all-reduce's time on N =");
    for (int i = 0; i < s->n.count; i++) fprintf(file, "%s %d", i > 0 ? "," : "", s->n.values[i]);
    fputc('\n', file);
    ls_node_close(node);
    return LS_OK;
}

ls_status memory_put_answers(FILE *file, const memory_results *results) {
    const memory_settings *s = results->settings;
    for (int m = 0; m < s->model_count; m++) {
        put_model(file, results, &s->models[m], s->n.values[0]);
        if (s->n.count > 1) put_model(file, results, &s->models[m], s->n.values[s->n.count - 1]);
    }
    put_weights(file, results);
    return put_halves(file, results);
}
