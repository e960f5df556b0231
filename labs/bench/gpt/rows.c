/* rows: sets up the rows, and computes their figures from runs. A row's time is the median of its runs' times. Its
 * speed is the median of the rounds' ratios: if the machine is slow for a while, it is slow for both rows of a
 * ratio. */
#include <math.h>
#include <string.h>

#include "common/base/statistics.h"
#include "labs/bench/gpt/bench_gpt.h"

const char *gpt_name(gpt_kind kind) {
    static const char *const names[] = {
        "lockstep", "its matrix multiplies", "PyTorch, eager", "PyTorch, compiled", "DP", "DDP", "scores", "tiles"};
    return names[kind];
}

static void add_row(gpt_results *results, gpt_kind kind, int n, int context, int batch) {
    results->rows[results->row_count++] = (gpt_row){.kind = kind,
                                                    .n = n,
                                                    .context = context,
                                                    .batch = batch,
                                                    .oversubscribed = n > results->settings->cores,
                                                    .repeats = true,
                                                    .activation_bytes = NAN,
                                                    .kept_bytes = NAN};
}

void gpt_plan_rows(gpt_results *results) {
    const gpt_settings *s = results->settings;
    results->row_count = 0;
    for (gpt_kind kind = GPT_SINGLE; kind <= GPT_DDP; kind++) {
        bool is_pytorch = kind == GPT_EAGER || kind == GPT_COMPILED;
        if (!is_pytorch || s->python)
            add_row(results, kind, kind >= GPT_DP ? GPT_DEVICES : 1, s->sizes.context, s->batch);
    }
    for (gpt_kind kind = GPT_SCORES; kind <= GPT_TILES; kind++)
        for (int i = 0; i < s->contexts.count; i++)
            add_row(results, kind, 1, s->contexts.values[i], GPT_ATTENTION_SEQUENCES);
}

const gpt_row *gpt_find(const gpt_results *results, gpt_kind kind, int context) {
    for (const gpt_row *row = results->rows; row < results->rows + results->row_count; row++)
        if (row->kind == kind && (context == 0 || row->context == context)) return row;
    return NULL;
}

const gpt_row *gpt_base(const gpt_results *results, const gpt_row *row) {
    return row->kind < GPT_SCORES ? gpt_find(results, GPT_SINGLE, 0) : gpt_find(results, GPT_SCORES, row->context);
}

double gpt_product_flops(const gpt_settings *settings) {
    const struct ls_gpt_sizes *g = &settings->sizes;
    double rows = (double)settings->batch * g->context, channels = g->channels;
    return 6 * rows * channels * (12 * channels * g->layers + g->vocabulary);
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

/* Least, median and greatest of the values; NAN if there are none. */
static void spread_of(const double *values, int count, double *least, double *median, double *greatest) {
    double sorted[GPT_ROUNDS_MAX];
    *least = *median = *greatest = NAN;
    if (count == 0) return;
    memcpy(sorted, values, (size_t)count * sizeof *values);
    ls_sort(sorted, (size_t)count);
    *least = sorted[0];
    *median = ls_quantile(sorted, (size_t)count, 0.5);
    *greatest = sorted[count - 1];
}

void gpt_assemble(gpt_results *results) {
    int rounds = gpt_find(results, GPT_PRODUCTS, 0)->run_count;
    double ignored;
    spread_of(results->rates, rounds, &ignored, &results->rate, &ignored);
    spread_of(results->shapes_ms, rounds, &ignored, &results->own_ms, &ignored);
    for (gpt_row *row = results->rows; row < results->rows + results->row_count; row++) {
        const gpt_row *base = gpt_base(results, row);
        int count = row->failed ? 0 : row->run_count;
        double ratios[GPT_ROUNDS_MAX];
        for (int i = 0; i < count && i < base->run_count; i++) ratios[i] = base->run_ms[i] / row->run_ms[i];
        spread_of(row->run_ms, count, &row->ms_min, &row->ms, &row->ms_max);
        spread_of(ratios, base->failed || base->run_count < count ? 0 : count, &row->speed_min, &row->speed,
                  &row->speed_max);
    }
}

bool gpt_have_weights(const gpt_results *results) {
    const gpt_row *dp = gpt_find(results, GPT_DP, 0), *ddp = gpt_find(results, GPT_DDP, 0);
    return !dp->failed && !ddp->failed && dp->run_count > 0 && ddp->run_count > 0;
}

bool gpt_same_weights(const gpt_results *results) {
    const gpt_row *dp = gpt_find(results, GPT_DP, 0), *ddp = gpt_find(results, GPT_DDP, 0);
    return gpt_have_weights(results) && dp->repeats && ddp->repeats && strcmp(dp->weights, ddp->weights) == 0;
}
