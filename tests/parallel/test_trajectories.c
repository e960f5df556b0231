/* DataParallel and DistributedDataParallel against PyTorch's recorded runs: gradients from stored states, and the
 * losses of whole runs through the training loop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/comm/allreduce.h"
#include "common/train/loop.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/checkpoint/stored.h"
#include "tests/parallel/plan.h"

static struct plan mlp_plan(enum mode mode, int devices) {
    struct plan plan = {.mode = mode, .devices = devices, .model = "mlp", .batch = 64, .stored = "train_mlp_adam_w1"};
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    plan.state = "before.";
    plan.steps = 40;
    return plan;
}

static struct plan convnet_plan(enum mode mode, int devices, const char *stored) {
    struct plan plan = {.mode = mode, .devices = devices, .model = "convnet", .batch = 100, .stored = stored};
    plan.optimizer = ls_optimizer_defaults(LS_SGD);
    plan.optimizer.learning_rate = 0.01;
    plan.optimizer.momentum = 0.9;
    plan.strided = mode == MODE_DDP;
    plan.state = "before.";
    plan.steps = 15;
    return plan;
}

/* --- gradients ----------------------------------------------------------------------------------------------------- */

static const char *look_run, *look_prefix;

static void look_at_gradients(struct session *s, struct outcome *o) {
    o->gradient_error = stored_gradient_error(look_run, look_prefix, s->model);
}

static void expect_gradients_at(struct plan plan, size_t step, const char *state, const char *gradients) {
    struct outcome *outcomes = shared_alloc(MAX_RANKS * sizeof *outcomes);
    assert_non_null(outcomes);
    plan.state = state;
    plan.first_step = step;
    plan.steps = 1;
    look_run = plan.stored;
    look_prefix = gradients;
    run_plan(&plan, outcomes, look_at_gradients);
    for (int r = 0; r < plan_ranks(&plan); r++) {
        assert_int_equal(outcomes[r].status, LS_OK);
        double error = outcomes[r].gradient_error;
        if (!(error <= 1e-4)) fail_msg("%s, %d devices, rank %d: off by %g", gradients, plan.devices, r, error);
    }
    shared_free(outcomes, MAX_RANKS * sizeof *outcomes);
}

static void expect_gradients(struct plan plan) {
    expect_gradients_at(plan, 0, "before.", "step0.grad.");
    expect_gradients_at(plan, 5, "step5.state.", "step5.grad.");
}

TEST(mlp_gradients_are_those_of_the_whole_batch) {
    for (int devices = 1; devices <= 4; devices *= 2) {
        expect_gradients(mlp_plan(MODE_DP, devices));
        expect_gradients(mlp_plan(MODE_DDP, devices));
    }
}

TEST(convnet_gradients_are_pytorchs) {
    expect_gradients(convnet_plan(MODE_DP, 1, "train_convnet_sgd_w1"));
    expect_gradients(convnet_plan(MODE_DDP, 1, "train_convnet_sgd_w1"));
    expect_gradients(convnet_plan(MODE_DP, 4, "train_convnet_sgd_w4_dp"));
    expect_gradients(convnet_plan(MODE_DDP, 4, "train_convnet_sgd_w4_ddp"));
}

/* --- whole runs ---------------------------------------------------------------------------------------------------- */

struct training {
    const struct plan *plan;
    const char *losses;
    struct outcome *outcomes; /* shared memory; weights[0] and losses[0] (the accuracy) after the run */
};

