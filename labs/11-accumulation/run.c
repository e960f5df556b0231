#define _GNU_SOURCE
#include "labs/11-accumulation/run.h"

#include <stdlib.h>
#include <string.h>

#include "common/nn/model.h"
#include "common/seam/step.h"
#include "ddp_procs/distributed.h"
#include "dp_threads/data_parallel.h"

/* Small enough for several buckets after the first step. */
#define CAP_MB 0.0001
#define LEARNING_RATE 0.1

/* More devices than there are cores: none is bound to a core, and none spins. */
enum { ON_NODE = 1000 };

/* --- counts --------------------------------------------------------------------------------------------------------- */

/* The counts of this thread's rank; NULL: counting is off. */
static _Thread_local struct sent *ledger;

ls_status __real_ls_comm_all_reduce(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                                    ls_reduce_op op);
ls_status __wrap_ls_comm_all_reduce(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                                    ls_reduce_op op);
ls_status __wrap_ls_comm_all_reduce(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                                    ls_reduce_op op) {
    if (ledger) ledger->reduces++, ledger->floats += count;
    return __real_ls_comm_all_reduce(comm, stream, buffer, count, dtype, op);
}

ls_status __real_ls_comm_broadcast(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                                   int root);
ls_status __wrap_ls_comm_broadcast(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                                   int root);
ls_status __wrap_ls_comm_broadcast(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                                   int root) {
    if (ledger) ledger->broadcasts++;
    return __real_ls_comm_broadcast(comm, stream, buffer, count, dtype, root);
}

/* --- a step --------------------------------------------------------------------------------------------------------- */

static size_t rows_of_step(const struct run *run, int step) {
    size_t rows = 0;
    for (int r = 0; r < (run->threads ? 1 : run->ranks); r++) rows += run->rank[r].rows[step];
    return rows;
}

/* Cuts as evenly as possible, unlike ls_micro_batch: the use of pieces is tested even if ls_micro_batch is wrong. */
static ls_batch cut(const ls_batch *batch, int k, int pieces, size_t row_nbytes) {
    size_t of = (size_t)pieces, begin = (batch->count * (size_t)k + of - 1) / of;
    ls_batch part = *batch;
    part.count = (batch->count * ((size_t)k + 1) + of - 1) / of - begin;
    part.inputs = (const char *)batch->inputs + begin * row_nbytes;
    part.labels = batch->labels + begin;
    return part;
}

struct step {
    const ls_batch *batch;
    size_t row_nbytes;
    int pieces;
    struct sent *sent; /* by each piece */
};

/* From now on collectives count for this piece. */
static ls_batch next_piece(void *context, int k) {
    const struct step *step = context;
    ledger = &step->sent[k];
    return cut(step->batch, k, step->pieces, step->row_nbytes);
}

/* As in the training loop, except that a local first step has no update. */
static ls_status train_step(ls_parallel *p, struct run *run, struct rank *rank, int step) {
    ls_batch batch = {.inputs = rank->x[step],
                      .labels = rank->labels[step],
                      .count = rank->rows[step],
                      .global_count = rows_of_step(run, step)};
    struct step pieces = {&batch, ls_model_input_nbytes(p->model), run->pieces, rank->sent[step]};
    p->step = (uint64_t)step;
    p->micro_batches = run->pieces;
    p->no_sync = run->local_first && step == 0;
    ls_status status = ls_step_gradients_of(p, next_piece, &pieces);
    if (status == LS_OK && !p->no_sync) status = ls_step_update(p);
    ledger = NULL;
    ls_status copied = ls_event_synchronize(p->batch_copied);
    return status != LS_OK ? status : copied;
}

static void look(struct rank *rank, const ls_parallel *p) {
    float *state;
    ls_model_state(p->model, &state, &rank->state_count);
    memcpy(rank->state, state, rank->state_count * sizeof *state);
    memcpy(rank->losses, p->losses, sizeof rank->losses);
    rank->gradient_count = 0;
    for (size_t i = 0; i < ls_model_parameter_count(p->model); i++) {
        const struct ls_tensor *tensor = ls_model_parameter(p->model, i);
        memcpy(rank->gradients + rank->gradient_count, tensor->gradient, tensor->count * sizeof(float));
        rank->gradient_count += tensor->count;
    }
    for (int d = 0; d < p->local_device_count; d++) {
        rank->all_reduced += p->clocks[d].bytes[LS_PHASE_ALL_REDUCE];
        rank->reduced += p->clocks[d].bytes[LS_PHASE_REDUCE];
    }
}

static ls_status train(ls_parallel *p, struct run *run, struct rank *rank) {
    ls_status status = LS_OK;
    for (int s = 0; status == LS_OK && s < run->steps; s++) status = train_step(p, run, rank, s);
    for (int d = 0; d < p->local_device_count; d++) {
        ls_status done = ls_device_synchronize(p->devices[d]);
        if (status == LS_OK) status = done;
    }
    if (status == LS_OK) look(rank, p);
    return status;
}

/* Floats that a model's state may have. */
static size_t state_room(const char *model) { return strchr(model, ':') ? 1 << 10 : RUN_STATE; }

