/* Table 5: machines that others measured. T1, one device's step, calibrates a node's rates; all else of a node is
 * from its sources; and what N > 1 devices take is predicted. "Communication is free" (T_N = T1) is what a prediction
 * must beat: by half of its error, on step times and on the time that goes beyond T1, with the order of all rows right.
 *
 * Four scenes: a rather large network with buckets and overlap; one whose gradients are the whole of the problem; a
 * small one, whose launches the interpreter's one lock lets through one by one; and a message without contents. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/tables/published.h"
#include "labs/tables/replayed.h"
#include "labs/tables/tables.h"

enum { ROWS_MAX = 16, AR_ROWS = 4 };
#define WITHIN 0.10
#define HALF 0.5
#define MB 1e6

/* What a scene compares. */
struct comparison {
    const char *scene;
    int count;
    double reference[ROWS_MAX], ours[ROWS_MAX], free[ROWS_MAX]; /* free: communication costs nothing */
};

static void add_row(tables_book *book, struct comparison *comparison, const struct published_figure *figure,
                    double ours, double free, const char *how) {
    int i = comparison->count++;
    comparison->reference[i] = figure->value;
    comparison->ours[i] = ours;
    comparison->free[i] = free;
    char all[320];
    snprintf(all, sizeof all, "%s; reference: measured by others, %s", how, figure->source);
    tables_add(book, &(struct tables_row){.quantity = figure->what,
                                          .mode = figure->mode,
                                          .n = figure->n,
                                          .reference = figure->value,
                                          .ours = ours,
                                          .how = all});
}

/* --- summaries
 * -------------------------------------------------------------------------------------------------------- */

static int sign(double left, double right) { return (left > right) - (left < right); }

/* Pairs of rows that lie the same way around; those that are the same for the reference are passed over. */
static void count_orders(int *right, int *pairs, const struct comparison *c) {
    *right = *pairs = 0;
    for (int i = 0; i < c->count; i++) {
        for (int j = 0; j < i; j++) {
            int wanted = sign(c->reference[i], c->reference[j]);
            *pairs += wanted != 0;
            *right += wanted != 0 && sign(c->ours[i], c->ours[j]) == wanted;
        }
    }
}

static void add_sum(tables_book *book, const char *quantity, const struct comparison *c, double reference, double ours,
                    enum tables_bound bound) {
    tables_add(book, &(struct tables_row){.quantity = quantity,
                                          .mode = c->scene,
                                          .reference = reference,
                                          .ours = ours,
                                          .bound = bound,
                                          .how = "computed from the rows of the scene; reference: half the error of "
                                                 "\"communication is free\", the pairs of rows, or 10 %"});
}

/* The sums over a scene's rows that must hold. Beyond T1 free communication takes nothing, and 0 has no logarithm:
 * there both errors are taken in the rows' unit. */
static void summarize(tables_book *book, const struct comparison *c) {
    double error = 0, logs = 0, free_logs = 0, beyond = 0, free_beyond = 0;
    for (int i = 0; i < c->count; i++) {
        error += fabs(c->ours[i] / c->reference[i] - 1) / c->count;
        logs += fabs(log(c->ours[i] / c->reference[i])) / c->count;
        free_logs += fabs(log(c->free[i] / c->reference[i])) / c->count;
        beyond += fabs(c->ours[i] - c->reference[i]) / c->count;
        free_beyond += fabs(c->free[i] - c->reference[i]) / c->count;
    }
    int right, pairs;
    count_orders(&right, &pairs, c);
    add_sum(book, "mean absolute error", c, WITHIN, error, TABLES_BELOW);
    add_sum(book, "mean |log error| of T_N", c, HALF * free_logs, logs, TABLES_BELOW);
    add_sum(book, "mean error of T_N - T1, ms (cifar: s)", c, HALF * free_beyond, beyond, TABLES_BELOW);
    add_sum(book, "pairs of rows in the right order", c, pairs, right, TABLES_WITHIN);
}

/* --- one replay
 * ------------------------------------------------------------------------------------------------------- */

