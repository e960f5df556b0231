/* Models in half precision: where they round, compared with arithmetic that is otherwise exact; their copies of the
 * weights; and their memory. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/dtype.h"
#include "kernels/kernels.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

enum { BATCH = 4, INPUTS = 6, HIDDEN = 5, OUTPUTS = 3 };

static const ls_dtype halves[] = {LS_FP16, LS_BF16};

static float rounded(float value, ls_dtype dtype) {
    return dtype == LS_FP16 ? ls_fp16_to_float(ls_fp16_from_float(value)) : ls_bf16_to_float(ls_bf16_from_float(value));
}

static ls_model *half_model(ls_dtype precision, const char *description, size_t max_batch) {
    return make_model_in(precision, open_device(0), description, max_batch, 3);
}

static void destroy(ls_model *model) {
    ls_device *device = ls_model_device(model);
    ls_model_destroy(model);
    close_empty_device(device);
}

/* --- where it rounds ----------------------------------------------------------------------------------------------- */

/* A quarter of a small integer, times `unit`. Sums of a few products of such numbers are exact in fp32, in any
 * order. */
static void fill(float *values, size_t count, int seed, float unit) {
    for (size_t i = 0; i < count; i++) values[i] = unit * (float)((int)(i * 7 + (size_t)seed * 5) % 31 - 15) / 4;
}

/* y = round(round(x w^T) + b) */
static void linear(ls_dtype dtype, const float *x, const struct ls_tensor *w, const struct ls_tensor *b, float *y) {
    size_t units = w->shape[0], inputs = w->shape[1];
    for (size_t r = 0; r < BATCH; r++) {
        for (size_t u = 0; u < units; u++) {
            float sum = 0;
            for (size_t i = 0; i < inputs; i++)
                sum += rounded(x[r * inputs + i], dtype) * rounded(w->data[u * inputs + i], dtype);
            y[r * units + u] = rounded(rounded(sum, dtype) + rounded(b->data[u], dtype), dtype);
        }
    }
}

/* Runs forward on samples that are rounded as the loader does; the samples are kept for backward. */
static const float *forward(ls_model *model, const float *x, size_t batch, bool training) {
    static uint16_t halves_of_x[BATCH * 784];
    ls_dtype precision = ls_model_precision(model);
    if (precision == LS_FP32) return ls_model_forward(model, x, batch, training);
    ls_cast_now(precision, halves_of_x, x, batch * ls_shape_count(ls_model_input(model)));
    return ls_model_forward(model, halves_of_x, batch, training);
}

static void expect_equal(const char *what, const float *got, const float *want, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!(got[i] == want[i])) fail_msg("%s[%zu] is %.9g, not %.9g", what, i, (double)got[i], (double)want[i]);
    }
}

/* dw = dy^T x, db = the sums of dy: exact, and not rounded to half. */
static void expect_gradients(const struct ls_tensor *w, const struct ls_tensor *b, const float *dy, const float *x) {
    size_t units = w->shape[0], inputs = w->shape[1];
    float dw[HIDDEN * INPUTS] = {0}, db[HIDDEN] = {0};
    for (size_t r = 0; r < BATCH; r++) {
        for (size_t u = 0; u < units; u++) {
            db[u] += dy[r * units + u];
            for (size_t i = 0; i < inputs; i++) dw[u * inputs + i] += dy[r * units + u] * x[r * inputs + i];
        }
    }
    expect_equal(w->name, w->gradient, dw, units * inputs);
    expect_equal(b->name, b->gradient, db, units);
}

/* The gradient of the hidden layer's output: rounded, and 0 where the ReLU's output was 0. */
static void back_to_hidden(ls_dtype dtype, const struct ls_tensor *w, const float *dy, const float *hidden, float *dh) {
    for (size_t r = 0; r < BATCH; r++) {
        for (size_t h = 0; h < HIDDEN; h++) {
            float sum = 0;
            for (size_t u = 0; u < OUTPUTS; u++) sum += dy[r * OUTPUTS + u] * rounded(w->data[u * HIDDEN + h], dtype);
            dh[r * HIDDEN + h] = hidden[r * HIDDEN + h] <= 0 ? 0 : rounded(sum, dtype);
        }
    }
}

static void expect_rounding_of(ls_dtype dtype) {
    ls_model *model = half_model(dtype, "mlp:6,5,3", BATCH);
    const struct ls_tensor *w[2] = {ls_model_parameter(model, 0), ls_model_parameter(model, 2)};
    const struct ls_tensor *b[2] = {ls_model_parameter(model, 1), ls_model_parameter(model, 3)};
    for (int l = 0; l < 2; l++) {
        fill(w[l]->data, w[l]->count, l,
             1 + 0x1p-10f); /* not representable in half precision: the copies differ from the weights */
        fill(b[l]->data, b[l]->count, 2 + l, 1 + 0x1p-10f);
    }
    ls_model_parameters_changed(model);
    float x[BATCH * INPUTS], hidden[BATCH * HIDDEN], want[BATCH * OUTPUTS], dy[BATCH * OUTPUTS], dh[BATCH * HIDDEN];
    fill(x, BATCH * INPUTS, 4, 1);
    linear(dtype, x, w[0], b[0], hidden);
    for (size_t i = 0; i < BATCH * HIDDEN; i++) hidden[i] = hidden[i] <= 0 ? 0 : hidden[i];
    linear(dtype, hidden, w[1], b[1], want);
    const float *y;
    y = forward(model, x, BATCH, true);
    expect_equal("y", y, want, BATCH * OUTPUTS);
    fill(dy, BATCH * OUTPUTS, 5, 1);
    back_to_hidden(dtype, w[1], dy, hidden, dh);
    float given[BATCH * OUTPUTS];
    memcpy(given, dy, sizeof given); /* backward may overwrite it */
    ls_model_backward(model, given, false);
    expect_gradients(w[1], b[1], dy, hidden);
    expect_gradients(w[0], b[0], dh, x);
    destroy(model);
}

