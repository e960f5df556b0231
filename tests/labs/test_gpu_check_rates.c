/* The operands of gpu_check's rates: they must be numbers, even after the earlier rows have run. */

#include "common/base/dtype.h"
#include "labs/bench/gpu_check/gpu_check.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

enum { COUNT = 1 << 14, WEIGHTS = 32 * 16 * 5 * 5 };

static size_t zeros_of(const void *values, size_t count, ls_dtype dtype) {
    size_t zeros = 0;
    for (size_t i = 0; i < count; i++) {
        float value = dtype == LS_BF16 ? ls_bf16_to_float(((const uint16_t *)values)[i]) : ((const float *)values)[i];
        zeros += value == 0;
    }
    return zeros;
}

/* In the order in which they are measured, on a CPU device, which takes the same arguments except the workspace of
 * matrix multiplies. */
TEST_IN(scratch, products_do_not_multiply_zeros) {
    static struct ls_op ops[GPU_CHECK_RATES_MAX];
    static char names[GPU_CHECK_RATES_MAX][GPU_CHECK_TEXT];
    ls_device *device;
    assert_int_equal(ls_device_open(&device, &(ls_device_options){.kind = LS_DEVICE_CPU, .devices_on_node = 1}), LS_OK);
    gpu_check_arena arena;
    int products = 0, convolutions = 0, made = gpu_check_make_operations(&arena, device, COUNT, ops, names);
    assert_true(made > 30);
    for (int i = 0; i < made; i++) {
        ls_stream *stream = ls_device_stream(device, LS_STREAM_COMPUTE);
        const float *weights = ops[i].id == LS_OP_conv2d_forward         ? ops[i].arguments.conv2d_forward.w
                               : ops[i].id == LS_OP_conv2d_backward_data ? ops[i].arguments.conv2d_backward_data.w
                                                                         : NULL;
        if (weights && zeros_of(weights, WEIGHTS, LS_FP32) > 0) fail_msg("%s would multiply by zeros", names[i]);
        convolutions += weights != NULL;
        if (ops[i].id != LS_OP_gemm) {
            ls_enqueue(stream, &ops[i]);
            assert_int_equal(ls_stream_synchronize(stream), LS_OK);
            continue;
        }
        const struct ls_gemm_arguments *g = &ops[i].arguments.gemm;
        size_t zeros = zeros_of(g->a, g->m * g->k, g->dtype) + zeros_of(g->b, g->k * g->n, g->dtype);
        if (zeros > 0) fail_msg("%s would multiply %zu zeros of %zu", names[i], zeros, g->m * g->k + g->k * g->n);
        products++;
    }
    assert_true(products == 2 && convolutions == 2);
    gpu_check_free_operations(&arena);
    ls_device_close(device);
}
