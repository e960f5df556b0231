/* The times, bytes and memory of each device of a run: one row per device, over all ranks. Rows consist of doubles, so
 * that they can be gathered as they are. */
#ifndef LS_REPORT_DEVICE_TABLE_H
#define LS_REPORT_DEVICE_TABLE_H

#include <stdio.h>

#include "common/seam/parallel.h"

struct ls_device_row {
    double rank, device;                              /* the device's number on its node */
    double runs_behind;                               /* 1: `us` are times of enqueueing the work; 0: of running it */
    double begun_us;                                  /* the start of its clock; other times are relative to it */
    double us[LS_PHASE_COUNT], bytes[LS_PHASE_COUNT]; /* as its clock has them (phase.h) */
    double current_bytes, peak_total_bytes;           /* memory, all categories together */
    double peak_bytes[LS_MEMORY_COUNT];               /* each category's own */
};

#define LS_DEVICE_ROW_DOUBLES (sizeof(struct ls_device_row) / sizeof(double))

/* Reads device `local` of this process, 0 <= local < local_device_count. No thread may be working on it. */
void ls_device_row_read(struct ls_device_row *row, const ls_parallel *p, int local);

/* Times and bytes since `earlier`, an older row of the same device; memory is that of `row`. */
struct ls_device_row ls_device_row_since(const struct ls_device_row *row, const struct ls_device_row *earlier);

/* Shares of all time between the clock's start and its last switch, 0 if there is none. */
double ls_device_row_busy(const struct ls_device_row *row); /* neither idle nor waiting for the loader */
double ls_device_row_communication(const struct ls_device_row *row);
double ls_device_row_loader(const struct ls_device_row *row);

/* Whether the rows' times are those of enqueueing; the table's heading then has a line about it. */
bool ls_device_rows_run_behind(const struct ls_device_row *rows, int count);

/* A table of the first `shown` of `count` rows, and a line that counts the others. LS_ERR_NO_MEMORY. */
ls_status ls_device_table_print(FILE *file, const struct ls_device_row *rows, int count, int shown);

/* A table of each device's peaks by category, without unused categories, and the peak of their sum.
 * LS_ERR_NO_MEMORY. */
ls_status ls_memory_table_print(FILE *file, const struct ls_device_row *rows, int count);

#endif
