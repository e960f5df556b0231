/* Buckets on two GPUs: a network whose gradients, 8 GB, are the whole of the problem; by tensor, by buckets of several
 * sizes, and without overlap. */
#include <stdio.h>
#include <string.h>

#include "labs/replay/tables/scenes.h"

#define MB 1e6

enum { AR_ROWS = 4 };

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

static struct ls_plan bucket_options(const char *mode, double samples) {
    struct ls_plan options = ls_plan_defaults(LS_PLAN_DDP, 2, 2 * samples);
    int megabytes = 0;
    options.overlap = strcmp(mode, "DDP, naive") != 0;
    if (sscanf(mode, "DDP, %d MB", &megabytes) != 1) megabytes = 0;
    options.bucket_bytes = megabytes > 0 ? (uint64_t)(megabytes * MB) : 1; /* 1: each tensor is a bucket */
    options.first_bucket_bytes = options.bucket_bytes;
    return options;
}

static ls_status add_bucket_rows(tables_book *book, const published *p, const struct scene *scene) {
    static const char how[] =
        "replayed: 4 x 128 tokens a device, fp32, on node hgx-h100, its rates calibrated by T1 of "
        "forward and backward, its all-reduce the student's own measured times";
    struct comparison c = {.scene = "buckets on two GPUs", .unit = "ms"};
    double t1_ms; /* with the update, as the rows */
    struct ls_plan single = ls_plan_defaults(LS_PLAN_SINGLE, 1, scene->samples);
    ls_status status = scene_replay_ms(&t1_ms, scene, &single);
    if (status != LS_OK) return status;
    for (int i = 0; i < p->count; i++) {
        const struct published_figure *figure = &p->figures[i];
        if (!figure->is_row || strcmp(figure->what, "cs336-xl step, ms") != 0) continue;
        struct ls_plan options = bucket_options(figure->mode, scene->samples);
        double ms;
        status = scene_replay_ms(&ms, scene, &options);
        if (status != LS_OK) return status;
        scene_add_row(book, &c, figure, ms, t1_ms, how);
    }
    scene_summarize(book, &c);
    return LS_OK;
}

ls_status scene_buckets(tables_book *book, const published *p) {
    struct ls_node_measured table[AR_ROWS];
    struct scene scene;
    double t1_ms;
    ls_status status = published_input(&t1_ms, p, "cs336-xl forward and backward, ms", "single", 1);
    if (status == LS_OK) status = scene_open(&scene, "cs336-xl", "hgx-h100", 4, t1_ms, true);
    if (status != LS_OK) return status;
    status = take_all_reduces(table, scene.node, p);
    tables_text(book,
                "Buckets on two GPUs. Inputs: one device's forward and backward, and the student's all-reduce times. "
                "Missing: the student's own AdamW, many operations for each tensor, has no figure of one device, "
                "and counts here as one fused operation.");
    if (status == LS_OK) status = add_bucket_rows(book, p, &scene);
    scene_close(&scene);
    return status;
}
