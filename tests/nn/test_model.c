/* Models: their descriptions, lists of tensors, and memory. */
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/nn/layer.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

struct expected_tensor {
    const char *name;
    int ndim;
    size_t shape[4];
};

static void expect_tensor(const struct ls_tensor *tensor, const struct expected_tensor *expected) {
    assert_string_equal(tensor->name, expected->name);
    assert_int_equal(tensor->ndim, expected->ndim);
    size_t count = 1;
    for (int d = 0; d < expected->ndim; d++) {
        assert_int_equal(tensor->shape[d], expected->shape[d]);
        count *= expected->shape[d];
    }
    assert_int_equal(tensor->count, count);
    assert_non_null(tensor->data);
    assert_int_equal((uintptr_t)tensor->data % 64, 0);
}

TEST(the_convnet_has_pytorchs_names_and_order) {
    static const struct expected_tensor parameters[] = {
        {"conv1.weight", 4, {16, 1, 5, 5}},  {"conv1.bias", 1, {16}}, {"bn1.weight", 1, {16}}, {"bn1.bias", 1, {16}},
        {"conv2.weight", 4, {32, 16, 5, 5}}, {"conv2.bias", 1, {32}}, {"bn2.weight", 1, {32}}, {"bn2.bias", 1, {32}},
        {"fc.weight", 2, {10, 1568}},        {"fc.bias", 1, {10}},
    };
    static const struct expected_tensor buffers[] = {
        {"bn1.running_mean", 1, {16}},
        {"bn1.running_var", 1, {16}},
        {"bn2.running_mean", 1, {32}},
        {"bn2.running_var", 1, {32}},
    };
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "convnet", 2, 0);
    assert_int_equal(ls_model_parameter_count(model), 10);
    for (size_t p = 0; p < 10; p++) expect_tensor(ls_model_parameter(model, p), &parameters[p]);
    assert_int_equal(ls_model_buffer_count(model), 4);
    for (size_t b = 0; b < 4; b++) {
        expect_tensor(ls_model_buffer(model, b), &buffers[b]);
        assert_null(ls_model_buffer(model, b)->gradient);
    }
    assert_int_equal(ls_model_batchnorm_count(model), 2);
    assert_string_equal(ls_model_batchnorm_name(model, 0), "bn1");
    assert_string_equal(ls_model_batchnorm_name(model, 1), "bn2");
    assert_int_equal(ls_shape_count(ls_model_input(model)), 784);
    assert_int_equal(ls_model_outputs(model), 10);
    assert_int_equal(ls_model_loss(model), LS_LOSS_CROSS_ENTROPY);
    ls_model_destroy(model);
    close_empty_device(device);
}

static ls_status count_ready(void *context, size_t parameter) {
    int *counts = context;
    counts[parameter]++;
    return LS_OK;
}

/* Weights are drawn in the order of the definition. All layers but the head compute what mlp's do, and the gradients of
 * the head are zeros that are not reported. */
TEST(branched_is_an_mlp_with_a_head_that_takes_no_part) {
    static const struct expected_tensor parameters[] = {{"fc1.weight", 2, {256, 784}}, {"fc1.bias", 1, {256}},
                                                        {"aux.weight", 2, {10, 256}},  {"aux.bias", 1, {10}},
                                                        {"fc2.weight", 2, {10, 256}},  {"fc2.bias", 1, {10}}};
    static const size_t in_mlp[] = {0, 1, 2, 3, 2, 3};
    enum { HEAD = 2, LAST = 4, COUNT = 6, BATCH = 3 };
    ls_device *device = open_device(0);
    ls_model *branched = make_model(device, "branched", BATCH, 5), *mlp = make_model(device, "mlp", BATCH, 5);
    int ready[COUNT] = {0};
    assert_int_equal(ls_model_parameter_count(branched), COUNT);
    assert_null(ls_model_untaken(mlp));
    for (size_t p = 0; p < COUNT; p++) {
        const struct ls_tensor *ours = ls_model_parameter(branched, p), *theirs = ls_model_parameter(mlp, in_mlp[p]);
        expect_tensor(ours, &parameters[p]);
        bool same = memcmp(ours->data, theirs->data, ours->count * sizeof(float)) == 0;
        assert_true(same == (p < LAST)); /* mlp's second layer is drawn in place of the head */
        assert_true(ls_model_untaken(branched)[p] == (p == HEAD || p == HEAD + 1));
        memcpy(theirs->data, ours->data, ours->count * sizeof(float));
        for (size_t i = 0; i < ours->count; i++) ours->gradient[i] = 7;
    }
    float *x = make_values(device, BATCH * 784, 1), *dy = make_values(device, BATCH * 10, 2),
          *dy_mlp = make_values(device, BATCH * 10, 2);
    const float *y, *y_mlp;
    ls_model_on_grad_ready(branched, count_ready, ready);
    y = ls_model_forward(branched, x, BATCH, true);
    y_mlp = ls_model_forward(mlp, x, BATCH, true);
    assert_memory_equal(y, y_mlp, BATCH * 10 * sizeof(float));
    ls_model_backward(branched, dy, false);
    ls_model_backward(mlp, dy_mlp, false);
    for (size_t p = 0; p < COUNT; p++) {
        const struct ls_tensor *ours = ls_model_parameter(branched, p), *theirs = ls_model_parameter(mlp, in_mlp[p]);
        bool head = p == HEAD || p == HEAD + 1;
        assert_int_equal(ready[p], !head);
        for (size_t i = 0; head && i < ours->count; i++) assert_true(ours->gradient[i] == 0);
        if (!head) assert_memory_equal(ours->gradient, theirs->gradient, ours->count * sizeof(float));
    }
    ls_device_free(device, x);
    ls_device_free(device, dy);
    ls_device_free(device, dy_mlp);
    ls_model_destroy(branched);
    ls_model_destroy(mlp);
    close_empty_device(device);
}

