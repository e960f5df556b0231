/* recorded: a trace's tasks with their own durations and edges, and without their times: does the simulation find
 * the times again? What it misses is what no task or edge says (and, under --trace, that the probes cost
 * something). */
#include <cjson/cJSON.h>
#include <math.h>

#include "common/base/log.h"
#include "labs/replay/replay/replay.h"

static double step_ms(const struct ls_account *a) { return a->step_us / 1e3; }
static double busy(const struct ls_account *a) { return 100 * a->busy_share; }
static double communication(const struct ls_account *a) { return 100 * a->communication_share; }
static double overlap(const struct ls_account *a) { return 100 * a->overlap; }

static double mean_of(const struct ls_account *a, size_t offset) {
    double sum = 0;
    for (int i = 0; i < a->device_count; i++)
        sum += *(const double *)(const void *)((const char *)&a->devices[i] + offset) / 1e3 / a->device_count;
    return sum;
}

static double compute_ms(const struct ls_account *a) {
    return mean_of(a, offsetof(struct ls_device_account, compute_us));
}
static double exposed_ms(const struct ls_account *a) {
    return mean_of(a, offsetof(struct ls_device_account, exposed_us));
}
static double host_ms(const struct ls_account *a) { return mean_of(a, offsetof(struct ls_device_account, host_us)); }
static double idle_ms(const struct ls_account *a) { return mean_of(a, offsetof(struct ls_device_account, idle_us)); }

/* What is compared of two accounts. */
static const struct {
    const char *title, *name;
    double (*value)(const struct ls_account *account);
} figures[] = {
    {"step, ms", "step_ms", step_ms},
    {"  of it compute, ms", "compute_ms", compute_ms},
    {"  exposed communication, ms", "exposed_ms", exposed_ms},
    {"  host, ms", "host_ms", host_ms},
    {"  idle, ms", "idle_ms", idle_ms},
    {"devices busy, %", "busy_percent", busy},
    {"communication, % of the step", "communication_percent", communication},
    {"overlap, % of communication", "overlap_percent", overlap},
};
enum { FIGURES = sizeof figures / sizeof *figures };

#define LEAST 1e-3 /* of a figure that an error is worth saying of */

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

/* A figure of the recorded account, where there is one, and of the replayed. */
struct comparison {
    const char *title;
    double recorded, replayed, error;
};

static struct comparison compare(const struct ls_account *recorded, const struct ls_account *replayed, size_t figure) {
    double before = recorded ? figures[figure].value(recorded) : NAN, after = figures[figure].value(replayed);
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

static ls_status print_accounts(const struct ls_account *recorded, const struct ls_account *replayed) {
    struct comparison lines[FIGURES];
    for (size_t i = 0; i < FIGURES; i++) lines[i] = compare(recorded, replayed, i);
    return bench_print_rows(stdout, columns, lines, FIGURES, sizeof *lines);
}

static ls_status write_json(const struct ls_account *recorded, const struct ls_account *replayed,
                            const replay_settings *settings) {
    if (!settings->json) return LS_OK;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "program", "replay");
    cJSON_AddStringToObject(object, "how", "replayed as recorded");
    cJSON_AddStringToObject(object, "trace", settings->trace);
    bench_add_number(object, "steps", replayed->steps);
    for (size_t i = 0; i < FIGURES; i++) {
        const struct comparison line = compare(recorded, replayed, i);
        bench_add_columns(cJSON_AddObjectToObject(object, figures[i].name), columns, &line);
    }
    char *text = cJSON_Print(object);
    cJSON_Delete(object);
    ls_status status =
        text ? bench_write_path(settings->json, text) : ls_fail(LS_ERR_NO_MEMORY, "no memory for the JSON");
    cJSON_free(text);
    return status;
}

/* run->trace is the inputs', and not the run's to free. */
ls_status replay_recorded(const replay_inputs *inputs, const replay_settings *settings) {
    replay_run run = {.trace = inputs->trace};
    struct ls_account *recorded = NULL;
    bool known = has_times(inputs->trace);
    ls_status status = ls_engine_run(&run.timeline, inputs->trace, inputs->node);
    if (status == LS_OK) status = ls_account_make(&run.account, inputs->trace, run.timeline, inputs->node);
    if (status == LS_OK && known) status = ls_account_recorded(&recorded, inputs->trace);
    if (status == LS_OK) print_title(inputs->trace, settings, known);
    if (status == LS_OK) status = print_accounts(recorded, run.account);
    if (status == LS_OK) status = write_json(recorded, run.account, settings);
    if (status == LS_OK && settings->timeline) status = replay_write_timeline(&run, settings->timeline);
    ls_account_free(recorded);
    run.trace = NULL;
    replay_run_free(&run);
    return status;
}
