/* Activation checkpointing compared with PyTorch's numbers: a convolution, batch norm and ReLU, loss mean(y^2). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/checkpoint/safetensors.h"
#include "common/nn/network_internal.h"
#include "tests/base/golden.h"
#include "tests/base/test.h"
#include "tests/checkpoint/stored.h"
#include "tests/kernels/fixture.h"
#include "tests/nn/models.h"

#define RUN "checkpoint_batchnorm"
enum { BATCH = 8, CHANNELS = 4, SIDE = 6, WEIGHTS = CHANNELS * CHANNELS * 9, OUTPUTS = BATCH * CHANNELS * SIDE * SIDE };
static const double momentum = 0.1;

static const float *stored(const ls_safetensors *file, const char *name, size_t count) {
    const ls_safetensor *tensor = ls_safetensors_find(file, name);
    assert_non_null(tensor);
    assert_int_equal(tensor->nbytes, count * sizeof(float));
    return tensor->data;
}

/* The flattened output is a block of its own, because the last block, which is never recomputed, must not contain batch
 * norm. */
static ls_network *network(void) {
    static const ls_layer layers[] = {
        {.kind = &ls_conv2d, .name = "0", .units = CHANNELS, .kernel = 3, .stride = 1, .padding = 1},
        {.kind = &ls_batchnorm2d, .name = "1", .relu = true, .begins_block = true},
        {.kind = &ls_flatten, .name = "flatten", .begins_block = true},
    };
    ls_network *made =
        ls_network_begin((struct ls_shape){.channels = CHANNELS, .height = SIDE, .width = SIDE}, LS_LOSS_SQUARED_ERROR);
    assert_non_null(made);
    for (size_t l = 0; l < sizeof layers / sizeof *layers; l++)
        assert_int_equal(ls_network_add(made, layers[l]), LS_OK);
    assert_int_equal(ls_network_finish(made), LS_OK);
    return made;
}

/* A step on PyTorch's input, from its weights, in segments of `every` blocks, with `forwards` forwards before
 * backward. */
struct step {
    float conv[WEIGHTS], norm[CHANNELS];      /* gradients of the weights */
    float mean[CHANNELS], variance[CHANNELS]; /* running */
    int64_t tracked;
};

static void take_step(const ls_safetensors *file, int every, int forwards, struct step *step) {
    ls_network *net = network();
    ls_device *device = open_device(0);
    ls_model *model;
    assert_int_equal(ls_model_create_segments_of(&model, device, net, BATCH, LS_FP32, every, false), LS_OK);
    assert_int_equal(ls_model_alloc_gradients(model), LS_OK);
    assert_true(stored_load(RUN, "before.", model));
    const float *x = stored(file, "x", OUTPUTS), *y = NULL; /* as large as the output */
    for (int i = 0; i < forwards; i++) y = ls_model_forward(model, x, BATCH, true);
    float dy[OUTPUTS];
    for (size_t i = 0; i < OUTPUTS; i++) dy[i] = 2 * y[i] / OUTPUTS;
    ls_model_backward(model, dy, false);
    assert_int_equal(ls_device_synchronize(device), LS_OK);
    memcpy(step->conv, ls_model_parameter(model, 0)->gradient, sizeof step->conv);
    memcpy(step->norm, ls_model_parameter(model, 2)->gradient, sizeof step->norm);
    memcpy(step->mean, ls_model_buffer(model, 0)->data, sizeof step->mean);
    memcpy(step->variance, ls_model_buffer(model, 1)->data, sizeof step->variance);
    step->tracked = *ls_model_batches_tracked(model, 0);
    ls_model_destroy(model);
    close_empty_device(device);
    ls_network_destroy(net);
}

static ls_safetensors *open_file(void) {
    ls_safetensors *file;
    assert_int_equal(ls_safetensors_open(&file, "tests/golden/" RUN ".safetensors"), LS_OK);
    return file;
}

static int64_t stored_count(const char *field) {
    cJSON *json = golden_json(RUN ".json");
    int64_t count = golden_integer(json, field);
    cJSON_Delete(json);
    return count;
}

/* Compares running statistics and their count with those after one step of PyTorch's: "plain", "reentrant" or
 * "nonreentrant". */
static void expect_statistics(const ls_safetensors *file, const char *how, const struct step *step) {
    char mean[64], variance[64], tracked[64];
    snprintf(mean, sizeof mean, "%s.running_mean_after", how);
    snprintf(variance, sizeof variance, "%s.running_var_after", how);
    snprintf(tracked, sizeof tracked, "%s_num_batches_tracked", how);
    kernel_expect_close(mean, step->mean, stored(file, mean, CHANNELS), CHANNELS, 0, 1e-6);
    kernel_expect_close(variance, step->variance, stored(file, variance, CHANNELS), CHANNELS, 0, 1e-6);
    assert_int_equal(step->tracked, stored_count(tracked));
}

TEST(steps_with_and_without_checkpointing_have_pytorchs_plain_numbers) {
    ls_safetensors *file = open_file();
    for (int every = 0; every <= 2; every++) {
        struct step step;
        take_step(file, every, 1, &step);
        kernel_expect_close_to_largest("conv", step.conv, stored(file, "dconv.weight", WEIGHTS), WEIGHTS, 1e-5);
        kernel_expect_close_to_largest("norm", step.norm, stored(file, "dbn.weight", CHANNELS), CHANNELS, 1e-5);
        expect_statistics(file, "plain", &step);
    }
    ls_safetensors_close(file);
}

/* PyTorch's second pass updates the statistics again, as two forwards of ours would: r'' = (1 - a) r' + a s, with the
 * plain run's r' and the batch's s. */
TEST(pytorchs_checkpointing_moves_running_statistics_twice) {
    ls_safetensors *file = open_file();
    struct step once, twice;
    take_step(file, 1, 1, &once);
    take_step(file, 1, 2, &twice);
    const float *before = stored(file, "before.1.running_mean", CHANNELS);
    const float *pytorchs = stored(file, "reentrant.running_mean_after", CHANNELS);
    for (int c = 0; c < CHANNELS; c++) {
        double moved = (double)once.mean[c], batch = (moved - (1 - momentum) * (double)before[c]) / momentum;
        double again = (1 - momentum) * moved + momentum * batch;
        assert_true(fabs(again - (double)pytorchs[c]) <= 2e-6);
        assert_true(fabs(moved - (double)pytorchs[c]) > 1e-3);
    }
    expect_statistics(file, "reentrant", &twice);
    expect_statistics(file, "nonreentrant", &twice);
    ls_safetensors_close(file);
}
