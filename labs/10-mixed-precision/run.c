#include "labs/10-mixed-precision/run.h"

#include <string.h>

#include "common/nn/model.h"
#include "common/seam/step.h"
#include "ddp_procs/distributed.h"
#include "kernels/kernels.h"

#define MLP "mlp:12,8,5"

/* A sample has weight 1 / RUN_ROWS: at a scale of 2^18 its output's gradient is infinite if the model is confident and
 * wrong, which happens only with large inputs. */
#define FIRST_SCALE 0x1p20
#define LOUD 30

static void draw(probe *p, struct run *run) {
    probe_draw_floats(p, run->start, RUN_WEIGHTS);
    int loud = (int)probe_draw(p, (uint64_t)run->ranks);
    for (int r = 0; r < run->ranks; r++) {
        struct rank *rank = &run->rank[r];
        for (int s = 0; s < RUN_STEPS; s++) {
            probe_draw_floats(p, rank->x[s], RUN_ROWS * RUN_INPUTS);
            for (int i = 0; r == loud && i < RUN_ROWS * RUN_INPUTS; i++) rank->x[s][i] *= LOUD;
            for (int i = 0; i < RUN_ROWS; i++) rank->labels[s][i] = (int64_t)probe_draw(p, RUN_OUTPUTS);
        }
    }
}

static ls_status open_ddp(ls_parallel **out, ls_model *model, const crew_rank *c) {
    const struct run *run = c->argument;
    ddp_options options = {.comm = c->comm,
                           .max_batch = RUN_ROWS,
                           .optimizer = ls_optimizer_defaults(run->kind),
                           .reducer = {.bucket_cap_mb = 25, .overlap = true}};
    options.optimizer.learning_rate = 0.01;
    options.optimizer.clip_norm = run->clip_norm;
    options.optimizer.record_count = RUN_STEPS;
    options.optimizer.scaler.enabled = true;
    options.optimizer.scaler.init_scale = FIRST_SCALE;
    options.optimizer.scaler.growth_interval = 2;
    return ddp_create(out, model, &options);
}

static ls_status train_step(ls_parallel *parallel, const crew_rank *c, int step) {
    const struct run *run = c->argument;
    const struct rank *rank = &run->rank[c->rank];
    uint16_t halves[RUN_ROWS * RUN_INPUTS];
    ls_cast_now(LS_FP16, halves, rank->x[step], RUN_ROWS * RUN_INPUTS);
    ls_batch batch = {.inputs = (const void *)halves,
                      .labels = rank->labels[step],
                      .count = RUN_ROWS,
                      .global_count = RUN_ROWS * (size_t)run->ranks};
    parallel->step = (uint64_t)step;
    ls_status status = ls_step(parallel, &batch);
    ls_optimizer_record(parallel->optimizer, (size_t)step);
    ls_status copied = ls_event_synchronize(parallel->batch_copied);
    return status != LS_OK ? status : copied;
}

static ls_status look(struct rank *rank, const ls_parallel *parallel) {
    float *weights;
    ls_model_parameters(parallel->model, &weights, &rank->weight_count);
    memcpy(rank->weights, weights, rank->weight_count * sizeof *weights);
    ls_status status = ls_optimizer_read_records(parallel->optimizer, rank->records);
    return status == LS_OK ? ls_grad_scaler_read(ls_optimizer_scaler(parallel->optimizer), &rank->scaler) : status;
}

static ls_status train(crew_rank *c) {
    const struct run *run = c->argument;
    ls_model *model = NULL;
    ls_parallel *parallel = NULL;
    float *weights;
    size_t count;
    ls_status status = ls_device_bind_thread(c->device);
    if (status == LS_OK) status = ls_model_create(&model, c->device, MLP, RUN_ROWS, LS_FP16);
    if (status != LS_OK) return status;
    ls_model_parameters(model, &weights, &count);
    memcpy(weights, run->start, count * sizeof *weights);
    ls_model_parameters_changed(model);
    status = open_ddp(&parallel, model, c);
    for (int s = 0; status == LS_OK && s < RUN_STEPS; s++) status = train_step(parallel, c, s);
    ls_status done = ls_device_synchronize(c->device);
    if (status == LS_OK) status = done;
    if (status == LS_OK) status = look(&((struct run *)c->argument)->rank[c->rank], parallel);
    if (parallel) parallel->ops->destroy(parallel);
    ls_model_destroy(model);
    return status;
}

ls_status run_all(probe *p, struct run *run, const char *streams) {
    ls_set_wait_timeout_s(CREW_TIMEOUT_S);
    draw(p, run);
    return crew_run(run->ranks, "direct", streams, train, run);
}
