#include <stdio.h>

#include "tests/nn/models.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/random.h"
#include "common/nn/network_internal.h"
#include "tests/base/test.h"

ls_device *open_device(int index) {
    setenv("LS_CPU_STREAMS", "inline", 1);
    ls_device *device;
    ls_device_options options = {.kind = LS_DEVICE_CPU, .index = index, .devices_on_node = 1};
    assert_int_equal(ls_device_open(&device, &options), LS_OK);
    assert_int_equal(ls_device_bind_thread(device), LS_OK);
    return device;
}

void close_empty_device(ls_device *device) {
    ls_memory_report memory;
    ls_device_memory(device, &memory);
    assert_int_equal(memory.current_total_bytes, 0);
    ls_device_close(device);
}

ls_model *make_model(ls_device *device, const char *description, size_t max_batch, uint64_t seed) {
    return make_model_in(LS_FP32, device, description, max_batch, seed);
}

ls_model *make_model_in(ls_dtype precision, ls_device *device, const char *description, size_t max_batch,
                        uint64_t seed) {
    ls_model *model;
    assert_int_equal(ls_model_create(&model, device, description, max_batch, precision), LS_OK);
    assert_int_equal(ls_model_alloc_gradients(model), LS_OK);
    assert_int_equal(ls_model_init(model, seed), LS_OK);
    return model;
}

float *make_values(ls_device *device, size_t count, uint64_t seed) {
    float *values;
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_INPUT, count * sizeof(float), "test values", (void **)&values),
                     LS_OK);
    ls_generator generator;
    ls_generator_seed(&generator, seed);
    ls_fill_uniform(&generator, values, count, -1, 1);
    return values;
}

static ls_network *make_network(const ls_layer *layers, size_t count) {
    ls_network *network = ls_network_begin(ls_features(6), LS_LOSS_CROSS_ENTROPY);
    assert_non_null(network);
    for (size_t l = 0; l < count; l++) assert_int_equal(ls_network_add(network, layers[l]), LS_OK);
    assert_int_equal(ls_network_finish(network), LS_OK);
    return network;
}

ls_network *residual_network(void) {
    static const ls_layer layers[] = {
        {.kind = &ls_linear, .name = "fc1", .units = 6, .relu = true},
        {.kind = &ls_linear, .name = "fc2", .units = 6, .relu = true, .shares = {"fc1.weight"}},
        {.kind = &ls_addition, .name = "sum", .reads = {"fc1", "fc2"}},
        {.kind = &ls_addition, .name = "more", .reads = {NULL, "sum"}},
        {.kind = &ls_linear, .name = "head", .units = 3, .begins_block = true},
    };
    return make_network(layers, sizeof layers / sizeof *layers);
}

ls_network *tied_blocks(int first, int second) {
    static const char *const weights[] = {"fc0.weight", "fc1.weight", "fc2.weight", "fc3.weight"};
    ls_layer layers[5];
    for (int l = 0; l < 5; l++) {
        layers[l] = (ls_layer){.kind = &ls_linear, .units = 6, .relu = l < 4, .begins_block = true};
        snprintf(layers[l].name, sizeof layers[l].name, "fc%d", l);
    }
    layers[2].shares[0] = weights[first];
    layers[4].shares[0] = weights[second];
    return make_network(layers, 5);
}

double expect_half_near(const char *what, const float *half, const float *full, size_t count, double tolerance) {
    double length = 0, distance = 0;
    for (size_t i = 0; i < count; i++) {
        length += (double)full[i] * (double)full[i];
        distance += ((double)half[i] - (double)full[i]) * ((double)half[i] - (double)full[i]);
    }
    double ratio = sqrt(distance / length);
    if (!(ratio <= tolerance)) fail_msg("%s differs by %g of its length, more than %g", what, ratio, tolerance);
    return ratio;
}
