#include "labs/14-uneven-ends/joined.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/seam/step.h"
#include "ddp_procs/ddp.h"
#include "labs/course/probe/crew.h"

enum { MOST_RANKS = 12, DRAWN_RANKS = 5, STEPS = 6, MOST_ROWS = 3, MOST_STATE = 1 << 18 };
enum { NONE = -1 }; /* in `counts`: the rank has no batch any more */

/* One rank's inputs, drawn before the ranks start, and its results, read when they have ended. */
struct rank {
    float *x, *state; /* of all steps; its state at the beginning, and at the end (MOST_STATE) */
    int64_t labels[STEPS * MOST_ROWS];
    size_t before[STEPS + 1]; /* global_count before the ranks have communicated */
    /* results of each step; the last entry: of the step in which no rank had samples */
    int steps, weight[STEPS + 1], root[STEPS + 1];
    long long count[STEPS + 1]; /* of all ranks in the step */
    bool anyone[STEPS + 1];
    ls_status status[STEPS + 1];
    float losses[STEPS];
    size_t state_count;
    int64_t tracked; /* batches of its first batch norm */
};

struct job {
    const char *model;
    int ranks;
    int64_t counts[STEPS][MOST_RANKS];
    ddp_join_options join;
    bool trains;
    struct rank rank[MOST_RANKS];
};

/* --- a rank -------------------------------------------------------------------------------------------------------- */

static ls_status open_rank(ls_model **model, ls_parallel **parallel, const crew_rank *c) {
    const struct job *job = c->argument;
    ddp_options options = {.comm = c->comm,
                           .max_batch = MOST_ROWS,
                           .join = job->join,
                           .optimizer = ls_optimizer_defaults(LS_SGD),
                           .reducer = {.bucket_cap_mb = 25, .overlap = true}};
    options.optimizer.learning_rate = 0.1;
    ls_status status = ls_device_bind_thread(c->device);
    if (status == LS_OK) status = ls_model_create(model, c->device, job->model, MOST_ROWS, LS_FP32);
    if (status == LS_OK) status = ls_model_init(*model, 0);
    return status == LS_OK ? ddp_create(parallel, *model, &options) : status;
}

static ls_batch batch_of(const struct job *job, const struct rank *rank, const ls_model *model, int r, int step) {
    if (step == STEPS || job->counts[step][r] == NONE) return (ls_batch){.global_count = rank->before[step]};
    size_t row = (size_t)step * MOST_ROWS, inputs = ls_model_input_nbytes(model) / sizeof(float);
    return (ls_batch){.inputs = rank->x + row * inputs,
                      .labels = rank->labels + row,
                      .count = (size_t)job->counts[step][r],
                      .global_count = rank->before[step]};
}

static ls_status take_step(ls_parallel *parallel, const ls_batch *batch) {
    ls_status status = ls_step(parallel, batch);
    parallel->step++;
    return status;
}

static void keep_state(struct rank *rank, ls_model *model) {
    float *state;
    ls_model_state(model, &state, &rank->state_count);
    if (rank->state_count > MOST_STATE) rank->state_count = MOST_STATE;
    memcpy(rank->state, state, rank->state_count * sizeof *state);
    if (ls_model_batchnorm_count(model) > 0) rank->tracked = *ls_model_batches_tracked(model, 0);
}

/* Runs until no rank has samples, as the training loop does, and at most one step more than there are. */
static ls_status play(crew_rank *c) {
    struct job *job = c->argument;
    struct rank *rank = &job->rank[c->rank];
    ls_model *model = NULL;
    ls_parallel *parallel = NULL;
    ls_status status = open_rank(&model, &parallel, c);
    for (int s = 0; status == LS_OK && s <= STEPS; s++) {
        ls_batch batch = batch_of(job, rank, model, c->rank, s);
        rank->status[s] = parallel->process->join(parallel, &batch, &rank->anyone[s]);
        rank->count[s] = (long long)batch.global_count;
        rank->weight[s] = ddp_of(parallel)->gradient_weight;
        rank->root[s] = ddp_of(parallel)->buffers_root;
        rank->steps = s + 1;
        if (rank->status[s] != LS_OK || !rank->anyone[s]) break;
        if (job->trains && s < STEPS)
            status = take_step(parallel, &batch);
        else
            parallel->step++;
    }
    ls_status done = ls_device_synchronize(c->device);
    if (status == LS_OK) status = done;
    if (status == LS_OK && job->trains) {
        keep_state(rank, model);
        memcpy(rank->losses, parallel->losses, sizeof rank->losses);
    }
    if (parallel) parallel->ops->destroy(parallel);
    ls_model_destroy(model);
    return status;
}

/* --- setup of the ranks -------------------------------------------------------------------------------------------- */

