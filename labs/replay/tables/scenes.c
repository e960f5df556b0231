/* scenes: rows, sums over them, and one replay. */
#include "labs/replay/tables/scenes.h"

#include <math.h>
#include <stdio.h>

#define WITHIN 0.10
#define HALF 0.5

void scene_add_row(tables_book *book, struct comparison *comparison, const struct published_figure *figure, double ours,
                   double free, const char *how) {
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

/* --- sums --------------------------------------------------------------------------------------------------------- */

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

static void add_error(tables_book *book, const struct comparison *c) {
    double error = 0;
    for (int i = 0; i < c->count; i++) error += fabs(c->ours[i] / c->reference[i] - 1) / c->count;
    add_sum(book, "mean absolute error", c, WITHIN, error, TABLES_BELOW);
}

static void add_orders(tables_book *book, const struct comparison *c) {
    int right, pairs;
    count_orders(&right, &pairs, c);
    add_sum(book, "pairs of rows in the right order", c, pairs, right, TABLES_WITHIN);
}

/* Beyond T1 free communication takes nothing, and 0 has no logarithm: there both errors are taken in the rows' unit. */
void scene_summarize(tables_book *book, const struct comparison *c) {
    double logs = 0, free_logs = 0, beyond = 0, free_beyond = 0;
    char quantity[48];
    for (int i = 0; i < c->count; i++) {
        logs += fabs(log(c->ours[i] / c->reference[i])) / c->count;
        free_logs += fabs(log(c->free[i] / c->reference[i])) / c->count;
        beyond += fabs(c->ours[i] - c->reference[i]) / c->count;
        free_beyond += fabs(c->free[i] - c->reference[i]) / c->count;
    }
    snprintf(quantity, sizeof quantity, "mean error of T_N - T1, %s", c->unit);
    add_error(book, c);
    add_sum(book, "mean |log error| of T_N", c, HALF * free_logs, logs, TABLES_BELOW);
    add_sum(book, quantity, c, HALF * free_beyond, beyond, TABLES_BELOW);
    add_orders(book, c);
}

void scene_summarize_without_t1(tables_book *book, const struct comparison *c) {
    add_error(book, c);
    add_orders(book, c);
}

/* --- one replay --------------------------------------------------------------------------------------------------- */

void scene_close(struct scene *scene) {
    ls_workload_close(scene->workload);
    ls_node_close(scene->node);
}

ls_status scene_open(struct scene *scene, const char *workload, const char *node, double samples, double t1_ms,
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
        scene_close(scene);
        return status;
    }
    struct ls_node_device *device = ls_node_change_device(scene->node);
    device->fp32_GFLOPs *= factor;
    device->fp16_GFLOPs *= factor;
    device->memory_GBps *= factor;
    return LS_OK;
}

ls_status scene_replay_ms(double *ms, const struct scene *scene, const struct ls_plan *options) {
    struct tables_replayed replayed;
    ls_status status = tables_replay(&replayed, scene->workload, scene->node, options);
    if (status == LS_OK) *ms = replayed.step_ms;
    return status;
}
