/* Table 6: this machine. How far a replayed trace is from what it recorded; T2, half a batch and --no-overlap,
 * predicted from a trace of one device and the node that calibrate measures, against what is measured; and where
 * predictions go wrong. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cores.h"
#include "labs/replay/tables/machine.h"
#include "labs/replay/tables/tables.h"

#define AS_RECORDED 0.05
#define PREDICTED 0.10

/* bench_dp_vs_ddp's networks, with fewer steps. */
static const struct machine_plan plans[] = {
    {"mlp", "adam", NULL, 64, 400},
    {"convnet", "sgd", "--momentum=0.9", 100, 40},
    {"deep", "adam", NULL, 64, 30},
};

enum { ROUNDS = 5, QUICK_ROUNDS = 1, QUICK_PLANS = 1 };

static const char how_recorded[] =
    "replayed: a trace's own tasks and edges without their times; reference: recorded in the same run, probes on";
static const char how_predicted[] =
    "replayed: the trace of one device with the whole batch (of those of all rounds the one nearest to T1), on "
    "node this_machine (deep: this_machine_beyond_cache) as calibrate measured it just before; reference: measured, "
    "median of interleaved runs without --trace, on this machine's CPU devices";
static const char how_parts[] = "replayed: as the T2 above, means of the steps and of both devices, which add up to "
                                "their mean and not to the median; without bounds; reference: recorded "
                                "in one run of two devices with "
                                "probes on, which no prediction sees";

static void add(tables_book *book, const char *quantity, const struct machine_plan *plan, enum machine_run run,
                double reference, double ours, double tolerance, const char *how) {
    char mode[80];
    snprintf(mode, sizeof mode, "%s, %s", plan->model, machine_run_name(run));
    tables_add(book, &(struct tables_row){.quantity = quantity,
                                          .mode = mode,
                                          .n = machine_run_devices(run),
                                          .reference = reference,
                                          .ours = ours,
                                          .bound = tolerance > 0 ? TABLES_WITHIN : TABLES_SHOWN,
                                          .tolerance = tolerance,
                                          .how = how});
}

/* What is known of one plan. */
struct scene {
    const struct machine_plan *plan;
    struct machine_record record;
    ls_workload *whole, *half; /* of the traces of one device */
    struct machine_step recorded[MACHINE_RUNS], replayed[MACHINE_RUNS];
    struct machine_step predicted[MACHINE_RUNS], from_half[MACHINE_RUNS];
};

static bool has_enough_cores(enum machine_run run) { return machine_run_devices(run) <= ls_usable_cores(); }

static void close_scene(struct scene *scene) {
    ls_workload_close(scene->whole);
    ls_workload_close(scene->half);
    machine_record_free(&scene->record);
}

static ls_status fill_scene(struct scene *scene, const struct machine_nodes *nodes) {
    ls_trace *const *traces = scene->record.traces;
    ls_status status = ls_workload_from_trace(&scene->whole, traces[MACHINE_SINGLE]);
    if (status == LS_OK) status = ls_workload_from_trace(&scene->half, traces[MACHINE_HALF]);
    bool fits = status == LS_OK && (!nodes->beyond_caches || machine_fits_cache(scene->whole));
    const ls_node *node = fits ? nodes->in_caches : nodes->beyond_caches;
    for (int run = 0; status == LS_OK && run < MACHINE_RUNS; run++) {
        if (traces[run]) status = machine_replay_recorded(&scene->recorded[run], &scene->replayed[run], traces[run]);
        if (status == LS_OK)
            status = machine_predict(&scene->predicted[run], scene->whole, node, scene->plan, (enum machine_run)run);
        if (status == LS_OK)
            status = machine_predict(&scene->from_half[run], scene->half, node, scene->plan, (enum machine_run)run);
    }
    return status;
}

static ls_status make_scene(struct scene *scene, const struct machine_plan *plan, const struct machine_nodes *nodes,
                            const tables_settings *settings) {
    bool timed[MACHINE_RUNS], traced[MACHINE_RUNS];
    for (int run = 0; run < MACHINE_RUNS; run++) {
        timed[run] = has_enough_cores((enum machine_run)run) && run != MACHINE_DP1 && run != MACHINE_DDP1;
        traced[run] = has_enough_cores((enum machine_run)run) && run != MACHINE_APART;
    }
    *scene = (struct scene){.plan = plan};
    ls_status status =
        machine_record(&scene->record, plan, timed, traced, settings->quick ? QUICK_ROUNDS : ROUNDS, settings);
    if (status != LS_OK) return status;
    status = fill_scene(scene, nodes);
    if (status != LS_OK) close_scene(scene);
    return status;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static void add_recorded(tables_book *book, const struct scene *scene) {
    static const enum machine_run runs[] = {MACHINE_DP1, MACHINE_DDP1, MACHINE_DP2, MACHINE_DDP2};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        enum machine_run run = runs[i];
        if (!scene->record.traces[run]) continue;
        add(book, "a trace replayed as it was recorded, ms", scene->plan, run, scene->recorded[run].mean,
            scene->replayed[run].mean, AS_RECORDED, how_recorded);
    }
}

