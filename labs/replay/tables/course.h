/* The course's step times (docs/published.md#the-course), and the model that is fitted to them: one workload, one node,
 * three rates. */
#ifndef LABS_REPLAY_TABLES_COURSE_H
#define LABS_REPLAY_TABLES_COURSE_H

#include "labs/replay/tables/least_squares.h"
#include "labs/replay/tables/run.h"

/* A cell of the course's table. Its two modes share T1, which is one cell. */
struct course_cell {
    const char *mode; /* as named in rows */
    ls_plan_mode plan;
    int n;
    double ms;
};

enum { COURSE_CELLS = 7, COURSE_PARAMETERS = 3 };
extern const struct course_cell course_cells[COURSE_CELLS];

/* A parameter of the node, with its unit. The device's rate of multiplies is scaled with its memory rate. */
struct course_parameter {
    const char *name;
    const char *plausible; /* figures for comparison */
    double published;      /* the nearest of these */
};
extern const struct course_parameter course_parameters[COURSE_PARAMETERS];

struct course_model {
    ls_workload *workload;
    ls_node *node;
    struct ls_node_device device;         /* the file's */
    double file_value[COURSE_PARAMETERS]; /* of the parameters */
    ls_trace *recorded[COURSE_CELLS];     /* each cell's step, recorded once for all parameters; NULL: not yet */
};

/* Opens the workload and the node `course`. On failure nothing needs to be closed. */
ls_status course_open(struct course_model *model);
void course_close(struct course_model *model);

/* The step of the mode of one of course_cells, DP by collectives, with these parameters. */
ls_status course_replay(tables_replayed replayed, struct course_model *model, const struct course_cell *cell,
                        const double values[COURSE_PARAMETERS]);

/* Fits the parameters to all cells except `left_out` (-1: to all), by relative deviations, from the file's values. With
 * `held_bus_GBps` > 0 the third parameter has that value, and the other two are fitted. */
ls_status course_fit(struct tables_fit *fit, struct course_model *model, int left_out, double held_bus_GBps);

#endif