static void train(struct rank *rank) {
    const struct training *t = rank->argument;
    const struct plan *plan = t->plan;
    struct outcome *o = &t->outcomes[rank->rank];
    ls_train_options options = ls_train_defaults();
    options.model = plan->model;
    options.batch_size = (int64_t)plan->batch;
    options.steps = (int64_t)plan->steps;
    if (plan->accumulate > 0) options.accumulate = plan->accumulate;
    options.learning_rate = plan->optimizer.learning_rate; /* the loop sets it */
    options.shuffle = false;
    options.drop_last = true;
    options.dump_losses = t->losses;
    options.quiet = true;
    ls_comm *comm = NULL;
    struct session session;
    ls_dataset *data = NULL, *test = NULL;
    ls_train_result result;
    if (plan->mode == MODE_DDP) CHECK(group_open(&comm, rank, plan->allreduce) == LS_OK);
    CHECK(session_open(&session, plan, comm) == LS_OK);
    CHECK(ls_train_open_data(&options, session.model, &data, &test) == LS_OK);
    ls_sharing sharing = {.shard = plan->strided ? LS_SHARD_STRIDED : LS_SHARD_CONTIGUOUS};
    CHECK(freopen("/dev/null", "w", stdout) != NULL);
    CHECK(ls_train(session.parallel, &options, sharing, data, test, &result) == LS_OK);
    o->weights[0] = result.parameter_hash;
    o->losses[0] = result.accuracy;
    CHECK(stored_weights_follow(plan->stored, session.model));
    CHECK(stored_state_error(plan->stored, "after.", session.model, true) <= 5e-3);
    ls_dataset_close(data);
    ls_dataset_close(test);
    session_close(&session);
    ls_comm_destroy(comm);
}

static int read_losses(const char *path, double losses[MAX_STEPS]) {
    size_t nbytes;
    char *text = scratch_read(path, &nbytes);
    int count = 0;
    for (char *line = strtok(text, "\n"); line && count < MAX_STEPS; line = strtok(NULL, "\n")) {
        losses[count++] = atof(line);
    }
    free(text);
    return count;
}

/* After many steps of rounding the state is compared loosely; the losses must follow closely. */
static void expect_trajectory(struct plan plan) {
    double losses[MAX_STEPS];
    int ranks = plan_ranks(&plan);
    struct training t = {.plan = &plan, .losses = scratch_path("losses")};
    t.outcomes = shared_alloc(MAX_RANKS * sizeof *t.outcomes);
    assert_non_null(t.outcomes);
    run_training_ranks(ranks, train, &t);
    int count = read_losses(t.losses, losses);
    assert_int_equal(count, plan.steps);
    if (!stored_losses_follow(plan.stored, losses, count))
        fail_msg("mode %d, %d devices, %s", (int)plan.mode, plan.devices, plan.allreduce ? plan.allreduce : "naive");
    for (int r = 0; r < ranks; r++) {
        assert_true(t.outcomes[r].weights[0] == t.outcomes[0].weights[0]);
        assert_true(t.outcomes[r].losses[0] == t.outcomes[0].losses[0] && t.outcomes[r].losses[0] > 0.5);
    }
    shared_free(t.outcomes, MAX_RANKS * sizeof *t.outcomes);
}

static void expect_ddp_trajectories(struct plan plan) {
    for (const ls_allreduce_algorithm *a = ls_allreduce_algorithms; a->name; a++) {
        plan.allreduce = a->name;
        expect_trajectory(plan);
    }
}

/* 64 samples: torch.chunk makes pieces of 22 22 20 for three devices, 13 13 13 13 12 for five, 11 11 11 11 11 9 for
 * six; and in one to three micro-batches. Batches of 100 with every algorithm are in test_uneven.c. */
TEST_IN(scratch, mlp_runs_follow_one_device) {
    for (int devices = 1; devices <= MAX_RANKS; devices++) {
        struct plan plan = mlp_plan(MODE_DP, devices);
        plan.accumulate = 1 + devices % 3;
        expect_trajectory(plan);
        plan = mlp_plan(MODE_DDP, devices);
        plan.accumulate = 1 + (devices + 1) % 3;
        plan.allreduce = "direct";
        expect_trajectory(plan);
    }
    expect_ddp_trajectories(mlp_plan(MODE_DDP, 4));
}

TEST_IN(scratch, convnet_runs_follow_pytorch) {
    expect_trajectory(convnet_plan(MODE_DP, 1, "train_convnet_sgd_w1"));
    expect_trajectory(convnet_plan(MODE_DP, 4, "train_convnet_sgd_w4_dp"));
    expect_ddp_trajectories(convnet_plan(MODE_DDP, 4, "train_convnet_sgd_w4_ddp"));
}
