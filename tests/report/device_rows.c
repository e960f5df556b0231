#include "tests/report/device_rows.h"

#include <math.h>

#include "tests/base/test.h"

struct ls_device_row make_device_row(int rank, int device) {
    struct ls_device_row row = {.rank = rank, .device = device, .current_bytes = 1048576, .peak_total_bytes = 2097152};
    row.us[LS_PHASE_OTHER] = 10;
    row.us[LS_PHASE_LOADER] = 23;
    row.us[LS_PHASE_FORWARD] = 40;
    row.us[LS_PHASE_ALL_REDUCE] = 27;
    row.bytes[LS_PHASE_ALL_REDUCE] = 4000;
    row.peak_bytes[LS_MEMORY_BUCKET] = 1000;
    return row;
}

void expect_share(double share, double expected) { assert_true(fabs(share - expected) <= 1e-12); }