struct scene {
    ls_workload *workload;
    ls_node *node;
    double samples; /* of a device's share: weak scaling */
};

static void close_scene(struct scene *scene) {
    ls_workload_close(scene->workload);
    ls_node_close(scene->node);
}

/* Opens both and scales the node's rates, so that one device's step takes t1_ms. `without_update`: t1_ms is that of
 * the step without its last operation, the optimizer's. */
static ls_status open_scene(struct scene *scene, const char *workload, const char *node, double samples, double t1_ms,
                            bool without_update) {
    double factor = 1;
    *scene = (struct scene){.samples = samples};
    ls_status status = ls_workload_open(&scene->workload, workload);
    if (status == LS_OK) status = ls_node_open(&scene->node, node);
    if (status == LS_OK) {
        scene->workload->work_count -= without_update;
        status = ls_cost_calibrate(&factor, scene->node, scene->workload, samples, LS_FP32, t1_ms * 1e3);
        scene->workload->work_count += without_update;
    }
    if (status != LS_OK) {
        close_scene(scene);
        return status;
    }
    struct ls_node_device *device = ls_node_change_device(scene->node);
    device->fp32_GFLOPs *= factor;
    device->fp16_GFLOPs *= factor;
    device->memory_GBps *= factor;
    return LS_OK;
}

static ls_status replay_ms(double *ms, const struct scene *scene, const struct ls_build_options *options) {
    struct tables_replayed replayed;
    ls_status status = tables_replay(&replayed, scene->workload, scene->node, options);
    if (status == LS_OK) *ms = replayed.step_ms;
    return status;
}

/* --- ResNets with DDP on a DGX-1
 * -------------------------------------------------------------------------------------- */

static ls_status add_resnet(tables_book *book, struct comparison *c, const published *p, const char *network) {
    char what[48];
    double t1_ms;
    struct scene scene;
    snprintf(what, sizeof what, "%s step, ms", network);
    ls_status status = published_input(&t1_ms, p, what, "single", 1);
    if (status == LS_OK) status = open_scene(&scene, network, "dgx1-v100", 32, t1_ms, false);
    if (status != LS_OK) return status;
    for (int i = 0; status == LS_OK && i < p->count; i++) {
        const struct published_figure *figure = &p->figures[i];
        if (!figure->is_row || strcmp(figure->what, what) != 0) continue;
        double ms;
        struct ls_build_options options = ls_build_defaults(LS_BUILD_DDP, figure->n, scene.samples * figure->n);
        status = replay_ms(&ms, &scene, &options);
        if (status == LS_OK)
            add_row(book, c, figure, ms, t1_ms,
                    "replayed: 32 pictures a device, fp32, on node dgx1-v100, its rates calibrated by T1");
    }
    close_scene(&scene);
    return status;
}

static ls_status add_resnets(tables_book *book, const published *p) {
    struct comparison c = {.scene = "ResNets with DDP"};
    ls_status status = add_resnet(book, &c, p, "resnet50");
    if (status == LS_OK) status = add_resnet(book, &c, p, "resnet101");
    if (status == LS_OK) summarize(book, &c);
    return status;
}

/* --- buckets on two GPUs
 * ---------------------------------------------------------------------------------------------- */

/* The student's all-reduce times for two ranks, in place of the node's formula. */
static ls_status take_all_reduces(struct ls_node_measured table[AR_ROWS], ls_node *node, const published *p) {
    static const int megabytes[AR_ROWS] = {1, 10, 100, 1000};
    for (int i = 0; i < AR_ROWS; i++) {
        char what[64];
        double ms;
        snprintf(what, sizeof what, "cs336-xl all-reduce of %d MB, ms", megabytes[i]);
        ls_status status = published_input(&ms, p, what, "NCCL", 2);
        if (status != LS_OK) return status;
        table[i] = (struct ls_node_measured){2, (uint64_t)(megabytes[i] * MB), ms * 1e3};
    }
    struct ls_node_collectives *collectives = ls_node_change_collectives(node);
    collectives->table = table;
    collectives->table_count = AR_ROWS;
    return LS_OK;
}

