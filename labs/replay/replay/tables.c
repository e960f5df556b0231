#include <math.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/table.h"
#include "labs/replay/replay/replay.h"

#define MIB 1048576.0
#define GIB 1073741824.0

const char *replay_mode_name(ls_build_mode mode) {
    static const char *const names[] = {"single", "DP", "DDP"};
    return names[mode];
}

const char *replay_row_name(const replay_row *row, const replay_settings *settings) {
    bool both = row->mode == LS_BUILD_DP && settings->by_copies && settings->by_collectives;
    return both && row->by_collectives ? "DP by collectives" : replay_mode_name(row->mode);
}

/* --- memory's categories ----------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
} categories[REPLAY_CATEGORIES] = {
#define CATEGORY(text, field)                                                                                          \
    { text, offsetof(struct ls_memory_prediction, field) }
    CATEGORY("parameters", parameter),   CATEGORY("gradients", gradient),  CATEGORY("optimizer", optimizer),
    CATEGORY("activations", activation), CATEGORY("input", input),         CATEGORY("gathered output", gathered_output),
    CATEGORY("buckets", bucket),         CATEGORY("workspace", workspace),
#undef CATEGORY
};

const char *replay_category_name(int category) { return categories[category].name; }

double replay_category_bytes(const struct ls_memory_prediction *memory, int category) {
    return *(const double *)(const void *)((const char *)memory + categories[category].offset);
}

/* --- cells ------------------------------------------------------------------------------------------------------- */

enum { DEVICES_TEXT = 24 };

/* "1" or "1-7" */
static const char *others_text(const replay_row *row, char text[DEVICES_TEXT]) {
    snprintf(text, DEVICES_TEXT, row->n == 2 ? "1" : "1-%d", row->n - 1);
    return text;
}

/* --- times ------------------------------------------------------------------------------------------------------- */

bool replay_fits(const replay_row *row, double bytes) { return !(bytes > row->device_memory_bytes); }

static void put_fit(ls_table *table, const replay_row *row, double bytes) {
    if (replay_fits(row, bytes)) {
        ls_table_cell(table, "%s", "");
    } else {
        ls_table_cell(table, "does not fit: %.4g of %.4g GiB", bytes / GIB, row->device_memory_bytes / GIB);
    }
}

/* The rows that have tables of their own: a mode's, and DP's by one of its ways. */
struct part {
    ls_build_mode mode;
    bool by_collectives;
};

static bool is_listed(const replay_row *row, struct part part) {
    if (row->mode != part.mode || row->by_collectives != part.by_collectives) return false;
    return row->mode != LS_BUILD_SINGLE || row->n == 1;
}

static bool all_fit(const replay_rows *rows, struct part part) {
    for (int i = 0; i < rows->count; i++)
        if (is_listed(&rows->rows[i], part) && !replay_fits(&rows->rows[i], rows->rows[i].memory_bytes)) return false;
    return true;
}

static void put_times(ls_table *table, const replay_row *row, const replay_settings *settings) {
    const struct ls_device_account *mean = &row->mean.account;
    if (settings->cap_count > 1) ls_table_number(table, 2, row->cap_mb);
    ls_table_number(table, 3, row->step_ms);
    ls_table_number(table, 2, row->speedup);
    ls_table_number(table, 1, 100 * row->efficiency);
    ls_table_number(table, 3, row->over_ms);
    ls_table_number(table, 3, row->alone_ms);
    ls_table_number(table, 3, mean->compute_us / 1e3);
    ls_table_number(table, 3, mean->exposed_us / 1e3);
    ls_table_number(table, 3, mean->host_us / 1e3);
    ls_table_number(table, 3, mean->idle_us / 1e3);
    ls_table_number(table, 0, 100 * row->busy_share);
    ls_table_number(table, 0, 100 * row->communication_share);
    ls_table_number(table, 0, row->communication_share > 0 ? 100 * row->overlap : NAN);
    if (isnan(row->link_use)) {
        ls_table_cell(table, "%s", "");
    } else {
        ls_table_cell(table, "%s %.0f %%", row->link, 100 * row->link_use);
    }
    if (!settings->trace) return;
    if (isnan(row->recorded_ms)) {
        ls_table_cell(table, "%s", "");
    } else {
        ls_table_cell(table, "%.3f (%+.1f %%)", row->recorded_ms, 100 * (row->step_ms / row->recorded_ms - 1));
    }
}

