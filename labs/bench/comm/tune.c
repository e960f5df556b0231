/* tune: from measured rows to the table that "auto" goes by (common/comm/allreduce_tuning.h).
 *   idea  : for each size the fastest median is chosen, if it beats "direct", and, if another than "direct" was chosen for the
 *           size before, also beats that. To beat is to be faster by more than COMM_TUNE_MARGIN of the median, and in three
 *           runs of four. So noise does not make the table flip, and near ties go to "direct". A threshold lies half-way, in
 *           the logarithm, between the last size of one algorithm and the first of the next */
#define _GNU_SOURCE
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/table.h"
#include "labs/bench/comm/bench_comm.h"

enum { COMMENT_CAPACITY = 1200 };

/* The runs of a size took turns, so a moment when the machine was busy met all of its rows: runs of the same index are
 * compared as well. */
static bool beats(const comm_row *a, const comm_row *b) {
    int wins = 0;
    for (int run = 0; run < a->run_count; run++) wins += a->run_us[run] < b->run_us[run];
    return a->time_us < (1 - COMM_TUNE_MARGIN) * b->time_us && 4 * wins >= 3 * a->run_count;
}

int comm_tune_winner(const comm_row *rows, int count, int incumbent, int preferred) {
    int fastest = 0;
    for (int i = 1; i < count; i++)
        if (rows[i].time_us < rows[fastest].time_us) fastest = i;
    if (!beats(&rows[fastest], &rows[preferred])) return preferred;
    return beats(&rows[fastest], &rows[incumbent]) ? fastest : incumbent;
}

/* "direct", if it was measured. */
static int preferred_case(const comm_settings *settings) {
    for (int c = 0; c < settings->case_count; c++)
        if (strcmp(settings->cases[c].algorithm, "direct") == 0) return c;
    return 0;
}

static int second_best(const comm_row *rows, int count, int winner) {
    int second = -1;
    for (int i = 0; i < count; i++)
        if (i != winner && (second < 0 || rows[i].time_us < rows[second].time_us)) second = i;
    return second;
}

static void print_choice(ls_table *table, const comm_row *rows, int count, int winner) {
    int second = second_best(rows, count, winner);
    const comm_row *chosen = &rows[winner];
    ls_table_cell(table, "%d%s", chosen->n, chosen->oversubscribed ? "*" : "");
    ls_table_cell(table, "%zu", chosen->nbytes);
    ls_table_cell(table, "%s", chosen->algorithm);
    ls_table_cell(table, "%.2f", chosen->time_us);
    ls_table_cell(table, "%s", second >= 0 ? rows[second].algorithm : "");
    if (second >= 0) {
        ls_table_cell(table, "%.2f", rows[second].time_us);
        ls_table_cell(table, "%+.1f", 100 * (rows[second].time_us / chosen->time_us - 1));
    } else {
        ls_table_cell(table, "%s", "");
        ls_table_cell(table, "%s", "");
    }
}

/* The rows of one N: its thresholds go to `tuned`; how many. */
static size_t tune_group(const comm_settings *settings, const comm_group *group, ls_allreduce_tuned *tuned,
                         ls_table *table) {
    size_t count = 0, last_nbytes = 0;
    int preferred = preferred_case(settings), winner = preferred, cases = settings->case_count;
    for (int i = 0; i < group->row_count; i += cases) {
        const comm_row *rows = group->rows + i;
        int next = comm_tune_winner(rows, cases, winner, preferred);
        if (i > 0 && next != winner)
            tuned[count++] = (ls_allreduce_tuned){group->n, (size_t)sqrt((double)last_nbytes * (double)rows[0].nbytes),
                                                  settings->cases[winner].algorithm};
        winner = next;
        last_nbytes = rows[0].nbytes;
        print_choice(table, rows, cases, winner);
    }
    tuned[count++] = (ls_allreduce_tuned){group->n, LS_TUNED_MAX, settings->cases[winner].algorithm};
    return count;
}

static void describe(char comment[COMMENT_CAPACITY], const comm_results *results, const comm_group *group) {
    const comm_settings *settings = results->settings;
    const bench_machine *machine = results->machine;
    snprintf(comment, COMMENT_CAPACITY,
             "%s, %d cores; %s; commit %s; %s\n"
             "measured by bench_comm --tune: medians over %d runs of %g ms, %s of %s, %s with %s buffers;\n"
             "direct, or the algorithm of the size before, gives way to one that is faster by more than %g %%\n"
             "and in three runs of four",
             machine->cpu, machine->cores, machine->system, machine->commit, machine->date, settings->runs,
             settings->run_ms, settings->reduce == LS_REDUCE_SUM ? "sums" : "minima or maxima",
             ls_dtype_name(settings->dtype), comm_variant_backend(group->variant), comm_variant_buffers(group->variant),
             100 * COMM_TUNE_MARGIN);
}

ls_status comm_tune(const comm_results *results) {
    static const ls_column columns[] = {
        {"N", LS_RIGHT},        {"size\nbytes", LS_RIGHT}, {"chosen", LS_LEFT},        {"time\nus", LS_RIGHT},
        {"next best", LS_LEFT}, {"time\nus", LS_RIGHT},    {"slower by\n%", LS_RIGHT},
    };
    const comm_settings *settings = results->settings;
    ls_allreduce_tuned *tuned = calloc((size_t)results->row_count + COMM_GROUPS_MAX, sizeof *tuned);
    if (!tuned) return ls_fail(LS_ERR_NO_MEMORY, "no memory for the table");
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    size_t count = 0;
    for (int g = 0; status == LS_OK && g < results->group_count; g++)
        if (results->groups[g].variant == results->groups[0].variant)
            count += tune_group(settings, &results->groups[g], tuned + count, table);
    if (status == LS_OK) {
        printf("\nchosen: direct, unless another is faster by more than %g %% and in three runs of four; then the one "
               "of the "
               "size before, unless the same holds.\nA negative number is such a near tie\n\n",
               100 * COMM_TUNE_MARGIN);
        status = ls_table_finish(table, stdout);
    }
    char comment[COMMENT_CAPACITY];
    describe(comment, results, &results->groups[0]);
    if (status == LS_OK) status = ls_allreduce_tuning_save(settings->tune, comment, tuned, count);
    if (status == LS_OK) printf("\nwritten:\n%s\n", settings->tune);
    free(tuned);
    return status;
}