static void draw_ranks(probe *p, struct job *job, size_t inputs, int classes) {
    for (int r = 0; r < job->ranks; r++) {
        struct rank *rank = &job->rank[r];
        rank->x = malloc(STEPS * MOST_ROWS * inputs * sizeof(float));
        rank->state = calloc(MOST_STATE, sizeof(float));
        if (!rank->x || !rank->state) probe_must(p, "memory", LS_ERR_NO_MEMORY);
        probe_draw_floats(p, rank->x, STEPS * MOST_ROWS * inputs);
        for (int i = 0; i < STEPS * MOST_ROWS; i++) rank->labels[i] = (int64_t)probe_draw(p, (uint64_t)classes);
        for (int s = 0; s <= STEPS; s++) rank->before[s] = 1 + (size_t)probe_draw(p, 9);
    }
}

static void run(probe *p, struct job *job, const char *streams) {
    bool large = strcmp(job->model, "convnet") == 0;
    ls_set_wait_timeout_s(CREW_TIMEOUT_S);
    draw_ranks(p, job, large ? 784 : 8, large ? 10 : 4);
    probe_must(p, "the ranks", crew_run(job->ranks, "direct", streams, play, job));
}

static void release(struct job *job) {
    for (int r = 0; r < job->ranks; r++) {
        free(job->rank[r].x);
        free(job->rank[r].state);
    }
}

/* Each rank ends at a step of its own, and may have no sample in an earlier one. At least one rank has a sample. */
static void draw_counts(probe *p, struct job *job) {
    int end[MOST_RANKS];
    for (int r = 0; r < job->ranks; r++) end[r] = 1 + (int)probe_draw(p, STEPS - 1);
    for (int s = 0; s < STEPS; s++) {
        int alive = 0, last = 0;
        int64_t samples = 0;
        for (int r = 0; r < job->ranks; r++) {
            job->counts[s][r] = s < end[r] ? (int64_t)probe_draw(p, MOST_ROWS + 1) : NONE;
            if (s >= end[r]) continue;
            alive++;
            last = r;
            samples += job->counts[s][r];
        }
        if (alive > 0 && samples == 0) job->counts[s][last] = 1;
    }
}

/* As "2 0 - 1": each rank's samples in the step, or that it has run out. */
static void write_counts(char *text, size_t capacity, const struct job *job, int step) {
    size_t at = 0;
    for (int r = 0; r < job->ranks; r++) {
        int64_t count = step < STEPS ? job->counts[step][r] : NONE;
        if (count == NONE)
            at += (size_t)snprintf(text + at, capacity - at, " -");
        else
            at += (size_t)snprintf(text + at, capacity - at, " %lld", (long long)count);
    }
}

/* All ranks have samples; one runs out; one has none in this step, but more later; then the last ones. */
static struct job fixed(int ranks) {
    struct job job = {.model = "mlp:8,6,4", .ranks = ranks, .join = {.enable = true}};
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < ranks; r++) {
            bool first = r == 0, last = r == ranks - 1;
            job.counts[s][r] = s == 0 ? 1 + r % MOST_ROWS : s == 1 ? (last ? NONE : 2) : NONE;
            if (ranks == 2 && s == 2) job.counts[s][r] = NONE;
            if (ranks > 2 && s == 2) job.counts[s][r] = last ? NONE : first ? 1 : 0;
            if (ranks > 2 && s == 3) job.counts[s][r] = first ? 3 : NONE;
        }
    return job;
}

/* As many ranks as in the largest job of a sheet, and more: they run out from the last to the first, and in each step
 * every third of the others has no sample. */
static struct job many(void) {
    struct job job = {.model = "mlp:8,6,4", .ranks = MOST_RANKS, .join = {.enable = true}};
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < MOST_RANKS; r++) job.counts[s][r] = r < MOST_RANKS - 3 * s ? (r + 2 * s) % MOST_ROWS : NONE;
    return job;
}

/* Counts that 16 or 32 bits turn into another number, 0, a negative one, or the mark of a rank that has run out. */
static struct job large(void) {
    static const int64_t counts[STEPS][3] = {{40000, 70000, 65535},
                                             {3000000000, 3000000000, 65536},
                                             {(int64_t)1 << 32, 1, 0},
                                             {((int64_t)1 << 32) - 1, (int64_t)1 << 31, NONE},
                                             {((int64_t)1 << 24) + 1, NONE, NONE},
                                             {NONE, NONE, NONE}};
    struct job job = {.model = "mlp:8,6,4", .ranks = 3, .join = {.enable = true}};
    for (int s = 0; s < STEPS; s++) memcpy(job.counts[s], counts[s], sizeof counts[s]);
    return job;
}

typedef void see_rank(probe *p, const struct rank *rank, int r, int step);

