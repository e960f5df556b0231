#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/replay/replay.h"

#define MIB 1048576.0
#define GIB 1073741824.0

const char *replay_mode_name(ls_plan_mode mode) {
    static const char *const names[] = {"single", "DP", "DDP"};
    return names[mode];
}

const char *replay_row_name(const replay_row *row, const replay_settings *settings) {
    bool both = row->mode == LS_PLAN_DP && settings->by_copies && settings->by_collectives;
    return both && row->by_collectives ? "DP by collectives" : replay_mode_name(row->mode);
}

/* --- times ------------------------------------------------------------------------------------------------------- */

/* The rows of one group of tables: a mode's, or DP's with one way of transfer. */
struct part {
    ls_plan_mode mode;
    bool by_collectives;
};

static bool is_listed(const replay_row *row, struct part part) {
    if (row->mode != part.mode || row->by_collectives != part.by_collectives) return false;
    return row->mode != LS_PLAN_SINGLE || row->n == 1;
}

static bool all_fit(const replay_rows *rows, struct part part) {
    for (int i = 0; i < rows->count; i++)
        if (is_listed(&rows->rows[i], part) && !replay_fits(&rows->rows[i], rows->rows[i].memory_bytes)) return false;
    return true;
}

static ls_status print_times(const replay_rows *rows, struct part part) {
    bench_column columns[REPLAY_TIMES];
    bench_table table = {.columns = columns};
    const ls_int_list *n = &rows->settings->n;
    bool several = n->values[n->count - 1] > ls_node_device_count(rows->inputs->node);
    replay_times_columns(columns, rows->settings, all_fit(rows, part), several);
    for (int i = 0; i < rows->count; i++)
        if (is_listed(&rows->rows[i], part)) bench_table_line(&table, &rows->rows[i]);
    ls_status status = bench_table_finish(&table, stdout);
    const replay_row *t1 = &rows->rows[0]; /* one device with the batch of N = 1 */
    if (part.mode != LS_PLAN_SINGLE && !replay_fits(t1, t1->memory_bytes))
        printf(
            "\nT1's step does not fit on a device (%.4g of %.4g GiB): speed-ups over it are over what cannot be run\n",
            t1->memory_bytes / GIB, t1->device_memory_bytes / GIB);
    return status;
}

/* --- devices ----------------------------------------------------------------------------------------------------- */

/* A share, and the cells before and after it in a table. */
struct line {
    int n;
    char devices[24]; /* "1" or "1-7" */
    const replay_row *row;
    const replay_share *share;
};

BENCH_NUMBER_OF(total_of, struct line, row->share->memory_total_bytes)

static const char *fit_of(char cell[BENCH_CELL], const void *of) {
    return replay_fit_text(cell, ((const struct line *)of)->row, total_of(of));
}

#define WHOSE                                                                                                          \
    BENCH_COLUMN(.head = "N", BENCH_AT(BENCH_INT, struct line, n)),                                                    \
        BENCH_COLUMN(.head = "device", BENCH_AT(BENCH_CHARS, struct line, devices), .align = LS_RIGHT)
static const bench_column times[] = {WHOSE, BENCH_OF(struct line, share, replay_device_columns), {.kind = BENCH_END}};
static const bench_column memory[] = {
    WHOSE,
    BENCH_OF(struct line, share, replay_memory_columns),
    {.head = "together", .number = total_of, .per = MIB, .decimals = 2},
    {.head = "", .text = fit_of},
    {.kind = BENCH_END},
};

/* The line of device 0, or of the others. */
static struct line line_of(const replay_row *row, const replay_share *share) {
    struct line line = {.n = row->n, .devices = "0", .row = row, .share = share};
    if (share == &row->others) snprintf(line.devices, sizeof line.devices, row->n == 2 ? "1" : "1-%d", row->n - 1);
    return line;
}

static ls_status print_devices(const replay_rows *rows, struct part part, const char *name) {
    bench_table table = {.columns = times};
    printf("\n%s: device 0 and the others (their mean), per step\n\n", name);
    for (const replay_row *row = rows->rows; row < rows->rows + rows->count; row++) {
        if (!is_listed(row, part) || row->n == 1) continue;
        const struct line first = line_of(row, &row->first), others = line_of(row, &row->others);
        bench_table_line(&table, &first);
        bench_table_line(&table, &others);
    }
    return bench_table_finish(&table, stdout);
}

/* One line if all devices hold the same. */
static void put_memory(bench_table *table, const replay_row *row) {
    struct line first = line_of(row, &row->first), others = line_of(row, &row->others);
    bool alike = memcmp(row->first.memory_bytes, row->others.memory_bytes, sizeof row->first.memory_bytes) == 0;
    if (alike && row->n > 1) strcpy(first.devices, "each");
    bench_table_line(table, &first);
    if (!alike) bench_table_line(table, &others);
}

static ls_status print_memory(const replay_rows *rows, struct part part, const char *name) {
    bench_table table = {.columns = memory};
    printf("\n%s: memory that a device holds, MiB, counted on meta devices\n\n", name);
    double cap_mb = NAN; /* the first size of a sweep over buckets */
    for (const replay_row *row = rows->rows; row < rows->rows + rows->count; row++) {
        if (!is_listed(row, part)) continue;
        if (isnan(cap_mb)) cap_mb = row->cap_mb;
        if (part.mode != LS_PLAN_DDP || row->cap_mb == cap_mb) put_memory(&table, row);
    }
    return bench_table_finish(&table, stdout);
}

/* --- DP beside DDP ------------------------------------------------------------------------------------------------ */

/* The first table, which is the answer: the times of a step with DP and with DDP on each N, and their ratio. The other
 * tables explain it. DDP: the first of several bucket sizes. */