TEST(activations_are_rounded_and_gradients_of_weights_are_not) {
    for (size_t h = 0; h < 2; h++) expect_rounding_of(halves[h]);
}

/* --- convnet: close to the fp32 results --------------------------------------------------------------------------- */

static void run_convnet(ls_model *model, const float *x, float *y) {
    const float *out;
    float dy[BATCH * 10];
    out = forward(model, x, BATCH, true);
    memcpy(y, out, BATCH * 10 * sizeof *y);
    fill(dy, BATCH * 10, 6, 0x1p-6f);
    ls_model_backward(model, dy, false);
}

TEST(convnet_in_half_is_near_convnet) {
    /* a few roundings of 2^-11 and 2^-8; in backward a ReLU or a maximum may choose another element, whose gradient
     * then differs */
    const double forward[] = {0.002, 0.016}, backward[] = {0.1, 0.2};
    ls_device *device = open_device(0);
    ls_model *full = make_model(device, "convnet", BATCH, 3);
    float *x = make_values(device, BATCH * 784, 4), y[BATCH * 10], half_y[BATCH * 10];
    run_convnet(full, x, y);
    for (size_t h = 0; h < 2; h++) {
        ls_model *half = make_model_in(halves[h], device, "convnet", BATCH, 3);
        run_convnet(half, x, half_y);
        expect_half_near("y", half_y, y, BATCH * 10, forward[h]);
        assert_memory_not_equal(half_y, y, sizeof y);
        for (size_t p = 0; p < ls_model_parameter_count(full); p++) {
            const struct ls_tensor *a = ls_model_parameter(half, p), *b = ls_model_parameter(full, p);
            bool before_norm = strncmp(a->name, "conv", 4) == 0 && strstr(a->name, "bias"); /* true value 0 */
            if (!before_norm) expect_half_near(a->name, a->gradient, b->gradient, a->count, backward[h]);
        }
        expect_half_near("running_var", ls_model_buffer(half, 1)->data, ls_model_buffer(full, 1)->data, 16, forward[h]);
        ls_model_destroy(half);
    }
    ls_device_free(device, x);
    ls_model_destroy(full);
    close_empty_device(device);
}

/* --- the copies of the weights ----------------------------------------------------------------------------------- */

static float first_output(ls_model *model, const float *x) {
    const float *y;
    y = forward(model, x, 1, false);
    return y[0];
}

TEST(weights_are_cast_when_they_have_changed) {
    ls_model *model = half_model(LS_BF16, "mlp:1,1", 1);
    const struct ls_tensor *w = ls_model_parameter(model, 0), *b = ls_model_parameter(model, 1);
    const float x = 2;
    w->data[0] = 3;
    b->data[0] = 0;
    assert_true(first_output(model, &x) == 6); /* initial values make copies stale too */
    w->data[0] = 5;
    assert_true(first_output(model, &x) == 6); /* still the cached copies: ls_model_parameters_changed was not called */
    ls_model_parameters_changed(model);
    assert_true(first_output(model, &x) == 10);
    assert_int_equal(ls_model_precision(model), LS_BF16);
    destroy(model);
}

TEST(an_empty_batch_has_gradients_of_zero) {
    ls_model *model = half_model(LS_FP16, "mlp:6,5,3", BATCH);
    const struct ls_tensor *w = ls_model_parameter(model, 0);
    w->gradient[0] = 7;
    (void)ls_model_forward(model, NULL, 0, true);
    ls_model_backward(model, NULL, true);
    assert_true(w->gradient[0] == 7);
    ls_model_backward(model, NULL, false);
    assert_true(w->gradient[0] == 0);
    destroy(model);
}

/* 6 x 4096 x 8 exceeds fp16's 65504, though the input and the weights do not. */
TEST(an_overflow_is_found_where_it_is) {
    ls_model *model = half_model(LS_FP16, "mlp:6,5,3", 1);
    const struct ls_tensor *w = ls_model_parameter(model, 0);
    for (size_t i = 0; i < w->count; i++) w->data[i] = 4096;
    ls_model_parameters_changed(model);
    const float x[INPUTS] = {8, 8, 8, 8, 8, 8};
    char place[64];
    (void)forward(model, x, 1, true);
    assert_int_equal(ls_model_find_nonfinite(model, place, sizeof place), LS_OK);
    assert_string_equal(place, "the output of fc1");
    destroy(model);
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

TEST(half_takes_half) {
    enum { ROWS = 8, ACTIVATIONS = ROWS * (256 + 10 + 2 * 256) }; /* outputs of two layers, and two for gradients */
    ls_memory_report full, half;
    ls_model *model = half_model(LS_FP32, "mlp", ROWS);
    ls_device_memory(ls_model_device(model), &full);
    destroy(model);
    model = half_model(LS_BF16, "mlp", ROWS);
    ls_device_memory(ls_model_device(model), &half);
    destroy(model);
    assert_int_equal(full.current_bytes[LS_MEMORY_ACTIVATION], 4 * ACTIVATIONS);
    /* the output is in fp32, too */
    assert_int_equal(half.current_bytes[LS_MEMORY_ACTIVATION], 2 * ACTIVATIONS + 4 * ROWS * 10);
    assert_int_equal(2 * half.current_bytes[LS_MEMORY_PARAMETER], 3 * full.current_bytes[LS_MEMORY_PARAMETER]);
    assert_int_equal(half.current_bytes[LS_MEMORY_GRADIENT], full.current_bytes[LS_MEMORY_GRADIENT]);
}