static ls_status print_times(const replay_rows *rows, struct part part, const replay_settings *settings) {
    bool sweep = settings->cap_count > 1;
    const ls_column columns[] = {
        {"N", LS_RIGHT},
        {"samples per\ndevice", LS_RIGHT},
        {"bucket\nMiB", LS_RIGHT}, /* left out unless there are several */
        {"T_N\nms", LS_RIGHT},
        {"speed-up", LS_RIGHT},
        {"effi-\nciency %", LS_RIGHT},
        {settings->per_device_batch > 0 ? "T_N - T1\nms" : "T_N - T1/N\nms", LS_RIGHT},
        {settings->per_device_batch > 0 ? "T1\nms" : "T1(b/N)\nms", LS_RIGHT},
        {"compute\nms", LS_RIGHT},
        {"exposed\nms", LS_RIGHT},
        {"host\nms", LS_RIGHT},
        {"idle\nms", LS_RIGHT},
        {"busy\n%", LS_RIGHT},
        {"comm.\n%", LS_RIGHT},
        {"over-\nlap %", LS_RIGHT},
        {"busiest\nlink", LS_LEFT},
        {"recorded\nms", LS_LEFT}, /* left out without a trace */
        {"memory", LS_LEFT},       /* left out where all rows fit */
    };
    enum { COUNT = sizeof columns / sizeof *columns, SWEPT = 2, RECORDED = COUNT - 2, MEMORY };
    bool fit = all_fit(rows, part);
    ls_column shown[COUNT];
    size_t count = 0;
    for (int i = 0; i < COUNT; i++)
        if ((i != SWEPT || sweep) && (i != RECORDED || settings->trace) && (i != MEMORY || !fit))
            shown[count++] = columns[i];
    ls_table *table;
    ls_status status = ls_table_create(&table, shown, count);
    if (status != LS_OK) return status;
    for (int i = 0; i < rows->count; i++) {
        const replay_row *row = &rows->rows[i];
        if (!is_listed(row, part)) continue;
        ls_table_cell(table, "%d", row->n);
        ls_table_cell(table, "%.4g", row->batch / row->n);
        put_times(table, row, settings);
        if (!fit) put_fit(table, row, row->memory_bytes);
    }
    status = ls_table_finish(table, stdout);
    const replay_row *t1 = &rows->rows[0]; /* one device's with the batch of N = 1 */
    if (part.mode != LS_BUILD_SINGLE && !replay_fits(t1, t1->memory_bytes))
        printf(
            "\nT1's step does not fit on a device (%.4g of %.4g GiB): speed-ups over it are over what cannot be run\n",
            t1->memory_bytes / GIB, t1->device_memory_bytes / GIB);
    return status;
}

/* --- devices ----------------------------------------------------------------------------------------------------- */

static void put_share(ls_table *table, const replay_row *row, const replay_share *share, const char *devices) {
    const struct ls_device_account *account = &share->account;
    ls_table_cell(table, "%d", row->n);
    ls_table_cell(table, "%s", devices);
    ls_table_number(table, 3, account->compute_us / 1e3);
    ls_table_number(table, 3, account->exposed_us / 1e3);
    ls_table_number(table, 3, account->host_us / 1e3);
    ls_table_number(table, 3, account->idle_us / 1e3);
    ls_table_number(table, 3, account->communication_us / 1e3);
    ls_table_number(table, 3, account->lock_us / 1e3);
    ls_table_number(table, 2, account->sent_bytes / MIB);
    ls_table_number(table, 2, account->received_bytes / MIB);
}

