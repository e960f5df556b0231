/* Rows of devices as from a run, for tests of the report. */
#ifndef TESTS_REPORT_DEVICE_ROWS_H
#define TESTS_REPORT_DEVICE_ROWS_H

#include "common/report/device_table.h"

/* 100 us: 10 other, 23 loader, 40 forward, 27 all-reduce; 4000 bytes. */
struct ls_device_row make_device_row(int rank, int device);

/* Asserts equality up to rounding. */
void expect_share(double share, double expected);

#endif
