/* rates — every operation's speed relative to the GPU's peaks, which peaks.c has written to the log: GB/s against a
 * plain copy, TFLOP/s against the matrix multiply of the same precision. Without those peaks the share is left out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "labs/bench/gpu_check/gpu_check.h"
#include "labs/bench/shared/columns.h"

static ls_status run(ls_stream *stream, const void *op) {
    ls_enqueue(stream, op);
    return ls_device_status(ls_stream_device(stream));
}

/* The peak that its speed is compared with: "copy", or the matrix multiply of its precision. */
static const char *peak_of(const struct ls_op *op) {
    switch (op->id) {
    case LS_OP_gemm: return op->arguments.gemm.dtype == LS_BF16 ? "gemm bf16" : "gemm fp32";
    case LS_OP_attention_forward:
    case LS_OP_attention_backward:
    case LS_OP_conv2d_forward:
    case LS_OP_conv2d_backward_data:
    case LS_OP_conv2d_backward_weights: return "gemm fp32";
    default: return "copy";
    }
}

/* Returns the peak, in GB/s or TFLOP/s. */
static double find_peak(const cJSON *lines, const char *peak) {
    const char *key = strcmp(peak, "gemm bf16") == 0   ? "gemm_bf16_TFLOPs"
                      : strcmp(peak, "gemm fp32") == 0 ? "gemm_fp32_TFLOPs"
                                                       : "copy_GBps";
    return gpu_check_figure(gpu_check_find_line(lines, "peaks", peak), key);
}

static ls_status measure(gpu_check *check, ls_stream *stream, const struct ls_op *op, const char *name,
                         const cJSON *lines) {
    double us = NAN, begin_us = ls_now_us();
    double bytes = (double)ls_op_bytes(op), flops = (double)ls_op_flops(op);
    const char *peak = peak_of(op);
    ls_status status = gpu_check_time(stream, run, op, check->quick, &us);
    double speed = strcmp(peak, "copy") == 0 ? bytes / us * 1e-3 : flops / us * 1e-6;
    cJSON *figures = cJSON_CreateObject();
    cJSON_AddStringToObject(figures, "operation", name);
    bench_add_number(figures, "us", us);
    cJSON_AddNumberToObject(figures, "bytes", bytes);
    cJSON_AddNumberToObject(figures, "flops", flops);
    cJSON_AddStringToObject(figures, "peak", peak);
    bench_add_number(figures, "share_of_peak", speed / find_peak(lines, peak));
    gpu_check_say(check, name, status == LS_OK ? GPU_CHECK_HELD : GPU_CHECK_BROKEN, (ls_now_us() - begin_us) * 1e-6,
                  figures, "%s", status == LS_OK ? "" : ls_status_text(status));
    return status;
}

ls_status gpu_check_part_rates(gpu_check *check) {
    static struct ls_op ops[GPU_CHECK_RATES_MAX];
    static char names[GPU_CHECK_RATES_MAX][GPU_CHECK_TEXT];
    ls_device *device;
    cJSON *lines;
    ls_status status = gpu_check_read(check->path, &lines);
    if (status == LS_OK) status = gpu_check_open(check, false, &device);
    if (status != LS_OK) {
        cJSON_Delete(lines);
        return status;
    }
    gpu_check_arena arena;
    size_t count = check->quick ? (size_t)1 << 15 : (size_t)1 << 26; /* 256 MiB an array: beyond any cache */
    int made = gpu_check_make_operations(&arena, device, count, ops, names);
    if (made == 0) status = LS_ERR_NO_MEMORY;
    ls_stream *stream = ls_device_stream(device, LS_STREAM_COMPUTE);
    for (int i = 0; status == LS_OK && i < made; i++) status = measure(check, stream, &ops[i], names[i], lines);
    gpu_check_free_operations(&arena);
    ls_device_close(device);
    cJSON_Delete(lines);
    return status;
}
