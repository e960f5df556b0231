/* Forward and backward of whole models: against finite differences, with accumulation, and in the order of the hook. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

enum { BATCH = 4 };

/* A model, a batch, and the loss sum(c y) with fixed c, whose gradient of y is c. */
struct probe {
    ls_device *device;
    ls_model *model;
    float *x, *c, *dy;
    size_t outputs;
};

static struct probe probe_open(const char *description) {
    struct probe p = {.device = open_device(0)};
    p.model = make_model(p.device, description, BATCH, 3);
    p.outputs = BATCH * ls_model_outputs(p.model);
    p.x = make_values(p.device, BATCH * ls_shape_count(ls_model_input(p.model)), 4);
    p.c = make_values(p.device, p.outputs, 5);
    p.dy = make_values(p.device, p.outputs, 6);
    return p;
}

static void probe_close(struct probe *p) {
    ls_device_free(p->device, p->x);
    ls_device_free(p->device, p->c);
    ls_device_free(p->device, p->dy);
    ls_model_destroy(p->model);
    close_empty_device(p->device);
}

static double loss_of(const struct probe *p) {
    const float *y;
    y = ls_model_forward(p->model, p->x, BATCH, true);
    double loss = 0;
    for (size_t i = 0; i < p->outputs; i++) loss += (double)p->c[i] * (double)y[i];
    return loss;
}

static void backward(const struct probe *p, bool accumulate) {
    (void)loss_of(p);
    memcpy(p->dy, p->c, p->outputs * sizeof *p->dy); /* backward may overwrite it */
    ls_model_backward(p->model, p->dy, accumulate);
}

/* --- finite differences ------------------------------------------------------------------------------------------ */

static double norm_of(const float *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
    return sqrt(sum);
}

/* The slope of the loss along `direction` (of length 1). */
static double slope(const struct probe *p, const struct ls_tensor *tensor, const float *direction, double distance) {
    float *saved = malloc(tensor->count * sizeof *saved);
    assert_non_null(saved);
    memcpy(saved, tensor->data, tensor->count * sizeof *saved);
    double losses[2];
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < tensor->count; i++) {
            tensor->data[i] = saved[i] + (float)((side ? 1 : -1) * distance) * direction[i];
        }
        losses[side] = loss_of(p);
    }
    memcpy(tensor->data, saved, tensor->count * sizeof *saved);
    free(saved);
    return (losses[1] - losses[0]) / (2 * distance);
}

/* Along the gradient, where the slope must be its length, and along a random direction. */
static void expect_slopes(const struct probe *p, const struct ls_tensor *tensor, double floor) {
    float *direction = malloc(tensor->count * sizeof *direction);
    assert_non_null(direction);
    double length = norm_of(tensor->gradient, tensor->count), tolerance = 0.01 * fmax(length, floor);
    for (int kind = 0; kind < 2; kind++) {
        ls_generator generator;
        ls_generator_seed(&generator, 9);
        ls_fill_normal(&generator, direction, tensor->count);
        if (kind == 0 && length > 0) memcpy(direction, tensor->gradient, tensor->count * sizeof *direction);
        double norm = norm_of(direction, tensor->count), expected = 0;
        for (size_t i = 0; i < tensor->count; i++) {
            direction[i] = (float)((double)direction[i] / norm);
            expected += (double)direction[i] * (double)tensor->gradient[i];
        }
        double found = slope(p, tensor, direction, 5e-4);
        if (!(fabs(found - expected) <= tolerance)) {
            fail_msg("%s, direction %d: the slope is %g, the gradient says %g", tensor->name, kind, found, expected);
        }
    }
    free(direction);
}

static void expect_true_gradients(const char *description) {
    struct probe p = probe_open(description);
    backward(&p, false);
    double largest = 0;
    for (size_t t = 0; t < ls_model_parameter_count(p.model); t++) {
        const struct ls_tensor *tensor = ls_model_parameter(p.model, t);
        largest = fmax(largest, norm_of(tensor->gradient, tensor->count));
    }
    assert_true(largest > 0);
    for (size_t t = 0; t < ls_model_parameter_count(p.model); t++) {
        expect_slopes(&p, ls_model_parameter(p.model, t), 0.02 * largest);
    }
    probe_close(&p);
}

TEST(an_mlp_has_the_gradients_of_its_loss) { expect_true_gradients("mlp:6,9,7,3"); }

TEST(the_convnet_has_the_gradients_of_its_loss) { expect_true_gradients("convnet"); }

/* Each word of a text that the built-in models do not have: ReLUs and additions on their own, strides, no biases, averages, batch
 * norm of the input and of features. Smooth where it can be: a ReLU that tips over has no slope. */
TEST_IN(scratch, a_network_in_a_file_has_the_gradients_of_its_loss) {
    static const char text[] =
        "input 2x9x9\nbatchnorm\nconv 3 kernel 3 stride 2 padding 2 bias none name a\nconv 3 kernel 3 "
        "padding 1\nrelu\nadd a\nrelu name b\nconv 4 kernel 1 bias none from b\navgpool "
        "global\nflatten\nlinear 5 bias none\nbatchnorm name c\nrelu\nlinear 5\nadd c\n";
    scratch_write("net.net", text, sizeof text - 1);
    expect_true_gradients(scratch_path("net.net"));
}

/* --- accumulation ------------------------------------------------------------------------------------------------ */

