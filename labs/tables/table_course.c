/* Table 1: the course's step times, every cell from one workload, one node and three rates (course.c). */
#include <math.h>
#include <stdio.h>

#include "labs/tables/course.h"
#include "labs/tables/tables.h"

/* "every cell within 5 %" */
#define CELL_TOLERANCE 0.05

static const char fitted_how[] =
    "replayed: workload course (ResNet-18, 384 pictures, fp16) on node course with three rates "
    "fitted to these cells, of which seven are different";
static const char left_out_how[] =
    "replayed: the same, each cell with the rates that are fitted to the other six: a prediction";
static const char parts_how[] =
    "replayed: the same, fitted; the mean over the devices, of which the step is the sum with "
    "what is idle";

/* T1 is in the course's table twice. */
static void add_cell(tables_book *book, const struct course_cell *cell, const char *quantity, double ms,
                     enum tables_bound bound, const char *how) {
    static const char *const both[] = {"DP", "DDP"};
    bool single = cell->build == LS_BUILD_SINGLE;
    for (int i = 0; i < (single ? 2 : 1); i++) {
        tables_add(book, &(struct tables_row){.quantity = quantity,
                                              .mode = single ? both[i] : cell->mode,
                                              .n = cell->n,
                                              .reference = cell->ms,
                                              .ours = ms,
                                              .bound = bound,
                                              .tolerance = CELL_TOLERANCE,
                                              .how = how});
    }
}

static void add_parameters(tables_book *book, const struct tables_fit *fit, const struct course_model *model) {
    double file[COURSE_PARAMETERS];
    course_file_values(model, file);
    for (int k = 0; k < COURSE_PARAMETERS; k++) {
        tables_add(book, &(struct tables_row){.quantity = "fitted rate; reference: a published one",
                                              .mode = course_parameters[k].name,
                                              .reference = course_parameters[k].published,
                                              .ours = fit->value[k],
                                              .how = "replayed: the rates of that fit"});
    }
    for (int k = 0; k < COURSE_PARAMETERS; k++) {
        tables_text(book, "%s: fitted %.4g, standard error %.1f %%; %s. The node's file says %.4g.",
                    course_parameters[k].name, fit->value[k], 100 * fit->error[k], course_parameters[k].plausible,
                    file[k]);
    }
    tables_text(book,
                "%d different cells less %d parameters: %d degrees of freedom. Root mean square deviation %.2f %%; %d "
                "rounds, %d calls.",
                fit->points, fit->parameters, fit->degrees_of_freedom, 100 * sqrt(fit->sum / fit->points), fit->rounds,
                fit->calls);
}

static ls_status add_parts(tables_book *book, struct course_model *model, const struct tables_fit *fit) {
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < COURSE_CELLS; i++) {
        const struct course_cell *cell = &course_cells[i];
        struct tables_replayed replayed;
        status = course_replay(&replayed, model, cell->build, cell->n, fit->value);
        if (status != LS_OK) break;
        const struct {
            const char *quantity;
            double share;
        } parts[] = {{"kernels run, ms", replayed.mean.compute},
                     {"communication with no kernel beside it, ms", replayed.mean.exposed}};
        for (int k = 0; k < 2; k++) {
            tables_add(book, &(struct tables_row){.quantity = parts[k].quantity,
                                                  .mode = cell->mode,
                                                  .n = cell->n,
                                                  .reference = NAN,
                                                  .ours = parts[k].share * replayed.step_ms,
                                                  .aside = true,
                                                  .how = parts_how});
        }
    }
    return status;
}

static ls_status add_left_out(tables_book *book, struct course_model *model) {
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < COURSE_CELLS; i++) {
        const struct course_cell *cell = &course_cells[i];
        struct tables_fit fit;
        struct tables_replayed replayed;
        status = course_fit(&fit, model, i, 0);
        if (status == LS_OK) status = course_replay(&replayed, model, cell->build, cell->n, fit.value);
        if (status == LS_OK) {
            add_cell(book, cell, "step time, predicted without it, ms", replayed.step_ms, TABLES_SHOWN, left_out_how);
        }
    }
    return status;
}

/* How far the cells are off with the bus at its published rate, and only the other two fitted. */
static ls_status add_held_bus(tables_book *book, struct course_model *model) {
    struct tables_fit fit;
    double published = course_parameters[COURSE_PARAMETERS - 1].published, worst = 0;
    ls_status status = course_fit(&fit, model, -1, published);
    for (int i = 0; status == LS_OK && i < fit.points; i++) worst = fmax(worst, fabs(fit.residual[i]));
    if (status == LS_OK) {
        tables_text(
            book,
            "With the collectives' bus held at %.4g GB/s and only the other two fitted (%.4g and %.4g), the worst "
            "cell is %.1f %% off.",
            published, fit.value[0], fit.value[1], 100 * worst);
    }
    return status;
}

static ls_status add_fit(tables_book *book, struct course_model *model) {
    struct tables_fit fit;
    ls_status status = course_fit(&fit, model, -1, 0);
    if (status != LS_OK) return status;
    for (int i = 0; i < COURSE_CELLS; i++) {
        const struct course_cell *cell = &course_cells[i];
        add_cell(book, cell, "step time, ms", cell->ms * (1 + fit.residual[i]), TABLES_WITHIN, fitted_how);
    }
    add_parameters(book, &fit, model);
    status = add_held_bus(book, model);
    return status == LS_OK ? add_parts(book, model, &fit) : status;
}

ls_status tables_make_course(tables_book *book, const tables_settings *settings) {
    struct course_model model;
    ls_status status = course_open(&model);
    if (status != LS_OK) return status;
    tables_text(book,
                "The course gives DP and DDP times for 1, 2, 4 and 8 GPUs, and neither network nor machine. DP's are "
                "100 / N + 20 (N - 1) / N to the digit: what a device does alone, and the other devices' shares of "
                "something that leaves through one link (here: the pictures). DDP's are 100 / N + 2 to 3 ms.");
    tables_text(
        book,
        "Network, batch and precision are our choice, such that the rates come out as machines have them. That is "
        "freedom beside the three rates: the table shows that there is such a machine, not that it was the "
        "course's.");
    status = add_fit(book, &model);
    if (status == LS_OK && !settings->quick) status = add_left_out(book, &model);
    course_close(&model);
    return status;
}
