/* A loss that is not finite ends the run in that step: the place is named, nothing is updated, and other ranks are
 * informed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"
#include "tests/parallel/plan.h"

enum { BATCH = 8 };

/* --- the place ---------------------------------------------------------------------------------------------------- */

static void expect_place(ls_model *model, const float *x, const char *expected) {
    char place[128];
    (void)ls_model_forward(model, x, BATCH, true);
    assert_int_equal(ls_model_find_nonfinite(model, place, sizeof place), LS_OK);
    assert_string_equal(place, expected);
}

static void expect_each_parameter(ls_model *model, const float *x) {
    char expected[128];
    for (size_t p = ls_model_parameter_count(model); p > 0;
         p--) { /* backwards: each is before those that are NaN already */
        const struct ls_tensor *tensor = ls_model_parameter(model, p - 1);
        tensor->data[tensor->count - 1] = p % 2 ? NAN : -INFINITY;
        snprintf(expected, sizeof expected, "parameter %s", tensor->name);
        expect_place(model, x, expected);
    }
}

TEST(the_first_place_in_the_computation_is_named) {
    static const char *const descriptions[] = {"mlp", "convnet"};
    ls_device *device = open_device(0);
    for (int m = 0; m < 4; m++) { /* with all activations, and with those of a block at a time */
        ls_model *model;
        assert_int_equal(ls_model_create_segments(&model, device, descriptions[m / 2], BATCH, LS_FP32, m % 2, false),
                         LS_OK);
        assert_int_equal(ls_model_init(model, 1), LS_OK);
        size_t count = BATCH * ls_shape_count(ls_model_input(model));
        float *x = make_values(device, count, 2);
        expect_place(model, x, "");
        expect_each_parameter(model, x);
        x[count - 1] = NAN;
        expect_place(model, x, "the input batch");
        ls_device_free(device, x);
        ls_model_destroy(model);
    }
    close_empty_device(device);
}

static void fill(const ls_model *model, size_t parameter, float value) {
    const struct ls_tensor *tensor = ls_model_parameter(model, parameter);
    for (size_t i = 0; i < tensor->count; i++) tensor->data[i] = value;
}

/* Finite parameters, finite inputs, and a sum that is infinite: the ReLU that follows in place is not named as a place
 * of its own. */
TEST(an_overflow_is_found_in_the_output_of_its_layer) {
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "mlp:6,4,3", BATCH, 1), *convnet;
    assert_int_equal(ls_model_create_segments(&convnet, device, "convnet", BATCH, LS_FP32, 1, false), LS_OK);
    assert_int_equal(ls_model_init(convnet, 1), LS_OK);
    float *x = make_values(device, BATCH * 784, 2);
    for (int i = 0; i < BATCH * 784; i++) x[i] = 1;
    fill(model, 2, 3e38f);
    fill(model, 0, 1);
    expect_place(model, x, "the output of fc2");
    fill(model, 0, 3e38f);
    expect_place(model, x, "the output of fc1");
    fill(convnet, 4, 3e38f); /* the outputs of bn1 and the pool have a fixed scale, whatever conv1 computes */
    fill(convnet, 3, 1e6f);  /* bn1.bias */
    expect_place(convnet, x, "the output of conv2");
    ls_device_free(device, x);
    ls_model_destroy(model);
    ls_model_destroy(convnet);
    close_empty_device(device);
}

/* --- a step in each mode -------------------------------------------------------------------------------------------- */

enum { PIXELS = 784 };

static struct plan make_plan(enum mode mode, int devices) {
    return (struct plan){.mode = mode,
                         .devices = devices,
                         .model = "mlp:784,16,10",
                         .batch = 12,
                         .steps = 2,
                         .optimizer = ls_optimizer_defaults(LS_ADAM)};
}

/* Runs two steps; sample `row` of the second batch has a NaN. Returns the second step's status; the weights must be
 * those after the first step. */
