/* rates — every operation's speed beside the GPU's own: GB/s against a plain copy, TFLOP/s against the matrix
 * product. */
#include <stdio.h>

#include "labs/gpu_check/gpu_check.h"

static ls_status run(ls_stream *stream, const void *op) {
    ls_enqueue(stream, op);
    return ls_device_status(ls_stream_device(stream));
}

static bool is_arithmetic(ls_op_id id) {
    return id == LS_OP_gemm || id == LS_OP_conv2d_forward || id == LS_OP_conv2d_backward_data ||
           id == LS_OP_conv2d_backward_weights;
}

static double peak_of(const struct ls_op *op, const gpu_check_peaks *peaks) {
    return op->id == LS_OP_gemm && op->arguments.gemm.dtype == LS_BF16 ? peaks->bf16_TFLOPs : peaks->fp32_TFLOPs;
}

static ls_status measure(gpu_check_rate *rate, ls_stream *stream, const struct ls_op *op, const char *name,
                         const gpu_check_peaks *peaks, bool quick) {
    snprintf(rate->name, sizeof rate->name, "%.*s", GPU_CHECK_TEXT - 1, name);
    rate->bytes = (double)ls_op_bytes(op);
    rate->flops = (double)ls_op_flops(op);
    rate->arithmetic = is_arithmetic(op->id);
    ls_status status = gpu_check_time(stream, run, op, quick, &rate->us);
    double GBps = rate->bytes / rate->us * 1e-3, TFLOPs = rate->flops / rate->us * 1e-6;
    rate->share = rate->arithmetic ? TFLOPs / peak_of(op, peaks) : GBps / peaks->copy_GBps;
    return status;
}

ls_status gpu_check_measure_rates(gpu_check_result *result, const gpu_check_settings *settings) {
    ls_device_options options = {.kind = LS_DEVICE_CUDA, .index = settings->gpu, .devices_on_node = 1};
    ls_device *device;
    ls_status status = ls_device_open(&device, &options);
    if (status != LS_OK) return status;
    static struct ls_op ops[GPU_CHECK_RATES_MAX];
    static char names[GPU_CHECK_RATES_MAX][GPU_CHECK_TEXT];
    gpu_check_arena arena;
    size_t count = settings->quick ? (size_t)1 << 15 : (size_t)1 << 26; /* 256 MiB an array: beyond any cache */
    int made = gpu_check_make_operations(&arena, device, count, ops, names);
    if (made == 0) status = LS_ERR_NO_MEMORY;
    ls_stream *stream = ls_device_stream(device, LS_STREAM_COMPUTE);
    for (int i = 0; status == LS_OK && i < made; i++) {
        status = measure(&result->rates[i], stream, &ops[i], names[i], &result->peaks, settings->quick);
        if (status == LS_OK) result->rate_count = i + 1;
    }
    gpu_check_free_operations(&arena);
    ls_device_close(device);
    return status;
}
