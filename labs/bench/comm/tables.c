/* tables: the columns of a row in text, CSV and JSON; and the rows on stdout. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/statistics.h"
#include "common/comm/reduce_kernels.h"
#include "labs/bench/comm/bench_comm.h"

/* --- columns ------------------------------------------------------------------------------------------------------ */

bool comm_is_ours(const comm_row *row) { return strcmp(row->library, "lockstep") == 0; }

static const char *const agreements[] = {"", "=", "differs"};

BENCH_MADE_TEXT_OF(n_of, comm_row, true, "%d%s", row->n, row->oversubscribed ? "*" : "")
BENCH_TEXT_OF(algorithm_of, comm_row, !comm_is_ours(row) ? row->library : row->algorithm[0] ? row->algorithm : "-")
BENCH_TEXT_OF(agreement_of, comm_row, agreements[row->agreement])
BENCH_NUMBER_OF(messages_of, comm_row, (double)(row->counted.sent_messages + row->counted.received_messages))
BENCH_NUMBER_OF(bytes_of, comm_row, (double)(row->counted.sent_bytes + row->counted.received_bytes))

/* A value that is not defined for a row stays empty, and so does a rate if the time is 0. */
static void put_number(char cell[BENCH_CELL], int decimals, double value) {
    if (isfinite(value)) snprintf(cell, BENCH_CELL, "%.*f", decimals, value);
}

static void put_time(char cell[BENCH_CELL], int decimals, double us) { put_number(cell, us < 100 ? decimals : 0, us); }

/* More digits for small rates, which would otherwise all be 0.000. */
static void put_bandwidth(char cell[BENCH_CELL], int decimals, double value) {
    put_number(cell, value < 0.1 ? decimals : value < 10 ? 3 : 1, value);
}

static const bench_column comm_which[] = {
    {.head = "N", .text = n_of, .align = LS_RIGHT},
    {.head = "size\nbytes", BENCH_AT(BENCH_SIZE, comm_row, nbytes)},
    {.head = "algorithm", .text = algorithm_of},
    {.kind = BENCH_END},
};

#define TIME(field, title)                                                                                             \
    BENCH_COLUMN(.name = #field, .head = title, BENCH_AT(BENCH_DOUBLE, comm_row, field), .decimals = 2,                \
                 .format = put_time)
#define RATE(field, title)                                                                                             \
    BENCH_COLUMN(.name = #field, .head = title, BENCH_AT(BENCH_DOUBLE, comm_row, field), .decimals = 4,                \
                 .format = put_bandwidth)
const bench_column comm_numbers[] = {
    TIME(time_us, "time\nus"),
    TIME(least_us, NULL),
    TIME(p10_us, "10 %\nus"),
    TIME(p90_us, "90 %\nus"),
    RATE(algbw_GBps, "algbw\nGB/s"),
    RATE(busbw_GBps, "busbw\nGB/s"),
    {.kind = BENCH_END},
};

#define COUNT(what, field) BENCH_COLUMN(.name = what, BENCH_AT(BENCH_SIZE, comm_row, field))
const bench_column comm_counts[] = {
    {.name = "rank", BENCH_AT(BENCH_INT, comm_row, busiest_rank)},
    COUNT("sent_messages", counted.sent_messages),
    COUNT("sent_bytes", counted.sent_bytes),
    COUNT("received_messages", counted.received_messages),
    COUNT("received_bytes", counted.received_bytes),
    COUNT("formula_sent_messages", formula.sent_messages),
    COUNT("formula_sent_bytes", formula.sent_bytes),
    COUNT("formula_received_messages", formula.received_messages),
    COUNT("formula_received_bytes", formula.received_bytes),
    {.head = "messages\nper rank", .number = messages_of},
    {.head = "bytes\nper rank", .number = bytes_of},
    {.head = "formula", .text = agreement_of},
    {.kind = BENCH_END},
};

/* --- tables ------------------------------------------------------------------------------------------------------- */

static const comm_settings *settings_of(const comm_results *results) { return results->settings; }

static void print_buffers(const comm_settings *settings) {
    printf("measured: medians over %d runs of %g ms or one operation;\n"
           "all ranks begin a run together after a barrier; time: the slowest rank's, per operation\n",
           settings->runs, settings->run_ms);
    double cache_mib = (double)settings->cache_bytes / 1048576;
    if (settings->cache_bytes == 0) {
        printf("the same buffers each time, so they may stay in the cache; streams inline\n");
    } else {
        printf("buffers rotate over at least %g MiB, of all ranks together (last-level cache: %g MiB);"
               " streams inline\n",
               2 * cache_mib, cache_mib);
    }
    if (settings->rounds > 1) printf("ours and the other libraries take turns, in %d rounds\n", settings->rounds);
}

void comm_print_heading(const comm_results *results) {
    const comm_settings *settings = settings_of(results);
    bench_print_machine(stdout, results->machine);
    printf("%s, %s; ", ls_dtype_name(settings->dtype), ls_reduce_op_name(settings->reduce));
    if (settings->check_only) {
        printf("results checked exactly, not timed\n");
    } else {
        print_buffers(settings);
    }
    int most = settings->n.values[settings->n.count - 1];
    if (most > settings->cores)
        printf("oversubscribed: with more than %d ranks on %d cores, times only show time-slicing\n", settings->cores,
               settings->cores);
    fflush(stdout);
}

