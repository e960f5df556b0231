/* A step in K micro-batches is the step of the whole batch: the same sums in another order of the additions, so exactly
 * the same if nothing is rounded; and parameters and gradients are sent once a step. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/ddp_procs/inside.h"
#include "tests/ddp_procs/unused.h"
#include "tests/parallel/seeds.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SEEDS = 4 };
#else
enum { SEEDS = 20 };
#endif

enum { CAPACITY = 32768 }; /* floats of a model's state */

static const struct plan mlp = {.model = "mlp:20,16,10", .batch = 24, .steps = 3, .samples = 24 + 24 + 7};
static const struct plan convnet = {.model = "convnet", .batch = 8, .steps = 3, .samples = 100};

static struct plan make(struct plan plan, enum mode mode, int devices, int accumulate) {
    plan.mode = mode;
    plan.devices = devices;
    plan.accumulate = accumulate;
    plan.optimizer = ls_optimizer_defaults(LS_SGD);
    plan.optimizer.learning_rate = 0.05;
    plan.optimizer.momentum = 0.9;
    plan.bucket_cap_mb = 0.002;
    return plan;
}

/* --- runs -------------------------------------------------------------------------------------------------------- */

/* The results of a run, in memory that it shares with the parent; rank 0's state and gradients are those before the
 * last update. */
struct run {
    struct outcome outcomes[MAX_RANKS];
    size_t state_count, gradient_count;
    float state[CAPACITY], gradients[CAPACITY];
};

static struct run *looked_at;

static void look(struct session *s, struct outcome *o) {
    if (o != looked_at->outcomes) return;
    float *state;
    size_t count, at = 0;
    ls_model_state(s->model, &state, &count);
    memcpy(looked_at->state, state, count * sizeof *state);
    for (size_t p = 0; p < ls_model_parameter_count(s->model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(s->model, p);
        memcpy(looked_at->gradients + at, tensor->gradient, tensor->count * sizeof(float));
        at += tensor->count;
    }
    looked_at->state_count = count;
    looked_at->gradient_count = at;
}

/* Asserts that all ranks have the same weights after each step. */
static struct run *run(const struct plan *plan) {
    struct run *run = shared_alloc(sizeof *run);
    assert_non_null(run);
    looked_at = run;
    run_plan(plan, run->outcomes, look);
    int ranks = plan_ranks(plan);
    for (int r = 0; r < ranks; r++) {
        const struct outcome *o = &run->outcomes[r];
        if (o->status != LS_OK) fail_msg("rank %d of %d: %s (%s)", r, ranks, ls_status_text(o->status), o->message);
        assert_int_equal(first_difference(run->outcomes, o, plan->steps), -1);
    }
    assert_true(run->gradient_count > 0 && run->state_count <= CAPACITY);
    return run;
}

static void release(struct run *run) { shared_free(run, sizeof *run); }

/* The largest difference, relative to the largest element. */
static double difference(const float *left, const float *right, size_t count) {
    double most = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        double apart = fabs((double)left[i] - (double)right[i]);
        if (!(apart <= most)) most = isnan(apart) ? INFINITY : apart;
        largest = fmax(largest, fabs((double)left[i]));
    }
    return most / largest;
}

static void expect_same_within_rounding(const struct plan *plan, const struct run *expected) {
    struct plan one = {.mode = MODE_SINGLE};
    struct run *seen = run(plan);
    double state = difference(expected->state, seen->state, expected->state_count);
    double gradients = difference(expected->gradients, seen->gradients, expected->gradient_count);
    if (!(state <= 2e-6 && gradients <= 2e-5)) {
        fail_msg("%s, mode %d, %d devices, %d micro-batches: the state is off by %g, the gradients by %g", plan->model,
                 (int)plan->mode, plan->devices, plan->accumulate, state, gradients);
    }
    for (size_t k = 0; k < plan->steps; k++) {
        double loss = global_loss(plan, seen->outcomes, k), wanted = global_loss(&one, expected->outcomes, k);
        if (!(fabs(loss - wanted) <= 2e-6 * wanted)) fail_msg("loss %zu is %.9g, not %.9g", k + 1, loss, wanted);
    }
    release(seen);
}

