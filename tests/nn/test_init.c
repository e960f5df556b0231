/* Initial weights: PyTorch's, bit for bit. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/checkpoint/safetensors.h"
#include "common/nn/layer.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

static void expect_values(const float *values, const double *expected, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++) {
        float wanted = (float)expected[i];
        if (memcmp(&values[i], &wanted, sizeof wanted) != 0) {
            fail_msg("%s[%zu] is %.9g, not %.9g", name, i, (double)values[i], expected[i]);
        }
    }
}

TEST(a_linear_layer_of_seed_0) {
    static const double weight[] = {-.003743410110473633, .26822179555892944,  -.4115225672721863,
                                    -.3679695129394531,   -.19257718324661255, .13407868146896362,
                                    -.009906589984893799, .39644473791122437,  -.04437202215194702,
                                    .1323062777519226,    -.15110653638839722, -.09828269481658936};
    static const double bias[] = {-.4776742458343506, -.33114105463027954, -.20611155033111572};
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "mlp:4,3", 1, 0);
    expect_values(ls_model_parameter(model, 0)->data, weight, 12, "weight");
    expect_values(ls_model_parameter(model, 1)->data, bias, 3, "bias");
    ls_model_destroy(model);
    close_empty_device(device);
}

TEST(two_linear_layers_draw_one_after_the_other) {
    static const double w1[] = {-.005293981172144413, .37932288646698, -.5819807648658752, -.5203874707221985};
    static const double b1[] = {-.27234524488449097, .1896158903837204};
    static const double w2[] = {-.014010033570230007, .5606575012207031};
    static const double b2[] = {-.06275151669979095};
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "mlp:2,2,1", 1, 0);
    expect_values(ls_model_parameter(model, 0)->data, w1, 4, "w1");
    expect_values(ls_model_parameter(model, 1)->data, b1, 2, "b1");
    expect_values(ls_model_parameter(model, 2)->data, w2, 2, "w2");
    expect_values(ls_model_parameter(model, 3)->data, b2, 1, "b2");
    ls_model_destroy(model);
    close_empty_device(device);
}

/* No built-in model has such a layer, so the test creates one: 3 channels to 2, kernel 3. */
TEST(a_convolution_of_seed_42) {
    static const double first[] = {.14713551104068756, .15973509848117828, -.045085761696100235, .17678682506084442};
    static const double bias[] = {.055431656539440155, .07971543073654175};
    ls_layer layer = {.kind = &ls_conv2d, .name = "conv", .in = {3, 8, 8, 0}, .units = 2, .kernel = 3, .stride = 1};
    assert_int_equal(layer.kind->plan(&layer), LS_OK);
    float weights[54], biases[2];
    assert_int_equal(layer.parameters[0].count, 54);
    ls_generator generator;
    ls_generator_seed(&generator, 42);
    layer.kind->init(&layer, &generator, (float *[]){weights, biases});
    expect_values(weights, first, 4, "weight");
    expect_values(biases, bias, 2, "bias");
}

/* Consecutive draws: each begins with the generator's state after the previous one. */
TEST(normal_values_are_pytorchs) {
    static const size_t counts[] = {5, 15, 16, 17, 31, 32, 40, 1000};
    ls_safetensors *file;
    ls_generator generator;
    float values[1000];
    assert_int_equal(ls_safetensors_open(&file, "tests/golden/normal_draws.safetensors"), LS_OK);
    ls_generator_seed(&generator, 3);
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        char name[8];
        snprintf(name, sizeof name, "n%zu", counts[i]);
        const ls_safetensor *stored = ls_safetensors_find(file, name);
        assert_non_null(stored);
        assert_int_equal(stored->nbytes, counts[i] * sizeof(float));
        ls_init_normal(&generator, values, counts[i], 1);
        for (size_t v = 0; v < counts[i]; v++) {
            float wanted = ((const float *)stored->data)[v];
            if (!(fabsf(values[v] - wanted) <= 1e-6f))
                fail_msg("%s[%zu] is %.9g, in PyTorch %.9g", name, v, (double)values[v], (double)wanted);
        }
    }
    ls_safetensors_close(file);
}

/* Weights and biases fill +-1/sqrt(fan_in) of their layer evenly. (The recorded runs do not help here: their weights
 * were drawn as float64.) */
static void expect_uniform(const struct ls_tensor *tensor, size_t fan_in) {
    double bound = 1 / sqrt((double)fan_in), most = 0, sum = 0;
    for (size_t i = 0; i < tensor->count; i++) {
        double value = (double)tensor->data[i];
        assert_true(fabs(value) <= bound);
        most = fmax(most, fabs(value));
        sum += value;
    }
    assert_true(most > bound * (1 - 12 / (double)tensor->count));
    assert_true(fabs(sum) < 4 * bound * sqrt((double)tensor->count / 3));
}

TEST(the_convnet_starts_within_its_bounds) {
    static const size_t fans[] = {25, 0, 400, 0, 1568}; /* conv1 bn1 conv2 bn2 fc */
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "convnet", 1, 0);
    for (size_t l = 0; l < 5; l++) {
        const struct ls_tensor *weight = ls_model_parameter(model, 2 * l), *bias = ls_model_parameter(model, 2 * l + 1);
        if (fans[l] > 0) {
            expect_uniform(weight, fans[l]);
            expect_uniform(bias, fans[l]);
        }
        for (size_t i = 0; fans[l] == 0 && i < weight->count; i++) {
            assert_true(weight->data[i] == 1 && bias->data[i] == 0);
        }
    }
    for (size_t b = 0; b < ls_model_buffer_count(model); b++) {
        const struct ls_tensor *buffer = ls_model_buffer(model, b);
        for (size_t i = 0; i < buffer->count; i++) assert_true(buffer->data[i] == (b % 2 ? 1 : 0));
    }
    ls_model_destroy(model);
    close_empty_device(device);
}

TEST(a_seed_decides_the_weights) {
    ls_device *device = open_device(0);
    ls_model *models[3];
    static const uint64_t seeds[] = {7, 7, 8};
    float *data[3];
    size_t count;
    for (int i = 0; i < 3; i++) {
        models[i] = make_model(device, "mlp:20,10", 1, seeds[i]);
        ls_model_state(models[i], &data[i], &count);
    }
    assert_memory_equal(data[0], data[1], count * sizeof(float));
    assert_memory_not_equal(data[0], data[2], count * sizeof(float));
    /* again, over existing weights, which must not affect the result */
    assert_int_equal(ls_model_init(models[2], 7), LS_OK);
    assert_memory_equal(data[0], data[2], count * sizeof(float));
    for (int i = 0; i < 3; i++) ls_model_destroy(models[i]);
    close_empty_device(device);
}