enum column { COPIES, COLLECTIVES, DDP, COLUMNS };

static double step_ms(const replay_rows *rows, enum column column, int n) {
    for (const replay_row *row = rows->rows; row < rows->rows + rows->count; row++) {
        if (row->n != n || row->mode != (column == DDP ? LS_PLAN_DDP : LS_PLAN_DP)) continue;
        if (column == DDP ? row->cap_mb == rows->settings->caps_mb[0] : row->by_collectives == (column == COLLECTIVES))
            return row->step_ms;
    }
    return NAN;
}

struct comparison {
    int n;
    double ms[COLUMNS], ratio[COLUMNS];
};

#define AT(field) BENCH_AT(BENCH_DOUBLE, struct comparison, field)
static ls_status print_modes(const replay_rows *rows) {
    const replay_settings *s = rows->settings;
    bool copies = s->by_copies, collectives = s->by_collectives, weak = s->per_device_batch > 0;
    const bench_column columns[] = {
        {.head = "N", BENCH_AT(BENCH_INT, struct comparison, n)},
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
        struct comparison line = {.n = s->n.values[i]};
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

/* --- all --------------------------------------------------------------------------------------------------------- */

/* Options that change the replayed program. */
static void print_options(const replay_settings *s, struct part part) {
    if (s->accumulate > 1) printf("; %d micro-batches", s->accumulate);
    if (s->checkpoint_activations) printf("; --checkpoint-activations %s", s->checkpoint_activations);
    if (s->tensor > 1 && part.mode == LS_PLAN_DDP)
        printf("; layers shared by %d ranks%s", s->tensor, s->sequence_parallel ? ", rows between them, too" : "");
    if (s->shard_state > 0 && part.mode == LS_PLAN_DDP) printf("; ZeRO-%d", s->shard_state);
    if (s->sync_bn && part.mode != LS_PLAN_SINGLE) printf("; batch norm over all devices");
    if (s->join && part.mode == LS_PLAN_DDP) printf("; ranks that join");
    if (s->graph) printf("; a step as a CUDA graph");
    if (s->spread_percent > 0) printf("; devices' times spread by %g %%", s->spread_percent);
}

static void print_title(const replay_rows *rows, struct part part, const char *name) {
    const replay_settings *settings = rows->settings;
    bool weak = settings->per_device_batch > 0;
    printf("%s: %s; %g samples per step on %s, %s", name, rows->inputs->on,
           weak ? settings->per_device_batch : settings->batch, weak ? "each device" : "every N",
           ls_dtype_name(settings->precision));
    print_options(settings, part);
    if (part.mode == LS_PLAN_DP)
        printf("; parameters and gradients by %s", part.by_collectives ? "collectives" : "copies");
    if (part.mode == LS_PLAN_DDP) {
        if (settings->cap_count == 1) printf("; buckets of %g MiB", settings->caps_mb[0]);
        printf("%s%s", settings->overlap ? ", reduced during backward" : ", reduced after backward",
               settings->compression.half != LS_FP32 ? ", as halves" : "");
        if (settings->compression.fraction > 0)
            printf(", of which the largest %g %% are sent%s", 100 * settings->compression.fraction,
                   settings->compression.feedback ? "" : " without feedback");
        if (settings->collectives == LS_PLAN_BY_MESSAGES)
            printf("; all-reduce message by message (%s)", ls_pattern_name(settings->pattern));
        if (settings->hierarchical) printf("; between nodes a hierarchical all-reduce");
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

/* The only figure that was also measured, in a trace of one device. */
static void print_recorded_t1(const replay_rows *rows) {
    for (int i = 0; i < rows->count; i++) {
        const replay_row *row = &rows->rows[i];
        if (row->mode != LS_PLAN_SINGLE || isnan(row->recorded_ms)) continue;
        printf("T1 is %.3f ms here; the run that was recorded measured %.3f ms (%+.1f %%)\n\n", row->step_ms,
               row->recorded_ms, 100 * (row->step_ms / row->recorded_ms - 1));
        return;
    }
}

static ls_status print_part(const replay_rows *rows, struct part part) {
    const replay_row of = {.mode = part.mode, .by_collectives = part.by_collectives};
    const char *name = replay_row_name(&of, rows->settings);
    print_title(rows, part, name);
    ls_status status = print_times(rows, part);
    if (status == LS_OK && part.mode == LS_PLAN_DP) status = print_devices(rows, part, name);
    return status == LS_OK ? print_memory(rows, part, name) : status;
}

ls_status replay_print(const replay_rows *rows) {
    static const struct part parts[] = {
        {LS_PLAN_SINGLE, false}, {LS_PLAN_DP, false}, {LS_PLAN_DP, true}, {LS_PLAN_DDP, false}};
    const replay_settings *settings = rows->settings;
    double factor = rows->inputs->factor;
    bool any = false;
    if (factor != 1)
        printf("T1 = %g ms was given: the node's rates are multiplied by %.4g%s\n\n", settings->calibrate_t1_ms, factor,
               factor > 5 || factor < 0.2
                   ? ", which is far from 1: is it a time of this node, network, batch and precision?"
                   : "");
    if (!settings->modes[LS_PLAN_SINGLE]) print_recorded_t1(rows);
    ls_status status = print_modes(rows);
    for (int k = 0; status == LS_OK && k < 4; k++) {
        bool way = parts[k].by_collectives ? settings->by_collectives : settings->by_copies;
        if (!settings->modes[parts[k].mode] || (parts[k].mode == LS_PLAN_DP && !way)) continue;
        if (any) printf("\n");
        any = true;
        status = print_part(rows, parts[k]);
    }
    if (status == LS_OK) print_legend(settings);
    return status;
}
