/* columns: the columns of a row in text, CSV and JSON: measured, under the lock, in virtual time; and the parts of
 * T_N. */
#include "labs/bench/dp_vs_ddp/bench.h"

BENCH_TEXT_OF(mode_of, bench_row, bench_mode_name(row->mode))
BENCH_TEXT_OF(note_of, bench_row, row->oversubscribed ? "oversubscribed" : "")

/* Columns that are only in text, only in files, and in both. */
#define AT(field) BENCH_AT(BENCH_DOUBLE, bench_row, field)
#define MS(title, field) BENCH_COLUMN(.head = title, AT(field), .decimals = 3)
#define FILED(field) BENCH_COLUMN(.name = #field, AT(field))
#define BOTH(title, field, places) BENCH_COLUMN(.name = #field, .head = title, AT(field), .decimals = places)
#define WHICH                                                                                                          \
    BENCH_COLUMN(.head = "mode", .text = mode_of), BENCH_COLUMN(.head = "N", BENCH_AT(BENCH_INT, bench_row, n))
#define NOTE BENCH_COLUMN(.head = "", .text = note_of)
#define END BENCH_COLUMN(.kind = BENCH_END)

/* The first columns of every table of times, with that table's names of the step time and of the speed-up. */
#define TIMES(step, speed_up)                                                                                          \
    WHICH, BENCH_COLUMN(.head = "samples per\ndevice", BENCH_AT(BENCH_INT64, bench_row, per_device_batch)),            \
        BOTH(step, step_ms, 3), BOTH("lowest\nms", step_ms_min, 3), BOTH("highest\nms", step_ms_max, 3),               \
        BOTH(speed_up, speedup, 2), FILED(speedup_min), FILED(speedup_max)
#define EFFICIENCY                                                                                                     \
    BENCH_COLUMN(.name = "efficiency", .head = "efficiency\n%", AT(efficiency), .percent = true, .decimals = 1)

const bench_column bench_measured_columns[] = {
    TIMES("T_N\nms", "speed-up"),
    EFFICIENCY,
    FILED(ideal_ms),
    FILED(over_ms),
    FILED(smaller_batch_ms),
    FILED(exposed_ms),
    FILED(fixed_ms),
    FILED(final_loss),
    NOTE,
    END,
};

const bench_column bench_locked_columns[] = {TIMES("T_N\nms", "speed-up\nwith the lock"), FILED(efficiency), END};

const bench_column bench_virtual_columns[] = {
    TIMES("virtual T_N\nms", "speed-up"),
    EFFICIENCY,
    {.name = "busy", .head = "busy\n%", AT(busy), .percent = true, .decimals = 1},
    {.name = "exposed_ms", .head = "exposed comm.\nms", AT(exposed_ms), .decimals = 3},
    END,
};

#define PARTS(ideal, smaller_batch, exposed)                                                                           \
    WHICH, MS("T_N\nms", step_ms), MS(ideal, ideal_ms), MS("= difference\nms", over_ms),                               \
        MS(smaller_batch, smaller_batch_ms), MS(exposed, exposed_ms), MS("+ fixed work\nms", fixed_ms), NOTE, END
const bench_column bench_strong_parts[] = {PARTS("- T1/N\nms", "= smaller batch\nms", "+ exposed comm.\nms")},
                   bench_weak_parts[] = {PARTS("- T1\nms", NULL, "= exposed comm.\nms")}; /* no batch is smaller */