static struct ls_build_options bucket_options(const char *mode, double samples) {
    struct ls_build_options options = ls_build_defaults(LS_BUILD_DDP, 2, 2 * samples);
    int megabytes = 0;
    options.overlap = strcmp(mode, "DDP, naive") != 0;
    if (sscanf(mode, "DDP, %d MB", &megabytes) != 1) megabytes = 0;
    options.bucket_bytes = megabytes > 0 ? (uint64_t)(megabytes * MB) : 1; /* 1: each tensor is a bucket */
    options.first_bucket_bytes = options.bucket_bytes;
    return options;
}

static ls_status add_bucket_rows(tables_book *book, const published *p, const struct scene *scene, double t1_ms) {
    static const char how[] =
        "replayed: 4 x 128 tokens a device, fp32, on node hgx-h100, its rates calibrated by T1 of "
        "forward and backward, its all-reduce the student's own measured times";
    struct comparison c = {.scene = "buckets on two GPUs"};
    for (int i = 0; i < p->count; i++) {
        const struct published_figure *figure = &p->figures[i];
        if (!figure->is_row || strcmp(figure->what, "cs336-xl step, ms") != 0) continue;
        struct ls_build_options options = bucket_options(figure->mode, scene->samples);
        double ms;
        ls_status status = replay_ms(&ms, scene, &options);
        if (status != LS_OK) return status;
        add_row(book, &c, figure, ms, t1_ms, how);
    }
    summarize(book, &c);
    return LS_OK;
}

static ls_status add_buckets(tables_book *book, const published *p) {
    struct ls_node_measured table[AR_ROWS];
    struct scene scene;
    double t1_ms;
    ls_status status = published_input(&t1_ms, p, "cs336-xl forward and backward, ms", "single", 1);
    if (status == LS_OK) status = open_scene(&scene, "cs336-xl", "hgx-h100", 4, t1_ms, true);
    if (status != LS_OK) return status;
    status = take_all_reduces(table, scene.node, p);
    if (status == LS_OK) status = add_bucket_rows(book, p, &scene, t1_ms);
    close_scene(&scene);
    return status;
}

/* --- a small network with DataParallel
 * -------------------------------------------------------------------------------- */

enum { CIFAR_IMAGES = 50000, CIFAR_BATCH = 256 };
#define CIFAR_SAMPLES (CIFAR_BATCH * (32.0 * 32) / (224 * 224)) /* in pictures of the workload's size */

static double steps_of(int devices) { return ceil((double)CIFAR_IMAGES / (CIFAR_BATCH * devices)); }

static ls_status cifar_epoch_s(double *epoch_s, const struct scene *scene, const char *mode, int n, bool locked) {
    double ms;
    ls_build_mode build = strcmp(mode, "DP") == 0 ? LS_BUILD_DP : LS_BUILD_DDP;
    struct ls_build_options options = ls_build_defaults(build, n, scene->samples * n);
    options.gil = locked;
    options.replicate_by_collectives = true;
    ls_status status = replay_ms(&ms, scene, &options);
    if (status == LS_OK) *epoch_s = ms * steps_of(n) * 1e-3;
    return status;
}

static ls_status add_cifar_rows(tables_book *book, const published *p, const struct scene *scene, double t1_s) {
    static const char how[] = "replayed: ResNet50 on pictures of 32 x 32, 256 a device, on node pcie3-4gpu, its rates "
                              "calibrated by T1; DP's threads share one lock";
    struct comparison c = {.scene = "a small network"};
    ls_status status = LS_OK;
    double epoch_s, unlocked_s[2] = {NAN, NAN};
    for (int i = 0; status == LS_OK && i < p->count; i++) {
        const struct published_figure *figure = &p->figures[i];
        if (!figure->is_row || strcmp(figure->what, "cifar epoch, s") != 0) continue;
        status = cifar_epoch_s(&epoch_s, scene, figure->mode, figure->n, strcmp(figure->mode, "DP") == 0);
        /* free communication divides the epoch by N */
        if (status == LS_OK) add_row(book, &c, figure, epoch_s, t1_s / figure->n, how);
    }
    for (int i = 0; status == LS_OK && i < 2; i++) status = cifar_epoch_s(&unlocked_s[i], scene, "DP", 2 << i, false);
    for (int i = 0; status == LS_OK && i < 2; i++)
        tables_add(book, &(struct tables_row){.quantity = "cifar epoch, s",
                                              .mode = "DP without the lock",
                                              .n = 2 << i,
                                              .reference = NAN,
                                              .ours = unlocked_s[i],
                                              .how = "replayed: the same, but each thread launches as it likes"});
    if (status == LS_OK) summarize(book, &c);
    return status;
}