TEST(the_mlp_has_pytorchs_names_and_order) {
    static const struct expected_tensor parameters[] = {
        {"fc1.weight", 2, {256, 784}}, {"fc1.bias", 1, {256}}, {"fc2.weight", 2, {10, 256}}, {"fc2.bias", 1, {10}}};
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "mlp", 2, 0);
    assert_int_equal(ls_model_parameter_count(model), 4);
    for (size_t p = 0; p < 4; p++) expect_tensor(ls_model_parameter(model, p), &parameters[p]);
    assert_int_equal(ls_model_buffer_count(model), 0);
    assert_int_equal(ls_model_batchnorm_count(model), 0);
    assert_ptr_equal(ls_model_device(model), device);
    ls_model_destroy(model);
    close_empty_device(device);
}

TEST(deep_has_34_tensors_and_66_MB) {
    ls_device *device = open_device(0);
    ls_model *model;
    assert_int_equal(ls_model_create(&model, device, "deep", 1, LS_FP32), LS_OK);
    assert_int_equal(ls_model_parameter_count(model), 34);
    size_t nbytes = 0;
    for (size_t p = 0; p < 34; p++) nbytes += ls_model_parameter(model, p)->count * sizeof(float);
    assert_int_equal(nbytes, 4 * (785 * 1024 + 15 * 1025 * 1024 + 1025 * 10));
    assert_true(nbytes > 66000000 && nbytes < 67000000);
    assert_string_equal(ls_model_parameter(model, 33)->name, "fc17.bias");
    ls_model_destroy(model);
    close_empty_device(device);
}

TEST(wide_has_the_squared_error) {
    ls_device *device = open_device(0);
    ls_model *model;
    assert_int_equal(ls_model_create(&model, device, "wide", 1, LS_FP32), LS_OK);
    assert_int_equal(ls_model_loss(model), LS_LOSS_SQUARED_ERROR);
    assert_int_equal(ls_shape_count(ls_model_input(model)), 4096);
    assert_int_equal(ls_model_parameter(model, 0)->shape[0], 8192);
    assert_int_equal(ls_model_outputs(model), 4096);
    ls_model_destroy(model);
    close_empty_device(device);
}

TEST(sizes_are_read_as_they_are_written) {
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "mlp:3,5,7,2", 1, 0);
    static const size_t shapes[][2] = {{5, 3}, {7, 5}, {2, 7}};
    assert_int_equal(ls_model_parameter_count(model), 6);
    for (size_t l = 0; l < 3; l++) {
        assert_int_equal(ls_model_parameter(model, 2 * l)->shape[0], shapes[l][0]);
        assert_int_equal(ls_model_parameter(model, 2 * l)->shape[1], shapes[l][1]);
    }
    ls_model_destroy(model);
    close_empty_device(device);
}

TEST_IN(scratch, what_is_no_model_is_refused) {
    static const char *const bad[] = {"mlp:10",  "mlp:0,3",        "mlp:784,,10", "nonsense",
                                      "",        "mlp:",           "mlp:784,10,", "mlp:-1,10",
                                      "mlp:a,b", "mlp:3,16777217", "convnet:3x",  "mlp:3 4"};
    ls_device *device = open_device(0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_model *model = (ls_model *)device;
        ls_status status = ls_model_create(&model, device, bad[i], 1, LS_FP32);
        if (status != LS_ERR_USAGE) fail_msg("\"%s\" gives %s", bad[i], ls_status_text(status));
        assert_null(model);
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\"", bad[i]);
        scratch_expect_error(quoted, NULL);
    }
    char many[1024] = "mlp:2";
    for (int i = 0; i < 200; i++) strcat(many, ",2");
    ls_model *model;
    assert_int_equal(ls_model_create(&model, device, many, 1, LS_FP32), LS_ERR_USAGE);
    scratch_expect_error("cannot have more than", "layers");
    close_empty_device(device);
}

