/* Tests lab 05's average and broadcast: the ranks' initial state, gradients, and trained weights. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/nn/model.h"
#include "common/seam/step.h"
#include "ddp_procs/distributed.h"
#include "ddp_procs/reducer.h"
#include "kernels/kernels.h"
#include "labs/course/probe/crew.h"
#include "labs/course/probe/probe.h"

enum {
    RANKS = 16,
    STEPS = 4,
    MOST_ROWS = 4,
    INPUTS = 12,
    OUTPUTS = 5,
    MOST_STATE = 1 << 16,
    MOST_LARGE_STATE = 1 << 17
};
#define MLP "mlp:12,8,5"
#define LARGE_MLP "mlp:12,6000,5" /* gradients of 5 to 72,000 elements: more than 16 bits count */

/* Small enough for several buckets after the first step. */
#define CAP_MB 0.0003

/* How one rank's broadcast is made to fail: in its call, or later, on its stream. */
enum failure { NO_FAILURE, REFUSED, FAILS_LATER };
struct fault {
    enum failure failure;
    int rank;
    bool has_come; /* filled */
};

/* One rank's inputs, drawn before the ranks start, and its results, read when they have ended. */
struct rank {
    float *state; /* job.most_state: its initial state */
    size_t rows[STEPS];
    float x[STEPS][MOST_ROWS * INPUTS], dy[STEPS][MOST_ROWS * OUTPUTS];
    int64_t labels[STEPS][MOST_ROWS];
    /* seen */
    float *got;   /* most_state: its state, or its gradients */
    float *early; /* most_state: its state when it had received rank 0's; NULL: not read */
    size_t got_count, parameter_count;
    bool failed;
    float outputs[MOST_ROWS * OUTPUTS], losses[STEPS];
};

struct job {
    const char *model;
    ls_dtype precision, compress;
    int ranks, steps;
    size_t most_state;  /* floats; 0: MOST_STATE */
    struct fault fault; /* start */
    struct rank rank[RANKS];
};

/* --- setup of the ranks -------------------------------------------------------------------------------------------- */

static bool draw(probe *p, struct job *job) {
    bool complete = true;
    if (!job->most_state) job->most_state = MOST_STATE;
    for (int r = 0; r < job->ranks; r++) {
        struct rank *rank = &job->rank[r];
        rank->state = malloc(job->most_state * sizeof(float));
        rank->got = calloc(job->most_state, sizeof(float));
        complete = complete && rank->state && rank->got;
        if (rank->state) probe_draw_floats(p, rank->state, job->most_state);
        for (int s = 0; s < STEPS; s++) {
            rank->rows[s] = 1 + (size_t)probe_draw(p, MOST_ROWS);
            probe_draw_floats(p, rank->x[s], MOST_ROWS * INPUTS);
            probe_draw_floats(p, rank->dy[s], MOST_ROWS * OUTPUTS);
            for (int i = 0; i < MOST_ROWS; i++) rank->labels[s][i] = (int64_t)probe_draw(p, OUTPUTS);
        }
    }
    return complete;
}

static void run(probe *p, struct job *job, const char *streams, ls_status (*body)(crew_rank *rank)) {
    ls_set_wait_timeout_s(CREW_TIMEOUT_S);
    ls_status status = draw(p, job) ? crew_run(job->ranks, "direct", streams, body, job) : LS_ERR_NO_MEMORY;
    probe_must(p, "the ranks", status);
}

static void release(struct job *job) {
    for (int r = 0; r < job->ranks; r++) {
        free(job->rank[r].state);
        free(job->rank[r].got);
        free(job->rank[r].early);
    }
}

/* --- a rank -------------------------------------------------------------------------------------------------------- */

static struct job *job_of(const crew_rank *c) { return c->argument; }
static struct rank *rank_of(const crew_rank *c) { return &job_of(c)->rank[c->rank]; }

/* The outputs for one sample. */
static ls_status look(ls_model *model, const crew_rank *c, const float *x, float *outputs) {
    char halves[INPUTS * sizeof(float)];
    const void *input = x;
    if (job_of(c)->precision != LS_FP32) ls_cast_now(job_of(c)->precision, halves, x, INPUTS), input = halves;
    const float *y = ls_model_forward(model, input, 1, false);
    ls_status status = ls_device_synchronize(c->device);
    if (status == LS_OK) memcpy(outputs, y, OUTPUTS * sizeof *y);
    return status;
}