static ls_status add_cifar(tables_book *book, const published *p) {
    struct scene scene;
    double t1_s;
    ls_status status = published_input(&t1_s, p, "cifar epoch, s", "single", 1);
    if (status == LS_OK)
        status = open_scene(&scene, "resnet50", "pcie3-4gpu", CIFAR_SAMPLES, t1_s / steps_of(1) * 1e3, false);
    if (status != LS_OK) return status;
    status = add_cifar_rows(book, p, &scene, t1_s);
    close_scene(&scene);
    return status;
}

/* --- many small operations under one lock
 * ----------------------------------------------------------------------------- */

#define CONDENSENET_PARAMETERS 4.8e6 /* [K] CondenseNet-74: Huang et al. 2018, table 5 */
#define TINY_SAMPLES (32 * (32.0 * 32) / (224 * 224))

/* CondenseNet's number of parameters, over as many tensors as the stand-in has. */
static void shrink_parameters(ls_workload *workload) {
    double part = CONDENSENET_PARAMETERS / (double)ls_workload_parameters(workload);
    for (int i = 0; i < workload->parameter_count; i++)
        workload->parameter_counts[i] = (uint64_t)fmax(1, (double)workload->parameter_counts[i] * part);
}

/* A batch with n times the samples on n devices, by the one device's time. */
static ls_status growth(double *by_one, const struct scene *scene, int n, bool locked) {
    double one_ms, all_ms;
    struct ls_build_options options = ls_build_defaults(LS_BUILD_SINGLE, 1, scene->samples);
    ls_status status = replay_ms(&one_ms, scene, &options);
    options = ls_build_defaults(LS_BUILD_DP, n, scene->samples * n);
    options.gil = locked;
    options.replicate_by_collectives = true;
    if (status == LS_OK) status = replay_ms(&all_ms, scene, &options);
    if (status == LS_OK) *by_one = all_ms / one_ms;
    return status;
}

/* CondenseNet is none of our workloads, so a network of as many small operations stands in: how much longer its step
 * gets is multiplied by CondenseNet's T1. What must be found is that the same work per device takes longer on four
 * than on one. */
static ls_status add_lock(tables_book *book, const published *p) {
    static const char what[] = "condensenet batch, ms";
    static const char how[] = "replayed: ResNet101 with 4.8 million parameters on 32 pictures of 32 x 32 a device "
                              "stands in for CondenseNet, on node "
                              "pcie3-4gpu as its file has it; how much longer it gets, times T1; reference: "
                              "measured by others, https://github.com/pytorch/pytorch/issues/3917";
    struct scene scene = {.samples = TINY_SAMPLES};
    double one_ms, reference_ms = NAN, by_one = NAN;
    ls_status status = published_input(&one_ms, p, what, "single", 1);
    if (status == LS_OK) status = ls_workload_open(&scene.workload, "resnet101");
    if (status == LS_OK) status = ls_node_open(&scene.node, "pcie3-4gpu");
    if (status == LS_OK) shrink_parameters(scene.workload);
    for (int i = 0; i < p->count; i++) {
        if (p->figures[i].is_row && strcmp(p->figures[i].what, what) == 0) reference_ms = p->figures[i].value;
    }
    for (int locked = 1; status == LS_OK && locked >= 0; locked--) {
        status = growth(&by_one, &scene, 4, locked);
        if (status != LS_OK) break;
        tables_add(book, &(struct tables_row){.quantity = what,
                                              .mode = locked ? "DP" : "DP without the lock",
                                              .n = 4,
                                              .reference = locked ? reference_ms : NAN,
                                              .ours = one_ms * by_one,
                                              .how = how});
        if (locked)
            tables_add(book, &(struct tables_row){.quantity = "condensenet batch, ms; reference: one device's",
                                                  .mode = "DP",
                                                  .n = 4,
                                                  .reference = one_ms,
                                                  .ours = one_ms * by_one,
                                                  .bound = TABLES_ABOVE,
                                                  .how = how});
    }
    close_scene(&scene);
    return status;
}