/* One job, step by step, each as a case of its own. */
static void see_job(probe *p, struct job *job, const char *words, see_rank *see) {
    char counts[12 * MOST_RANKS + 1];
    probe_case(p, "W = %d%s", job->ranks, words);
    run(p, job, "inline");
    for (int s = 0; s <= STEPS; s++) {
        bool played = false;
        for (int r = 0; r < job->ranks; r++) played = played || s < job->rank[r].steps;
        if (!played) break;
        write_counts(counts, sizeof counts, job, s);
        probe_case(p, "W = %d%s, step %d: the ranks have%s samples (-: run out)", job->ranks, words, s, counts);
        for (int r = 0; r < job->ranks; r++)
            if (s < job->rank[r].steps) see(p, &job->rank[r], r, s);
    }
    release(job);
}

/* Only a few jobs, since each step needs a barrier, which is slow on a busy machine. */
static void see_jobs(probe *p, bool initial, see_rank *see) {
    const char *words = initial ? ", divided by the initial ranks" : "";
    for (int ranks = 1; ranks <= 4; ranks++) {
        struct job job = fixed(ranks);
        job.join.divide_by_initial_world_size = initial;
        see_job(p, &job, words, see);
    }
    for (int again = 0; again < 4; again++) {
        struct job job = {.model = "mlp:8,6,4", .ranks = 2 + (int)probe_draw(p, DRAWN_RANKS - 1)};
        job.join = (ddp_join_options){.enable = true, .divide_by_initial_world_size = initial};
        draw_counts(p, &job);
        see_job(p, &job, words, see);
    }
    struct job jobs[] = {many(), large()};
    for (int i = 0; i < 2; i++) {
        jobs[i].join.divide_by_initial_world_size = initial;
        see_job(p, &jobs[i], words, see);
    }
}

/* --- the checks ---------------------------------------------------------------------------------------------------- */

static void see_count(probe *p, const struct rank *rank, int r, int s) {
    probe_see(p, probe_name(p, "rank %d's join", r), "%s", ls_status_text(rank->status[s]));
    probe_see(p, probe_name(p, "whether rank %d hears that anyone goes on", r), "%s", rank->anyone[s] ? "yes" : "no");
    if (rank->anyone[s]) probe_see(p, probe_name(p, "the step's samples on rank %d", r), "%lld", rank->count[s]);
}

void joined_counts(probe *p) {
    see_jobs(p, false, see_count);
    for (int ranks = 2; ranks <= 3; ranks++) { /* the first that has run out ends the run */
        struct job job = fixed(ranks);
        job.join.throw_on_early_termination = true;
        job.counts[0][ranks - 1] = 0;
        see_job(p, &job, ", --join-throw", see_count);
    }
}

static void see_weight(probe *p, const struct rank *rank, int r, int s) {
    if (rank->anyone[s]) probe_see(p, probe_name(p, "gradient_weight on rank %d", r), "%d", rank->weight[s]);
}

void joined_weight(probe *p) {
    see_jobs(p, true, see_weight);
    struct job job = fixed(3);
    see_job(p, &job, ", divided by the active ranks", see_weight);
}

static void see_root(probe *p, const struct rank *rank, int r, int s) {
    probe_see(p, probe_name(p, "whose buffers count on rank %d", r), "rank %d's", rank->root[s]);
}

static void see_state(probe *p, const struct job *job) {
    for (int r = 0; r < job->ranks; r++) {
        const struct rank *rank = &job->rank[r];
        probe_see(p, probe_name(p, "rank %d's steps", r), "%d", rank->steps - 1);
        probe_see_floats(p, probe_name(p, "rank %d's losses", r), rank->losses, STEPS);
        probe_see_floats(p, probe_name(p, "rank %d's weights and buffers", r), rank->state, rank->state_count);
        probe_see(p, probe_name(p, "rank %d's batches tracked", r), "%lld", (long long)rank->tracked);
    }
}

void joined_buffers(probe *p) {
    see_jobs(p, false, see_root);
    struct job job = fixed(3); /* a model with batch norm: where its statistics come from, at the end, too */
    job.model = "convnet";
    job.trains = true;
    probe_case(p, "W = 3, convnet");
    run(p, &job, "inline");
    see_state(p, &job);
    release(&job);
}

static void train_case(probe *p, struct job *job, const char *streams) {
    job->trains = true;
    probe_case(p, "W = %d, divided by the %s ranks, streams %s", job->ranks,
               job->join.divide_by_initial_world_size ? "initial" : "active", streams);
    run(p, job, streams);
    see_state(p, job);
    release(job);
}

void joined_trained(probe *p) {
    char streams[40];
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int initial = 0; initial < 2; initial++) {
            struct job job = fixed(ranks);
            job.join.divide_by_initial_world_size = initial > 0;
            train_case(p, &job, "inline");
        }
    for (int again = 0; again < 4; again++) {
        struct job job = {.model = "mlp:8,6,4", .ranks = 2 + (int)probe_draw(p, 3)};
        job.join = (ddp_join_options){.enable = true, .divide_by_initial_world_size = again % 2 > 0};
        draw_counts(p, &job);
        snprintf(streams, sizeof streams, "shuffle:%d", (int)probe_draw(p, 1000000));
        train_case(p, &job, streams);
    }
}
