/* count — runs the real step on meta devices to count its memory.
 *   idea  : everything is allocated when a mode is created, except by DDP's second step, which builds its buckets. So
 *           two steps are run, with batches without memory, and then the devices' counts are read
 *   sizes : the bytes per sample are the difference between room for two samples and room for one */
#include "labs/09-memory/who_holds/count.h"

#include "common/base/log.h"
#include "common/seam/step.h"
#include "ddp_procs/distributed.h"
#include "dp_threads/data_parallel.h"

enum { STEPS = 2 };

struct scene {
    const struct holds_run *run;
    const ls_optimizer_options *optimizer;
    int device_count;
    ls_device *devices[HOLDS_MOST_DEVICES];
    ls_model *model;
    ls_comm *comm;
    ls_parallel *parallel;
};

static size_t piece_of(const struct holds_run *run) {
    return (run->batch + (size_t)run->devices - 1) / (size_t)run->devices;
}

/* --- one scene --------------------------------------------------------------------------------------------------- */

static ls_status open_devices(struct scene *s, int count) {
    ls_status status = LS_OK;
    for (int d = 0; status == LS_OK && d < count; d++) {
        const ls_device_options options = {.kind = LS_DEVICE_META, .index = d, .place = d, .devices_on_node = count};
        status = ls_device_open(&s->devices[d], &options);
        s->device_count += status == LS_OK;
    }
    return status;
}

static ls_status create_dp(struct scene *s) {
    const dp_options options = {
        .devices = s->devices, .device_count = s->device_count, .max_batch = s->run->batch, .optimizer = *s->optimizer};
    return dp_create(&s->parallel, s->model, &options);
}

static ls_status create_ddp(struct scene *s) {
    const ls_comm_options group = {.world_size = s->run->devices, .timeout_s = ls_wait_timeout_s(), .group = "ranks"};
    ls_status status = ls_comm_create_meta(&s->comm, &group, s->devices[0]);
    const ddp_options options = {.comm = s->comm,
                                 .max_batch = piece_of(s->run),
                                 .optimizer = *s->optimizer,
                                 .reducer = {.bucket_cap_mb = 25, .overlap = true}};
    return status == LS_OK ? ddp_create(&s->parallel, s->model, &options) : status;
}

/* The mode and its devices, ready for a first step. */
static ls_status open_scene(struct scene *s, const char *model) {
    const struct holds_run *run = s->run;
    ls_status status = open_devices(s, run->mode == HOLDS_DP ? run->devices : 1);
    if (status == LS_OK) status = ls_model_create(&s->model, s->devices[0], model, piece_of(run), LS_FP32);
    if (status != LS_OK) return status;
    if (run->mode == HOLDS_DP) return create_dp(s);
    if (run->mode == HOLDS_DDP) return create_ddp(s);
    return ls_single_create(&s->parallel, s->devices[0], s->model, s->optimizer, run->batch);
}

static ls_status take_steps(const struct scene *s) {
    static char nowhere;
    ls_parallel *p = s->parallel;
    const ls_batch batch = {.inputs = &nowhere,
                            .labels = (const int64_t *)(const void *)&nowhere,
                            .targets = (const float *)(const void *)&nowhere,
                            .count = s->run->mode == HOLDS_DDP ? piece_of(s->run) : s->run->batch,
                            .global_count = s->run->batch};
    ls_status status = LS_OK;
    for (int step = 0; status == LS_OK && step < STEPS; step++) {
        status = ls_step(p, &batch);
        p->step++;
    }
    return status;
}

static void close_scene(struct scene *s) {
    if (s->parallel) s->parallel->ops->destroy(s->parallel);
    ls_comm_destroy(s->comm);
    ls_model_destroy(s->model);
    for (int d = 0; d < s->device_count; d++) ls_device_close(s->devices[d]);
}

static struct holds_bytes held_by(const ls_device *device) {
    struct holds_bytes held;
    ls_memory_report memory;
    ls_device_memory(device, &memory);
    for (int c = 0; c < LS_MEMORY_COUNT; c++) held.of[c] = memory.current_bytes[c];
    return held;
}

/* --- the counts -------------------------------------------------------------------------------------------------- */

ls_status holds_count(struct holds_bytes *held, const struct holds_run *run, const char *model,
                      const ls_optimizer_options *optimizer) {
    struct scene scene = {.run = run, .optimizer = optimizer};
    ls_status status = open_scene(&scene, model);
    if (status == LS_OK) status = take_steps(&scene);
    for (int d = 0; status == LS_OK && d < run->devices; d++)
        held[d] = held_by(scene.devices[d < scene.device_count ? d : 0]);
    close_scene(&scene);
    return status;
}

/* The memory of a model by itself, with room for the given number of samples. */
static ls_status count_model(struct holds_bytes *held, struct holds_sizes *sizes, const char *description,
                             size_t samples) {
    struct scene s = {0};
    ls_status status = open_devices(&s, 1);
    if (status == LS_OK) status = ls_model_create(&s.model, s.devices[0], description, samples, LS_FP32);
    if (status == LS_OK && ls_model_untaken(s.model))
        status = ls_fail(LS_ERR_USAGE, "\"%s\" has parameters that no pass takes, which each mode treats differently",
                         description);
    if (status == LS_OK) {
        float *data;
        size_t count;
        *held = held_by(s.devices[0]);
        ls_model_parameters(s.model, &data, &count);
        sizes->parameters = count * sizeof *data;
        sizes->input = ls_model_input_nbytes(s.model);
        sizes->answer = ls_model_answer_nbytes(s.model);
        sizes->output = ls_model_outputs(s.model) * sizeof(float);
    }
    close_scene(&s);
    return status;
}

ls_status holds_count_sizes(struct holds_sizes *sizes, const char *model) {
    const struct holds_run one = {.mode = HOLDS_SINGLE, .devices = 1, .batch = 1};
    const ls_optimizer_options sgd = ls_optimizer_defaults(LS_SGD); /* without moments */
    struct holds_bytes of_1, of_2, trained;
    ls_status status = count_model(&of_1, sizes, model, 1);
    if (status == LS_OK) status = count_model(&of_2, sizes, model, 2);
    if (status == LS_OK) status = holds_count(&trained, &one, model, &sgd);
    if (status != LS_OK) return status;
    sizes->buffers = of_1.of[LS_MEMORY_PARAMETER] - sizes->parameters;
    sizes->update = trained.of[LS_MEMORY_OPTIMIZER];
    sizes->activations = of_2.of[LS_MEMORY_ACTIVATION] - of_1.of[LS_MEMORY_ACTIVATION];
    sizes->statistics = of_1.of[LS_MEMORY_ACTIVATION] - sizes->activations;
    sizes->scratch = of_1.of[LS_MEMORY_WORKSPACE];
    sizes->losses = trained.of[LS_MEMORY_WORKSPACE] - sizes->scratch;
    return LS_OK;
}
