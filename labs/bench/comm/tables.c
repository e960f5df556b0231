#include <stdio.h>

#include "common/base/log.h"
#include "common/comm/reduce_kernels.h"
#include "labs/bench/comm/bench_comm.h"

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

/* A line: the row, and again where it has counts. */
struct line {
    const comm_row *row, *ours;
};
static const bench_column columns[] = {BENCH_OF(struct line, row, comm_which),
                                       BENCH_OF(struct line, row, comm_numbers),
                                       BENCH_OF(struct line, ours, comm_counts),
                                       {.kind = BENCH_END}};

/* Those of one operation, N and size, which are to be compared, stand together; the other libraries' below ours. */
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
    if (status == LS_OK) print_legend(results);
    return status;
}

ls_status comm_check_counts(const comm_results *results) {
    ls_status status = LS_OK;
    for (int i = 0; i < results->row_count; i++) {
        const comm_row *row = &results->rows[i];
        if (row->agreement != COMM_DIFFERS) continue;
        status = ls_fail(LS_ERR_INVALID,
                         "%s %s, %s, N %d, %zu bytes: rank %d sent %zu messages, %zu bytes and received %zu, %zu; the "
                         "formula says sent %zu, %zu and received %zu, %zu",
                         row->operation->name, row->algorithm, comm_variant_backend(row->variant), row->n, row->nbytes,
                         row->busiest_rank, row->counted.sent_messages, row->counted.sent_bytes,
                         row->counted.received_messages, row->counted.received_bytes, row->formula.sent_messages,
                         row->formula.sent_bytes, row->formula.received_messages, row->formula.received_bytes);
    }
    return status;
}
