/* Parameters that are unused in a step: rejected by name, or with find_unused averaged with the ranks that have used
 * them and otherwise left unchanged. */
#include <math.h>
#include <string.h>

#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/ddp_procs/inside.h"
#include "tests/ddp_procs/job.h"
#include "tests/ddp_procs/unused.h"
#include "tests/parallel/seeds.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SEEDS = 3 };
#else
enum { SEEDS = 40 };
#endif

static struct plan make(const char *model, int ranks, size_t batch) {
    struct plan plan = job_plan(model, ranks, batch, 200);
    plan.find_unused = true;
    return plan;
}

/* --- PyTorch's number -------------------------------------------------------------------------------------------- */

/* One weight whose gradient is 1 where it is used, and a bias that all ranks use. */
static void golden_rank(struct rank *rank) {
    struct job job;
    job_open(rank, &job, make("mlp:1,1", 2, 2), NULL);
    set_unused(rank, job.session.model, 0, rank->rank == 1);
    ls_model *model = job.session.model;
    for (int turn = 0; turn < 3; turn++) {
        const struct ls_tensor *weight = ls_model_parameter(model, 0);
        float x = 1, dy = 1;
        ddp_reducer *reducer = reducer_of(job.session.parallel);
        weight->gradient[0] = 99; /* a value that an earlier step has left is ignored */
        CHECK(ddp_reducer_arm(reducer, true, 1) == LS_OK);
        (void)ls_model_forward(model, &x, 1, true);
        ls_model_backward(model, &dy, false);
        CHECK(ddp_reducer_finish(reducer) == LS_OK);
        CHECK(session_synchronize(&job.session) == LS_OK);
        CHECK(weight->gradient[0] == 0.5f);
        CHECK(ls_model_parameter(model, 1)->gradient[0] == 1);
        CHECK(ddp_reducer_unused(reducer) == NULL);
    }
    job_close(rank, &job);
}

TEST(used_on_one_of_two_ranks_gives_half) { run_training_ranks(2, golden_rank, NULL); }

/* --- averages, for any pattern of use ----------------------------------------------------------------------------- */

enum { PARAMETERS = 6 }; /* of mlp:12,8,6,4 */

/* Different ranks use different parameters in each step; in step 2 none uses parameter 3. */
static bool is_unused(int rank, size_t k, size_t parameter) {
    if (k == 2 && parameter == 3) return true;
    return ((size_t)rank * 5 + k * 3 + parameter * 7) % 4 == 0 && parameter != 3;
}

/* The expected gradient: the mean over the ranks of each rank's own gradient, or zero. */
static void expect_average(const struct rank *rank, const struct job *job, ls_model *plain, size_t k) {
    static float sum[PARAMETERS][12 * 8];
    memset(sum, 0, sizeof sum);
    for (int other = 0; other < rank->world_size; other++) {
        struct samples samples;
        float dy[64];
        const float *y;
        float loss;
        CHECK(samples_make(&samples, &job->plan, plain, other, rank->world_size));
        const ls_batch *batch = &samples.batches[k];
        ls_stream *compute = ls_device_stream(job->session.devices[0], LS_STREAM_COMPUTE);
        struct ls_answers answers = {.labels = batch->labels};
        y = ls_model_forward(plain, batch->inputs, batch->count, true);
        ls_loss(LS_LOSS_CROSS_ENTROPY, compute, &loss, dy, y, answers, batch->count, 4, 1.0 / (double)batch->count);
        ls_model_backward(plain, dy, false);
        for (size_t p = 0; p < PARAMETERS; p++) {
            const struct ls_tensor *tensor = ls_model_parameter(plain, p);
            for (size_t i = 0; i < tensor->count && !is_unused(other, k, p); i++) sum[p][i] += tensor->gradient[i];
        }
        samples_free(&samples);
    }
    for (size_t p = 0; p < PARAMETERS; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(job->session.model, p);
        for (size_t i = 0; i < tensor->count; i++) {
            double expected = (double)sum[p][i] / rank->world_size;
            CHECK(fabs((double)tensor->gradient[i] - expected) <= 1e-6);
        }
    }
}

