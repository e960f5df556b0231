/* peaks — the best rates of this GPU, with which rates.c and steps.c compare, measured in the same run.
 *   copy    : one array to another on the device, bytes read plus bytes written
 *   to_gpu, from_gpu: between pinned host memory and the device, bytes that are copied
 *   gemm    : a square matrix multiply by cuBLAS, 2 n^3 flops, in each precision
 *   launch  : an operation on one number, enqueued back to back, and with a wait after each */
#include <math.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/dtype.h"
#include "labs/bench/gpu_check/gpu_check.h"
#include "labs/bench/shared/columns.h"

const struct ls_cuda_plugin *gpu_check_plugin(void) {
    char why[256];
    const struct ls_cuda_plugin *plugin = ls_plugin_open("ls_cuda.so", "ls_cuda_plugin", why, sizeof why);
    if (!plugin) ls_report_error("%s", why);
    return plugin;
}

/* A peak that cannot be measured is logged as a failure; the other peaks are still measured. */
static void say_peak(gpu_check *check, const char *name, ls_status status, const char *key, double value,
                     double begin_us) {
    cJSON *figures = cJSON_CreateObject();
    bench_add_number(figures, key, status == LS_OK ? value : NAN);
    bool held = status == LS_OK && value > 0;
    gpu_check_say(check, name, held ? GPU_CHECK_HELD : GPU_CHECK_BROKEN, (ls_now_us() - begin_us) * 1e-6, figures, "%s",
                  held ? "" : ls_status_text(status));
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

struct copy {
    void *to, *from;
    size_t nbytes;
};

static ls_status copy(ls_stream *stream, const void *argument) {
    const struct copy *c = argument;
    ls_copy(stream, c->to, c->from, c->nbytes);
    return ls_device_status(ls_stream_device(stream));
}

static void time_copy(gpu_check *check, ls_device *device, const char *name, const char *key, struct copy c,
                      int times_crossed) {
    double us = NAN, begin_us = ls_now_us();
    ls_status status = gpu_check_time(ls_device_stream(device, LS_STREAM_COMPUTE), copy, &c, check->quick, &us);
    say_peak(check, name, status, key, times_crossed * (double)c.nbytes / us * 1e-3, begin_us);
}

static ls_status measure_copies(gpu_check *check, ls_device *device) {
    size_t nbytes = check->quick ? (size_t)1 << 16 : (size_t)1 << 30, host_nbytes = nbytes / 4;
    void *a = NULL, *b = NULL, *host = malloc(host_nbytes);
    ls_status status = ls_device_alloc(device, LS_MEMORY_WORKSPACE, nbytes, "a copy's source", &a);
    if (status == LS_OK) status = ls_device_alloc(device, LS_MEMORY_WORKSPACE, nbytes, "a copy's end", &b);
    if (status == LS_OK && !host) status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for copies from the host");
    if (status == LS_OK) {
        time_copy(check, device, "copy", "copy_GBps", (struct copy){a, b, nbytes}, 2);
        for (size_t i = 0; i < host_nbytes; i++) ((unsigned char *)host)[i] = (unsigned char)(i * 131 >> 3);
        if (ls_device_pin_host(device, host, host_nbytes)) {
            time_copy(check, device, "copy to the GPU", "copy_to_gpu_GBps", (struct copy){a, host, host_nbytes}, 1);
            time_copy(check, device, "copy from the GPU", "copy_from_gpu_GBps", (struct copy){host, a, host_nbytes}, 1);
            ls_device_unpin_host(device, host);
        } else {
            gpu_check_say(check, "copies between host and GPU", GPU_CHECK_NO_TOOL, -1, NULL,
                          "the driver refuses to page-lock host memory");
        }
    }
    ls_device_free(device, a);
    ls_device_free(device, b);
    free(host);
    return status;
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static ls_status fill_one(ls_stream *stream, const void *argument) {
    ls_fill(stream, *(float *const *)argument, 1, 1);
    return ls_device_status(ls_stream_device(stream));
}

static ls_status fill_one_and_wait(ls_stream *stream, const void *argument) {
    ls_status status = fill_one(stream, argument);
    return status == LS_OK ? ls_stream_synchronize(stream) : status;
}

static ls_status measure_launches(gpu_check *check, ls_device *device) {
    ls_stream *stream = ls_device_stream(device, LS_STREAM_COMPUTE);
    void *memory = NULL;
    ls_status status = ls_device_alloc(device, LS_MEMORY_WORKSPACE, 4, "a number", &memory);
    if (status != LS_OK) return status;
    double us = NAN, begin_us = ls_now_us();
    status = gpu_check_time(stream, fill_one, &memory, check->quick, &us);
    say_peak(check, "launch", status, "launch_us", us, begin_us);
    begin_us = ls_now_us();
    status = gpu_check_time(stream, fill_one_and_wait, &memory, check->quick, &us);
    say_peak(check, "launch and wait", status, "launch_and_wait_us", us, begin_us);
    ls_device_free(device, memory);
    return LS_OK;
}

/* --- products ----------------------------------------------------------------------------------------------------- */

struct product {
    const struct ls_cuda_plugin *plugin;
    ls_dtype dtype;
    size_t n;
    void *a, *b, *c;
};

static ls_status multiply(ls_stream *stream, const void *argument) {
    const struct product *p = argument;
    return p->plugin->matmul(stream, (int)p->dtype, p->n, p->n, p->n, p->a, p->b, p->c);
}

static void measure_product(gpu_check *check, ls_device *device, ls_dtype dtype, const char *name, const char *key) {
    struct product p = {.plugin = gpu_check_plugin(), .dtype = dtype, .n = check->quick ? 64 : 8192};
    size_t nbytes = p.n * p.n * ls_dtype_nbytes(dtype);
    void **const arrays[] = {&p.a, &p.b, &p.c};
    double us = NAN, begin_us = ls_now_us();
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < 3; i++) {
        status = ls_device_alloc(device, LS_MEMORY_WORKSPACE, nbytes, "a matrix", arrays[i]);
        if (status == LS_OK) status = gpu_check_fill(device, *arrays[i], p.n * p.n, dtype);
    }
    if (status == LS_OK)
        status = gpu_check_time(ls_device_stream(device, LS_STREAM_COMPUTE), multiply, &p, check->quick, &us);
    say_peak(check, name, status, key, 2 * pow((double)p.n, 3) / us * 1e-6, begin_us);
    for (int i = 0; i < 3; i++) ls_device_free(device, *arrays[i]);
}

ls_status gpu_check_part_peaks(gpu_check *check) {
    ls_device *device;
    ls_status status = gpu_check_open(check, false, &device);
    if (status != LS_OK) return status;
    measure_product(check, device, LS_FP32, "gemm fp32", "gemm_fp32_TFLOPs");
    measure_product(check, device, LS_BF16, "gemm bf16", "gemm_bf16_TFLOPs");
    measure_product(check, device, LS_FP16, "gemm fp16", "gemm_fp16_TFLOPs");
    status = measure_copies(check, device);
    if (status == LS_OK) status = measure_launches(check, device);
    ls_device_close(device);
    if (status == LS_OK) status = gpu_check_open(check, true, &device);
    if (status != LS_OK) return status;
    measure_product(check, device, LS_FP32, "gemm tf32", "gemm_tf32_TFLOPs");
    ls_device_close(device);
    return LS_OK;
}
