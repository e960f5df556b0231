/* Table 1: the course's step times, every cell from one workload, one node and three rates (course.c). */
#include <math.h>
#include <stdio.h>

#include "labs/replay/tables/course.h"
#include "labs/replay/tables/tables.h"

/* "every cell within 5 %" */
#define CELL_TOLERANCE 0.05

/* DP's two ways, as rows name them: course.c has the terms. */
#define BY_COLLECTIVES "DP by collectives"
#define BY_COPIES "DP by copies"

enum { N_COUNT = 3 };
static const int ns[N_COUNT] = {2, 4, 8};

static const char fitted_how[] =
    "replayed: workload course (ResNet-18, 384 pictures, fp16) on node course with three rates "
    "fitted to these cells, of which seven are different";
static const char left_out_how[] =
    "replayed: the same, each cell with the rates that are fitted to the other six: a prediction";
static const char copies_how[] = "replayed: workload course on node course as its file has it; parameters and "
                                 "gradients travel by copies from and to "
                                 "device 0; no part of the fit";
static const char ratio_how[] = "replayed: workload course on node course as its file has it; reference: the course's "
                                "times, whose third column has "
                                "1.15, 1.43 and 2.0";
static const char parts_how[] =
    "replayed: the same, fitted; the mean over the devices, of which the step is the sum with "
    "what is idle";

static const char *row_mode(const struct course_cell *cell) {
    return cell->plan == LS_PLAN_DP ? BY_COLLECTIVES : cell->mode;
}

/* T1 is in the course's table twice. */
static void add_cell(tables_book *book, const struct course_cell *cell, const char *quantity, double ms,
                     enum tables_bound bound, const char *how) {
    static const char *const both[] = {BY_COLLECTIVES, "DDP"};
    bool single = cell->plan == LS_PLAN_SINGLE;
    for (int i = 0; i < (single ? 2 : 1); i++) {
        tables_add(book, &(struct tables_row){.quantity = quantity,
                                              .mode = single ? both[i] : row_mode(cell),
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
        status = course_replay(&replayed, model, cell->plan, cell->n, false, fit->value);
        if (status != LS_OK) break;
        const struct {
            const char *quantity;
            double share;
        } parts[] = {{"kernels run, ms", replayed.mean.compute},
                     {"communication with no kernel beside it, ms", replayed.mean.exposed}};
        for (int k = 0; k < 2; k++) {
            tables_add(book, &(struct tables_row){.quantity = parts[k].quantity,
                                                  .mode = row_mode(cell),
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
        if (status == LS_OK) status = course_replay(&replayed, model, cell->plan, cell->n, false, fit.value);
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

/* --- DP by copies, and what the third column says --------------------------------------------------------------- */

static double course_ms(ls_plan_mode mode, int n) {
    for (int i = 0; i < COURSE_CELLS; i++)
        if (course_cells[i].n == n && course_cells[i].plan == mode) return course_cells[i].ms;
    return NAN;
}

/* Step times on 2, 4 and 8 devices. */
struct replays {
    double collectives_ms[N_COUNT], copies_ms[N_COUNT], ddp_ms[N_COUNT];
};

static ls_status replay_all(struct replays *r, struct course_model *model) {
    double values[COURSE_PARAMETERS];
    ls_status status = LS_OK;
    course_file_values(model, values);
    for (int i = 0; i < N_COUNT; i++) {
        const struct {
            ls_plan_mode mode;
            bool by_copies;
            double *ms;
        } runs[] = {{LS_PLAN_DP, false, &r->collectives_ms[i]},
                    {LS_PLAN_DP, true, &r->copies_ms[i]},
                    {LS_PLAN_DDP, false, &r->ddp_ms[i]}};
        for (int k = 0; status == LS_OK && k < 3; k++) {
            struct tables_replayed replayed;
            status = course_replay(&replayed, model, runs[k].mode, ns[i], runs[k].by_copies, values);
            if (status == LS_OK) *runs[k].ms = replayed.step_ms;
        }
    }
    return status;
}

static void add_shown(tables_book *book, const char *quantity, const char *mode, int n, double reference, double ours,
                      const char *how) {
    tables_add(book, &(struct tables_row){
                         .quantity = quantity, .mode = mode, .n = n, .reference = reference, .ours = ours, .how = how});
}

static void add_conclusion(tables_book *book, const struct replays *r) {
    tables_text(
        book,
        "What follows. Above T1 / N the course's DP has 10, 15 and 17.5 ms on 2, 4 and 8 devices, shares (N - 1) / N "
        "of 20 ms. The course explains DP by copies: device 0 sends the parameters to each device and takes the "
        "gradients from each, which is what dp_train does by default. That costs N - 1 times the same, on 8 devices "
        "7 times what it costs on 2. Here such a step takes %.1f, %.1f and %.1f ms, longer on 8 devices than on 4. So "
        "the course's times do not show such copies. They fit collectives: one broadcast and one reduce, as "
        "PyTorch's DataParallel has them where there is NCCL. What is left of DP's gap is the pictures, which "
        "device 0 hands out.",
        r->copies_ms[0], r->copies_ms[1], r->copies_ms[2]);
    tables_text(
        book,
        "The third column, 1.15, 1.43 and 2.0, is DP / DDP: how much longer DP takes than DDP. It is no speed-up "
        "over one device; table 2 has those. Here it is %.2f, %.2f and %.2f by collectives, and %.2f, %.2f and %.2f "
        "by copies. build/replay --node course --workload course prints the same.",
        r->collectives_ms[0] / r->ddp_ms[0], r->collectives_ms[1] / r->ddp_ms[1], r->collectives_ms[2] / r->ddp_ms[2],
        r->copies_ms[0] / r->ddp_ms[0], r->copies_ms[1] / r->ddp_ms[1], r->copies_ms[2] / r->ddp_ms[2]);
}

static ls_status add_copies(tables_book *book, struct course_model *model) {
    struct replays r;
    ls_status status = replay_all(&r, model);
    if (status != LS_OK) return status;
    for (int i = 0; i < N_COUNT; i++)
        add_shown(book, "step time, ms", BY_COPIES, ns[i], course_ms(LS_PLAN_DP, ns[i]), r.copies_ms[i], copies_how);
    for (int way = 0; way < 2; way++) {
        const double *dp_ms = way == 0 ? r.collectives_ms : r.copies_ms;
        for (int i = 0; i < N_COUNT; i++)
            add_shown(book, "DP / DDP", way == 0 ? BY_COLLECTIVES : BY_COPIES, ns[i],
                      course_ms(LS_PLAN_DP, ns[i]) / course_ms(LS_PLAN_DDP, ns[i]), dp_ms[i] / r.ddp_ms[i], ratio_how);
    }
    add_conclusion(book, &r);
    return LS_OK;
}

static ls_status add_fit(tables_book *book, struct course_model *model) {
    struct tables_fit fit;
    ls_status status = course_fit(&fit, model, -1, 0);
    if (status != LS_OK) return status;
    for (int i = 0; i < COURSE_CELLS; i++) {
        const struct course_cell *cell = &course_cells[i];
        add_cell(book, cell, "step time, ms", cell->ms * (1 + fit.residual[i]), TABLES_WITHIN, fitted_how);
    }
    status = add_copies(book, model);
    if (status != LS_OK) return status;
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