static void expect_accumulation(const char *description) {
    struct probe p = probe_open(description);
    float *gradients;
    size_t count;
    ls_model_gradients(p.model, &gradients, &count);
    for (size_t i = 0; i < count; i++) gradients[i] = NAN; /* overwriting must not read the old values */
    for (size_t t = 0; t < ls_model_parameter_count(p.model); t++) {
        const struct ls_tensor *tensor = ls_model_parameter(p.model, t);
        for (size_t i = 0; i < tensor->count; i++) tensor->gradient[i] = NAN;
    }
    backward(&p, false);
    float *once = malloc(count * sizeof *once);
    assert_non_null(once);
    memcpy(once, gradients, count * sizeof *once);
    backward(&p, true);
    for (size_t t = 0; t < ls_model_parameter_count(p.model); t++) {
        const struct ls_tensor *tensor = ls_model_parameter(p.model, t);
        double size = norm_of(tensor->gradient, tensor->count) + 1e-6;
        for (size_t i = 0; i < tensor->count; i++) {
            double twice = 2 * (double)once[(size_t)(tensor->gradient - gradients) + i];
            if (!(fabs((double)tensor->gradient[i] - twice) <= 1e-5 * size)) {
                fail_msg("%s[%zu] is %g, not %g", tensor->name, i, (double)tensor->gradient[i], twice);
            }
        }
    }
    backward(&p, false);
    for (size_t t = 0; t < ls_model_parameter_count(p.model); t++) {
        const struct ls_tensor *tensor = ls_model_parameter(p.model, t);
        assert_memory_equal(tensor->gradient, once + (tensor->gradient - gradients), tensor->count * sizeof(float));
    }
    free(once);
    probe_close(&p);
}

TEST(accumulating_adds_and_overwriting_overwrites) {
    expect_accumulation("mlp:6,9,3");
    expect_accumulation("convnet");
}

/* --- the hook ---------------------------------------------------------------------------------------------------- */

struct calls {
    size_t count, parameters[64];
    ls_model *model;
    ls_status answer; /* returned from the third call */
};

/* At the time of the call the gradient is complete (the streams run at once). */
static ls_status note_call(void *context, size_t parameter) {
    struct calls *calls = context;
    const struct ls_tensor *tensor = ls_model_parameter(calls->model, parameter);
    for (size_t i = 0; i < tensor->count; i++) assert_false(isnan(tensor->gradient[i]));
    calls->parameters[calls->count++] = parameter;
    return calls->count == 3 ? calls->answer : LS_OK;
}

static void expect_calls(const char *description) {
    struct probe p = probe_open(description);
    struct calls calls = {.model = p.model};
    ls_model_on_grad_ready(p.model, note_call, &calls);
    for (size_t t = 0; t < ls_model_parameter_count(p.model); t++) {
        const struct ls_tensor *tensor = ls_model_parameter(p.model, t);
        for (size_t i = 0; i < tensor->count; i++) tensor->gradient[i] = NAN;
    }
    backward(&p, false);
    size_t count = ls_model_parameter_count(p.model);
    assert_int_equal(calls.count, count);
    /* weight, bias, weight, bias, ... in definition order; in backward the last layer is first, and bias before
     * weight */
    for (size_t i = 0; i < count; i++) assert_int_equal(calls.parameters[i], count - 1 - i);
    ls_model_on_grad_ready(p.model, NULL, NULL);
    backward(&p, false);
    assert_int_equal(calls.count, count);
    probe_close(&p);
}

TEST(the_hook_is_called_as_gradients_are_complete) {
    expect_calls("mlp:6,9,7,3");
    expect_calls("convnet");
}

TEST(a_failing_hook_ends_the_backward) {
    struct probe p = probe_open("mlp:6,9,7,3");
    struct calls calls = {.model = p.model, .answer = LS_ERR_PEER};
    ls_model_on_grad_ready(p.model, note_call, &calls);
    (void)loss_of(&p);
    ls_model_backward(p.model, p.dy, false);
    assert_int_equal(calls.count, 3);
    assert_int_equal(ls_device_synchronize(ls_model_device(p.model)), LS_ERR_PEER);
    probe_close(&p);
}

/* --- batch norm's state ------------------------------------------------------------------------------------------ */

TEST(only_training_moves_the_running_statistics) {
    struct probe p = probe_open("convnet");
    const struct ls_tensor *mean = ls_model_buffer(p.model, 0);
    float before[16];
    memcpy(before, mean->data, sizeof before);
    (void)ls_model_forward(p.model, p.x, BATCH, false);
    assert_memory_equal(mean->data, before, sizeof before);
    assert_int_equal(*ls_model_batches_tracked(p.model, 0), 0);
    (void)ls_model_forward(p.model, p.x, BATCH, true);
    assert_memory_not_equal(mean->data, before, sizeof before);
    assert_int_equal(*ls_model_batches_tracked(p.model, 0), 1);
    assert_int_equal(*ls_model_batches_tracked(p.model, 1), 1);
    probe_close(&p);
}

/* In evaluation a row's outputs do not depend on the rows beside it (but for the matrix product's rounding). */
TEST(rows_do_not_depend_on_the_batch) {
    static const char *const models[] = {"mlp", "convnet"};
    for (size_t m = 0; m < 2; m++) {
        struct probe p = probe_open(models[m]);
        size_t outputs = ls_model_outputs(p.model), inputs = ls_shape_count(ls_model_input(p.model));
        float whole[BATCH * 10];
        const float *y;
        assert_int_equal(outputs, 10);
        y = ls_model_forward(p.model, p.x, BATCH, false);
        memcpy(whole, y, sizeof whole);
        for (size_t row = 0; row < BATCH; row++) {
            y = ls_model_forward(p.model, p.x + row * inputs, 1, false);
            for (size_t i = 0; i < outputs; i++) {
                assert_true(fabs((double)y[i] - (double)whole[row * outputs + i]) <= 1e-5);
            }
        }
        probe_close(&p);
    }
}
