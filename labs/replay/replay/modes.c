/* modes: the first table, which is the answer: what a step takes with DP and with DDP on each N, and the one by the
 * other. Everything else that replay prints says why. */
#include <math.h>
#include <stdio.h>

#include "labs/replay/replay/replay.h"

/* DP by copies, DP by collectives, DDP (of several bucket sizes the first). */
enum column { COPIES, COLLECTIVES, DDP, COLUMNS };

static double step_ms(const replay_rows *rows, enum column column, int n) {
    for (const replay_row *row = rows->rows; row < rows->rows + rows->count; row++) {
        if (row->n != n || row->mode != (column == DDP ? LS_PLAN_DDP : LS_PLAN_DP)) continue;
        if (column == DDP ? row->cap_mb == rows->settings->caps_mb[0] : row->by_collectives == (column == COLLECTIVES))
            return row->step_ms;
    }
    return NAN;
}

struct line {
    int n;
    double ms[COLUMNS], ratio[COLUMNS];
};

#define AT(field) BENCH_AT(BENCH_DOUBLE, struct line, field)
ls_status replay_print_modes(const replay_rows *rows) {
    const replay_settings *s = rows->settings;
    bool copies = s->by_copies, collectives = s->by_collectives, weak = s->per_device_batch > 0;
    const bench_column columns[] = {
        {.head = "N", BENCH_AT(BENCH_INT, struct line, n)},
        {.head = copies ? "DP by copies\nms" : NULL, AT(ms[COPIES]), .decimals = 3},
        {.head = collectives ? "DP by collectives\nms" : NULL, AT(ms[COLLECTIVES]), .decimals = 3},
        {.head = "DDP\nms", AT(ms[DDP]), .decimals = 3},
        {.head = copies ? "by copies\nDP / DDP" : NULL, AT(ratio[COPIES]), .decimals = 2},
        {.head = collectives ? "by collectives\nDP / DDP" : NULL, AT(ratio[COLLECTIVES]), .decimals = 2},
        {.kind = BENCH_END},
    };
    if (!s->modes[LS_PLAN_DP] || !s->modes[LS_PLAN_DDP]) return LS_OK;
    bench_table table = {.columns = columns};
    printf("A step with DP and with DDP: %s; %g samples %s, %s\n\n", rows->inputs->on,
           weak ? s->per_device_batch : s->batch, weak ? "on each device" : "on every N", ls_dtype_name(s->precision));
    for (int i = 0; i < s->n.count; i++) {
        struct line line = {.n = s->n.values[i]};
        for (int c = DDP; c >= COPIES; c--) {
            line.ms[c] = step_ms(rows, (enum column)c, line.n);
            line.ratio[c] = line.ms[c] / line.ms[DDP];
        }
        bench_table_line(&table, &line);
    }
    ls_status status = bench_table_finish(&table, stdout);
    if (copies && collectives)
        printf("\nby copies: device 0 sends parameters to each device and takes gradients from each (dp_train's "
               "default);\n"
               "by collectives: by a broadcast and a reduce (PyTorch's way where there is NCCL)\n");
    printf("\n");
    return status;
}
