/* Table 1: the course's step times, every cell computed from one workload, one node and three rates (course.c). DP by
 * copies is in the table's file. */
#include <math.h>

#include "labs/replay/tables/course.h"
#include "labs/replay/tables/tables.h"

/* T1 is in the course's table twice. */
static void add_cell(tables_book *book, const struct course_cell *cell, const char *quantity, double ms,
                     enum tables_bound bound) {
    const char *const both[] = {course_cells[1].mode, course_cells[COURSE_CELLS - 1].mode};
    bool single = cell->plan == LS_PLAN_SINGLE;
    for (int i = 0; i < (single ? 2 : 1); i++)
        tables_add(book, &(struct tables_row){.quantity = quantity,
                                              .mode = single ? both[i] : cell->mode,
                                              .n = cell->n,
                                              .reference = cell->ms,
                                              .ours = ms,
                                              .bound = bound});
}

static void add_rates(tables_book *book, const struct tables_fit *fit, const struct course_model *model) {
    tables_group(book, "rates");
    for (int k = 0; k < COURSE_PARAMETERS; k++)
        tables_add(book, &(struct tables_row){.quantity = "fitted rate; reference: a published one",
                                              .mode = course_parameters[k].name,
                                              .reference = course_parameters[k].published,
                                              .ours = fit->value[k]});
    for (int k = 0; k < COURSE_PARAMETERS; k++)
        tables_text(book, "%s: fitted %.4g, standard error %.1f %%; %s. The node's file says %.4g.",
                    course_parameters[k].name, fit->value[k], 100 * fit->error[k], course_parameters[k].plausible,
                    model->file_value[k]);
    tables_text(book,
                "%d different cells less %d parameters: %d degrees of freedom. Root mean square deviation %.2f %%; %d "
                "rounds, %d calls.",
                fit->points, fit->parameters, fit->degrees_of_freedom, 100 * sqrt(fit->sum / fit->points), fit->rounds,
                fit->calls);
}

/* The deviation of the cells if the bus has its published rate, and only the other two rates are fitted. */
static ls_status add_held_bus(tables_book *book, struct course_model *model) {
    struct tables_fit fit;
    double published = course_parameters[COURSE_PARAMETERS - 1].published, worst = 0;
    ls_status status = course_fit(&fit, model, -1, published);
    for (int i = 0; status == LS_OK && i < fit.points; i++) worst = fmax(worst, fabs(fit.residual[i]));
    if (status == LS_OK)
        tables_text(book,
                    "With the collectives' bus held at %.4g GB/s and only the other two fitted (%.4g and %.4g), the "
                    "worst cell is %.1f %% off.",
                    published, fit.value[0], fit.value[1], 100 * worst);
    return status;
}

static ls_status add_parts(tables_book *book, struct course_model *model, const struct tables_fit *fit) {
    ls_status status = LS_OK;
    tables_group(book, "kernels and communication");
    for (int i = 0; status == LS_OK && i < COURSE_CELLS; i++) {
        tables_replayed r;
        status = course_replay(r, model, &course_cells[i], fit->value);
        if (status != LS_OK) break;
        struct tables_row row = {.quantity = "kernels run, ms",
                                 .mode = course_cells[i].mode,
                                 .n = course_cells[i].n,
                                 .reference = NAN,
                                 .ours = r[TABLES_BUSY] * r[TABLES_STEP],
                                 .aside = true};
        tables_add(book, &row);
        row.quantity = "communication with no kernel beside it, ms";
        row.ours = r[TABLES_EXPOSED] * r[TABLES_STEP];
        tables_add(book, &row);
    }
    return status;
}

static ls_status add_left_out(tables_book *book, struct course_model *model) {
    ls_status status = LS_OK;
    tables_group(book, "left out");
    for (int i = 0; status == LS_OK && i < COURSE_CELLS; i++) {
        struct tables_fit fit;
        tables_replayed replayed;
        status = course_fit(&fit, model, i, 0);
        if (status == LS_OK) status = course_replay(replayed, model, &course_cells[i], fit.value);
        if (status == LS_OK)
            add_cell(book, &course_cells[i], "step time, predicted without it, ms", replayed[TABLES_STEP],
                     TABLES_SHOWN);
    }
    return status;
}

ls_status tables_compute_course(tables_book *book, const tables_settings *settings) {
    struct course_model model;
    struct tables_fit fit;
    ls_status status = course_open(&model);
    if (status != LS_OK) return status;
    status = course_fit(&fit, &model, -1, 0);
    tables_group(book, "cells");
    for (int i = 0; status == LS_OK && i < COURSE_CELLS; i++)
        add_cell(book, &course_cells[i], "step time, ms", course_cells[i].ms * (1 + fit.residual[i]), TABLES_WITHIN);
    if (status == LS_OK) add_rates(book, &fit, &model);
    if (status == LS_OK && !settings->quick) status = add_held_bus(book, &model);
    if (status == LS_OK) status = add_parts(book, &model, &fit);
    if (status == LS_OK && !settings->quick) status = add_left_out(book, &model);
    course_close(&model);
    return status;
}