static const struct {
    enum mode mode;
    int devices;
} ways[] = {{MODE_SINGLE, 1}, {MODE_DP, 2}, {MODE_DP, 3}, {MODE_DDP, 2}, {MODE_DDP, 3}};
enum { WAYS = sizeof ways / sizeof *ways };

/* 24 samples in 1, 2, 3, 5 (5 5 5 5 4) and 30 micro-batches, of which 6 are empty; the last step has 7 samples. */
TEST(micro_batches_add_up_to_the_batch) {
    static const int counts[] = {1, 2, 3, 5, 30};
    struct plan plan = make(mlp, MODE_SINGLE, 1, 1);
    struct run *expected = run(&plan);
    for (size_t w = 0; w < WAYS; w++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            plan = make(mlp, ways[w].mode, ways[w].devices, counts[c]);
            plan.compare_each_step = true;
            expect_same_within_rounding(&plan, expected);
        }
    }
    release(expected);
}

/* --- cases without rounding --------------------------------------------------------------------------------------- */

/* The bias makes the softmax (0, 1) for any weights, so the gradient of a sample with label 0 is -x and x, with label 1
 * zero; all sums and means of small integers over 8 or 4 samples are exact. */

enum { INPUTS = 3, EXACT_STEPS = 2 };
static const size_t exact_counts[EXACT_STEPS] = {8, 4};

static float exact_input(size_t step, size_t sample, size_t i) {
    return (float)((5 * step + 3 * sample + 7 * i) % 11) - 4;
}
static int64_t exact_label(size_t sample) { return sample % 4 == 2; }

/* weights [2, INPUTS], then biases [2]: the result of SGD with the learning rate 0.5 */
static void exact_step(float *parameters, size_t step, float *loss) {
    size_t count = exact_counts[step];
    float change[2 * INPUTS + 2] = {0};
    *loss = 0;
    for (size_t s = 0; s < count; s++) {
        if (exact_label(s) == 1) continue;
        *loss += parameters[2 * INPUTS + 1] - parameters[2 * INPUTS];
        for (size_t i = 0; i < INPUTS; i++) {
            float x = exact_input(step, s, i);
            *loss += (parameters[INPUTS + i] - parameters[i]) * x;
            change[i] += x;
            change[INPUTS + i] -= x;
        }
        change[2 * INPUTS] += 1;
        change[2 * INPUTS + 1] -= 1;
    }
    *loss /= (float)count;
    for (size_t i = 0; i < 2 * INPUTS + 2; i++) parameters[i] += change[i] * (0.5f / (float)count);
}

static ls_batch exact_batch(const struct rank *rank, size_t step, float *x, int64_t *labels) {
    size_t all = exact_counts[step], count = all / (size_t)rank->world_size, first = count * (size_t)rank->rank;
    for (size_t s = 0; s < count; s++) {
        labels[s] = exact_label(first + s);
        for (size_t i = 0; i < INPUTS; i++) x[INPUTS * s + i] = exact_input(step, first + s, i);
    }
    return (ls_batch){.inputs = x, .labels = labels, .count = count, .global_count = all};
}

static void exact_rank(struct rank *rank) {
    const struct plan *plan = rank->argument;
    ls_comm *comm = NULL;
    struct session s;
    float x[8 * INPUTS], expected[2 * INPUTS + 2] = {1, 2, -1, 0, 3, 1, -200, 200}, expected_loss;
    int64_t labels[8];
    if (plan_has_group(plan)) CHECK(group_open(&comm, rank, "direct") == LS_OK);
    CHECK(session_open(&s, plan, comm) == LS_OK);
    const struct ls_tensor *weight = ls_model_parameter(s.model, 0), *bias = ls_model_parameter(s.model, 1);
    memcpy(weight->data, expected, sizeof(float[2 * INPUTS]));
    memcpy(bias->data, expected + 2 * INPUTS, sizeof(float[2]));
    for (size_t step = 0; step < EXACT_STEPS; step++) {
        ls_batch batch = exact_batch(rank, step, x, labels);
        double loss;
        CHECK(session_step(&s, &batch) == LS_OK);
        CHECK(session_loss(&s, step, &loss) == LS_OK);
        CHECK(ls_sum_over_ranks(s.parallel, &loss, 1) == LS_OK);
        exact_step(expected, step, &expected_loss);
        CHECK(loss / rank->world_size == (double)expected_loss);
        CHECK(memcmp(weight->data, expected, sizeof(float[2 * INPUTS])) == 0);
        CHECK(memcmp(bias->data, expected + 2 * INPUTS, sizeof(float[2])) == 0);
    }
    session_close(&s);
    ls_comm_destroy(comm);
}