static void add_predicted(tables_book *book, const struct scene *scene) {
    static const struct {
        enum machine_run run;
        const char *quantity;
        double tolerance;
    } rows[] = {
        {MACHINE_SINGLE, "T1 from its own trace, ms", 0},
        {MACHINE_HALF, "half the batch from T1's trace, ms", PREDICTED},
        {MACHINE_DP2, "T2 from T1's trace, ms", PREDICTED},
        {MACHINE_DDP2, "T2 from T1's trace, ms", PREDICTED},
        {MACHINE_APART, "T2 from T1's trace, ms", PREDICTED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum machine_run run = rows[i].run;
        if (!has_enough_cores(run)) continue;
        add(book, rows[i].quantity, scene->plan, run, scene->record.ms[run], scene->predicted[run].median,
            rows[i].tolerance, how_predicted);
    }
}

/* So that a prediction can be looked into with build/replay. */
static void tell_traces(tables_book *book, const struct scene *scenes, int count) {
    char text[400] = "The traces that predictions started from, nearest to the medians of one device:";
    for (int i = 0; i < count; i++) {
        const struct machine_record *record = &scenes[i].record;
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "%s traces/%s_SINGLE_%d and _HALF_%d", i > 0 ? "," : "",
                 scenes[i].plan->model, record->rounds[MACHINE_SINGLE] + 1, record->rounds[MACHINE_HALF] + 1);
    }
    tables_text(book, "%s.", text);
}

/* Where a prediction of T2 is off. */
static void add_parts(tables_book *book, const struct scene *scene) {
    static const enum machine_run runs[] = {MACHINE_DP2, MACHINE_DDP2};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        enum machine_run run = runs[i];
        if (!scene->record.traces[run]) continue;
        const struct machine_step *was = &scene->recorded[run], *is = &scene->predicted[run];
        add(book, "of T2: kernels, ms", scene->plan, run, was->compute, is->compute, 0, how_parts);
        add(book, "of T2: communication that nothing hides, ms", scene->plan, run, was->exposed, is->exposed, 0,
            how_parts);
        add(book, "of T2: host, ms", scene->plan, run, was->host, is->host, 0, how_parts);
        add(book, "of T2: idle, ms", scene->plan, run, was->idle, is->idle, 0, how_parts);
    }
}

static void add_from_half(tables_book *book, const struct scene *scene) {
    static const char how[] =
        "replayed: the trace of one device with half the batch, which is what each of two gets, on the same node; "
        "reference: as for the T2 above";
    static const enum machine_run runs[] = {MACHINE_DP2, MACHINE_DDP2, MACHINE_APART};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        enum machine_run run = runs[i];
        if (!has_enough_cores(run)) continue;
        add(book, "T2 from T1(b/2)'s trace, ms", scene->plan, run, scene->record.ms[run], scene->from_half[run].median,
            0, how);
    }
}

static void introduce(tables_book *book) {
    tables_text(
        book, "Inputs of a prediction are a trace of one device and the node that calibrate measures on this machine, "
              "just before; T2 is never an input. DP1 and DDP1 are the two programs with one device.");
    if (ls_usable_cores() < 2)
        tables_text(book, "This machine lends one core: two devices would only show time-slicing, so T2 and "
                          "--no-overlap are left out.");
}

static void tell_rough(tables_book *book, const struct machine_nodes *nodes) {
    const ls_node *const all[] = {nodes->in_caches, nodes->beyond_caches};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i] || !machine_is_rough(all[i])) continue;
        tables_text(book,
                    "Rough: this machine was busy while the node %s was measured, and its figures, and what is "
                    "predicted from them, are those of a busy machine. The other rows were measured later.",
                    ls_node_name(all[i]));
    }
}

/* What a prediction is known to leave out. */
static void add_missing(tables_book *book) {
    tables_text(
        book,
        "What the predictions contain beside T1's own times, all of it measured by calibrate: products with half a"
        " batch; kernels that slow each other down side by side; the update of parameters that another core's "
        "cache holds; copies and all-reduces that run between kernels where no core is free for them; and per-"
        "device jitter, from the steps recorded on one device; what recording itself took is taken off. What they "
        "leave out: (1) two ranks have two "
        "loaders, which take time from the cores that compute; (2) gradients in another core's cache are slower to"
        " copy and to add; (3) other load on this machine, which two devices meet twice as often as one, and which"
        " drifts between calibrate, T1 and T2. The first two make T2 longer than predicted. The last one works "
        "both ways: a thread that finds its core taken when it is woken needs ten times as long, and DP has four "
        "hand-overs a step, so predictions from a node measured at a busy moment are too long. Networks whose "
        "batch does not fit into caches get more than twice as fast with half of it. Predictions from the whole "
        "batch are then too slow; the rows from T1(b/2) avoid that.");
}

ls_status tables_make_machine(tables_book *book, const tables_settings *settings) {
    struct scene scenes[sizeof plans / sizeof *plans];
    int count = settings->quick ? QUICK_PLANS : (int)(sizeof plans / sizeof *plans), made = 0;
    struct machine_nodes nodes;
    introduce(book);
    ls_status status = machine_calibrate(&nodes, settings);
    if (status == LS_OK) tell_rough(book, &nodes);
    while (status == LS_OK && made < count) {
        status = make_scene(&scenes[made], &plans[made], &nodes, settings);
        made += status == LS_OK;
    }
    for (int i = 0; i < made; i++) add_recorded(book, &scenes[i]);
    for (int i = 0; i < made; i++) add_predicted(book, &scenes[i]);
    for (int i = 0; i < made; i++) add_parts(book, &scenes[i]);
    for (int i = 0; i < made; i++) add_from_half(book, &scenes[i]);
    if (made > 0) tell_traces(book, scenes, made);
    if (made > 0) add_missing(book);
    for (int i = 0; i < made; i++) close_scene(&scenes[i]);
    machine_close_nodes(&nodes);
    return status;
}
