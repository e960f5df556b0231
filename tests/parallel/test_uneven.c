/* A batch of 100 on 3, 5, 6 and 8 devices: pieces as torch.chunk makes them, 34 34 32, five of 20, 17 17 17 17 17 15,
 * and seven of 13 and a 9. With any split, and any all-reduce algorithm, training follows one device within the
 * tolerances of the golden runs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/comm/allreduce.h"
#include "tests/base/test.h"
#include "tests/parallel/plan.h"

enum { PARAMETERS_CAPACITY = 1 << 16 };

static const int device_counts[] = {3, 5, 6, 8};
enum { DEVICE_COUNTS = sizeof device_counts / sizeof *device_counts };

static struct plan mlp_plan(void) {
    struct plan plan = {.mode = MODE_SINGLE, .devices = 1, .model = "mlp:784,64,10", .batch = 100, .steps = 20};
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    return plan;
}

static struct plan convnet_plan(void) {
    struct plan plan = {
        .mode = MODE_SINGLE, .devices = 1, .model = "convnet:1x13x13,10", .batch = 100, .steps = 8, .samples = 300};
    plan.optimizer = ls_optimizer_defaults(LS_SGD);
    plan.optimizer.learning_rate = 0.01;
    plan.optimizer.momentum = 0.9;
    return plan;
}

/* The results of a run, in memory that it shares with the parent, including rank 0's parameters before the last
 * update. */
struct run {
    struct outcome outcomes[MAX_RANKS];
    size_t parameter_count;
    float parameters[PARAMETERS_CAPACITY];
};

static struct run *looked_at;

static void look_at_parameters(struct session *s, struct outcome *o) {
    float *data;
    size_t count;
    ls_model_parameters(s->model, &data, &count);
    if (o != looked_at->outcomes || count > PARAMETERS_CAPACITY) return;
    ls_stream *compute = ls_device_stream(s->devices[0], LS_STREAM_COMPUTE);
    ls_status status = ls_copy_now(compute, looked_at->parameters, data, count * sizeof *data);
    if (status == LS_OK) looked_at->parameter_count = count;
}

static struct run *run(const struct plan *plan) {
    struct run *run = shared_alloc(sizeof *run);
    assert_non_null(run);
    looked_at = run;
    run_plan(plan, run->outcomes, look_at_parameters);
    int ranks = plan_ranks(plan);
    for (int r = 0; r < ranks; r++) {
        const struct outcome *o = &run->outcomes[r];
        if (o->status != LS_OK) fail_msg("rank %d of %d: %s (%s)", r, ranks, ls_status_text(o->status), o->message);
        int step = first_difference(run->outcomes, o, plan->steps);
        if (step >= 0) fail_msg("rank %d of %d has other weights than rank 0 after step %d", r, ranks, step + 1);
    }
    assert_true(run->parameter_count > 0);
    return run;
}

static void release(struct run *run) { shared_free(run, sizeof *run); }

/* The largest difference of two runs' parameters, relative to the largest of them. */
static double parameter_error(const struct run *left, const struct run *right) {
    double most = 0, largest = 0;
    assert_true(left->parameter_count == right->parameter_count);
    for (size_t i = 0; i < left->parameter_count; i++) {
        double difference = fabs((double)left->parameters[i] - (double)right->parameters[i]);
        if (!(difference <= most)) most = isnan(difference) ? INFINITY : difference;
        largest = fmax(largest, fabs((double)left->parameters[i]));
    }
    return most / largest;
}

/* Losses within 1e-4 at steps 1 to 5 and 2e-2 at every step, as in tests/golden/README.md. */
static void expect_to_follow(const struct plan *expected_plan, const struct run *expected, const struct plan *plan,
                             double parameter_tolerance) {
    struct run *seen = run(plan);
    char what[80];
    snprintf(what, sizeof what, "%s with %s on %d devices", plan->model, plan->mode == MODE_DP ? "DP" : plan->allreduce,
             plan->devices);
    for (size_t k = 0; k < plan->steps; k++) {
        double loss = global_loss(plan, seen->outcomes, k);
        double wanted = global_loss(expected_plan, expected->outcomes, k), limit = k < 5 ? 1e-4 : 2e-2;
        if (!(fabs(loss - wanted) <= limit * wanted))
            fail_msg("%s: loss %zu is %.9g, not %.9g", what, k + 1, loss, wanted);
    }
    double error = parameter_error(expected, seen);
    if (!(error <= parameter_tolerance)) fail_msg("%s: the parameters are off by %g", what, error);
    release(seen);
}

TEST(mlp_follows_one_device) {
    struct plan plan = mlp_plan(), one = plan;
    struct run *single = run(&one);
    assert_true(single->outcomes->losses[plan.steps - 1] < 0.5 * single->outcomes->losses[0]); /* it trains */
    for (int i = 0; i < DEVICE_COUNTS; i++) {
        plan.mode = MODE_DP;
        plan.devices = device_counts[i];
        expect_to_follow(&one, single, &plan, 1e-4);
        plan.mode = MODE_DDP;
        for (const ls_allreduce_algorithm *a = ls_allreduce_algorithms; a->name; a++) {
            bool everything = i % 2 == 0; /* on 3 and 6; tests/comm tests each algorithm for any number of ranks */
            if (!everything && strcmp(a->name, "direct") != 0) continue;
            plan.allreduce = a->name;
            expect_to_follow(&one, single, &plan, 1e-4);
        }
    }
    release(single);
}

/* Batch norm uses each piece's own statistics, so no run on several devices equals one device; the two modes, whose
 * pieces are the same, equal each other. */
TEST(convnet_is_the_same_in_both_modes) {
    for (int i = 0; i < DEVICE_COUNTS; i++) {
        struct plan plan = convnet_plan();
        plan.mode = MODE_DP;
        plan.devices = device_counts[i];
        struct plan ddp = plan;
        ddp.mode = MODE_DDP;
        ddp.allreduce = "direct";
        struct run *dp = run(&plan);
        expect_to_follow(&plan, dp, &ddp, 1e-2);
        release(dp);
    }
}