static ls_status open_model(ls_model **out, const struct run *run, const struct rank *rank, ls_device *device,
                            size_t rows) {
    ls_status status = ls_model_create(out, device, run->model, rows, LS_FP32);
    if (status != LS_OK) return status;
    float *state;
    size_t count;
    ls_model_state(*out, &state, &count);
    if (count > state_room(run->model)) return LS_ERR_NO_MEMORY;
    memcpy(state, rank->start, count * sizeof *state);
    ls_model_parameters_changed(*out);
    return LS_OK;
}

static ls_optimizer_options sgd(void) {
    ls_optimizer_options options = ls_optimizer_defaults(LS_SGD);
    options.learning_rate = LEARNING_RATE;
    return options;
}

/* --- DDP ------------------------------------------------------------------------------------------------------------ */

static ls_status train_rank(crew_rank *c) {
    struct run *run = c->argument;
    ls_model *model = NULL;
    ls_parallel *parallel = NULL;
    ddp_options options = {.comm = c->comm,
                           .max_batch = RUN_ROWS,
                           .optimizer = sgd(),
                           .reducer = {.bucket_cap_mb = CAP_MB, .overlap = true}};
    ls_status status = ls_device_bind_thread(c->device);
    if (status == LS_OK) status = open_model(&model, run, &run->rank[c->rank], c->device, RUN_ROWS);
    if (status == LS_OK) status = ddp_create(&parallel, model, &options);
    if (status == LS_OK) status = train(parallel, run, &run->rank[c->rank]);
    if (parallel) parallel->ops->destroy(parallel);
    ls_model_destroy(model);
    return status;
}

/* --- DataParallel --------------------------------------------------------------------------------------------------- */

static ls_status train_threads(struct run *run) {
    ls_device *devices[RUN_RANKS] = {NULL};
    ls_model *model = NULL;
    ls_parallel *parallel = NULL;
    ls_status status = LS_OK;
    setenv("LS_CPU_STREAMS", run->streams, 1);
    for (int d = 0; status == LS_OK && d < run->ranks; d++) {
        ls_device_options options = {.kind = LS_DEVICE_CPU, .index = d, .devices_on_node = ON_NODE, .place = d};
        status = ls_device_open(&devices[d], &options);
    }
    dp_options options = {
        .devices = devices, .device_count = run->ranks, .max_batch = RUN_RANKS * RUN_ROWS, .optimizer = sgd()};
    if (status == LS_OK) status = open_model(&model, run, run->rank, devices[0], RUN_RANKS * RUN_ROWS);
    if (status == LS_OK) status = dp_create(&parallel, model, &options);
    if (status == LS_OK) status = train(parallel, run, run->rank);
    if (parallel) parallel->ops->destroy(parallel);
    ls_model_destroy(model);
    for (int d = 0; d < run->ranks; d++) ls_device_close(devices[d]);
    return status;
}

/* --- setup ---------------------------------------------------------------------------------------------------------- */

/* The number of inputs of the model: for an mlp, the number after the colon. */
static size_t inputs_of(const char *model) {
    const char *colon = strchr(model, ':');
    return colon ? strtoul(colon + 1, NULL, 10) : 784;
}

static int outputs_of(const char *model) {
    const char *comma = strrchr(model, ',');
    return comma ? atoi(comma + 1) : 10;
}

static bool draw(probe *p, struct run *run) {
    int members = run->threads ? 1 : run->ranks;
    size_t inputs = inputs_of(run->model);
    bool complete = true;
    for (int r = 0; complete && r < members; r++) {
        struct rank *rank = &run->rank[r];
        rank->start = malloc(RUN_STATE * sizeof(float));
        rank->state = calloc(RUN_STATE, sizeof(float));
        rank->gradients = calloc(RUN_STATE, sizeof(float));
        complete = rank->start && rank->state && rank->gradients;
        if (complete) probe_draw_floats(p, rank->start, state_room(run->model));
        for (int s = 0; complete && s < run->steps; s++) {
            rank->rows[s] = run->rows;
            if (s > 0 && s == run->steps - 1) rank->rows[s] -= probe_draw(p, run->rows);
            rank->x[s] = malloc(run->rows * inputs * sizeof(float));
            complete = rank->x[s] != NULL;
            if (complete) probe_draw_floats(p, rank->x[s], run->rows * inputs);
            for (size_t i = 0; i < run->rows; i++)
                rank->labels[s][i] = (int64_t)probe_draw(p, (uint64_t)outputs_of(run->model));
        }
    }
    return complete;
}

ls_status run_all(probe *p, struct run *run) {
    ls_set_wait_timeout_s(CREW_TIMEOUT_S);
    if (!draw(p, run)) return LS_ERR_NO_MEMORY;
    if (!run->threads) return crew_run(run->ranks, "direct", run->streams, train_rank, run);
    char said[512];
    ls_log_sink before = ls_log_capture(said, sizeof said);
    ls_status status = train_threads(run);
    ls_log_restore(before);
    return status;
}

void run_release(struct run *run) {
    for (int r = 0; r < RUN_RANKS; r++) {
        struct rank *rank = &run->rank[r];
        for (int s = 0; s < RUN_STEPS; s++) free(rank->x[s]);
        free(rank->start);
        free(rank->state);
        free(rank->gradients);
    }
}