/* Prints a row, with its counts if it has any. */
struct line {
    const comm_row *row, *ours;
};
static const bench_column columns[] = {BENCH_OF(struct line, row, comm_which),
                                       BENCH_OF(struct line, row, comm_numbers),
                                       BENCH_OF(struct line, ours, comm_counts),
                                       {.kind = BENCH_END}};

/* Prints the rows of one operation, N and size together, the other libraries' below ours. */
static void put_group(bench_table *table, const comm_results *results, const comm_group *group,
                      const comm_operation *operation) {
    for (int s = 0; s < settings_of(results)->size_count; s++) {
        for (int i = 0; i < group->row_count; i++) {
            const comm_row *row = &group->rows[i];
            if (row->operation == operation && row->size_index == s) bench_table_line(table, &(struct line){row, row});
        }
        for (int i = 0; i < results->other_count; i++) {
            const comm_row *row = &results->others[i];
            if (row->operation == operation && row->size_index == s && row->n == group->n)
                bench_table_line(table, &(struct line){row, NULL});
        }
    }
}

static ls_status print_operation(const comm_results *results, comm_variant variant, const comm_operation *operation) {
    printf("\n%s, %s, %s buffers\n\n", operation->name, comm_variant_backend(variant), comm_variant_buffers(variant));
    bench_table table = {.columns = columns};
    for (int g = 0; g < results->group_count; g++)
        if (results->groups[g].variant == variant) put_group(&table, results, &results->groups[g], operation);
    return bench_table_finish(&table, stdout);
}

static void print_legend(const comm_results *results) {
    printf("\n"
           "N          ranks; *: more than there are cores, so times only show time-slicing\n"
           "size       bytes of the buffer, or of all ranks' parts together (all_gather, reduce_scatter, gather, "
           "scatter)\n"
           "algbw      size / time\n"
           "busbw      algbw x 2 (N - 1) / N for all_reduce, x (N - 1) / N where the size is all ranks' parts, else "
           "algbw\n"
           "per rank   messages and bytes, sent plus received, of the rank that moves most, counted while it ran\n"
           "formula    =: every rank's count is what the algorithm's cost formula says; private buffers may take "
           "several pieces, "
           "for which it does not speak\n");
    if (results->absent[0])
        printf("not installed (or not built: make bench-comm builds what it needs), so not compared: %s\n",
               results->absent);
}

/* Runs of the two cases alternated, so the machine was in the same state for both runs of a pair. */
static void print_flight_cost(const comm_results *results) {
    const comm_settings *settings = settings_of(results);
    double ratios[COMM_RUNS_MAX];
    if (!settings->flight_cost || settings->check_only) return;
    printf("\ntime with flight records / without, median (and quantiles 0.1 to 0.9) of %d pairs of runs\n",
           settings->runs);
    for (int i = 0; i + 1 < results->row_count; i++) {
        const comm_row *with = &results->rows[i], *without = with + 1;
        if (!settings->cases[without->case_index].unrecorded || without->case_index != with->case_index + 1) continue;
        for (int run = 0; run < with->run_count; run++) ratios[run] = with->run_us[run] / without->run_us[run];
        ls_sort(ratios, (size_t)with->run_count);
        printf("%s %s, %s, N %d, %zu bytes: %.3f (%.3f to %.3f)\n", with->operation->name, with->algorithm,
               comm_variant_backend(with->variant), with->n, with->nbytes,
               ls_quantile(ratios, (size_t)with->run_count, 0.5), ls_quantile(ratios, (size_t)with->run_count, 0.1),
               ls_quantile(ratios, (size_t)with->run_count, 0.9));
    }
}

static bool has(const comm_settings *settings, const comm_operation *operation) {
    for (int c = 0; c < settings->case_count; c++)
        if (settings->cases[c].operation == operation) return true;
    return false;
}

ls_status comm_print_rows(const comm_results *results) {
    const comm_settings *settings = settings_of(results);
    ls_status status = LS_OK;
    for (int v = 0; v < COMM_VARIANT_COUNT; v++) {
        for (const comm_operation *operation = comm_operations; operation->name; operation++) {
            if (status != LS_OK || !settings->variants[v] || !has(settings, operation)) continue;
            status = print_operation(results, (comm_variant)v, operation);
        }
    }
    if (status == LS_OK) print_flight_cost(results);
    if (status == LS_OK) print_legend(results);
    return status;
}

ls_status comm_check_counts(const comm_results *results) {
    ls_status status = LS_OK;
    for (int i = 0; i < results->row_count; i++) {
        const comm_row *row = &results->rows[i];
        if (row->agreement != COMM_DIFFERS) continue;
        status = ls_fail(LS_ERR_INVALID,
                         "%s %s, %s, N %d, %zu bytes: rank %d sent %zu messages, %zu bytes and received %zu, %zu; "
                         "expected sent %zu, %zu and received %zu, %zu",
                         row->operation->name, row->algorithm, comm_variant_backend(row->variant), row->n, row->nbytes,
                         row->busiest_rank, row->counted.sent_messages, row->counted.sent_bytes,
                         row->counted.received_messages, row->counted.received_bytes, row->formula.sent_messages,
                         row->formula.sent_bytes, row->formula.received_messages, row->formula.received_bytes);
    }
    return status;
}
