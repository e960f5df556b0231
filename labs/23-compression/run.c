/* run — the product's reducer with the student's top-k. Gradients are written and reported as backward would, so that a
 * case can choose them freely. The probe is linked with --wrap, to record what is gathered. */
#include "labs/23-compression/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/seam/step.h"
#include "ddp_procs/topk_internal.h"

static _Thread_local struct rank *mine; /* NULL: nothing is recorded */
static _Thread_local const ls_parallel *stepping;

ls_status __real_ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                    ls_dtype dtype);
ls_status __wrap_ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                    ls_dtype dtype);
ls_status __wrap_ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                    ls_dtype dtype) {
    if (mine && stepping && comm == mine->comm) {
        struct step *step = &mine->step[mine->now];
        bool right = stream == ls_device_stream(stepping->devices[0], LS_STREAM_COMM);
        snprintf(step->phase, sizeof step->phase, "%s", ls_phase_name(stepping->clocks->phase));
        snprintf(step->stream, sizeof step->stream, "%s", right ? "comm" : "another");
    }
    return __real_ls_comm_all_gather(comm, stream, send, receive, count, dtype);
}

/* --- the record ----------------------------------------------------------------------------------------------------- */

static size_t floats_of(const ls_model *model) {
    size_t count = 0;
    for (size_t i = 0; i < ls_model_parameter_count(model); i++) count += ls_model_parameter(model, i)->count;
    return count;
}

/* For each parameter in order: its gradient, its error or its value. */
static float *read_floats(const ls_model *model, const struct topk *t, char what) {
    float *floats = malloc((floats_of(model) + 1) * sizeof *floats), *to = floats;
    for (size_t i = 0; floats && i < ls_model_parameter_count(model); i++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, i);
        const float *from = what == 'g' ? tensor->gradient : what == 'e' ? t->errors + t->error_at[i] : tensor->data;
        memcpy(to, from, tensor->count * sizeof *floats);
        to += tensor->count;
    }
    return floats;
}

/* If all gradients are in one bucket, its lists still exist. */
static void read_lists(struct step *step, const struct topk *t, size_t ranks) {
    if (t->ddp.reducer->bucket_count != 1) return;
    size_t entries = t->ddp.reducer->buckets[0].sent_nbytes / sizeof *t->lists;
    step->indices = malloc((entries + 1) * sizeof *step->indices);
    step->values = malloc((entries + 1) * sizeof *step->values);
    if (!step->indices || !step->values || entries % ranks != 0) return;
    step->entries = entries;
    for (size_t j = 0; j < entries; j++) {
        step->indices[j] = t->lists[j].index;
        step->values[j] = t->lists[j].value;
    }
}

static ls_status look(struct step *step, ls_parallel *p, const ls_comm_traffic *before) {
    ls_comm_traffic after;
    const struct topk *t = (const struct topk *)p;
    ls_status status = ls_device_synchronize(p->devices[0]);
    if (status != LS_OK) return status;
    ls_comm_traffic_read(mine->comm, &after);
    step->sent_bytes = after.sent_bytes - before->sent_bytes;
    step->operations = after.operations - before->operations;
    step->gathered_bytes = p->clocks->bytes[LS_PHASE_GATHER];
    step->floats = floats_of(p->model);
    step->sums = read_floats(p->model, t, 'g');
    if (t->errors) step->errors = read_floats(p->model, t, 'e');
    read_lists(step, t, (size_t)p->data_size);
    return LS_OK;
}

/* --- a rank's thread ------------------------------------------------------------------------------------------------ */

/* In backward's order: last parameters first. */
static ls_status give_gradients(ls_parallel *p, const float *given) {
    const struct ls_hooks *hooks = ls_model_hooks(p->model);
    ls_stream *compute = ls_device_stream(p->devices[0], LS_STREAM_COMPUTE);
    size_t at = floats_of(p->model);
    ls_status status = LS_OK;
    ls_phase_enter(p->clocks, LS_PHASE_BACKWARD);
    for (size_t i = ls_model_parameter_count(p->model); status == LS_OK && i > 0; i--) {
        const struct ls_tensor *tensor = ls_model_parameter(p->model, i - 1);
        at -= tensor->count;
        ls_copy(compute, tensor->gradient, given + at, tensor->count * sizeof *given);
        status = hooks->grad_ready(hooks->context, i - 1);
    }
    return status;
}

