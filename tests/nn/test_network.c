/* Networks that are not chains: values with several readers, parameters with several users, and invalid networks. */
#include <math.h>
#include <string.h>

#include "common/nn/model.h"
#include "common/nn/network_internal.h"
#include "tests/base/golden.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

enum { BATCH = 4, WIDTH = 6, OUTPUTS = 3 };

static void expect_near(const cJSON *expected, const char *name, const float *found, double tolerance) {
    int i = 0;
    const cJSON *value, *values = cJSON_GetObjectItem(expected, name);
    assert_true(cJSON_GetArraySize(values) > 0);
    cJSON_ArrayForEach(value, values) {
        if (!(fabs((double)found[i] - value->valuedouble) <= tolerance))
            fail_msg("%s[%d] is %.9g, in PyTorch %.9g", name, i, (double)found[i], value->valuedouble);
        i++;
    }
}

/* Outputs and gradients are PyTorch's (tests/pytorch/check_network.py), and the shared weight is ready once, after
 * fc1. */
static size_t ready[8], ready_count;

static ls_status note_ready(void *context, size_t parameter) {
    (void)context;
    ready[ready_count++] = parameter;
    return LS_OK;
}

static void expect_pytorchs(ls_dtype precision, const cJSON *expected, double tolerance) {
    ls_device *device = open_device(0);
    ls_network *network = residual_network();
    ls_model *model;
    assert_int_equal(ls_model_create_of(&model, device, network, BATCH, precision), LS_OK);
    assert_int_equal(ls_model_alloc_gradients(model), LS_OK);
    assert_int_equal(ls_model_init(model, 3), LS_OK);
    float *x = make_values(device, BATCH * WIDTH, 4), *dy = make_values(device, BATCH * OUTPUTS, 5);
    if (precision != LS_FP32) { /* as the loader does */
        uint16_t halves[BATCH * WIDTH];
        ls_cast_now(precision, halves, x, BATCH * WIDTH);
        memcpy(x, halves, sizeof halves);
    }
    ready_count = 0;
    ls_model_on_grad_ready(model, note_ready, NULL);
    expect_near(expected, "y", ls_model_forward(model, x, BATCH, true), tolerance);
    ls_model_backward(model, dy, false);
    for (size_t p = 0; p < ls_model_parameter_count(model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        expect_near(expected, tensor->name, tensor->gradient, tolerance);
    }
    static const size_t order[] = {4, 3, 2, 1, 0}; /* head's, fc2's bias, fc1's */
    assert_int_equal(ready_count, 5);
    assert_memory_equal(ready, order, sizeof order);
    ls_device_free(device, x);
    ls_device_free(device, dy);
    ls_model_destroy(model);
    ls_network_destroy(network);
    close_empty_device(device);
}

TEST(a_residual_network_with_a_tied_layer_is_pytorchs) {
    cJSON *golden = golden_json("residual_tied.json");
    expect_pytorchs(LS_FP32, cJSON_GetObjectItem(golden, "fp32"), 1e-6);
    expect_pytorchs(LS_BF16, cJSON_GetObjectItem(golden, "bf16"), 1e-6);
    cJSON_Delete(golden);
}

/* y = x + fc1(x) + fc1(x): only the gradient that the last layer returns needs a slot, where dy is added twice. */
TEST(a_value_that_one_layer_reads_twice_gets_both_gradients) {
    const ls_layer fc1 = {.kind = &ls_linear, .name = "fc1", .units = WIDTH};
    const ls_layer sum = {.kind = &ls_addition, .name = "sum", .reads = {NULL, "fc1", "fc1"}};
    ls_device *device = open_device(0);
    ls_network *network = ls_network_begin(ls_features(WIDTH), LS_LOSS_CROSS_ENTROPY);
    ls_model *model;
    ls_memory_report memory;
    assert_int_equal(ls_network_add(network, fc1), LS_OK);
    assert_int_equal(ls_network_add(network, sum), LS_OK);
    assert_int_equal(ls_network_finish(network), LS_OK);
    assert_int_equal(ls_model_create_of(&model, device, network, BATCH, LS_FP32), LS_OK);
    ls_device_memory(device, &memory); /* two outputs, two slots */
    assert_int_equal(memory.current_bytes[LS_MEMORY_ACTIVATION], 4 * BATCH * WIDTH * sizeof(float));
    assert_int_equal(ls_model_alloc_gradients(model), LS_OK);
    assert_int_equal(ls_model_init(model, 3), LS_OK);
    float *x = make_values(device, BATCH * WIDTH, 4), *dy = make_values(device, BATCH * WIDTH, 5), twice[WIDTH] = {0};
    for (size_t i = 0; i < BATCH * WIDTH; i++) twice[i % WIDTH] += 2 * dy[i];
    (void)ls_model_forward(model, x, BATCH, true);
    ls_model_backward(model, dy, false);
    for (size_t i = 0; i < WIDTH; i++)
        assert_true(fabsf(ls_model_parameter(model, 1)->gradient[i] - twice[i]) <= 1e-6f);
    ls_device_free(device, x);
    ls_device_free(device, dy);
    ls_model_destroy(model);
    ls_network_destroy(network);
    close_empty_device(device);
}

/* --- invalid networks --------------------------------------------------------------------------------------------- */

TEST_IN(scratch, what_does_not_fit_is_refused) {
    static const struct {
        ls_layer layer;
        const char *said;
    } rows[] = {
        {{.kind = &ls_linear, .name = "a", .units = 6, .reads = {"nobody"}}, "no layer of that name"},
        {{.kind = &ls_addition, .name = "a", .reads = {"fc1", "head"}}, "differ in shape"},
        {{.kind = &ls_addition, .name = "a"}, "nothing to add"},
        {{.kind = &ls_linear, .name = "fc2", .units = 6}, "layer name fc2 is already taken"},
        {{.kind = &ls_linear, .name = "a", .units = 7, .shares = {"fc1.weight"}},
         "no earlier parameter has that name and shape"},
        {{.kind = &ls_linear, .name = "a", .units = 6, .shares = {"fc1.bias"}},
         "no earlier parameter has that name and shape"},
        {{.kind = &ls_linear, .name = "a", .units = 6, .reads = {"fc1"}}, "the end of the block before"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_network *network = residual_network();
        ls_status status = ls_network_add(network, rows[i].layer);
        if (status == LS_OK) status = ls_network_finish(network);
        assert_int_equal(status, LS_ERR_INVALID);
        scratch_expect_error(rows[i].said, NULL);
        ls_network_destroy(network);
    }
}