/* A model with the rank's own state. In half precision it has been used: there are copies of its weights. */
static ls_status open_model(ls_model **out, const crew_rank *c) {
    struct rank *rank = rank_of(c);
    ls_status status = ls_device_bind_thread(c->device);
    if (status == LS_OK) status = ls_model_create(out, c->device, job_of(c)->model, MOST_ROWS, job_of(c)->precision);
    if (status != LS_OK) return status;
    float *state;
    ls_model_state(*out, &state, &rank->got_count);
    if (rank->got_count > job_of(c)->most_state) return LS_ERR_NO_MEMORY;
    memcpy(state, rank->state, rank->got_count * sizeof *state);
    ls_model_parameters_changed(*out);
    return job_of(c)->precision == LS_FP32 ? LS_OK : look(*out, c, rank->x[0], rank->outputs);
}

static ls_status open_ddp(ls_parallel **out, ls_model *model, const crew_rank *c) {
    ddp_options options = {.comm = c->comm,
                           .max_batch = MOST_ROWS,
                           .optimizer = ls_optimizer_defaults(LS_SGD),
                           .reducer = {.bucket_cap_mb = CAP_MB, .overlap = true}};
    options.optimizer.learning_rate = 0.1;
    return ddp_create(out, model, &options);
}

static void keep_state(struct rank *rank, const ls_model *model) {
    float *state;
    ls_model_state(model, &state, &rank->got_count);
    memcpy(rank->got, state, rank->got_count * sizeof *state);
}

/* --- start --------------------------------------------------------------------------------------------------------- */

/* The rank whose construction this thread runs. */
static _Thread_local crew_rank *constructing;

ls_status __real_ls_comm_broadcast(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                                   int root);
ls_status __wrap_ls_comm_broadcast(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                                   int root);
ls_status __real_ls_parallel_alloc_places(ls_parallel *p, size_t max_count);
ls_status __wrap_ls_parallel_alloc_places(ls_parallel *p, size_t max_count);

static ls_status pause_stream(const void *arguments) {
    (void)arguments;
    usleep(20000);
    return LS_OK;
}

/* A late broadcast has not arrived yet for a reader that does not wait for it. A broadcast that is made to fail is
 * executed nevertheless, so that a body that ignores the failure reaches its end. */
ls_status __wrap_ls_comm_broadcast(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                                   int root) {
    if (!constructing) return __real_ls_comm_broadcast(comm, stream, buffer, count, dtype, root);
    struct fault *fault = &job_of(constructing)->fault;
    if (rank_of(constructing)->early) ls_stream_launch(stream, "a pause", pause_stream, "", 1);
    ls_status status = __real_ls_comm_broadcast(comm, stream, buffer, count, dtype, root);
    if (fault->failure == NO_FAILURE || fault->rank != constructing->rank || fault->has_come) return status;
    fault->has_come = true;
    if (fault->failure == REFUSED) return LS_ERR_PEER;
    ls_device_fail(constructing->device, LS_ERR_PEER);
    return status;
}

/* The next call of the construction after it has received rank 0's state. */
ls_status __wrap_ls_parallel_alloc_places(ls_parallel *p, size_t max_count) {
    float *state, *early = constructing ? rank_of(constructing)->early : NULL;
    size_t count;
    ls_model_state(p->model, &state, &count);
    if (early && count <= job_of(constructing)->most_state) memcpy(early, state, count * sizeof *state);
    return __real_ls_parallel_alloc_places(p, max_count);
}

/* Does not wait between construction and reading the state. */
static ls_status construct(crew_rank *c) {
    struct rank *rank = rank_of(c);
    ls_model *model = NULL;
    ls_parallel *parallel = NULL;
    ls_status status = open_model(&model, c);
    constructing = c;
    if (status == LS_OK) status = open_ddp(&parallel, model, c);
    constructing = NULL;
    rank->failed = status != LS_OK;
    if (rank->failed) ls_comm_abort(c->comm, "this rank has failed"); /* the others need not wait for it */
    if (status == LS_OK) keep_state(rank, model);
    if (status == LS_OK && job_of(c)->precision != LS_FP32) status = look(model, c, rank->x[1], rank->outputs);
    if (parallel) parallel->ops->destroy(parallel);
    ls_model_destroy(model);
    return status;
}

static void start_case(probe *p, const char *model, ls_dtype precision, int ranks, const char *streams) {
    struct job job = {.model = model, .precision = precision, .ranks = ranks};
    if (strcmp(model, LARGE_MLP) == 0) job.most_state = MOST_LARGE_STATE;
    probe_case(p, "W = %d, %s, %s, streams %s", ranks, model, ls_dtype_name(precision), streams);
    run(p, &job, streams, construct);
    for (int r = 0; r < ranks; r++) {
        probe_see_floats(p, probe_name(p, "rank %d's parameters and buffers", r), job.rank[r].got,
                         job.rank[r].got_count);
        probe_see_floats(p, probe_name(p, "rank %d's first outputs", r), job.rank[r].outputs, OUTPUTS);
    }
    release(&job);
}

