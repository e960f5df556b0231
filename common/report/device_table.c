#include "common/report/device_table.h"

#include "common/base/bytes_text.h"
#include "common/base/table.h"

void ls_device_row_read(struct ls_device_row *row, const ls_parallel *p, int local) {
    const struct ls_phase_clock *clock = &p->clocks[local];
    ls_memory_report memory;
    ls_device_memory(p->devices[local], &memory);
    *row = (struct ls_device_row){.rank = p->rank,
                                  .device = ls_device_index(p->devices[local]),
                                  .runs_behind = ls_device_runs_behind(p->devices[local]) ? 1 : 0,
                                  .begun_us = clock->begun_us,
                                  .current_bytes = (double)memory.current_total_bytes,
                                  .peak_total_bytes = (double)memory.peak_total_bytes};
    for (int i = 0; i < LS_PHASE_COUNT; i++) {
        row->us[i] = clock->us[i];
        row->bytes[i] = (double)clock->bytes[i];
    }
    for (int i = 0; i < LS_MEMORY_COUNT; i++) row->peak_bytes[i] = (double)memory.peak_bytes[i];
}

static double total_us(const struct ls_device_row *row) {
    double total = 0;
    for (int i = 0; i < LS_PHASE_COUNT; i++) total += row->us[i];
    return total;
}

struct ls_device_row ls_device_row_since(const struct ls_device_row *row, const struct ls_device_row *earlier) {
    struct ls_device_row since = *row;
    if (row->begun_us != earlier->begun_us) return since; /* the clock was reset after the warm-up */
    for (int i = 0; i < LS_PHASE_COUNT; i++) {
        since.us[i] -= earlier->us[i];
        since.bytes[i] -= earlier->bytes[i];
    }
    return since;
}

static double share(const struct ls_device_row *row, double us) {
    double total = total_us(row);
    return total > 0 ? us / total : 0;
}

double ls_device_row_busy(const struct ls_device_row *row) {
    return share(row, total_us(row) - row->us[LS_PHASE_OTHER] - row->us[LS_PHASE_LOADER]);
}

double ls_device_row_communication(const struct ls_device_row *row) {
    double us = 0;
    for (int i = 0; i < LS_PHASE_COUNT; i++) {
        if (ls_phase_is_communication((ls_phase)i)) us += row->us[i];
    }
    return share(row, us);
}

double ls_device_row_loader(const struct ls_device_row *row) { return share(row, row->us[LS_PHASE_LOADER]); }

bool ls_device_rows_run_behind(const struct ls_device_row *rows, int count) {
    return count > 0 && rows->runs_behind != 0;
}

ls_status ls_device_table_print(FILE *file, const struct ls_device_row *rows, int count, int shown) {
    bool behind = ls_device_rows_run_behind(rows, count);
    const ls_column columns[] = {{"rank", LS_RIGHT},
                                 {"device", LS_RIGHT},
                                 {behind ? "busy\n(enqueueing)" : "busy", LS_RIGHT},
                                 {behind ? "communication\n(enqueueing)" : "communication", LS_RIGHT},
                                 {"memory", LS_RIGHT},
                                 {"peak", LS_RIGHT}};
    ls_table *table;
    /* with one process, its rank is not shown */
    int skip = count > 0 && rows[count - 1].rank > 0 ? 0 : 1;
    ls_status status = ls_table_create(&table, columns + skip, 6 - (size_t)skip);
    for (int i = 0; status == LS_OK && i < shown; i++) {
        char current[LS_BYTES_TEXT_CAPACITY], peak[LS_BYTES_TEXT_CAPACITY];
        if (skip == 0) ls_table_cell(table, "%.0f", rows[i].rank);
        ls_table_cell(table, "%.0f", rows[i].device);
        ls_table_cell(table, "%.0f %%", 100 * ls_device_row_busy(&rows[i]));
        ls_table_cell(table, "%.0f %%", 100 * ls_device_row_communication(&rows[i]));
        ls_table_cell(table, "%s", ls_bytes_text(current, rows[i].current_bytes));
        ls_table_cell(table, "%s", ls_bytes_text(peak, rows[i].peak_total_bytes));
    }
    if (status == LS_OK) status = ls_table_print(table, file);
    ls_table_destroy(table);
    int more = count - shown;
    if (status == LS_OK && more > 0) fprintf(file, "and %d more device%s\n", more, more == 1 ? "" : "s");
    return status;
}

static bool is_used(const struct ls_device_row *rows, int count, int category) {
    for (int d = 0; d < count; d++) {
        if (rows[d].peak_bytes[category] > 0) return true;
    }
    return false;
}

ls_status ls_memory_table_print(FILE *file, const struct ls_device_row *rows, int count) {
    ls_column columns[LS_MEMORY_COUNT + 2] = {{"device", LS_RIGHT}};
    size_t column_count = 1;
    for (int c = 0; c < LS_MEMORY_COUNT; c++) {
        if (is_used(rows, count, c))
            columns[column_count++] = (ls_column){ls_memory_name((ls_memory_category)c), LS_RIGHT};
    }
    columns[column_count++] = (ls_column){"peak", LS_RIGHT};
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, column_count);
    for (int d = 0; status == LS_OK && d < count; d++) {
        char bytes[LS_BYTES_TEXT_CAPACITY];
        ls_table_cell(table, "%.0f", rows[d].device);
        for (int c = 0; c < LS_MEMORY_COUNT; c++) {
            if (is_used(rows, count, c)) ls_table_cell(table, "%s", ls_bytes_text(bytes, rows[d].peak_bytes[c]));
        }
        ls_table_cell(table, "%s", ls_bytes_text(bytes, rows[d].peak_total_bytes));
    }
    if (status == LS_OK) status = ls_table_print(table, file);
    ls_table_destroy(table);
    return status;
}
