/* modes: the first table, which is the answer: what a step takes with DP and with DDP on each N, and the one by the
 * other. Everything else that replay prints says why. */
#include <math.h>
#include <stdio.h>

#include "common/base/table.h"
#include "labs/replay/replay/replay.h"

/* DP by copies, DP by collectives, DDP (of several bucket sizes the first). */
enum column { COPIES, COLLECTIVES, DDP, COLUMNS };

static bool is_shown(enum column column, const replay_settings *settings) {
    return column == DDP || (column == COPIES ? settings->by_copies : settings->by_collectives);
}

static double step_ms(const replay_rows *rows, const replay_settings *settings, enum column column, int n) {
    for (int i = 0; i < rows->count; i++) {
        const replay_row *row = &rows->rows[i];
        if (row->n != n || row->mode != (column == DDP ? LS_BUILD_DDP : LS_BUILD_DP)) continue;
        if (column == DDP ? row->cap_mb == settings->caps_mb[0] : row->by_collectives == (column == COLLECTIVES))
            return row->step_ms;
    }
    return NAN;
}

static void print_title(const replay_inputs *inputs, const replay_settings *settings) {
    bool weak = settings->per_device_batch > 0;
    printf("A step with DP and with DDP: %s; %g samples %s, %s\n\n", inputs->on,
           weak ? settings->per_device_batch : settings->batch, weak ? "on each device" : "on every N",
           ls_dtype_name(settings->precision));
}

ls_status replay_print_modes(const replay_rows *rows, const replay_inputs *inputs, const replay_settings *settings) {
    static const ls_column heads[COLUMNS] = {{"DP by copies\nms", LS_RIGHT},
                                             {"DP by collectives\nms", LS_RIGHT},
                                             {"DDP\nms", LS_RIGHT}},
                           ratios[COLUMNS] = {{"by copies\nDP / DDP", LS_RIGHT},
                                              {"by collectives\nDP / DDP", LS_RIGHT}};
    ls_column columns[2 * COLUMNS] = {{"N", LS_RIGHT}};
    size_t count = 1;
    if (!settings->modes[LS_BUILD_DP] || !settings->modes[LS_BUILD_DDP]) return LS_OK;
    for (int c = COPIES; c <= DDP; c++)
        if (is_shown((enum column)c, settings)) columns[count++] = heads[c];
    for (int c = COPIES; c < DDP; c++)
        if (is_shown((enum column)c, settings)) columns[count++] = ratios[c];
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, count);
    if (status != LS_OK) return status;
    print_title(inputs, settings);
    for (int i = 0; i < settings->n.count; i++) {
        double ms[COLUMNS];
        ls_table_cell(table, "%d", settings->n.values[i]);
        for (int c = COPIES; c <= DDP; c++) {
            ms[c] = step_ms(rows, settings, (enum column)c, settings->n.values[i]);
            if (is_shown((enum column)c, settings)) ls_table_number(table, 3, ms[c]);
        }
        for (int c = COPIES; c < DDP; c++)
            if (is_shown((enum column)c, settings)) ls_table_number(table, 2, ms[c] / ms[DDP]);
    }
    status = ls_table_finish(table, stdout);
    if (settings->by_copies && settings->by_collectives)
        printf("\nby copies: device 0 sends parameters to each device and takes gradients from each (dp_train's "
               "default);\n"
               "by collectives: by a broadcast and a reduce (PyTorch's way where there is NCCL)\n");
    printf("\n");
    return status;
}