/* Construction must continue only with rank 0's state. */
static void start_late(probe *p, const char *model, int ranks) {
    struct job job = {.model = model, .ranks = ranks};
    probe_case(p, "W = %d, %s, and a broadcast that comes late", ranks, model);
    bool complete = true;
    for (int r = 0; r < ranks; r++) complete = (job.rank[r].early = calloc(MOST_STATE, sizeof(float))) && complete;
    if (!complete) probe_must(p, "memory", LS_ERR_NO_MEMORY);
    run(p, &job, "threads", construct);
    for (int r = 0; r < ranks; r++)
        probe_see_floats(p, probe_name(p, "what rank %d goes on with", r), job.rank[r].early, job.rank[r].got_count);
    release(&job);
}

/* A body that receives the state by other calls than broadcasts has none that fails. */
static void start_broken(probe *p, int ranks, int rank, enum failure failure) {
    struct job job = {.model = MLP, .ranks = ranks, .fault = {.failure = failure, .rank = rank}};
    probe_case(p, "W = %d, rank %d's broadcast %s", ranks, rank,
               failure == REFUSED ? "returns a failure" : "fails on its stream");
    ls_set_wait_timeout_s(CREW_TIMEOUT_S);
    if (draw(p, &job)) (void)crew_run(ranks, "direct", "inline", construct, &job);
    probe_see(p, probe_name(p, "what construction returns on rank %d", rank), "%s",
              job.rank[rank].failed || !job.fault.has_come ? "a failure" : "success");
    release(&job);
}

static void start(probe *p) {
    char streams[40];
    for (int ranks = 2; ranks <= 5; ranks++) start_case(p, MLP, LS_FP32, ranks, "inline");
    start_case(p, "convnet", LS_FP32, 3, "inline");
    start_case(p, MLP, LS_BF16, 2, "inline");
    start_case(p, MLP, LS_FP32, 1, "inline");
    start_case(p, LARGE_MLP, LS_FP32, 2, "inline");
    start_case(p, MLP, LS_FP32, RANKS, "inline");
    for (int seed = 0; seed < 8; seed++) {
        snprintf(streams, sizeof streams, "shuffle:%d", (int)probe_draw(p, 1000000));
        start_case(p, MLP, LS_FP32, 2, streams);
    }
    start_late(p, MLP, 2);
    start_late(p, "convnet", 3);
    for (int rank = 0; rank < 2; rank++) {
        start_broken(p, 2, rank, REFUSED);
        start_broken(p, 2, rank, FAILS_LATER);
    }
}

/* --- gradients ----------------------------------------------------------------------------------------------------- */

/* The reducer alone: one backward a step, from the rank's own samples, with the rank's own weights. */
static ls_status reduce(crew_rank *c) {
    struct rank *rank = rank_of(c);
    ls_model *model = NULL;
    ddp_reducer *reducer = NULL;
    struct ls_phase_clock clock;
    ls_phase_begin(&clock, c->device);
    ddp_reducer_options options = {.bucket_cap_mb = CAP_MB, .overlap = true, .compress = job_of(c)->compress};
    ls_status status = open_model(&model, c);
    if (status == LS_OK) status = ddp_reducer_create(&reducer, c->comm, model, &clock, &options);
    for (int s = 0; status == LS_OK && s < job_of(c)->steps; s++) {
        status = ddp_reducer_arm(reducer, true, rank->rows[s]);
        if (status != LS_OK) break;
        (void)ls_model_forward(model, rank->x[s], rank->rows[s], true);
        ls_model_backward(model, rank->dy[s], false);
        status = ddp_reducer_finish(reducer);
        ls_status done = ls_device_synchronize(c->device);
        if (status == LS_OK) status = done;
    }
    rank->got_count = 0;
    for (size_t i = 0; status == LS_OK && i < ls_model_parameter_count(model); i++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, i);
        memcpy(rank->got + rank->got_count, tensor->gradient, tensor->count * sizeof(float));
        rank->got_count += tensor->count;
    }
    ddp_reducer_destroy(reducer);
    ls_model_destroy(model);
    return status;
}