static ls_status reduce_given(ls_parallel *p, int s) {
    ls_status status = ddp_reducer_arm(ddp_of(p)->reducer, true, 1);
    if (status == LS_OK) status = give_gradients(p, mine->given[s]);
    return status == LS_OK ? p->ops->reduce(p) : status;
}

static size_t rows_of_step(const struct job *job, int step) {
    size_t rows = 0;
    for (int r = 0; r < job->ranks; r++) rows += job->rank[r].rows[step];
    return rows;
}

static ls_status train(ls_parallel *p, const struct job *job, int s) {
    ls_batch batch = {
        .inputs = mine->x[s], .labels = mine->labels[s], .count = mine->rows[s], .global_count = rows_of_step(job, s)};
    ls_status status = ls_step(p, &batch);
    if (status == LS_OK) status = ls_device_synchronize(p->devices[0]);
    if (status == LS_OK) mine->weights[s] = read_floats(p->model, NULL, 'w');
    return status;
}

static ls_status run_step(ls_parallel *p, const struct job *job, int s) {
    ls_comm_traffic before;
    mine->now = s;
    p->step = (uint64_t)s;
    ls_phase_reset(p->clocks);
    ls_comm_traffic_read(mine->comm, &before);
    ls_status status = job->trains ? train(p, job, s) : reduce_given(p, s);
    bool looks = job->looks || s == job->steps - 1;
    return status == LS_OK && looks ? look(&mine->step[s], p, &before) : status;
}

static void read_scale(const ls_parallel *p, float *scale) {
    struct ls_scaler_state state;
    const ls_grad_scaler *scaler = ls_optimizer_scaler(p->optimizer);
    if (scaler && ls_grad_scaler_read(scaler, &state) == LS_OK) *scale = state.scale;
}

static ls_status run_steps(ls_parallel *p, const struct job *job) {
    ls_status status = LS_OK;
    stepping = p;
    p->micro_batches = job->micro_batches > 0 ? job->micro_batches : 1;
    for (int s = 0; status == LS_OK && s < job->steps; s++) {
        status = run_step(p, job, s);
        if (status == LS_OK && job->trains) read_scale(p, &mine->scales[s]);
    }
    ls_status done = ls_device_synchronize(p->devices[0]);
    stepping = NULL;
    if (status == LS_OK) status = done;
    if (status == LS_OK) memcpy(mine->losses, p->losses, sizeof mine->losses);
    return status;
}

static ls_status run_rank(crew_rank *c) {
    struct job *job = c->argument;
    ls_model *model = NULL;
    ls_parallel *parallel = NULL;
    mine = &job->rank[c->rank];
    mine->comm = c->comm;
    ddp_options options = {.comm = c->comm,
                           .max_batch = MOST_ROWS,
                           .optimizer = job->optimizer,
                           .compression = {LS_FP32, job->fraction, !job->forgets},
                           .reducer = {.bucket_cap_mb = job->bucket_cap_mb, .overlap = !job->no_overlap}};
    ls_status status = ls_device_bind_thread(c->device);
    if (status == LS_OK) status = ls_model_create(&model, c->device, job->model, MOST_ROWS, job->precision);
    if (status == LS_OK) status = ls_model_init(model, 7);
    if (status == LS_OK) status = ddp_create_topk(&parallel, model, &options);
    if (status == LS_OK) status = run_steps(parallel, job);
    if (parallel) parallel->ops->destroy(parallel);
    ls_model_destroy(model);
    mine = NULL;
    return status;
}

/* --- setup of the ranks --------------------------------------------------------------------------------------------- */