static ls_status run_two_steps(struct session *s, struct samples *samples, size_t row, bool *unchanged) {
    uint64_t before = 0, after = 1, state;
    s->parallel->check_each_loss = true;
    ls_status status = session_step(s, &samples->batches[0]);
    if (status == LS_OK) status = session_hash(s, &before, &state);
    if (status == LS_OK && row != SIZE_MAX) ((float *)(uintptr_t)samples->batches[1].inputs)[row * PIXELS + 5] = NAN;
    if (status == LS_OK) status = ls_step_gradients(s->parallel, &samples->batches[1]);
    (void)session_synchronize(s); /* it reports a failed operation once more */
    if (session_hash(s, &after, &state) != LS_OK) after = before + 1;
    *unchanged = before == after;
    return status;
}

static void expect_stop(enum mode mode, int devices, size_t row, const char *place) {
    struct plan plan = make_plan(mode, devices);
    struct session session;
    struct samples samples;
    bool unchanged;
    assert_int_equal(session_open(&session, &plan, NULL), LS_OK);
    assert_true(samples_make(&samples, &plan, session.model, 0, 1));
    stderr_begin();
    ls_status status = run_two_steps(&session, &samples, row, &unchanged);
    const char *text = stderr_end();
    assert_int_equal(status, LS_ERR_DIVERGED);
    assert_true(unchanged);
    if (!strstr(text, "error: step 1 (epoch 0): the loss is nan; the first value that is not finite is in ") ||
        !strstr(text, place) || strchr(text, '\n') != text + strlen(text) - 1)
        fail_msg("'%s' is not in: %s", place, text);
    samples_free(&samples);
    session_close(&session);
}

TEST(one_device_names_the_place) {
    expect_stop(MODE_SINGLE, 1, 11, "in the input batch; lower --lr, or look at the data");
}

/* 12 samples on 3 devices: four each. */
TEST(dataparallel_names_the_device) {
    expect_stop(MODE_DP, 3, 3, "in the input batch on device 0; lower");
    expect_stop(MODE_DP, 3, 4, "in the input batch on device 1; lower");
    expect_stop(MODE_DP, 3, 11, "in the input batch on device 2; lower");
}

/* The rank that has the NaN names the place; the others, whose losses are finite, name that rank and the reason; no
 * rank has updated its weights. */
static void diverge_on_rank_1(struct rank *rank) {
    struct plan plan = make_plan(MODE_DDP, rank->world_size);
    struct session session = {0};
    struct samples samples;
    ls_comm *comm = NULL;
    bool unchanged = false, culprit = rank->rank == 1;
    plan.streams = rank->argument;
    ls_set_wait_timeout_s(PLAN_TIMEOUT_S);
    session.rank = rank->rank;
    session.world_size = rank->world_size;
    CHECK(group_open(&comm, rank, NULL) == LS_OK);
    CHECK(session_open(&session, &plan, comm) == LS_OK);
    CHECK(samples_make(&samples, &plan, session.model, rank->rank, rank->world_size));
    ls_status status = run_two_steps(&session, &samples, culprit ? 0 : SIZE_MAX, &unchanged);
    CHECK(status == (culprit ? LS_ERR_DIVERGED : LS_ERR_PEER));
    CHECK(unchanged);
    if (culprit) CHECK(strstr(rank->message, "step 1 (epoch 0): the loss is nan") == rank->message);
    if (!culprit) CHECK(strstr(rank->message, "rank 1 has given up: step 1 (epoch 0): the loss is nan"));
    CHECK(strstr(rank->message, "is in the input batch on rank 1; lower --lr, or look at the data"));
    samples_free(&samples);
    session_close(&session);
    ls_comm_destroy(comm);
}

TEST(ddp_names_the_rank_and_tells_the_others) { run_good_ranks(3, diverge_on_rank_1, "inline"); }

/* Unless requested (as with shuffled streams), a step does not read its loss. */
TEST(the_look_is_the_loops_wish) {
    struct plan plan = make_plan(MODE_SINGLE, 1);
    struct session session;
    struct samples samples;
    assert_int_equal(session_open(&session, &plan, NULL), LS_OK);
    assert_true(samples_make(&samples, &plan, session.model, 0, 1));
    ((float *)(uintptr_t)samples.batches[0].inputs)[0] = INFINITY;
    assert_int_equal(session_step(&session, &samples.batches[0]), LS_OK);
    samples_free(&samples);
    session_close(&session);
}
