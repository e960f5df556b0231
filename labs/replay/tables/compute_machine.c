/* Table 6: this machine. The deviation of a replayed trace from its recorded times; T2, half a batch and --no-overlap,
 * predicted from a trace of one device and the node that calibrate measures, against measurements; and the limits of
 * predictions. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cores.h"
#include "labs/replay/tables/machine.h"
#include "labs/replay/tables/tables.h"

/* bench_dp_vs_ddp's networks, with fewer steps. */
static const struct machine_plan plans[] = {
    {"mlp", "--optimizer=adam", 64, 400},
    {"convnet", "--optimizer=sgd --momentum=0.9", 100, 40},
    {"deep", "--optimizer=adam", 64, 30},
};
static const struct machine_plan quick_plan = {"mlp", "--optimizer=adam", 64, 40};

enum { PLANS = sizeof plans / sizeof *plans, ROUNDS = 5, QUICK_ROUNDS = 1, QUICK_PLANS = 1 };

/* The data of one plan. */
struct scene {
    const struct machine_plan *plan;
    struct machine_record record;
    ls_workload *whole, *half; /* from the traces of one device */
    tables_replayed recorded[MACHINE_RUNS], replayed[MACHINE_RUNS], predicted[MACHINE_RUNS], from_half[MACHINE_RUNS];
};

static void close_scene(struct scene *scene) {
    ls_workload_close(scene->whole);
    ls_workload_close(scene->half);
    machine_record_free(&scene->record);
}

static ls_status fill_scene(struct scene *scene, ls_node *const nodes[2]) {
    ls_trace *const *traces = scene->record.traces;
    ls_status status = ls_workload_from_trace(&scene->whole, traces[MACHINE_SINGLE]);
    if (status == LS_OK) status = ls_workload_from_trace(&scene->half, traces[MACHINE_HALF]);
    bool fits = status == LS_OK && (!nodes[1] || machine_fits_cache(scene->whole));
    const ls_node *node = fits ? nodes[0] : nodes[1];
    for (enum machine_run run = 0; status == LS_OK && run < MACHINE_RUNS; run++) {
        if (traces[run]) status = tables_read_recorded(scene->recorded[run], traces[run]);
        if (status == LS_OK && traces[run]) status = tables_replay_trace(scene->replayed[run], traces[run], NULL);
        if (status == LS_OK) status = machine_predict(scene->predicted[run], scene->whole, node, scene->plan, run);
        if (status == LS_OK) status = machine_predict(scene->from_half[run], scene->half, node, scene->plan, run);
    }
    return status;
}