static void pattern_rank(struct rank *rank) {
    struct job job;
    struct plan plan = make("mlp:12,8,6,4", 3, 12);
    plan.bucket_cap_mb = 0.0002;
    job_open(rank, &job, plan, NULL);
    ls_model *model = job.session.model, *plain;
    ls_parallel *p = job.session.parallel;
    CHECK(ls_model_create(&plain, job.session.devices[0], "mlp:12,8,6,4", 4, LS_FP32) == LS_OK);
    CHECK(ls_model_alloc_gradients(plain) == LS_OK);
    for (size_t k = 0; k < plan.steps; k++) {
        float *weights, *copy;
        size_t count;
        ls_model_state(model, &weights, &count);
        ls_model_state(plain, &copy, &count);
        memcpy(copy, weights, count * sizeof *copy);
        for (size_t t = 0; t < PARAMETERS; t++) set_unused(rank, job.session.model, t, is_unused(rank->rank, k, t));
        job_gradients(rank, &job, k);
        expect_average(rank, &job, plain, k);
        const bool *unused = ddp_reducer_unused(reducer_of(p));
        CHECK((unused != NULL) == (k == 2));
        for (size_t t = 0; unused && t < PARAMETERS; t++) CHECK(unused[t] == (t == 3));
        CHECK(ls_step_update(p) == LS_OK);
        CHECK(session_synchronize(&job.session) == LS_OK);
        for (size_t t = 0; t < PARAMETERS; t++) {
            const struct ls_tensor *after = ls_model_parameter(model, t), *before = ls_model_parameter(plain, t);
            bool same = memcmp(after->data, before->data, after->count * sizeof(float)) == 0;
            CHECK(same == (k == 2 && t == 3));
        }
        CHECK(ddp_compare_state(ddp_of(p), false) == LS_OK);
    }
    ls_model_destroy(plain);
    job_close(rank, &job);
}

TEST(each_step_averages_what_was_used) { run_training_ranks(3, pattern_rank, NULL); }

/* A parameter that no rank has used is unchanged, also by weight decay, and its moments too. If it is first used later,
 * it then takes Adam's first step. */
static void alone_rank(struct rank *rank) {
    struct job job;
    struct plan plan = make("mlp:12,8,6,4", 2, 8);
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    plan.optimizer.learning_rate = 0.01;
    plan.optimizer.weight_decay = 0.1;
    job_open(rank, &job, plan, NULL);
    const struct ls_tensor *bias = ls_model_parameter(job.session.model, 3);
    const float *moment = ls_optimizer_moment(job.session.parallel->optimizer, 0, 3);
    float before[6];
    set_unused(rank, job.session.model, 3, true);
    memcpy(before, bias->data, sizeof before);
    for (size_t k = 0; k < 2; k++) job_step(rank, &job, k);
    CHECK(memcmp(before, bias->data, sizeof before) == 0);
    for (size_t i = 0; i < 6; i++) CHECK(moment[i] == 0);
    set_unused(rank, job.session.model, 3, false);
    job_step(rank, &job, 2);
    for (size_t i = 0; i < 6; i++) { /* Adam's first step: the learning rate, in the direction of the gradient */
        CHECK(fabsf(fabsf(bias->data[i] - before[i]) - 0.01f) <= 1e-5f);
    }
    set_unused(rank, job.session.model, 3, true);
    memcpy(before, bias->data, sizeof before);
    job_step(rank, &job, 3);
    CHECK(memcmp(before, bias->data, sizeof before) == 0);
    job_close(rank, &job);
}

TEST(what_nobody_uses_is_left_alone) {
    run_training_ranks(2, alone_rank, NULL);
    run_training_ranks(1, alone_rank, NULL);
}

/* A parameter that is used in the half without reduction counts as used: its gradient is kept for the reduction. */
static void no_sync_rank(struct rank *rank) {
    struct job job;
    job_open(rank, &job, make("mlp:12,8,6,4", 2, 8), NULL);
    ls_parallel *p = job.session.parallel;
    const struct ls_tensor *bias = ls_model_parameter(job.session.model, 5);
    for (int turn = 0; turn < 2; turn++) {
        bool first_half = turn == 0; /* the half in which it is used; the other half leaves its gradient unchanged */
        p->no_sync = true;
        set_unused(rank, job.session.model, 5, !first_half);
        job_gradients(rank, &job, 0);
        float own = bias->gradient[0];
        CHECK((own != 0) == first_half);
        p->no_sync = false;
        set_unused(rank, job.session.model, 5, first_half);
        job_gradients(rank, &job, first_half ? 1 : 0);
        CHECK(ddp_reducer_unused(reducer_of(p)) == NULL);
        double sum = (double)own;
        CHECK(p->process->sum_over_ranks(p, &sum, 1) == LS_OK);
        if (first_half) CHECK(fabs((double)bias->gradient[0] - sum / 2) <= 1e-7);
        CHECK(bias->gradient[0] != 0);
        CHECK(ls_step_update(p) == LS_OK);
    }
    set_unused(rank, job.session.model, 5, true); /* now unused on all ranks since the last reduction */
    job_step(rank, &job, 2);
    CHECK(ddp_reducer_unused(reducer_of(p)) != NULL);
    job_close(rank, &job);
}

TEST(used_before_the_reduction_counts) { run_training_ranks(2, no_sync_rank, NULL); }

/* A rank without samples uses nothing, and does not prevent use by others. */
static void empty_rank(struct rank *rank) {
    struct job job;
    job_open(rank, &job, make("mlp:12,8,6,4", 3, 4), NULL); /* 4 samples on 3 ranks: 2 2 0 */
    const ls_batch *batch = &job.samples.batches[0];
    CHECK((batch->count == 0) == (rank->rank == 2));
    if (rank->rank < 2) set_unused(rank, job.session.model, 2, true); /* unused on both ranks that have samples */
    job_step(rank, &job, 0);
    const bool *unused = ddp_reducer_unused(reducer_of(job.session.parallel));
    CHECK(unused && unused[2] && !unused[0] && !unused[3]);
    CHECK(ddp_compare_state(ddp_of(job.session.parallel), false) == LS_OK);
    job_close(rank, &job);
}