TEST(a_window_that_does_not_fit_is_refused) {
    static const struct {
        int kernel, side;
        ls_status status;
    } rows[] = {{2, 2, LS_OK},          {15, 28, LS_OK},        {1, 28, LS_ERR_INVALID}, {16, 28, LS_ERR_INVALID},
                {5, 4, LS_ERR_INVALID}, {0, 28, LS_ERR_INVALID}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char said[256] = "";
        ls_layer pool = {
            .kind = &ls_maxpool2d, .name = "pool", .kernel = rows[i].kernel, .in = {3, rows[i].side, rows[i].side, 0}};
        ls_log_sink before = ls_log_capture(said, sizeof said);
        assert_int_equal(pool.kind->plan(&pool), rows[i].status);
        ls_log_restore(before);
        assert_int_equal(strstr(said, "pool: a window of") != NULL, rows[i].status != LS_OK);
    }
}

TEST_IN(scratch, a_batch_without_room_is_refused) {
    ls_device *device = open_device(3);
    ls_model *model = make_model(device, "mlp:6,4", 5, 0);
    float *x = make_values(device, 6 * 6, 1);
    (void)ls_model_forward(model, x, 5, true);
    (void)ls_model_forward(model, x, 1, true);
    assert_null(ls_model_forward(model, x, 6, true));
    scratch_expect_error("6 samples on device 3", "at most 5");
    assert_int_equal(ls_device_synchronize(device), LS_ERR_INVALID);
    ls_device_free(device, x);
    ls_model_destroy(model);
    close_empty_device(device);
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

TEST(memory_is_counted_by_what_it_is_for) {
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "mlp:64,32,16", 8, 0);
    ls_memory_report memory;
    ls_device_memory(device, &memory);
    size_t parameters = 4 * (64 * 32 + 32 + 32 * 16 + 16);
    assert_int_equal(memory.current_bytes[LS_MEMORY_PARAMETER], parameters);
    assert_int_equal(memory.current_bytes[LS_MEMORY_GRADIENT], parameters);
    /* outputs of two linear layers, and two arrays of the largest activation between them */
    assert_int_equal(memory.current_bytes[LS_MEMORY_ACTIVATION], 8 * (32 + 16 + 2 * 32) * sizeof(float));
    assert_int_equal(memory.current_bytes[LS_MEMORY_OPTIMIZER], 0);
    ls_model_destroy(model);
    close_empty_device(device);
}

TEST(state_is_one_range_with_the_parameters_first) {
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "convnet", 1, 0);
    float *data, *parameters, *gradients;
    size_t count, parameter_count, gradient_count;
    ls_model_state(model, &data, &count);
    ls_model_parameters(model, &parameters, &parameter_count);
    ls_model_gradients(model, &gradients, &gradient_count);
    assert_ptr_equal(data, parameters);
    assert_int_equal(parameter_count, gradient_count);
    for (size_t p = 0; p < ls_model_parameter_count(model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        assert_true(tensor->data >= data && tensor->data + tensor->count <= data + parameter_count);
        assert_int_equal(tensor->gradient - gradients, tensor->data - data);
    }
    for (size_t b = 0; b < ls_model_buffer_count(model); b++) {
        const struct ls_tensor *tensor = ls_model_buffer(model, b);
        assert_true(tensor->data >= data + parameter_count && tensor->data + tensor->count <= data + count);
    }
    ls_model_destroy(model);
    close_empty_device(device);
}

/* Whichever allocation fails, no memory stays allocated. */
TEST_IN(scratch, too_little_memory_leaves_nothing_behind) {
    ls_model *model;
    int failures = 0;
    ls_status status = LS_ERR_NO_MEMORY;
    for (size_t capacity = 20000; status != LS_OK; capacity += 20000, failures++) {
        ls_device *device;
        ls_device_options options = {.kind = LS_DEVICE_CPU, .devices_on_node = 1, .memory_capacity_bytes = capacity};
        assert_int_equal(ls_device_open(&device, &options), LS_OK);
        status = ls_model_create(&model, device, "convnet", 2, LS_FP32);
        if (status != LS_OK) {
            assert_int_equal(status, LS_ERR_NO_MEMORY);
            assert_null(model);
            scratch_expect_error("device 0 is out of memory", NULL);
        }
        ls_model_destroy(model);
        close_empty_device(device);
    }
    assert_true(failures > 4);
}