static ls_status make_scene(struct scene *scene, const struct machine_plan *plan, ls_node *const nodes[2],
                            const tables_settings *settings) {
    *scene = (struct scene){.plan = plan};
    ls_status status = machine_record(&scene->record, plan, settings->quick ? QUICK_ROUNDS : ROUNDS, settings);
    if (status != LS_OK) return status;
    status = fill_scene(scene, nodes);
    if (status != LS_OK) close_scene(scene);
    return status;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

enum figure { RECORDED, PREDICTED, PARTS, FROM_HALF };

/* In the order of the table. */
static const struct {
    const char *group, *quantity;
    enum figure figure;
    enum machine_run run;
    bool bound;
    enum tables_column part; /* of T2 */
} rows[] = {
#define RECORD(run)                                                                                                    \
    { "recorded", "a trace replayed as it was recorded, ms", RECORDED, run, true, TABLES_STEP }
#define PREDICT(run, quantity)                                                                                         \
    { "predicted", quantity " from T1's trace, ms", PREDICTED, run, true, TABLES_MEDIAN }
#define PART(run, what, part)                                                                                          \
    { "parts of T2", "of T2: " what ", ms", PARTS, run, false, part }
#define HALF(run)                                                                                                      \
    { "from half the batch", "T2 from T1(b/2)'s trace, ms", FROM_HALF, run, false, TABLES_MEDIAN }
    RECORD(MACHINE_DP1),
    RECORD(MACHINE_DDP1),
    RECORD(MACHINE_DP2),
    RECORD(MACHINE_DDP2),
    {"predicted", "T1 from its own trace, ms", PREDICTED, MACHINE_SINGLE, false, TABLES_MEDIAN},
    PREDICT(MACHINE_HALF, "half the batch"),
    PREDICT(MACHINE_DP2, "T2"),
    PREDICT(MACHINE_DDP2, "T2"),
    PREDICT(MACHINE_APART, "T2"),
    PART(MACHINE_DP2, "kernels", TABLES_BUSY),
    PART(MACHINE_DP2, "communication that nothing hides", TABLES_EXPOSED),
    PART(MACHINE_DP2, "host", TABLES_HOST),
    PART(MACHINE_DP2, "idle", TABLES_IDLE),
    PART(MACHINE_DDP2, "kernels", TABLES_BUSY),
    PART(MACHINE_DDP2, "communication that nothing hides", TABLES_EXPOSED),
    PART(MACHINE_DDP2, "host", TABLES_HOST),
    PART(MACHINE_DDP2, "idle", TABLES_IDLE),
    HALF(MACHINE_DP2),
    HALF(MACHINE_DDP2),
    HALF(MACHINE_APART),
#undef RECORD
#undef PREDICT
#undef PART
#undef HALF
};

enum { ROWS = sizeof rows / sizeof *rows };

/* The step time, or the part in ms. */
static double ms_of(const tables_replayed step, enum tables_column part) {
    return step[part] * (part > TABLES_MEDIAN ? step[TABLES_STEP] : 1);
}

static void add_row(tables_book *book, const struct scene *scene, int r) {
    enum machine_run run = rows[r].run;
    enum tables_column part = rows[r].part;
    char mode[80];
    bool of_trace = rows[r].figure == RECORDED || rows[r].figure == PARTS;
    if (of_trace ? !scene->record.traces[run] : !machine_has_cores(run)) return;
    const tables_replayed *const ours[] = {[RECORDED] = scene->replayed,
                                           [PREDICTED] = scene->predicted,
                                           [PARTS] = scene->predicted,
                                           [FROM_HALF] = scene->from_half};
    snprintf(mode, sizeof mode, "%s, %s", scene->plan->model, machine_kinds[run].name);
    tables_add(book,
               &(struct tables_row){.quantity = rows[r].quantity,
                                    .mode = mode,
                                    .n = machine_kinds[run].devices,
                                    .reference = of_trace ? ms_of(scene->recorded[run], part) : scene->record.ms[run],
                                    .ours = ms_of(ours[rows[r].figure][run], part),
                                    .bound = rows[r].bound ? TABLES_WITHIN : TABLES_SHOWN});
}

/* Group by group, and scene by scene within a group. */
static void add_rows(tables_book *book, const struct scene *scenes, int count) {
    for (int first = 0, end = 0; first < ROWS; first = end) {
        while (end < ROWS && rows[end].group == rows[first].group) end++;
        tables_group(book, rows[first].group);
        for (int i = 0; i < count; i++)
            for (int r = first; r < end; r++) add_row(book, &scenes[i], r);
    }
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

/* Names the traces, so that a prediction can be examined with build/replay. */
static void tell_traces(tables_book *book, const struct scene *scenes, int count) {
    char text[400] = "The traces that predictions started from, nearest to the medians of one device:";
    tables_group(book, "traces");
    for (int i = 0; i < count; i++) {
        const struct machine_record *record = &scenes[i].record;
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "%s traces/%s_SINGLE_%d and _HALF_%d", i > 0 ? "," : "",
                 scenes[i].plan->model, record->rounds[MACHINE_SINGLE] + 1, record->rounds[MACHINE_HALF] + 1);
    }
    if (count > 0) tables_text(book, "%s.", text);
}

static void add_notes(tables_book *book, ls_node *const nodes[2]) {
    tables_group(book, "notes");
    if (ls_usable_cores() < 2)
        tables_text(book, "This machine lends one core: two devices would only show time-slicing, so T2 and "
                          "--no-overlap are left out.");
    for (int i = 0; i < 2; i++)
        if (nodes[i] && machine_is_rough(nodes[i]))
            tables_text(book,
                        "Rough: this machine was busy while the node %s was measured, and its figures, and what is "
                        "predicted from them, are those of a busy machine. The other rows were measured later.",
                        ls_node_name(nodes[i]));
}

ls_status tables_compute_machine(tables_book *book, const tables_settings *settings) {
    struct scene scenes[PLANS];
    int count = settings->quick ? QUICK_PLANS : PLANS, made = 0;
    ls_node *nodes[2] = {NULL, NULL};
    ls_status status = machine_calibrate(nodes, settings);
    if (status == LS_OK) add_notes(book, nodes);
    while (status == LS_OK && made < count) {
        status = make_scene(&scenes[made], settings->quick ? &quick_plan : &plans[made], nodes, settings);
        made += status == LS_OK;
    }
    add_rows(book, scenes, made);
    tell_traces(book, scenes, made);
    for (int i = 0; i < made; i++) close_scene(&scenes[i]);
    for (int i = 0; i < 2; i++) ls_node_close(nodes[i]);
    return status;
}
