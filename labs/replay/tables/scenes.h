/* What table 5's scenes share: rows beside published figures, bounds on all rows of a scene, and a node whose rates are
 * scaled to one device's step. */
#ifndef LABS_REPLAY_TABLES_SCENES_H
#define LABS_REPLAY_TABLES_SCENES_H

#include "labs/replay/tables/published.h"
#include "labs/replay/tables/replayed.h"
#include "labs/replay/tables/tables.h"

enum { SCENE_ROWS_MAX = 16 };

/* Rows of a scene; all zero but `scene` and `unit` to begin with. */
struct comparison {
    const char *scene, *unit; /* of the figures: "ms" */
    int count;
    double reference[SCENE_ROWS_MAX], ours[SCENE_ROWS_MAX],
        free[SCENE_ROWS_MAX]; /* free: communication costs nothing */
};

/* A row beside a published figure; `how` is ours. */
void scene_add_row(tables_book *book, struct comparison *comparison, const struct published_figure *figure, double ours,
                   double free, const char *how);

/* Adds the bounds on all rows of a scene: the mean absolute error; at most half of the error of "communication is free"
 * on T_N and on T_N - T1; and the order of all rows. */
void scene_summarize(tables_book *book, const struct comparison *comparison);

/* The first and the last of these alone: where nothing computes, there is no T1. */
void scene_summarize_without_t1(tables_book *book, const struct comparison *comparison);

struct scene {
    ls_workload *workload;
    ls_node *node;
    double samples; /* of a device's share: weak scaling */
};

/* Opens both and scales the node's rates, so that one device's step takes t1_ms. `without_update`: t1_ms is that of
 * the step without its last operation, the optimizer's. On failure there is nothing to close. */
ls_status scene_open(struct scene *scene, const char *workload, const char *node, double samples, double t1_ms,
                     bool without_update);
void scene_close(struct scene *scene);
ls_status scene_replay_ms(double *ms, const struct scene *scene, const struct ls_plan *options);

/* --- the scenes: each adds its text, rows and sums ---------------------------------------------------------------- */

ls_status scene_resnets(tables_book *book, const published *figures);
ls_status scene_buckets(tables_book *book, const published *figures);
ls_status scene_cifar(tables_book *book, const published *figures);
ls_status scene_lock(tables_book *book, const published *figures);
ls_status scene_latency(tables_book *book, const published *figures);

#endif