/* --- latency
 * ---------------------------------------------------------------------------------------------------------- */

/* Two numbers of ranks say what a hop costs and what comes on top; the others are rows. */
static ls_status add_latency(tables_book *book, const published *p) {
    static const char how[] =
        "replayed: nothing but the ring's formula, base + 2 (N - 1) hop, from N = 2 and 3, on node "
        "dgx-a100";
    static const char what[] = "ring latency, us";
    double two_us, three_us;
    ls_node *node = NULL;
    ls_status status = published_input(&two_us, p, what, "ring", 2);
    if (status == LS_OK) status = published_input(&three_us, p, what, "ring", 3);
    if (status == LS_OK) status = ls_node_open(&node, "dgx-a100");
    if (status != LS_OK) return status;
    struct ls_node_collectives *collectives = ls_node_change_collectives(node);
    collectives->hop_us = (three_us - two_us) / 2;
    collectives->base_us = two_us - 2 * collectives->hop_us;
    struct comparison c = {.scene = "latency of a ring"};
    for (int i = 0; i < p->count; i++) {
        const struct published_figure *figure = &p->figures[i];
        if (!figure->is_row || strcmp(figure->what, what) != 0) continue;
        double us = ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, figure->n, 8);
        add_row(book, &c, figure, us, two_us, how); /* instead of free: as fast as between two */
    }
    ls_node_close(node);
    int right, pairs;
    double error = 0;
    for (int i = 0; i < c.count; i++) error += fabs(c.ours[i] / c.reference[i] - 1) / c.count;
    count_orders(&right, &pairs, &c);
    add_sum(book, "mean absolute error", &c, WITHIN, error, TABLES_BELOW);
    add_sum(book, "pairs of rows in the right order", &c, pairs, right, TABLES_WITHIN);
    return LS_OK;
}

/* What is known to be left out, where a bound is missed. */
static void add_missing(tables_book *book) {
    tables_text(
        book,
        "What the replay does not have: (1) PyTorch's DDP costs 3 ms on one GPU already, where nothing travels (97 "
        "to 100 ms for ResNet50, the same source), and more from two on, hardly depending on N: some 20 to 50 us "
        "for each of the 161 and 314 tensors, for hooks and for copies of gradients into buckets and back. Our "
        "reducer has neither, so the replay sees only communication, which overlaps. (2) The T1 of the buckets' "
        "scene is forward and backward; the student's own AdamW, many operations for each tensor, has no figure "
        "of one device, and counts here as one fused operation. (3) The cifar epochs are first epochs of a "
        "program: the starts of loaders, contexts and NCCL are in them, and in T1 the loader's pace, which the "
        "calibration takes for the GPU's. A lock of 10 us an operation does not explain 43 s.");
}

ls_status tables_make_published(tables_book *book, const tables_settings *settings) {
    (void)settings; /* it takes a second */
    published p;
    ls_status status = published_open(&p, "published");
    if (status != LS_OK) return status;
    tables_text(
        book,
        "Inputs and rows are apart: T1 sets a node's rates, all-reduce times and latencies that were measured by "
        "themselves set its links, and no step of more than one device sets anything. (A latency needs two ranks, "
        "so those of N = 2 and 3 are inputs of its scene.)");
    add_missing(book);
    status = add_resnets(book, &p);
    if (status == LS_OK) status = add_buckets(book, &p);
    if (status == LS_OK) status = add_cifar(book, &p);
    if (status == LS_OK) status = add_lock(book, &p);
    if (status == LS_OK) status = add_latency(book, &p);
    published_close(&p);
    return status;
}
