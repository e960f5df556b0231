/* table — writes a file's parts into the book: paragraphs, the rows of its computation's groups, rows that are run one
 * by one, and sums over these.
 *   free : the baseline "communication is free" (T_N = T1), which a prediction must beat: its error must be a fraction
 *          of the baseline's, for step times and for the time beyond T1
 *   order: in all pairs of rows whose references differ, our figures must have the same order */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "labs/replay/tables/book.h"
#include "labs/replay/tables/file.h"

enum { SUMMED_MAX = 64 };

/* Lines that count in the next sums. */
struct comparison {
    int count;
    double reference[SUMMED_MAX], ours[SUMMED_MAX], free[SUMMED_MAX];
};

#define COMPUTE(name, function) [TABLES_COMPUTE_##name] = tables_compute_##function,
static const tables_compute_fn computations[] = {TABLES_COMPUTATION_MAP(COMPUTE)};

/* --- sums --------------------------------------------------------------------------------------------------------- */

static int sign(double left, double right) { return (left > right) - (left < right); }

/* Counts pairs of rows with the same order; skips pairs with equal references. */
static void count_orders(int *right, int *pairs, const struct comparison *c) {
    *right = *pairs = 0;
    for (int i = 0; i < c->count; i++) {
        for (int j = 0; j < i; j++) {
            int wanted = sign(c->reference[i], c->reference[j]);
            *pairs += wanted != 0;
            *right += wanted != 0 && sign(c->ours[i], c->ours[j]) == wanted;
        }
    }
}

static void add_sum(tables_book *book, const struct tables_part *part, const char *quantity, double reference,
                    double ours, enum tables_bound bound) {
    tables_add(book, &(struct tables_row){.quantity = quantity,
                                          .mode = part->sums,
                                          .reference = reference,
                                          .ours = ours,
                                          .bound = bound,
                                          .how = part->how});
}

/* Beyond T1 free communication takes no time, and 0 has no logarithm: there both errors are in the rows' unit. */
static void add_sums(tables_book *book, const struct tables_part *part, struct comparison *c) {
    double error = 0, logs = 0, free_logs = 0, beyond = 0, free_beyond = 0;
    char quantity[48];
    int right, pairs;
    for (int i = 0; i < c->count; i++) {
        error += fabs(c->ours[i] / c->reference[i] - 1) / c->count;
        logs += fabs(log(c->ours[i] / c->reference[i])) / c->count;
        free_logs += fabs(log(c->free[i] / c->reference[i])) / c->count;
        beyond += fabs(c->ours[i] - c->reference[i]) / c->count;
        free_beyond += fabs(c->free[i] - c->reference[i]) / c->count;
    }
    count_orders(&right, &pairs, c);
    snprintf(quantity, sizeof quantity, "mean error of T_N - T1, %s", part->unit);
    add_sum(book, part, "mean absolute error", part->mean_error, error, TABLES_BELOW);
    if (part->of_free > 0) {
        add_sum(book, part, "mean |log error| of T_N", part->of_free * free_logs, logs, TABLES_BELOW);
        add_sum(book, part, quantity, part->of_free * free_beyond, beyond, TABLES_BELOW);
    }
    add_sum(book, part, "pairs of rows in the right order", pairs, right, TABLES_WITHIN);
    c->count = 0;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static ls_status add_line(tables_book *book, tables_runs *runs, struct comparison *c, const struct tables_part *part,
                          int index) {
    int n = (int)cJSON_GetNumberValue(cJSON_GetArrayItem(part->n, index));
    enum tables_column column = (enum tables_column)part->column;
    char quantity[160], how[640];
    double ours = NAN, reference = tables_published(part, index), free = NAN;
    bool summed = part->must == TABLES_COUNTS_IN_SUMS;
    snprintf(quantity, sizeof quantity, "%s%s", part->before ? part->before : "", part->quantity);
    snprintf(how, sizeof how, "%s%s%s", part->how, part->source ? "; reference: " : "",
             part->source ? part->source : "");
    ls_status status = tables_column(&ours, runs, &part->run, column, n);
    if (status == LS_OK && part->reference)
        status = tables_column(&reference, runs, &part->run, (enum tables_column)part->reference, n);
    if (status == LS_OK && part->free)
        status = tables_free_column(&free, runs, &part->run, column, (enum tables_free)part->free, n);
    if (status != LS_OK) return status;
    tables_add(book, &(struct tables_row){.quantity = quantity,
                                          .mode = part->mode,
                                          .n = n,
                                          .reference = reference,
                                          .ours = ours,
                                          .bound = summed ? TABLES_SHOWN : (enum tables_bound)(part->must - 1),
                                          .tolerance = part->tolerance,
                                          .claim = part->claim,
                                          .how = how});
    if (!summed) return LS_OK;
    if (c->count == SUMMED_MAX)
        return ls_fail(LS_ERR_INVALID, "sums cover too many lines; expected at most %d", SUMMED_MAX);
    c->reference[c->count] = reference;
    c->ours[c->count] = ours;
    c->free[c->count++] = free;
    return LS_OK;
}

static ls_status add_part(tables_book *book, const tables_book *groups, tables_runs *runs, struct comparison *c,
                          const struct tables_part *part) {
    ls_status status = LS_OK;
    if (part->text) tables_text(book, "%s", part->text);
    if (part->from) tables_take(book, groups, part->from, part->how, part->tolerance);
    if (part->sums) add_sums(book, part, c);
    for (int i = 0; part->quantity && status == LS_OK && i < cJSON_GetArraySize(part->n); i++)
        status = add_line(book, runs, c, part, i);
    return status;
}

ls_status tables_make(tables_book *book, const struct tables_file *file, const tables_settings *settings) {
    struct comparison comparison = {.count = 0};
    tables_book *groups = NULL;
    tables_runs *runs = NULL;
    ls_status computed = LS_OK, status = tables_book_create(&groups);
    if (status == LS_OK) status = tables_runs_create(&runs, settings->timeout_s);
    if (status == LS_OK && file->compute) computed = computations[file->compute](groups, settings);
    bool any = status == LS_OK && (computed == LS_OK || groups->count > 0);
    for (int i = 0; any && status == LS_OK && i < file->count; i++)
        status = add_part(book, groups, runs, &comparison, &file->parts[i]);
    tables_runs_destroy(runs);
    tables_book_destroy(groups);
    return computed != LS_OK ? computed : status;
}