TEST(a_rank_without_samples_uses_nothing) { run_training_ranks(3, empty_rank, NULL); }

/* --- buckets ----------------------------------------------------------------------------------------------------- */

/* PyTorch's rule for find_unused, in the order of the definition: six layers 512-512 and one 512-10, limits of 1 and 2
 * MiB. */
static void buckets_rank(struct rank *rank) {
    struct job job;
    struct plan plan = make("mlp:512,512,512,512,512,512,512,10", 2, 2);
    plan.bucket_cap_mb = 2;
    job_open(rank, &job, plan, NULL);
    const size_t weight = 512 * 512 * 4, bias = 512 * 4, last = 512 * 10 * 4 + 10 * 4;
    const size_t expected[] = {bias + weight + bias + last, 2 * (bias + weight), 2 * (bias + weight), weight};
    for (size_t k = 0; k < 3; k++) {
        const ddp_reducer *reducer = reducer_of(job.session.parallel);
        CHECK(bucket_count(reducer) == 4);
        for (size_t b = 0; b < 4; b++) CHECK(bucket_nbytes(reducer, b) == expected[b]);
        job_step(rank, &job, k);
    }
    job_close(rank, &job);
}

TEST(buckets_keep_the_order_of_the_definition) { run_training_ranks(2, buckets_rank, NULL); }

/* --- without find_unused, or where it is not needed --------------------------------------------------------------- */

/* The rank that misses the parameter names it in the same step; the others name that rank. */
static void missing_rank(struct rank *rank) {
    struct job job;
    struct plan plan = make("mlp:12,8,6,4", 2, 8);
    plan.find_unused = false;
    plan.bucket_cap_mb = 0.0001;
    job_open(rank, &job, plan, NULL);
    job_step(rank, &job, 0); /* from the next step on the buckets are in order of readiness */
    set_unused(rank, job.session.model, 2, rank->rank == 1);
    set_unused(rank, job.session.model, 3, rank->rank == 1);
    ls_status status = ls_step_gradients(job.session.parallel, &job.samples.batches[1]);
    if (rank->rank == 1) {
        CHECK(status == LS_ERR_INVALID);
        CHECK(strstr(rank->message,
                     "2 parameters got no gradient: fc2.weight fc2.bias; bucket 2 of 3 and all after it wait") != NULL);
        CHECK(strstr(rank->message, "--find-unused") != NULL);
        ls_comm_abort(job.plan.groups.job, "a step failed");
    } else {
        ls_status done = session_synchronize(&job.session);
        CHECK((status != LS_OK ? status : done) == LS_ERR_PEER);
        CHECK(strstr(rank->message, "rank 1") != NULL);
    }
    job_close(rank, &job);
}

TEST(a_missing_gradient_is_named_in_its_step) { run_training_ranks(2, missing_rank, NULL); }

/* One warning of the main rank, if everything was used in all of the first ten steps. */
static void warning_rank(struct rank *rank) {
    bool needed = rank->argument != NULL;
    struct job job;
    stderr_begin();
    job_open(rank, &job, make("mlp:12,8,6,4", 2, 8), NULL);
    for (size_t k = 0; k < 25; k++) {
        set_unused(rank, job.session.model, 3, needed && k == 5 && rank->rank == 1);
        job_step(rank, &job, k % job.plan.steps);
        if (k == 8) CHECK(count_text(stderr_end(), "warning") == 0), stderr_begin();
    }
    CHECK(count_text(stderr_end(), "leave --find-unused out") == (rank->rank == 0 && !needed ? 1 : 0));
    job_close(rank, &job);
}

TEST(a_waste_is_warned_of_once) {
    run_training_ranks(2, warning_rank, NULL);
    run_training_ranks(2, warning_rank, "used for something");
}

/* --- every order of the streams ---------------------------------------------------------------------------------- */

static uint64_t state_after(struct rank *rank, ls_comm *comm, const char *streams) {
    struct job job;
    struct plan plan = make("mlp:12,8,6,4", 2, 8);
    uint64_t weights, state;
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    plan.bucket_cap_mb = 0.0002;
    plan.streams = streams;
    job_open(rank, &job, plan, comm);
    for (size_t k = 0; k < plan.steps; k++) {
        for (size_t t = 0; t < PARAMETERS; t++) set_unused(rank, job.session.model, t, is_unused(rank->rank, k, t));
        CHECK(session_step(&job.session, &job.samples.batches[k]) == LS_OK);
    }
    CHECK(session_hash(&job.session, &weights, &state) == LS_OK);
    job_close(rank, &job);
    return state;
}

static void shuffled_rank(struct rank *rank) { expect_same_bits_in_any_order(rank, SEEDS, state_after); }

TEST(every_order_gives_the_same_bits) { run_training_ranks(2, shuffled_rank, NULL); }