static float draw_one(probe *p, gradients kind, size_t i, int step) {
    static const float special[] = {NAN, INFINITY, -INFINITY, 0, -0.0f};
    float value;
    probe_draw_floats(p, &value, 1);
    if (kind == TIED) return value < 0 ? -(float)(1 + probe_draw(p, 3)) : (float)(1 + probe_draw(p, 3));
    if (kind == SPECIAL && probe_draw(p, 40) == 0) return special[probe_draw(p, 5)];
    if (kind == STEADY) return i % 16 == 0 ? (step % 2 ? -value : value) : 0.05f + 0.01f * value;
    return value;
}

static void draw_gradients(probe *p, const struct job *job, struct rank *rank, size_t floats) {
    for (int s = 0; s < job->steps; s++) {
        rank->given[s] = malloc((floats + 1) * sizeof(float));
        probe_must(p, "memory", rank->given[s] ? LS_OK : LS_ERR_NO_MEMORY);
        for (size_t i = 0; rank->given[s] && i < floats; i++) rank->given[s][i] = draw_one(p, job->kind, i, s);
    }
}

static void draw_samples(probe *p, const struct job *job, struct rank *rank, size_t inputs, size_t outputs) {
    for (int s = 0; s < job->steps; s++) {
        rank->rows[s] = 1 + (size_t)probe_draw(p, MOST_ROWS);
        float *x = malloc((MOST_ROWS * inputs + 1) * sizeof *x);
        probe_must(p, "memory", x ? LS_OK : LS_ERR_NO_MEMORY);
        probe_draw_floats(p, x, MOST_ROWS * inputs);
        rank->x[s] = x;
        if (job->precision != LS_FP32) {
            uint16_t *halves = malloc((MOST_ROWS * inputs + 1) * sizeof *halves);
            probe_must(p, "memory", halves ? LS_OK : LS_ERR_NO_MEMORY);
            ls_cast_now(job->precision, halves, x, MOST_ROWS * inputs);
            free(x);
            rank->x[s] = (float *)halves;
        }
        for (int i = 0; i < MOST_ROWS; i++) rank->labels[s][i] = (int64_t)probe_draw(p, outputs);
    }
}

size_t run_parameters(probe *p, const char *model, size_t counts[MOST_PARAMETERS]) {
    ls_device *device;
    ls_model *meta;
    ls_device_options options = {.kind = LS_DEVICE_META, .devices_on_node = 1};
    probe_must(p, "a device", ls_device_open(&device, &options));
    probe_must(p, "a model", ls_model_create(&meta, device, model, MOST_ROWS, LS_FP32));
    size_t count = ls_model_parameter_count(meta);
    for (size_t i = 0; i < count && i < MOST_PARAMETERS; i++) counts[i] = ls_model_parameter(meta, i)->count;
    ls_model_destroy(meta);
    ls_device_close(device);
    return count;
}

static void draw(probe *p, struct job *job) {
    size_t counts[MOST_PARAMETERS] = {0}, floats = 0, parameters = run_parameters(p, job->model, counts);
    for (size_t i = 0; i < parameters; i++) floats += counts[i];
    job->rank = calloc((size_t)job->ranks, sizeof *job->rank);
    probe_must(p, "memory", job->rank ? LS_OK : LS_ERR_NO_MEMORY);
    for (int r = 0; job->rank && r < job->ranks; r++) {
        job->rank[r].job = job;
        if (job->trains)
            draw_samples(p, job, &job->rank[r], 20, 7);
        else
            draw_gradients(p, job, &job->rank[r], floats);
    }
}

void run_all(probe *p, struct job *job) {
    draw(p, job);
    ls_set_wait_timeout_s(CREW_TIMEOUT_S);
    probe_must(p, "the ranks", crew_run(job->ranks, "direct", job->streams ? job->streams : "inline", run_rank, job));
}

void run_release(struct job *job) {
    for (int r = 0; r < job->ranks; r++)
        for (int s = 0; s < job->steps; s++) {
            struct rank *rank = &job->rank[r];
            free(rank->given[s]);
            free(rank->x[s]);
            free(rank->weights[s]);
            free(rank->step[s].sums);
            free(rank->step[s].errors);
            free(rank->step[s].indices);
            free(rank->step[s].values);
        }
    free(job->rank);
}
