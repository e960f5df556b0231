/* kernels — the dispatcher, and properties of the operations that follow from ops.def alone. */
#include "kernels/kernels.h"

#include "kernels/cpu/cpu.h"

_Static_assert(sizeof(struct ls_op) <= LS_TASK_ARGUMENTS_NBYTES, "an operation is stored in a stream's queue");

ls_status ls_run_op(const struct ls_op *op) {
    const struct ls_kernels *kernels = ls_cpu_kernels();
    switch (op->id) {
#define LS_OP(name, flops, bytes, aliasing)                                                                            \
    case LS_OP_##name:                                                                                                 \
        return kernels->name(&op->arguments.name);
#include "kernels/ops.def"
#undef LS_OP
    case LS_OP_COUNT: break;
    }
    return LS_ERR_INVALID;
}

static ls_status run_on_cpu(const void *op) { return ls_run_op(op); }

static void put(ls_stream *stream, const struct ls_op *op) {
    ls_device *device = ls_stream_device(stream);
    ls_op_launcher launch = ls_device_op_launcher(device);
    if (launch)
        ls_device_fail(device, launch(stream, op));
    else
        ls_stream_put(stream, ls_op_name(op->id), run_on_cpu, op, sizeof *op);
}

void ls_enqueue(ls_stream *stream, const struct ls_op *op) {
    if (!ls_stream_takes_work(stream)) return;
    bool probing = ls_probing();
    struct ls_probe_record record;
    if (probing) {
        record = ls_stream_begin_launch(stream, ls_op_name(op->id));
        record.bytes = ls_op_bytes(op);
        record.flops = ls_op_flops(op);
    }
    put(stream, op);
    if (probing) ls_probe_end(&record);
}

/* The typed calls: each packs its arguments and enqueues them. If a prototype in kernels.h does not match ops.def, this
 * does not compile. */
#define LS_FIELD_PARAMETER(type, name) , type name
#define LS_FIELD_VALUE(type, name) name,
#define LS_OP(name, flops, bytes, aliasing)                                                                            \
    void ls_##name(ls_stream *stream LS_FIELDS_##name(LS_FIELD_PARAMETER)) {                                           \
        struct ls_##name##_arguments packed = {LS_FIELDS_##name(LS_FIELD_VALUE)};                                      \
        struct ls_op op = {.id = LS_OP_##name, .arguments.name = packed};                                              \
        ls_enqueue(stream, &op);                                                                                       \
    }
#include "kernels/ops.def"
#undef LS_OP
#undef LS_FIELD_VALUE
#undef LS_FIELD_PARAMETER

void ls_cast_now(ls_dtype to, void *y, const float *x, size_t count) {
    const struct ls_cast_arguments arguments = {.to = to, .y = y, .from = LS_FP32, .x = x, .count = count};
    (void)ls_cpu_kernels()->cast(&arguments);
}

const char *ls_op_name(ls_op_id id) {
    static const char *const names[] = {
#define LS_OP(name, flops, bytes, aliasing) #name,
#include "kernels/ops.def"
#undef LS_OP
    };
    return id < LS_OP_COUNT ? names[id] : "unknown operation";
}

uint64_t ls_op_flops(const struct ls_op *op) {
    switch (op->id) {
#define LS_OP(name, flops, bytes, aliasing)                                                                            \
    case LS_OP_##name: {                                                                                               \
        const struct ls_##name##_arguments *a = &op->arguments.name;                                                   \
        (void)a;                                                                                                       \
        return (uint64_t)(flops);                                                                                      \
    }
#include "kernels/ops.def"
#undef LS_OP
    case LS_OP_COUNT: break;
    }
    return 0;
}

uint64_t ls_op_bytes(const struct ls_op *op) {
    switch (op->id) {
#define LS_OP(name, flops, bytes, aliasing)                                                                            \
    case LS_OP_##name: {                                                                                               \
        const struct ls_##name##_arguments *a = &op->arguments.name;                                                   \
        (void)a;                                                                                                       \
        return (uint64_t)(bytes);                                                                                      \
    }
#include "kernels/ops.def"
#undef LS_OP
    case LS_OP_COUNT: break;
    }
    return 0;
}

/* --- shapes ------------------------------------------------------------------------------------------------------ */

static int windows(int length, int padding, int kernel, int stride) {
    return (length + 2 * padding - kernel) / stride + 1;
}

int ls_conv2d_out_height(const struct ls_conv2d_shape *s) {
    return windows(s->in_height, s->padding, s->kernel_h, s->stride);
}

int ls_conv2d_out_width(const struct ls_conv2d_shape *s) {
    return windows(s->in_width, s->padding, s->kernel_w, s->stride);
}

static size_t conv2d_out_plane(const struct ls_conv2d_shape *s) {
    return (size_t)ls_conv2d_out_height(s) * (size_t)ls_conv2d_out_width(s);
}

size_t ls_conv2d_flops(const struct ls_conv2d_shape *s) {
    return 2 * (size_t)s->batch * (size_t)s->out_channels * conv2d_out_plane(s) * (size_t)s->in_channels *
           (size_t)(s->kernel_h * s->kernel_w);
}

size_t ls_conv2d_bytes(const struct ls_conv2d_shape *s) {
    size_t input = (size_t)s->in_channels * (size_t)s->in_height * (size_t)s->in_width;
    size_t output = (size_t)s->out_channels * conv2d_out_plane(s);
    size_t weights = (size_t)s->out_channels * (size_t)s->in_channels * (size_t)(s->kernel_h * s->kernel_w);
    return ls_dtype_nbytes(s->dtype) * ((size_t)s->batch * (input + output) + weights);
}

size_t ls_batchnorm_count(const struct ls_batchnorm_shape *s) {
    return (size_t)s->batch * (size_t)s->channels * (size_t)s->plane;
}

size_t ls_batchnorm_nbytes(const struct ls_batchnorm_shape *s) {
    return ls_batchnorm_count(s) * ls_dtype_nbytes(s->dtype);
}

size_t ls_batchnorm_statistics_count(const struct ls_batchnorm_shape *s) { return 2 * (size_t)s->channels + 1; }

size_t ls_pool_count(const struct ls_pool_shape *s) {
    return (size_t)s->planes * (size_t)s->in_height * (size_t)s->in_width;
}

size_t ls_pool_windows(const struct ls_pool_shape *s) {
    return (size_t)s->planes * (size_t)(s->in_height / s->size) * (size_t)(s->in_width / s->size);
}

size_t ls_attention_head(const struct ls_attention_shape *s) { return (size_t)s->channels / (size_t)s->heads; }

size_t ls_attention_pairs(const struct ls_attention_shape *s) {
    return (size_t)s->batch * (size_t)s->heads * ((size_t)s->context * ((size_t)s->context + 1) / 2);
}

size_t ls_attention_nbytes(const struct ls_attention_shape *s) {
    return (size_t)s->batch * (size_t)s->context * (size_t)s->channels * ls_dtype_nbytes(s->dtype);
}

size_t ls_attention_saved_nbytes(const struct ls_attention_shape *s) {
    size_t rows = (size_t)s->batch * (size_t)s->heads * (size_t)s->context;
    return rows * (s->tiled ? sizeof(float) : (size_t)s->context * ls_dtype_nbytes(s->dtype));
}
