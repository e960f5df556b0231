/* Parameters whose slots are widened: values, passes and memory equal those of the plain layout. */
#include <string.h>

#include "common/base/dtype.h"
#include "common/train/loop.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

enum { UNIT = 48, BATCH = 2, INPUTS = 28 * 28, LINE = 16 };

static void expect_slots(const ls_model *model) {
    float *slab;
    size_t floats, parameters;
    ls_model_state(model, &slab, &floats);
    ls_model_parameters(model, &slab, &parameters);
    const float *at = slab;
    for (size_t p = 0; p < ls_model_parameter_count(model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        assert_ptr_equal(tensor->data, at);
        size_t slot = (tensor->count + UNIT - 1) / UNIT * UNIT;
        for (size_t i = tensor->count; i < slot; i++) assert_true(at[i] == 0);
        at += slot;
    }
    assert_int_equal(at - slab, parameters);
    for (size_t b = 0; b < ls_model_buffer_count(model); b++) {
        assert_ptr_equal(ls_model_buffer(model, b)->data, at);
        at += (ls_model_buffer(model, b)->count + LINE - 1) / LINE * LINE;
    }
    assert_int_equal(at - slab, floats);
}

/* An earlier forward makes copies in half precision, which must not be used after this. */
static void widen(ls_dtype precision) {
    ls_device *device = open_device(0);
    ls_model *model, *plain;
    ls_memory_report memory;
    uint64_t left, right;
    assert_int_equal(ls_model_create(&plain, device, "convnet", BATCH, precision), LS_OK);
    assert_int_equal(ls_model_create(&model, device, "convnet", BATCH, precision), LS_OK);
    assert_int_equal(ls_model_init(plain, 3), LS_OK);
    assert_int_equal(ls_model_init(model, 3), LS_OK);
    float *x = make_values(device, BATCH * INPUTS, 4);
    ls_device_memory(device, &memory);
    size_t before = memory.peak_total_bytes;
    (void)ls_model_forward(model, x, BATCH, true);
    (void)ls_model_forward(plain, x, BATCH, true);
    assert_int_equal(ls_parameters_widen_slots(ls_model_tensors(model), UNIT), LS_OK);
    ls_device_memory(device, &memory);
    size_t parameters, plain_parameters;
    float *slab;
    ls_model_parameters(model, &slab, &parameters);
    ls_model_parameters(plain, &slab, &plain_parameters);
    size_t element = sizeof(float) + (precision == LS_FP32 ? 0 : ls_dtype_nbytes(precision));
    assert_true(parameters > plain_parameters);
    assert_int_equal(memory.peak_total_bytes, before + (parameters - plain_parameters) * element);
    expect_slots(model);
    assert_int_equal(ls_model_hash(model, &left), LS_OK);
    assert_int_equal(ls_model_hash(plain, &right), LS_OK);
    assert_true(left == right);
    for (size_t b = 0; b < ls_model_buffer_count(model); b++) {
        const struct ls_tensor *one = ls_model_buffer(model, b), *other = ls_model_buffer(plain, b);
        assert_memory_equal(one->data, other->data, one->count * sizeof(float));
    }
    const float *y = ls_model_forward(model, x, BATCH, false), *expected = ls_model_forward(plain, x, BATCH, false);
    assert_memory_equal(y, expected, BATCH * ls_model_outputs(model) * sizeof *y);
    ls_device_free(device, x);
    ls_model_destroy(model);
    ls_model_destroy(plain);
    close_empty_device(device);
}

TEST(wider_slots_hold_the_same) {
    widen(LS_FP32);
    widen(LS_BF16);
}
