/* dispatch — launches the kernel of an operation on a GPU's stream, for both rungs.
 *   fails : a launch that fails is reported with the operation's name; with options.check_launches, a failure while it
 *           runs, too */
#include "common/base/probe.h"
#include "common/device/plugin.h"
#include "kernels/cuda/cuda.h"

/* The entry points of one rung, in the order of ops.def. */
struct table {
#define LS_OP(op, flops, bytes, aliasing)                                                                              \
    ls_status (*op)(const struct ls_##op##_arguments *a, const struct ls_cuda_lane *lane);
#include "kernels/ops.def"
#undef LS_OP
};

static const struct table naive = {
#define LS_OP(op, flops, bytes, aliasing) .op = ls_cuda_naive_##op,
#include "kernels/ops.def"
#undef LS_OP
};

static const struct table fast = {
#define LS_OP(op, flops, bytes, aliasing) .op = ls_cuda_##op,
#include "kernels/ops.def"
#undef LS_OP
};

static ls_status call(const struct table *table, const struct ls_op *op, const struct ls_cuda_lane *lane) {
    switch (op->id) {
#define LS_OP(name, flops, bytes, aliasing)                                                                            \
    case LS_OP_##name:                                                                                                 \
        return table->name(&op->arguments.name, lane);
#include "kernels/ops.def"
#undef LS_OP
    case LS_OP_COUNT: break;
    }
    return LS_ERR_INVALID;
}

static ls_status enqueue(const struct table *table, ls_stream *stream, const struct ls_op *op) {
    bool timed = ls_probing() && ls_cuda_time_begin(stream, ls_op_name(op->id));
    ls_status status = call(table, op, ls_cuda_lane_of(stream));
    if (timed) ls_cuda_time_end(stream);
    return status == LS_OK ? ls_cuda_check_launch(stream, ls_op_name(op->id)) : status;
}

ls_status ls_cuda_enqueue_op(ls_stream *stream, const struct ls_op *op) { return enqueue(&fast, stream, op); }

static ls_status enqueue_naive(ls_stream *stream, const struct ls_op *op) {
    ls_device *device = ls_stream_device(stream);
    if (ls_device_status(device) == LS_OK) ls_device_fail(device, enqueue(&naive, stream, op));
    return ls_device_status(device);
}

static ls_status enqueue_fast(ls_stream *stream, const struct ls_op *op) {
    ls_enqueue(stream, op);
    return ls_device_status(ls_stream_device(stream));
}

static ls_status enqueue_product(ls_stream *stream, const struct ls_cuda_product *product) {
    ls_status status = ls_device_status(ls_stream_device(stream));
    if (status == LS_OK) status = ls_cuda_matmul(ls_cuda_lane_of(stream), "matmul", product);
    return status == LS_OK ? ls_cuda_check_launch(stream, "matmul") : status;
}

ls_status ls_cuda_enqueue_matmul(ls_stream *stream, int dtype, size_t m, size_t n, size_t k, const void *a,
                                 const void *b, void *c) {
    const struct ls_cuda_product product = {.dtype = (ls_dtype)dtype,
                                            .c_dtype = (ls_dtype)dtype,
                                            .transpose_b = true,
                                            .m = m,
                                            .n = n,
                                            .k = k,
                                            .a = a,
                                            .b = b,
                                            .c = c,
                                            .batch = 1};
    return enqueue_product(stream, &product);
}

const struct ls_cuda_rungs ls_cuda_rungs = {
    .version = LS_PLUGIN_VERSION,
    .count = 2,
    .rungs =
        {
            {"naive", "one thread for each result: the reference", enqueue_naive},
            {"fast", "what training runs", enqueue_fast},
        },
    .matmul = enqueue_product,
};
