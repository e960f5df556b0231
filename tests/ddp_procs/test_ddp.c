/* DistributedDataParallel on forked ranks: the checks and broadcasts of its construction, when buffers are broadcast,
 * and the effect of no_sync on a step. tests/parallel checks that its bits are right. */
#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/flag.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/inside.h"
#include "tests/ddp_procs/job.h"

/* --- construction ------------------------------------------------------------------------------------------------ */

static void shares_rank(struct rank *rank) {
    struct job job;
    job_open(rank, &job, job_plan("convnet", 3, 3, 30), NULL);
    ls_model *first; /* rank 0's weights are those of seed 0, the others begin with another seed */
    CHECK(ls_model_create(&first, job.session.devices[0], "convnet", 1, LS_FP32) == LS_OK);
    CHECK(ls_model_init(first, 0) == LS_OK);
    float *expected, *got;
    size_t count;
    ls_model_state(first, &expected, &count);
    ls_model_state(job.session.model, &got, &count);
    CHECK(memcmp(expected, got, count * sizeof *got) == 0);
    ls_model_destroy(first);
    job_close(rank, &job);
}

TEST(everybody_starts_with_the_state_of_rank_0) { run_training_ranks(3, shares_rank, NULL); }

struct misfit {
    const char *models[3], *text;
};

static void misfit_rank(struct rank *rank) {
    const struct misfit *misfit = rank->argument;
    struct plan plan = job_plan(misfit->models[rank->rank], 3, 3, 3);
    ls_comm *comm;
    struct session session;
    CHECK(group_open(&comm, rank, "naive") == LS_OK);
    CHECK(session_open(&session, &plan, comm) == LS_ERR_INVALID);
    CHECK(strstr(rank->message, misfit->text) != NULL);
    CHECK(session.parallel == NULL);
    ls_comm_destroy(comm);
}

TEST(models_that_differ_are_refused_on_every_rank) {
    static const struct misfit misfits[] = {
        {{"mlp:8,4", "mlp:8,4", "mlp:8,4,4"}, "rank 0 has 2 parameters and rank 2 has 4"},
        {{"mlp:8,4", "mlp:8,4,4,2", "mlp:8,4"}, "rank 0 has 2 parameters and rank 1 has 6"},
        {{"mlp:8,6,4", "mlp:8,5,4", "mlp:8,6,4"}, "the shape of fc1.weight on rank 1"},
        {{"mlp:8,6,4", "mlp:8,6,4", "mlp:8,6,5"}, "the shape of fc2.weight on rank 2"},
    };
    for (size_t m = 0; m < sizeof misfits / sizeof *misfits; m++) run_training_ranks(3, misfit_rank, &misfits[m]);
}

/* One rank without memory reports it, and the others are informed; no rank waits for ever. */
static void poor_rank(struct rank *rank) {
    bool poor = rank->rank == 1;
    ls_flag *told = *(ls_flag *const *)rank->argument;
    ls_device *device;
    ls_device_options options = {
        .kind = LS_DEVICE_CPU, .devices_on_node = 2, .memory_capacity_bytes = poor ? 60000 : 0};
    ls_model *model;
    ls_comm *comm;
    ls_parallel *parallel;
    CHECK(group_open(&comm, rank, "naive") == LS_OK);
    CHECK(ls_device_open(&device, &options) == LS_OK);
    CHECK(ls_model_create(&model, device, "mlp:100,100", 1, LS_FP32) == LS_OK);
    CHECK(ls_model_init(model, 0) == LS_OK);
    ddp_options ddp = {.comm = comm, .max_batch = 1, .reducer = {.bucket_cap_mb = 25, .overlap = true}};
    ddp.optimizer = ls_optimizer_defaults(LS_SGD);
    ls_status status = ddp_create(&parallel, model, &ddp);
    CHECK(status == (poor ? LS_ERR_NO_MEMORY : LS_ERR_PEER));
    CHECK(parallel == NULL);
    /* the poor rank leaves only after the other one has the message, which must not result from its leaving */
    if (!poor) ls_flag_raise(told);
    if (poor) CHECK(ls_flag_wait(told, 1, 0, ls_now_us() + 10e6));
    CHECK(strstr(rank->message, poor ? "device 0 is out of memory" : "rank 1") != NULL);
    ls_model_destroy(model);
    ls_memory_report memory;
    ls_device_memory(device, &memory);
    CHECK(memory.current_total_bytes == 0);
    ls_device_close(device);
    ls_comm_destroy(comm);
}

TEST(a_rank_that_cannot_build_stops_the_others) {
    ls_flag *told = shared_alloc(sizeof *told);
    assert_non_null(told);
    run_training_ranks(2, poor_rank, &told);
    shared_free(told, sizeof *told);
}

/* --- buckets of a built-in model --------------------------------------------------------------------------------- */

/* 25 MiB are full after seven layers of 1024 x 1024. */
static void deep_rank(struct rank *rank) {
    struct job job;
    struct plan plan = job_plan("deep", 2, 2, 8);
    plan.steps = 2;
    job_open(rank, &job, plan, NULL);
    const ddp_reducer *reducer = reducer_of(job.session.parallel);
    size_t layer = 1025 * 1024 * 4, first = 785 * 1024 * 4, last = 1025 * 10 * 4;
    CHECK(bucket_count(reducer) == 1);
    CHECK(bucket_nbytes(reducer, 0) == first + 15 * layer + last);
    job_step(rank, &job, 0);
    CHECK(bucket_count(reducer) == 1);
    job_step(rank, &job, 1);
    const size_t expected[] = {last + layer, 7 * layer, 7 * layer, first};
    CHECK(bucket_count(reducer) == 4);
    for (size_t b = 0; b < 4; b++) CHECK(bucket_nbytes(reducer, b) == expected[b]);
    job_close(rank, &job);
}

