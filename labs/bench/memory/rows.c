/* rows: sets up the rows, and computes their figures from runs. A measured row's time is the median of its runs' times
 * (each a median over steps); memory and bytes are the same in every run. */
#include <math.h>
#include <string.h>

#include "common/base/statistics.h"
#include "labs/bench/memory/bench_memory.h"

static bool is_measured(const memory_model *model, int n, const memory_settings *settings) {
    return model->data && (n == 2 || n <= settings->cores);
}

static bool can_be_cut(const memory_row *row, const memory_settings *settings) {
    const memory_model *model = row->model;
    if (!row->technique->split) return true;
    if (!row->is_measured && row->n > settings->node_devices) return false;
    return row->technique->by_blocks ? row->n <= model->blocks : model->units > 0 && model->units % row->n == 0;
}

void memory_plan_rows(memory_results *results) {
    const memory_settings *s = results->settings;
    results->row_count = 0;
    for (int m = 0; m < s->model_count; m++) {
        for (int i = 0; i < s->n.count; i++) {
            for (const memory_technique *technique = memory_techniques; technique->name; technique++) {
                memory_row row = {.model = &s->models[m], .technique = technique, .n = s->n.values[i], .repeats = true};
                row.is_measured = is_measured(row.model, row.n, s);
                row.oversubscribed = row.is_measured && row.n > s->cores;
                if (can_be_cut(&row, s) && (row.is_measured || technique->is_replayed))
                    results->rows[results->row_count++] = row;
            }
        }
    }
}

const memory_row *memory_find(const memory_results *results, const memory_model *model, int n, size_t technique) {
    for (const memory_row *row = results->rows; row < results->rows + results->row_count; row++)
        if (row->model == model && row->n == n && row->technique == &memory_techniques[technique]) return row;
    return NULL;
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

static void assemble_times(memory_row *row) {
    double ms[MEMORY_ROUNDS_MAX];
    size_t count = (size_t)row->run_count;
    row->step_ms = row->step_ms_min = row->step_ms_max = NAN;
    if (row->failed || count == 0) return;
    memcpy(ms, row->run_ms, count * sizeof *ms);
    ls_sort(ms, count);
    row->step_ms = ls_quantile(ms, count, 0.5);
    row->step_ms_min = ms[0];
    row->step_ms_max = ms[count - 1];
}

static void forget_bytes(memory_row *row) {
    for (int c = 0; c < LS_MEMORY_COUNT; c++) row->bytes[c] = NAN;
    row->total_bytes = row->sent_bytes = NAN;
}

void memory_assemble(memory_results *results) {
    memory_row *end = results->rows + results->row_count;
    for (memory_row *row = results->rows; row < end; row++) {
        assemble_times(row);
        if (row->failed) forget_bytes(row);
    }
    for (memory_row *row = results->rows; row < end; row++) {
        const memory_row *plain = memory_find(results, row->model, row->n, 0);
        row->step_ratio = row->step_ms / plain->step_ms;
        row->total_ratio = row->total_bytes / plain->total_bytes;
    }
}

bool memory_same_weights(const memory_results *results, const memory_model *model, int n) {
    const memory_row *plain = memory_find(results, model, n, 0);
    for (const memory_row *row = results->rows; row < results->rows + results->row_count; row++) {
        if (row->model != model || row->n != n || !row->is_measured || row->failed || plain->failed) continue;
        if (!row->repeats) return false;
        if (!row->technique->other_bits && strcmp(row->weights, plain->weights) != 0) return false;
    }
    return true;
}