static ls_status print_devices(const replay_rows *rows, struct part part, const char *name) {
    static const ls_column columns[] = {
        {"N", LS_RIGHT},         {"device", LS_RIGHT},       {"compute\nms", LS_RIGHT},   {"exposed\nms", LS_RIGHT},
        {"host\nms", LS_RIGHT},  {"idle\nms", LS_RIGHT},     {"all comm.\nms", LS_RIGHT}, {"lock\nms", LS_RIGHT},
        {"sent\nMiB", LS_RIGHT}, {"received\nMiB", LS_RIGHT}};
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    if (status != LS_OK) return status;
    char text[DEVICES_TEXT];
    printf("\n%s: device 0 and the others (their mean), per step\n\n", name);
    for (int i = 0; i < rows->count; i++) {
        const replay_row *row = &rows->rows[i];
        if (!is_listed(row, part) || row->n == 1) continue;
        put_share(table, row, &row->first, "0");
        put_share(table, row, &row->others, others_text(row, text));
    }
    return ls_table_finish(table, stdout);
}

static bool hold_the_same(const struct ls_memory_prediction *one, const struct ls_memory_prediction *other) {
    for (int c = 0; c < REPLAY_CATEGORIES; c++)
        if (replay_category_bytes(one, c) != replay_category_bytes(other, c)) return false;
    return true;
}

static void put_memory(ls_table *table, const replay_row *row, const replay_share *share, const char *devices) {
    double sum = ls_memory_total(&share->memory);
    ls_table_cell(table, "%d", row->n);
    ls_table_cell(table, "%s", devices);
    for (int c = 0; c < REPLAY_CATEGORIES; c++)
        ls_table_number(table, 2, replay_category_bytes(&share->memory, c) / MIB);
    ls_table_number(table, 2, sum / MIB);
    put_fit(table, row, sum);
}

static ls_status print_memory(const replay_rows *rows, struct part part, const char *name) {
    ls_column columns[REPLAY_CATEGORIES + 4] = {{"N", LS_RIGHT}, {"device", LS_RIGHT}};
    for (int c = 0; c < REPLAY_CATEGORIES; c++) columns[2 + c] = (ls_column){categories[c].name, LS_RIGHT};
    columns[REPLAY_CATEGORIES + 2] = (ls_column){"together", LS_RIGHT};
    columns[REPLAY_CATEGORIES + 3] = (ls_column){"", LS_LEFT};
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    if (status != LS_OK) return status;
    char text[DEVICES_TEXT];
    printf("\n%s: memory that a device holds, MiB, computed from the workload\n\n", name);
    double cap_mb = NAN; /* of a sweep over buckets the first size */
    for (int i = 0; i < rows->count; i++) {
        const replay_row *row = &rows->rows[i];
        if (!is_listed(row, part)) continue;
        if (isnan(cap_mb)) cap_mb = row->cap_mb;
        if (row->cap_mb != cap_mb && part.mode == LS_BUILD_DDP) continue;
        bool alike = hold_the_same(&row->first.memory, &row->others.memory);
        put_memory(table, row, &row->first, alike && row->n > 1 ? "each" : "0");
        if (!alike) put_memory(table, row, &row->others, others_text(row, text));
    }
    return ls_table_finish(table, stdout);
}

/* --- all --------------------------------------------------------------------------------------------------------- */

