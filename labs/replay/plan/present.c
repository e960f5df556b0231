/* present: the answer first, then the rows that fit, those that do not, combinations that are refused, and those that
 * are not planned. */
#include <math.h>
#include <string.h>

#include "common/base/bytes_text.h"
#include "labs/replay/plan/planner.h"

static const char *of_row(char text[LS_BYTES_TEXT_CAPACITY], const planner_row *row) {
    return ls_bytes_text(text, row->total_bytes);
}

/* The whole command without the common options. */
static void put_command(const planner_row *row, const planner_results *results) {
    printf("%s %s %d%s%s", planner_program(row), planner_devices_option(row), results->settings->devices,
           row->options[0] ? " " : "", row->options);
}

static void put_answer(const planner_results *results) {
    char limit[LS_BYTES_TEXT_CAPACITY], held[LS_BYTES_TEXT_CAPACITY];
    const planner_row *fastest = planner_fastest(results), *smallest = planner_smallest(results);
    ls_bytes_text(limit, results->memory_bytes);
    if (fastest) {
        printf("fits, fastest: ");
        put_command(fastest, results);
        printf(", %.3g ms a step (%s), %s of %s a device\n", fastest->step_ms, results->on, of_row(held, fastest),
               limit);
    } else if (smallest) {
        printf("does not fit: at least %s of %s a device, by ", of_row(held, smallest), limit);
        put_command(smallest, results);
        printf(" (counted), most of it %s\n", planner_largest(smallest));
    } else {
        printf("no combination can be planned\n");
    }
    if (fastest && smallest != fastest) {
        printf("least memory:  ");
        put_command(smallest, results);
        printf(", %.3g ms a step, %s a device\n", smallest->step_ms, of_row(held, smallest));
    }
}

static void put_common(const planner_results *results) {
    static planner_common common;
    const planner_settings *s = results->settings;
    planner_make_common(&common, s);
    printf("all with");
    if (s->workload) printf(" workload %s,", s->workload);
    printf(" --spawn %d (dp_train: --devices %d)", s->devices, s->devices);
    for (int i = 0; i < common.count; i++) printf(" %s", common.words[i]);
    printf("\nbytes are counted on meta devices; times are replayed on %s%s", ls_node_name(results->node),
           s->node_is_default ? ", since no --node is given" : "");
    double lock_us = ls_node_host(results->node)->lock_us;
    if (lock_us > 0) printf(", with a host lock of %g us a launch (--host-lock 0: without)", lock_us);
    putchar('\n');
}

static ls_status put_table(const planner_results *results, planner_verdict verdict, const bench_column *columns,
                           const char *title) {
    bench_table table = {.columns = columns};
    int count = planner_count(results, verdict), shown = 0;
    if (count == 0) return LS_OK;
    printf("\n%s\n\n", title);
    for (const planner_row *row = results->rows; row < results->rows + results->count; row++)
        if (row->verdict == verdict && shown++ < results->settings->top) bench_table_line(&table, row);
    ls_status status = bench_table_finish(&table, stdout);
    if (count > results->settings->top) printf("and %d more (--top %d)\n", count - results->settings->top, count);
    return status;
}

static bool is_first_of_its_reason(const planner_results *results, const planner_row *row) {
    for (const planner_row *before = results->rows; before < row; before++)
        if (before->verdict == row->verdict && strcmp(before->reason, row->reason) == 0) return false;
    return true;
}

/* A line for each reason, with the first combination that has it. */
static void put_reasons(const planner_results *results, planner_verdict verdict, const char *title) {
    for (const planner_row *row = results->rows; row < results->rows + results->count; row++) {
        if (row->verdict != verdict || !is_first_of_its_reason(results, row)) continue;
        int alike = 0;
        for (int i = 0; i < results->count; i++)
            alike += results->rows[i].verdict == verdict && strcmp(results->rows[i].reason, row->reason) == 0;
        printf("%s%s %s: %s", title, planner_program(row), row->options, row->reason);
        if (alike > 1) printf(" (and %d more)", alike - 1);
        putchar('\n');
    }
}

ls_status planner_print(const planner_results *results) {
    put_answer(results);
    put_common(results);
    ls_status status = put_table(results, PLANNER_FITS, planner_fitting_columns, "Fits, the fastest first:");
    if (status == LS_OK)
        status = put_table(results, PLANNER_TOO_LARGE, planner_too_large_columns,
                           "Does not fit, the smallest first; MiB of the device that holds most:");
    if (planner_count(results, PLANNER_REFUSED) > 0) putchar('\n');
    put_reasons(results, PLANNER_REFUSED, "cannot be combined: ");
    putchar('\n');
    put_reasons(results, PLANNER_UNPLANNED, "not planned: ");
    for (const struct planner_omission *o = planner_omissions; o->options; o++)
        printf("not planned: %s: %s\n", o->options, o->reason);
    return status;
}
