/* A network that is not a chain, with a weight that two layers share, in both modes: the same bits after every step, in
 * any order of the streams, and in DDP the shared gradient is added to its bucket once, after its last use. */
#include <math.h>
#include <string.h>

#include "common/nn/model_internal.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/job.h"
#include "tests/nn/models.h"
#include "tests/parallel/seeds.h"

enum { SEEDS = 30, STEPS = 6 /* of job_plan */ };

static struct plan make(const ls_network *network, int devices, ls_dtype precision) {
    struct plan plan = job_plan("residual", devices, 12, 72);
    plan.network = network;
    plan.precision = precision;
    plan.bucket_cap_mb = 0.0001; /* two buckets */
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    return plan;
}

static void expect_in_every_order(const struct plan *plan, struct outcome *expected) {
    run_plan(plan, expected, NULL);
    assert_int_equal(expected->status, LS_OK);
    for (size_t k = 1; k < STEPS; k++) assert_true(expected->weights[k] != expected->weights[k - 1]);
    assert_int_equal(red_seed(plan, SEEDS, NULL, expected, false), 0);
}

static void expect_modes_agree(const ls_network *network, int devices, ls_dtype precision) {
    struct plan dp = make(network, devices, precision), ddp = dp;
    struct outcome *wanted = shared_alloc(2 * MAX_RANKS * sizeof *wanted), *found = wanted + MAX_RANKS;
    dp.mode = MODE_DP;
    expect_in_every_order(&dp, wanted);
    expect_in_every_order(&ddp, found);
    assert_true(found->buckets > 1);
    if (devices != 3) assert_int_equal(first_difference(wanted, found, STEPS), -1);
    for (size_t k = 0; k < STEPS; k++) /* also on three devices, though 1/3 is not exact */
        assert_true(fabs(global_loss(&ddp, found, k) - wanted->losses[k]) <= (precision == LS_FP32 ? 1e-6 : 1e-3));
    shared_free(wanted, 2 * MAX_RANKS * sizeof *wanted);
}

TEST(both_modes_train_a_residual_network_with_the_same_bits) {
    ls_network *network = residual_network();
    for (int devices = 2; devices <= 4; devices++)
        for (int half = 0; half < 2; half++) expect_modes_agree(network, devices, half ? LS_BF16 : LS_FP32);
    ls_network_destroy(network);
}

static struct ls_hooks reducers;
static size_t ready[10], ready_count;

static ls_status note_ready(void *context, size_t parameter) {
    (void)context;
    ready[ready_count++] = parameter;
    return reducers.grad_ready(reducers.context, parameter);
}

static void note_order(struct rank *rank) {
    static const size_t order[] = {4, 3, 2, 1, 0}; /* head's, fc2's bias, fc1's: the shared weight is the last */
    struct job job;
    job_open(rank, &job, *(const struct plan *)rank->argument, NULL);
    reducers = job.session.model->hooks;
    ls_model_on_grad_ready(job.session.model, note_ready, NULL);
    for (size_t k = 0; k < STEPS; k++, ready_count = 0) {
        job_step(rank, &job, k);
        CHECK(ready_count == 5 && memcmp(ready, order, sizeof order) == 0);
    }
    job_close(rank, &job);
}

TEST(the_shared_gradient_is_ready_once_behind_its_last_use) {
    ls_network *network = residual_network();
    const struct plan plan = make(network, 2, LS_FP32);
    run_training_ranks(2, note_order, &plan);
    ls_network_destroy(network);
}
