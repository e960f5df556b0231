/* columns: the columns of a row and of a device's share, in text, CSV and JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/replay/replay/replay.h"

#define MIB 1048576.0
#define GIB 1073741824.0

/* --- a mode's row ------------------------------------------------------------------------------------------------ */

bool replay_fits(const replay_row *row, double bytes) { return !(bytes > row->device_memory_bytes); }

const char *replay_fit_text(char cell[BENCH_CELL], const replay_row *row, double bytes) {
    if (replay_fits(row, bytes)) return "";
    snprintf(cell, BENCH_CELL, "does not fit: %.4g of %.4g GiB", bytes / GIB, row->device_memory_bytes / GIB);
    return cell;
}

static const char *row_fit_of(char cell[BENCH_CELL], const void *row) {
    return replay_fit_text(cell, row, ((const replay_row *)row)->memory_bytes);
}

BENCH_MADE_TEXT_OF(samples_of, replay_row, true, "%.4g", row->batch / row->n)

/* "4 x 8", and "1 x 8 + 4" if the last node is not full. */
static const char *nodes_of(char cell[BENCH_CELL], const void *of) {
    const replay_row *row = of;
    int nodes = row->n / row->per_node, rest = row->n % row->per_node;
    int length = snprintf(cell, BENCH_CELL, "%d x %d", nodes > 0 ? nodes : 1, nodes > 0 ? row->per_node : rest);
    if (nodes > 0 && rest > 0) snprintf(cell + length, BENCH_CELL - (size_t)length, " + %d", rest);
    return cell;
}
BENCH_NUMBER_OF(overlap_of, replay_row, row->communication_share > 0 ? row->overlap : NAN)
BENCH_MADE_TEXT_OF(link_of, replay_row, !isnan(row->link_use), "%s %.0f %%", row->link, 100 * row->link_use)
BENCH_MADE_TEXT_OF(recorded_of, replay_row, !isnan(row->recorded_ms), "%.3f (%+.1f %%)", row->recorded_ms,
                   100 * (row->step_ms / row->recorded_ms - 1))

#define AT(field) BENCH_AT(BENCH_DOUBLE, replay_row, field)
#define FILED(field) BENCH_COLUMN(.name = #field, AT(field))
#define BOTH(title, field, places) BENCH_COLUMN(.name = #field, .head = title, AT(field), .decimals = places)
#define TIMES(over, alone)                                                                                             \
    BOTH("T_N\nms", step_ms, 3), BOTH("speed-up", speedup, 2),                                                         \
        BENCH_COLUMN(.name = "efficiency", .head = "effi-\nciency %", AT(efficiency), .percent = true, .decimals = 1), \
        FILED(ideal_ms), BOTH(over, over_ms, 3), BOTH(alone, alone_ms, 3)

/* A column of a device's account. */
#define PART(what, title, field)                                                                                       \
    BENCH_COLUMN(.name = what, .head = title, field, .unit = 1e-3, .per = 1e3, .decimals = 3)
#define PARTS(type, account)                                                                                           \
    PART("compute_ms", "compute\nms", BENCH_AT(BENCH_DOUBLE, type, account.compute_us)),                               \
        PART("exposed_ms", "exposed\nms", BENCH_AT(BENCH_DOUBLE, type, account.exposed_us)),                           \
        PART("host_ms", "host\nms", BENCH_AT(BENCH_DOUBLE, type, account.host_us)),                                    \
        PART("idle_ms", "idle\nms", BENCH_AT(BENCH_DOUBLE, type, account.idle_us))

const bench_column replay_row_columns[] = {
    TIMES(NULL, NULL),  FILED(overlap),      FILED(communication_share), FILED(busy_share),   FILED(link_use),
    FILED(recorded_ms), FILED(memory_bytes), FILED(device_memory_bytes), {.kind = BENCH_END},
};

void replay_times_columns(bench_column columns[REPLAY_TIMES], const replay_settings *settings, bool fit, bool several) {
    bool weak = settings->per_device_batch > 0;
    const bench_column all[] = {
        {.head = "N", BENCH_AT(BENCH_INT, replay_row, n)},
        {.head = several ? "nodes x\ndevices" : NULL, .text = nodes_of, .align = LS_RIGHT},
        {.head = "samples per\ndevice", .text = samples_of, .align = LS_RIGHT},
        {.head = settings->cap_count > 1 ? "bucket\nMiB" : NULL, AT(cap_mb), .decimals = 2},
        TIMES(weak ? "T_N - T1\nms" : "T_N - T1/N\nms", weak ? "T1\nms" : "T1(b/N)\nms"),
        PARTS(replay_row, mean.account),
        {.head = "busy\n%", AT(busy_share), .percent = true},
        {.head = "comm.\n%", AT(communication_share), .percent = true},
        {.head = "over-\nlap %", .number = overlap_of, .percent = true},
        {.head = "busiest\nlink", .text = link_of},
        {.head = settings->trace ? "recorded\nms" : NULL, .text = recorded_of},
        {.head = fit ? NULL : "memory", .text = row_fit_of},
        {.kind = BENCH_END},
    };
    _Static_assert(sizeof all / sizeof *all <= REPLAY_TIMES, "REPLAY_TIMES is too small");
    memcpy(columns, all, sizeof all);
}

/* --- a device's share -------------------------------------------------------------------------------------------- */

#define TRAFFIC(what, title, field)                                                                                    \
    BENCH_COLUMN(.name = what, .head = title, BENCH_AT(BENCH_DOUBLE, replay_share, account.field), .per = MIB,         \
                 .decimals = 2)
const bench_column replay_device_columns[] = {
    PARTS(replay_share, account),
    PART("communication_ms", "all comm.\nms", BENCH_AT(BENCH_DOUBLE, replay_share, account.communication_us)),
    PART("lock_ms", "lock\nms", BENCH_AT(BENCH_DOUBLE, replay_share, account.lock_us)),
    TRAFFIC("sent_bytes", "sent\nMiB", sent_bytes),
    TRAFFIC("received_bytes", "received\nMiB", received_bytes),
    {.kind = BENCH_END},
};

#define CATEGORY(what, category)                                                                                       \
    BENCH_COLUMN(.name = what, .head = what, BENCH_AT(BENCH_DOUBLE, replay_share, memory_bytes[LS_MEMORY_##category]), \
                 .per = MIB, .decimals = 2)
const bench_column replay_memory_columns[] = {
    CATEGORY("parameters", PARAMETER),   CATEGORY("gradients", GRADIENT),  CATEGORY("optimizer", OPTIMIZER),
    CATEGORY("activations", ACTIVATION), CATEGORY("input", INPUT),         CATEGORY("gathered output", GATHERED_OUTPUT),
    CATEGORY("buckets", BUCKET),         CATEGORY("workspace", WORKSPACE), {.kind = BENCH_END},
};