TEST(deep_has_several_buckets) { run_training_ranks(2, deep_rank, NULL); }

/* --- buffers ----------------------------------------------------------------------------------------------------- */

/* Makes this rank's running mean unmistakable, trains a step, and returns whether rank 0's arrived before the
 * forward. */
static bool buffers_came(const struct rank *rank, struct job *job, size_t k, bool sync) {
    const struct ls_tensor *mean = ls_model_buffer(job->session.model, 0);
    job->session.parallel->no_sync = !sync;
    if (rank->rank > 0) mean->data[0] = 1000;
    if (sync) {
        job_step(rank, job, k);
    } else {
        job_gradients(rank, job, k);
    }
    return rank->rank > 0 && fabsf(mean->data[0]) < 100;
}

/* Buffers are broadcast before a forward unless the previous pass was not a synchronised training forward. */
static void buffers_rank(struct rank *rank) {
    struct job job;
    bool mine = rank->rank > 0;
    job_open(rank, &job, job_plan("convnet", 2, 4, 100), NULL);
    ls_parallel *p = job.session.parallel;
    CHECK(buffers_came(rank, &job, 0, true) == mine);
    CHECK(buffers_came(rank, &job, 1, true) == mine);
    CHECK(p->process->before_evaluation(p) == LS_OK);
    float own = ls_model_buffer(job.session.model, 0)->data[0];
    double sum = (double)own;
    CHECK(p->process->sum_over_ranks(p, &sum, 1) == LS_OK);
    CHECK(sum == 2 * (double)own); /* the same on both ranks now */
    CHECK(!buffers_came(rank, &job, 2, true));
    CHECK(buffers_came(rank, &job, 3, true) == mine);
    CHECK(buffers_came(rank, &job, 4, false) == mine); /* no_sync: the previous forward was synchronised */
    CHECK(!buffers_came(rank, &job, 5, true));
    CHECK(buffers_came(rank, &job, 0, true) == mine);
    job_close(rank, &job);
}

TEST(buffers_travel_after_synchronised_training_forwards) { run_training_ranks(2, buffers_rank, NULL); }

/* --- no_sync ----------------------------------------------------------------------------------------------------- */

/* Two halves of a batch, the first without reduction, give the gradients of the whole. */
static void halves_rank(struct rank *rank) {
    struct plan plan = job_plan("mlp:20,8,4", 2, 8, 48);
    plan.optimizer.learning_rate = 0; /* an update only ends the accumulation */
    struct job job;
    job_open(rank, &job, plan, NULL);
    ls_model *model = job.session.model;
    job_step(rank, &job, 0);
    float whole[4][160];
    for (size_t p = 0; p < 4; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        memcpy(whole[p], tensor->gradient, tensor->count * sizeof(float));
    }
    ls_batch half = job.samples.batches[0], rest = half;
    half.count = rest.count = half.count / 2;
    rest.inputs = (const float *)rest.inputs + half.count * 20;
    rest.labels += half.count;
    job.session.parallel->no_sync = true;
    CHECK(ls_step_gradients(job.session.parallel, &half) == LS_OK);
    CHECK(session_synchronize(&job.session) == LS_OK);
    CHECK(memcmp(whole[0], ls_model_parameter(model, 0)->gradient, sizeof whole[0]) != 0);
    job.session.parallel->no_sync = false;
    CHECK(ls_step_gradients(job.session.parallel, &rest) == LS_OK);
    CHECK(session_synchronize(&job.session) == LS_OK);
    for (size_t p = 0; p < 4; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        for (size_t i = 0; i < tensor->count; i++) {
            CHECK(fabs((double)tensor->gradient[i] - (double)whole[p][i]) <= 1e-6);
        }
    }
    job_close(rank, &job);
}

TEST(halves_add_up_without_synchronising_the_first) { run_training_ranks(2, halves_rank, NULL); }

/* A step whose gradients stay local lets the ranks drift apart; a comparison reports it on all of them. */
static void drift_rank(struct rank *rank) {
    struct job job;
    job_open(rank, &job, job_plan("mlp:20,8,4", 3, 9, 54), NULL);
    job_step(rank, &job, 0);
    CHECK(ddp_compare_state(ddp_of(job.session.parallel), false) == LS_OK);
    job.session.parallel->no_sync = true;
    job_step(rank, &job, 1);
    CHECK(ddp_compare_state(ddp_of(job.session.parallel), false) == LS_ERR_INVALID);
    job_close(rank, &job);
}

TEST(drifting_ranks_are_noticed) { run_training_ranks(3, drift_rank, NULL); }

/* The gradients of an earlier step are not used again: after the update, the next backward overwrites them. */
static void empty_rank(struct rank *rank) {
    struct job job;
    job_open(rank, &job, job_plan("mlp:20,8,4", 4, 9, 30),
             NULL); /* 9 samples on 4 ranks: 3 3 3 0; the last batch: 1 1 1 0 */
    for (size_t k = 0; k < 4; k++) {
        job.session.parallel->no_sync = k == 1; /* also without reduction */
        job_gradients(rank, &job, k);
        if (k == 1) {
            for (size_t i = 0; rank->rank == 3 && i < 160; i++) {
                CHECK(ls_model_parameter(job.session.model, 0)->gradient[i] == 0);
            }
            continue;
        }
        CHECK(ls_step_update(job.session.parallel) == LS_OK);
        CHECK(ddp_compare_state(ddp_of(job.session.parallel), false) == LS_OK);
    }
    job_close(rank, &job);
}

TEST(empty_shards_give_zero_gradients) { run_training_ranks(4, empty_rank, NULL); }