TEST(small_integers_give_the_same_bits) {
    static const struct plan linear = {.model = "mlp:3,2", .batch = 8};
    for (size_t w = 0; w < WAYS; w++) {
        for (int k = 1; k <= 9; k *= 3) { /* 8 samples in micro-batches of 8, 3 3 2, and one each */
            int devices = ways[w].mode == MODE_DDP && ways[w].devices == 3 ? 4 : ways[w].devices; /* 1/3 is not exact */
            struct plan plan = make(linear, ways[w].mode, devices, k);
            plan.optimizer.learning_rate = 0.5;
            plan.optimizer.momentum = 0;
            run_training_ranks(plan.mode == MODE_DDP ? devices : 1, exact_rank, &plan);
        }
    }
}

/* --- the payload -------------------------------------------------------------------------------------------------- */

/* Parameters, gradients and buffers once a step; inputs and outputs for each sample. */
TEST(the_bytes_moved_are_those_of_one_batch) {
    for (int mode = MODE_DP; mode <= MODE_DDP; mode++) {
        struct plan plan = make(convnet, (enum mode)mode, 2, 1);
        struct run *whole = run(&plan);
        const uint64_t *bytes = whole->outcomes->bytes;
        assert_true(mode == MODE_DDP ? bytes[LS_PHASE_ALL_REDUCE] > 0 && bytes[LS_PHASE_BROADCAST] > 0
                                     : bytes[LS_PHASE_REPLICATE] > 0 && bytes[LS_PHASE_REDUCE] > 0);
        for (plan.accumulate = 2; plan.accumulate <= 4; plan.accumulate *= 2) {
            struct run *parts = run(&plan);
            assert_memory_equal(parts->outcomes->bytes, whole->outcomes->bytes, sizeof whole->outcomes->bytes);
            /* for batch norm each micro-batch is a batch */
            assert_int_equal(parts->outcomes->batches_tracked, (int64_t)plan.steps * plan.accumulate);
            release(parts);
        }
        release(whole);
    }
}

/* --- batch norm over all devices ---------------------------------------------------------------------------------- */

/* With strided shards the ranks' parts of a micro-batch form one device's micro-batch. */
TEST(synchronised_batch_norm_sees_the_micro_batch) {
    struct plan plan = make(convnet, MODE_SINGLE, 1, 2);
    struct run *expected = run(&plan);
    for (int mode = MODE_DP; mode <= MODE_DDP; mode++) {
        plan = make(convnet, (enum mode)mode, 2, 2);
        plan.sync_bn = plan.strided = true;
        expect_same_within_rounding(&plan, expected);
    }
    release(expected);
}

/* 5 samples in 4 micro-batches are 2 2 1 0: the last is empty on every device. */
TEST(a_micro_batch_may_be_empty_everywhere) {
    struct plan model = convnet;
    model.samples = 8 + 5;
    model.steps = 2;
    struct plan plan = make(model, MODE_SINGLE, 1, 4);
    struct run *expected = run(&plan);
    plan = make(model, MODE_DP, 2, 4);
    plan.sync_bn = true;
    expect_same_within_rounding(&plan, expected);
    plan = make(model, MODE_DDP, 2, 4); /* 3 and 2: 1 1 1 0 and 1 1 0 0 */
    plan.sync_bn = true;
    release(run(&plan));
    release(expected);
}

/* --- parameters that are not used --------------------------------------------------------------------------------- */

struct unused_step {
    ls_model *model;
    const ls_batch *batch;
    const struct rank *rank;
    float of_first[10]; /* the last bias's gradient after the first half */
};

static ls_batch next_half(void *context, int half) {
    struct unused_step *step = context;
    const struct rank *rank = step->rank;
    if (half == 1) memcpy(step->of_first, ls_model_parameter(step->model, 3)->gradient, sizeof step->of_first);
    set_unused(rank, step->model, 3, half == 1 || rank->rank == 1);
    return ls_micro_batch(step->batch, half, 2, 20, 1);
}

