/* recorded: a trace's tasks with their own durations and edges, but without their times: compares the simulated times
 * with the recorded ones. Differences have causes that no task or edge records (including, under --trace, the cost of
 * probes). */
#include <cjson/cJSON.h>
#include <math.h>

#include "common/base/log.h"
#include "labs/replay/replay/replay.h"

/* Figures of an account: its own, or its devices' means; in milliseconds and percent. */
static const struct figure {
    const char *title, *name;
    enum { TIME, SHARE, DEVICES_TIME } kind;
    size_t offset;
} figures[] = {
    {"step, ms", "step_ms", TIME, offsetof(struct ls_account, step_us)},
    {"  of it compute, ms", "compute_ms", DEVICES_TIME, offsetof(struct ls_device_account, compute_us)},
    {"  exposed communication, ms", "exposed_ms", DEVICES_TIME, offsetof(struct ls_device_account, exposed_us)},
    {"  host, ms", "host_ms", DEVICES_TIME, offsetof(struct ls_device_account, host_us)},
    {"  idle, ms", "idle_ms", DEVICES_TIME, offsetof(struct ls_device_account, idle_us)},
    {"devices busy, %", "busy_percent", SHARE, offsetof(struct ls_account, busy_share)},
    {"communication, % of the step", "communication_percent", SHARE, offsetof(struct ls_account, communication_share)},
    {"overlap, % of communication", "overlap_percent", SHARE, offsetof(struct ls_account, overlap)},
};
enum { FIGURES = sizeof figures / sizeof *figures };

static double field_of(const void *account, size_t offset) {
    return *(const double *)(const void *)((const char *)account + offset);
}

static double value_of(const struct figure *figure, const struct ls_account *account) {
    double sum = 0;
    if (figure->kind == SHARE) return 100 * field_of(account, figure->offset);
    if (figure->kind == TIME) return field_of(account, figure->offset) / 1e3;
    for (int i = 0; i < account->device_count; i++)
        sum += field_of(&account->devices[i], figure->offset) / 1e3 / account->device_count;
    return sum;
}

#define LEAST 1e-3 /* of a figure, for its error to be printed */

static bool has_times(const ls_trace *trace) {
    for (int i = 0; i < ls_trace_task_count(trace); i++)
        if (isfinite(ls_trace_task(trace, i)->start_us)) return true;
    return false;
}

static void print_title(const ls_trace *trace, const replay_settings *settings, bool recorded) {
    const struct ls_trace_about *about = ls_trace_what(trace);
    printf("%s: %s, %s, %lld samples per step, %s on %d device%s (%s); %d steps\n", settings->trace, about->mode,
           about->model, (long long)about->batch_size, about->precision,
           about->world_size > about->devices ? about->world_size : about->devices,
           about->world_size > 1 || about->devices > 1 ? "s" : "",
           *about->device_name ? about->device_name : about->device_kind, about->steps);
    printf("recorded: %s; replayed: the same tasks and edges, without their times%s\n\n",
           !recorded             ? "nothing, the devices kept no time"
           : about->virtual_time ? "while the devices shared one core (each device's CPU time)"
                                 : "measured, with the probes on",
           settings->node ? ", copies over the node's links where they have none" : "");
    if (about->virtual_time)
        printf("virtual: replayed is what the devices would have done with a core each; the difference is what the "
               "turns cost, and no error\n\n");
    if (isfinite(about->median_step_ms))
        printf("median step as the program measured it: %.3f ms\n\n", about->median_step_ms);
}

/* A figure of the recorded account, if any, and of the replayed one. */
struct comparison {
    const char *title;
    double recorded, replayed, error;
};

static struct comparison compare(const struct ls_account *recorded, const struct ls_account *replayed, size_t figure) {
    double before = recorded ? value_of(&figures[figure], recorded) : NAN, after = value_of(&figures[figure], replayed);
    return (struct comparison){figures[figure].title, before, after, before >= LEAST ? after / before - 1 : NAN};
}

BENCH_TEXT_OF(title_of, struct comparison, row->title)

static void put_error(char cell[BENCH_CELL], int decimals, double percent) {
    if (isfinite(percent)) snprintf(cell, BENCH_CELL, "%+.*f", decimals, percent);
}

#define AT(field) BENCH_AT(BENCH_DOUBLE, struct comparison, field)
static const bench_column columns[] = {
    {.head = "per step, mean of devices", .text = title_of},
    {.name = "recorded", .head = "recorded", AT(recorded), .decimals = 3},
    {.name = "replayed", .head = "replayed", AT(replayed), .decimals = 3},
    {.name = "error", .head = "off by\n%", AT(error), .percent = true, .decimals = 2, .format = put_error},
    {.kind = BENCH_END},
};

struct comparisons {
    const replay_settings *settings;
    int steps;
    struct comparison lines[FIGURES];
};

static ls_status put_json(FILE *file, const void *results) {
    const struct comparisons *all = results;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "program", "replay");
    cJSON_AddStringToObject(object, "how", "replayed as recorded");
    cJSON_AddStringToObject(object, "trace", all->settings->trace);
    bench_add_number(object, "steps", all->steps);
    for (size_t i = 0; i < FIGURES; i++)
        bench_add_columns(cJSON_AddObjectToObject(object, figures[i].name), columns, &all->lines[i]);
    return bench_put_json(file, object);
}

static ls_status show(const struct ls_account *recorded, const struct ls_account *replayed,
                      const replay_settings *settings) {
    struct comparisons all = {.settings = settings, .steps = replayed->steps};
    for (size_t i = 0; i < FIGURES; i++) all.lines[i] = compare(recorded, replayed, i);
    ls_status status = bench_print_rows(stdout, columns, all.lines, FIGURES, sizeof *all.lines);
    return status == LS_OK && settings->json ? bench_write_to(settings->json, put_json, &all) : status;
}

/* The inputs own run->trace; the run must not free it. */
ls_status replay_recorded(const replay_inputs *inputs, const replay_settings *settings) {
    replay_run run = {.trace = inputs->trace};
    struct ls_account *recorded = NULL;
    bool known = has_times(inputs->trace);
    ls_status status = ls_engine_run(&run.timeline, inputs->trace, inputs->node);
    if (status == LS_OK) status = ls_account_make(&run.account, inputs->trace, run.timeline, inputs->node);
    if (status == LS_OK && known) status = ls_account_recorded(&recorded, inputs->trace);
    if (status == LS_OK) print_title(inputs->trace, settings, known);
    if (status == LS_OK) status = show(recorded, run.account, settings);
    if (status == LS_OK && settings->timeline) status = replay_write_timeline(&run, settings->timeline);
    ls_account_free(recorded);
    run.trace = NULL;
    replay_run_free(&run);
    return status;
}