static void reduce_model(probe *p, const char *model, int ranks, int steps, ls_dtype compress) {
    struct job job = {.model = model, .compress = compress, .ranks = ranks, .steps = steps};
    if (strcmp(model, LARGE_MLP) == 0) job.most_state = MOST_LARGE_STATE;
    const char *travel = compress == LS_FP32 ? "" : ", as halves";
    probe_case(p, "W = %d, %s, step %d%s", ranks, model, steps - 1, travel);
    run(p, &job, "inline", reduce);
    for (int r = 0; r < ranks; r++) {
        probe_see_floats(p, probe_name(p, "the last gradients on rank %d", r),
                         job.rank[r].got + job.rank[r].got_count - 4, 4);
        probe_see_floats(p, probe_name(p, "all gradients on rank %d", r), job.rank[r].got, job.rank[r].got_count);
    }
    release(&job);
}

static void reduce_case(probe *p, int ranks, int steps, ls_dtype compress) {
    reduce_model(p, MLP, ranks, steps, compress);
}

/* For a power of two all methods of taking the mean have the same bits. */
static void mean(probe *p) {
    for (int ranks = 1; ranks <= 4; ranks *= 2)
        for (int steps = 1; steps <= 3; steps++) reduce_case(p, ranks, steps, LS_FP32);
    for (int steps = 1; steps <= 2; steps++) {
        reduce_case(p, RANKS, steps, LS_FP32);
        reduce_model(p, LARGE_MLP, 2, steps, LS_FP32);
    }
}

static void rounding(probe *p) {
    for (int ranks = 3; ranks <= 7; ranks += 2)
        for (int steps = 1; steps <= 3; steps++) reduce_case(p, ranks, steps, LS_FP32);
    for (int steps = 1; steps <= 3; steps++) {
        reduce_case(p, 11, steps, LS_FP32);
        reduce_model(p, LARGE_MLP, 3, steps, LS_FP32);
    }
}

/* A body that never divides would be right here, except in the first case. */
static void compressed(probe *p) {
    reduce_case(p, 2, 1, LS_FP32);
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int steps = 1; steps <= 2; steps++) {
            reduce_case(p, ranks, steps, LS_FP16);
            reduce_case(p, ranks, steps, LS_BF16);
        }
}

/* --- training ------------------------------------------------------------------------------------------------------ */

static size_t rows_of_step(const struct job *job, int step) {
    size_t rows = 0;
    for (int r = 0; r < job->ranks; r++) rows += job->rank[r].rows[step];
    return rows;
}

static ls_status train_step(ls_parallel *parallel, const crew_rank *c, int step) {
    struct rank *rank = rank_of(c);
    ls_batch batch = {.inputs = rank->x[step],
                      .labels = rank->labels[step],
                      .count = rank->rows[step],
                      .global_count = rows_of_step(job_of(c), step)};
    parallel->step = (uint64_t)step;
    return ls_step(parallel, &batch);
}

static ls_status train(crew_rank *c) {
    struct rank *rank = rank_of(c);
    ls_model *model = NULL;
    ls_parallel *parallel = NULL;
    ls_status status = open_model(&model, c);
    if (status == LS_OK) status = open_ddp(&parallel, model, c);
    for (int s = 0; status == LS_OK && s < STEPS; s++) status = train_step(parallel, c, s);
    ls_status done = ls_device_synchronize(c->device);
    if (status == LS_OK) status = done;
    if (status == LS_OK) {
        keep_state(rank, model);
        memcpy(rank->losses, parallel->losses, sizeof rank->losses);
    }
    if (parallel) parallel->ops->destroy(parallel);
    ls_model_destroy(model);
    return status;
}

static void train_case(probe *p, int ranks, const char *streams) {
    struct job job = {.model = MLP, .ranks = ranks};
    probe_case(p, "W = %d, streams %s", ranks, streams);
    run(p, &job, streams, train);
    for (int r = 0; r < ranks; r++) {
        probe_see_floats(p, probe_name(p, "losses of rank %d", r), job.rank[r].losses, STEPS);
        probe_see_floats(p, probe_name(p, "trained weights of rank %d", r), job.rank[r].got, job.rank[r].got_count);
    }
    release(&job);
}

static void trained(probe *p) {
    char streams[40];
    for (int ranks = 1; ranks <= 4; ranks++) {
        train_case(p, ranks, "inline");
        for (int seed = 0; seed < 8; seed++) {
            snprintf(streams, sizeof streams, "shuffle:%d", (int)probe_draw(p, 1000000));
            train_case(p, ranks, streams);
        }
    }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"start", start},           {"mean", mean},       {"rounding", rounding},
                                         {"compressed", compressed}, {"trained", trained}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