/* Rank 0 uses the last bias in the first of two micro-batches; no rank uses the first bias. `argument`: scale the
 * loss. */
static void unused_rank(struct rank *rank) {
    struct plan plan = make(mlp, MODE_DDP, 2, 2);
    plan.samples = 48;
    plan.find_unused = true;
    plan.optimizer.weight_decay = 0.1;
    plan.optimizer.scaler.enabled = rank->argument != NULL;
    ls_comm *comm;
    struct session s;
    struct samples samples;
    CHECK(group_open(&comm, rank, "direct") == LS_OK);
    CHECK(session_open(&s, &plan, comm) == LS_OK);
    CHECK(samples_make(&samples, &plan, s.model, rank->rank, rank->world_size));
    const struct ls_tensor *bias = ls_model_parameter(s.model, 3), *nobodys = ls_model_parameter(s.model, 1);
    float before[16], bias_before[10], scale = rank->argument ? 65536 : 1;
    memcpy(before, nobodys->data, sizeof before);
    memcpy(bias_before, bias->data, sizeof bias_before);
    set_unused(rank, s.model, 1, true);
    struct unused_step step = {.model = s.model, .batch = &samples.batches[0], .rank = rank};
    CHECK(ls_step_gradients_of(s.parallel, next_half, &step) == LS_OK);
    double sum = 0;
    for (size_t i = 0; i < 10; i++) {
        double share = (double)step.of_first[i] / 2;
        CHECK(s.parallel->process->sum_over_ranks(s.parallel, &share, 1) == LS_OK); /* rank 1's is zero */
        CHECK((double)bias->gradient[i] == share);
        sum += fabs(share);
    }
    CHECK(sum > 1e-3 * (double)scale);
    CHECK(ls_step_update(s.parallel) == LS_OK);
    CHECK(memcmp(before, nobodys->data, sizeof before) == 0); /* no weight decay either */
    for (size_t i = 0; i < 10; i++) {
        float d = bias->gradient[i] / scale + 0.1f * bias_before[i];
        CHECK(fabsf(bias->data[i] - (bias_before[i] - 0.05f * d)) <= 1e-7f && bias->data[i] != bias_before[i]);
    }
    CHECK(ddp_compare_state(ddp_of(s.parallel), false) == LS_OK);
    samples_free(&samples);
    session_close(&s);
    ls_comm_destroy(comm);
}

TEST(a_parameter_counts_as_used_in_any_micro_batch) {
    run_training_ranks(2, unused_rank, NULL);
    run_training_ranks(2, unused_rank, "scaled");
}

/* --- every order of the streams ---------------------------------------------------------------------------------- */

static void expect_right_in_every_order(struct plan plan) {
    struct outcome *expected = shared_alloc(MAX_RANKS * sizeof *expected);
    struct outcome *threads = shared_alloc(MAX_RANKS * sizeof *threads);
    assert_true(expected && threads);
    run_plan(&plan, expected, NULL);
    plan.streams = "threads";
    run_plan(&plan, threads, NULL);
    assert_true(expected->status == LS_OK && threads->status == LS_OK);
    assert_int_equal(first_difference(expected, threads, plan.steps), -1);
    int seed = red_seed(&plan, SEEDS, NULL, expected, true);
    if (seed > 0)
        fail_msg("mode %d with output device %d: wrong with the seed %d", (int)plan.mode, plan.output_device, seed);
    shared_free(threads, MAX_RANKS * sizeof *threads);
    shared_free(expected, MAX_RANKS * sizeof *expected);
}

/* 27 samples on 3 devices in 5 micro-batches, 6 6 6 6 3: pieces of two and of one, so that the outputs of one replica
 * are written where another's gradient was. */
TEST(every_order_gives_the_same_bits) {
    struct plan model = mlp;
    model.batch = 27;
    model.samples = 81;
    expect_right_in_every_order(make(model, MODE_SINGLE, 1, 5));
    expect_right_in_every_order(make(model, MODE_DDP, 2, 5));
    for (int output = 0; output < 3; output++) {
        struct plan plan = make(model, MODE_DP, 3, 5);
        plan.output_device = output;
        expect_right_in_every_order(plan);
    }
}