static void print_title(const replay_inputs *inputs, const replay_settings *settings, struct part part,
                        const char *name) {
    printf("%s: %s", name, inputs->on);
    if (settings->per_device_batch > 0) {
        printf("; %g samples per step on each device", settings->per_device_batch);
    } else {
        printf("; %g samples per step on every N", settings->batch);
    }
    printf(", %s", ls_dtype_name(settings->precision));
    if (part.mode == LS_BUILD_DP)
        printf("; parameters and gradients by %s", part.by_collectives ? "collectives" : "copies");
    if (part.mode == LS_BUILD_DDP) {
        if (settings->cap_count == 1) printf("; buckets of %g MiB", settings->caps_mb[0]);
        printf("%s%s", settings->overlap ? ", reduced during backward" : ", reduced after backward",
               settings->compress ? ", as halves" : "");
        if (settings->collectives == LS_BUILD_BY_MESSAGES)
            printf("; all-reduce message by message (%s)", ls_pattern_name(settings->pattern));
    }
    printf("\n\n");
}

static void print_legend(const replay_settings *settings) {
    printf(
        "\n"
        "T_N            replayed time of a step: mean of %d steps after a warm-up step%s\n"
        "T1             one device's step, without either mode%s\n"
        "compute ...    parts of the step, mean of devices, which add up to T_N. compute: a kernel runs; exposed: no\n"
        "               kernel but communication; host: neither, but the host thread works; idle: none of these\n"
        "busy, comm.    share of the step with a kernel; with a copy or collective, hidden or not\n"
        "overlap        share of communication during which its device computes\n"
        "busiest link   share of its bandwidth that copies and messages use\n",
        settings->steps > 1 ? settings->steps - 1 : 1, settings->steps > 1 ? "" : " (none)",
        settings->per_device_batch > 0 ? "; the speed-up is N T1 / T_N"
                                       : "; T1(b/N): with one device's share of the batch");
}

/* The one figure of a trace of one device that was measured, too. */
static void print_recorded_t1(const replay_rows *rows) {
    for (int i = 0; i < rows->count; i++) {
        const replay_row *row = &rows->rows[i];
        if (row->mode != LS_BUILD_SINGLE || isnan(row->recorded_ms)) continue;
        printf("T1 is %.3f ms here; the run that was recorded measured %.3f ms (%+.1f %%)\n\n", row->step_ms,
               row->recorded_ms, 100 * (row->step_ms / row->recorded_ms - 1));
        return;
    }
}

static ls_status print_part(const replay_rows *rows, const replay_inputs *inputs, const replay_settings *settings,
                            struct part part) {
    const char *name =
        replay_row_name(&(replay_row){.mode = part.mode, .by_collectives = part.by_collectives}, settings);
    print_title(inputs, settings, part, name);
    ls_status status = print_times(rows, part, settings);
    if (status == LS_OK && part.mode == LS_BUILD_DP) status = print_devices(rows, part, name);
    return status == LS_OK ? print_memory(rows, part, name) : status;
}

ls_status replay_print(const replay_rows *rows, const replay_inputs *inputs, const replay_settings *settings) {
    ls_status status = LS_OK;
    bool any = false;
    if (inputs->factor != 1)
        printf("T1 = %g ms was given: the node's rates are multiplied by %.4g%s\n\n", settings->calibrate_t1_ms,
               inputs->factor,
               inputs->factor > 5 || inputs->factor < 0.2
                   ? ", which is far from 1: is it a time of this node, network, batch and precision?"
                   : "");
    if (!settings->modes[LS_BUILD_SINGLE]) print_recorded_t1(rows);
    status = replay_print_modes(rows, inputs, settings);
    for (int k = 0; status == LS_OK && k < 4; k++) {
        static const struct part parts[] = {
            {LS_BUILD_SINGLE, false}, {LS_BUILD_DP, false}, {LS_BUILD_DP, true}, {LS_BUILD_DDP, false}};
        bool way = parts[k].by_collectives ? settings->by_collectives : settings->by_copies;
        if (!settings->modes[parts[k].mode] || (parts[k].mode == LS_BUILD_DP && !way)) continue;
        if (any) printf("\n");
        any = true;
        status = print_part(rows, inputs, settings, parts[k]);
    }
    if (status == LS_OK) print_legend(settings);
    return status;
}
