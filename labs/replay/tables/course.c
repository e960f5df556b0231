/* course — computes the course's step times of DP and DDP from one network and one machine.
 *   idea  : the course gives times, but neither network nor machine. ResNet-18 with 384 pictures per step in mixed
 *           precision on V100s behind PCIe 3 is a network and a machine of its kind. Published figures are used where
 *           they exist (labs/replay/nodes/course.json); three rates, one for each kind of wait of a step, are fitted:
 *             the device's rate     one factor on a V100's rates of multiplies and of memory: T1 / N
 *             the link              carries the others' pictures in DP, (N - 1) / N of 231 MB: so its times are
 *                                   100 / N + 20 (N - 1) / N to the digit
 *             the collectives' bus  carries DDP's all-reduces; in DP parameters are broadcast and gradients reduced (as
 *                                   PyTorch does with NCCL): about a constant in N
 *   copies: in dp_train's default, and the course's own explanation of DP, device 0 copies parameters to each device
 *           and gradients from each. Such a DP is replayed with the same rates, but is not part of the fit: its times
 *           grow with N, unlike the course's (rows of course.json)
 *   least : squares of relative deviations over the seven different cells, so four degrees of freedom are left */
#include "labs/replay/tables/course.h"

#include "labs/replay/engine/recost.h"
#include "labs/replay/record/record.h"

const struct course_cell course_cells[COURSE_CELLS] = {
    {"all", LS_PLAN_SINGLE, 1, 100},
    {"DP by collectives", LS_PLAN_DP, 2, 60},
    {"DP by collectives", LS_PLAN_DP, 4, 40},
    {"DP by collectives", LS_PLAN_DP, 8, 30},
    {"DDP", LS_PLAN_DDP, 2, 52},
    {"DDP", LS_PLAN_DDP, 4, 28},
    {"DDP", LS_PLAN_DDP, 8, 15},
};

const struct course_parameter course_parameters[COURSE_PARAMETERS] = {
    {"device's memory, GB/s (products in proportion)",
     "a V100 reaches 750 (node dgx1-v100), and its data sheet says 900", 750},
    {"link, GB/s", "NCCL takes 12 for PCIe 3 x16; Gen3 V100 measured 12", 12},
    {"collectives' bus, GB/s", "4 GPUs on PCIe only 4.9, with peer access 12.7; V100 over NVLink 120", 12.7},
};

ls_status course_open(struct course_model *model) {
    *model = (struct course_model){0};
    ls_status status = ls_node_open(&model->node, "course");
    if (status == LS_OK) status = ls_workload_open(&model->workload, "course");
    if (status != LS_OK) {
        course_close(model);
        return status;
    }
    model->device = *ls_node_device(model->node);
    model->file_value[0] = model->device.memory_GBps;
    model->file_value[1] = ls_node_link(model->node, 0)->GBps;
    model->file_value[2] = ls_node_collectives(model->node)->bus_GBps;
    return LS_OK;
}

void course_close(struct course_model *model) {
    for (int i = 0; i < COURSE_CELLS; i++) ls_trace_destroy(model->recorded[i]);
    ls_workload_close(model->workload);
    ls_node_close(model->node);
    *model = (struct course_model){0};
}

static void set_values(struct course_model *model, const double values[COURSE_PARAMETERS]) {
    struct ls_node_device *device = ls_node_change_device(model->node);
    device->fp16_GFLOPs = model->device.fp16_GFLOPs / model->device.memory_GBps * values[0];
    device->memory_GBps = values[0];
    ls_node_change_links(model->node, values[1] / ls_node_link(model->node, 0)->GBps, 1);
    ls_node_change_collectives(model->node)->bus_GBps = values[2];
}

ls_status course_replay(tables_replayed replayed, struct course_model *model, const struct course_cell *cell,
                        const double values[COURSE_PARAMETERS]) {
    struct ls_plan options = ls_plan_defaults(cell->plan, cell->n, model->workload->defaults.batch);
    options.precision = model->workload->defaults.precision;
    options.replicate_by_collectives = true;
    set_values(model, values);
    ls_trace **recorded = &model->recorded[cell - course_cells], *priced = NULL;
    ls_status status = LS_OK;
    if (!*recorded) status = record_unpriced(recorded, model->workload, model->node, &options);
    if (status == LS_OK) status = ls_recost(&priced, *recorded, model->workload, model->node, &options);
    if (status == LS_OK) status = tables_replay_trace(replayed, priced, model->node);
    ls_trace_destroy(priced);
    return status;
}

struct fitting {
    struct course_model *model;
    int left_out;
    double held_bus_GBps; /* 0: the bus is a parameter */
};

static ls_status residuals(void *context, const double *parameters, double *residual) {
    const struct fitting *fitting = context;
    const double values[COURSE_PARAMETERS] = {parameters[0], parameters[1],
                                              fitting->held_bus_GBps > 0 ? fitting->held_bus_GBps : parameters[2]};
    ls_status status = LS_OK;
    int count = 0;
    for (int i = 0; status == LS_OK && i < COURSE_CELLS; i++) {
        const struct course_cell *cell = &course_cells[i];
        tables_replayed replayed = {0};
        if (i == fitting->left_out) continue;
        status = course_replay(replayed, fitting->model, cell, values);
        residual[count++] = replayed[TABLES_STEP] / cell->ms - 1;
    }
    return status;
}

ls_status course_fit(struct tables_fit *fit, struct course_model *model, int left_out, double held_bus_GBps) {
    struct fitting fitting = {.model = model, .left_out = left_out, .held_bus_GBps = held_bus_GBps};
    *fit = (struct tables_fit){.parameters = COURSE_PARAMETERS - (held_bus_GBps > 0),
                               .points = COURSE_CELLS - (left_out >= 0)};
    for (int k = 0; k < COURSE_PARAMETERS; k++) fit->value[k] = model->file_value[k];
    if (held_bus_GBps > 0) fit->value[COURSE_PARAMETERS - 1] = held_bus_GBps;
    return tables_fit_least_squares(fit, residuals, &fitting);
}
