/* rows: the rows to be measured, allocated in advance in memory that the ranks' processes share, and the figures
 * derived from them. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/log.h"
#include "common/base/statistics.h"
#include "labs/bench/comm/bench_comm.h"

enum { LINE_BYTES = 64 };

const char *comm_variant_backend(comm_variant variant) {
    return variant == COMM_THREADS ? "threads" : variant == COMM_MPI ? "mpi" : "shm";
}

/* Threads see each other's memory anyway. */
const char *comm_variant_buffers(comm_variant variant) { return comm_is_private(variant) ? "private" : "shared"; }

bool comm_is_private(comm_variant variant) { return variant == COMM_SHM_PRIVATE || variant == COMM_MPI; }

bool comm_has_case(comm_variant variant, const comm_case *what) {
    bool in_one_memory =
        what->algorithm[0] && strcmp(what->algorithm, "direct") != 0 && strcmp(what->algorithm, "naive") != 0;
    return variant != COMM_MPI || !in_one_memory;
}

/* --- sizes ----------------------------------------------------------------------------------------------------------- */

size_t comm_part_count(const comm_operation *operation, int n, size_t nbytes, ls_dtype dtype) {
    if (operation->latency_only) return 0;
    size_t count = nbytes / ls_dtype_nbytes(dtype) / comm_size_parts(operation, n);
    return count > 0 ? count : 1;
}

static size_t whole_lines(size_t nbytes) { return (nbytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES; }

comm_slots comm_slots_of(const comm_operation *operation, int n, size_t count, const comm_settings *settings) {
    size_t part_bytes = count * ls_dtype_nbytes(settings->dtype);
    comm_slots slots = {.receive_offset = whole_lines(comm_send_parts(operation, n) * part_bytes)};
    slots.stride_bytes = slots.receive_offset + whole_lines(comm_receive_parts(operation, n) * part_bytes);
    if (slots.stride_bytes == 0) slots.stride_bytes = LINE_BYTES;
    size_t wanted_bytes = 2 * settings->cache_bytes / (size_t)n;
    slots.count = (wanted_bytes + slots.stride_bytes - 1) / slots.stride_bytes;
    if (slots.count == 0) slots.count = 1;
    return slots;
}

int comm_owner(const comm_settings *settings, int index) {
    if (comm_is_all_reduce(settings->cases[index].operation)) return index;
    int owner = 0;
    while (comm_is_all_reduce(settings->cases[owner].operation)) owner++;
    return owner;
}

size_t comm_slots_bytes(const comm_settings *settings, int n, int first) {
    size_t most = 0;
    for (int c = first; c < settings->case_count; c++) {
        if (comm_owner(settings, c) != first) continue;
        for (int s = 0; s < settings->size_count; s++) {
            const comm_operation *operation = settings->cases[c].operation;
            size_t count = comm_part_count(operation, n, settings->sizes[s], settings->dtype);
            comm_slots slots = comm_slots_of(operation, n, count, settings);
            if (slots.count * slots.stride_bytes > most) most = slots.count * slots.stride_bytes;
        }
    }
    return most;
}

/* --- the layout ------------------------------------------------------------------------------------------------------ */

static int rows_of_group(const comm_settings *settings, comm_variant variant) {
    int rows = 0;
    for (int c = 0; c < settings->case_count; c++)
        if (comm_has_case(variant, &settings->cases[c]))
            rows += settings->cases[c].operation->latency_only ? 1 : settings->size_count;
    return rows;
}

static void plan_group(comm_group *group, const comm_settings *settings) {
    comm_row *row = group->rows;
    for (int s = 0; s < settings->size_count; s++) {
        for (int c = 0; c < settings->case_count; c++) {
            const comm_case *what = &settings->cases[c];
            if ((what->operation->latency_only && s > 0) || !comm_has_case(group->variant, what)) continue;
            *row = (comm_row){.library = "lockstep",
                              .variant = group->variant,
                              .case_index = c,
                              .size_index = s,
                              .operation = what->operation,
                              .n = group->n,
                              .oversubscribed = group->n > settings->cores};
            snprintf(row->algorithm, sizeof row->algorithm, "%s%s", what->algorithm,
                     what->unrecorded ? " unrecorded" : "");
            row->count = comm_part_count(what->operation, group->n, settings->sizes[s], settings->dtype);
            row->nbytes = comm_size_parts(what->operation, group->n) * row->count * ls_dtype_nbytes(settings->dtype);
            row++;
        }
    }
    group->row_count = (int)(row - group->rows);
}

static comm_row *shared_rows(int count) {
    void *memory = mmap(NULL, (size_t)(count > 0 ? count : 1) * sizeof(comm_row), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

ls_status comm_results_create(comm_results **out, const comm_settings *settings, const bench_machine *machine) {
    *out = NULL;
    comm_results *results = calloc(1, sizeof *results);
    if (!results) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the results");
    results->settings = settings;
    results->machine = machine;
    for (int v = 0; v < COMM_VARIANT_COUNT; v++) {
        for (int i = 0; settings->variants[v] && i < settings->n.count; i++)
            results->groups[results->group_count++] =
                (comm_group){.variant = (comm_variant)v, .n = settings->n.values[i]};
    }
    for (int g = 0; g < results->group_count; g++)
        results->row_count += rows_of_group(settings, results->groups[g].variant);
    results->rows = shared_rows(results->row_count);
    results->other_capacity = 2 * settings->n.count * settings->size_count; /* two libraries */
    results->others = calloc((size_t)results->other_capacity, sizeof *results->others);
    if (!results->rows || !results->others) {
        comm_results_destroy(results);
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the results");
    }
    for (int g = 0; g < results->group_count; g++) {
        results->groups[g].rows =
            g == 0 ? results->rows : results->groups[g - 1].rows + results->groups[g - 1].row_count;
        plan_group(&results->groups[g], settings);
    }
    *out = results;
    return LS_OK;
}

void comm_results_destroy(comm_results *results) {
    if (!results) return;
    if (results->rows)
        munmap(results->rows, (size_t)(results->row_count > 0 ? results->row_count : 1) * sizeof(comm_row));
    free(results->others);
    free(results);
}

int comm_first_run(const comm_settings *settings, int round) {
    return settings->check_only ? 0 : settings->runs * round / settings->rounds;
}

/* --- what follows ---------------------------------------------------------------------------------------------------- */

void comm_assemble(comm_row *row) {
    row->time_us = row->least_us = row->p10_us = row->p90_us = row->algbw_GBps = row->busbw_GBps = NAN;
    if (row->run_count == 0) return;
    double sorted[COMM_RUNS_MAX];
    size_t count = (size_t)row->run_count;
    memcpy(sorted, row->run_us, count * sizeof *sorted);
    ls_sort(sorted, count);
    row->time_us = ls_quantile(sorted, count, 0.5);
    row->least_us = sorted[0];
    row->p10_us = ls_quantile(sorted, count, 0.1);
    row->p90_us = ls_quantile(sorted, count, 0.9);
    if (row->nbytes == 0) return;
    row->algbw_GBps = (double)row->nbytes / row->time_us * 1e-3; /* bytes per microsecond are MB/s */
    row->busbw_GBps = row->algbw_GBps * row->operation->bus_factor(row->n);
}
