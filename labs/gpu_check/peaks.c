/* peaks — what this GPU reaches at best: the yardsticks of rates.c and steps.c, measured in the same run.
 *   copy   : one array to another on the device, bytes read plus bytes written
 *   gemm   : a square product by cuBLAS, 2 n^3 flops, in each precision */
#include <math.h>

#include "common/base/dtype.h"
#include "labs/gpu_check/gpu_check.h"

const struct ls_cuda_plugin *gpu_check_plugin(void) {
    char why[256];
    const struct ls_cuda_plugin *plugin = ls_plugin_open("ls_cuda.so", "ls_cuda_plugin", why, sizeof why);
    if (!plugin) ls_report_error("%s", why);
    return plugin;
}

struct copy {
    void *to, *from;
    size_t nbytes;
};

static ls_status copy(ls_stream *stream, const void *argument) {
    const struct copy *c = argument;
    ls_copy(stream, c->to, c->from, c->nbytes);
    return ls_device_status(ls_stream_device(stream));
}

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

static ls_status measure_copy(ls_device *device, const gpu_check_settings *settings, double *GBps) {
    struct copy c = {.nbytes = settings->quick ? (size_t)1 << 16 : (size_t)1 << 30};
    ls_status status = ls_device_alloc(device, LS_MEMORY_WORKSPACE, c.nbytes, "a copy's source", &c.from);
    if (status == LS_OK) status = ls_device_alloc(device, LS_MEMORY_WORKSPACE, c.nbytes, "a copy's end", &c.to);
    double us = NAN;
    if (status == LS_OK) {
        status = gpu_check_time(ls_device_stream(device, LS_STREAM_COMPUTE), copy, &c, settings->quick, &us);
    }
    *GBps = 2 * (double)c.nbytes / us * 1e-3;
    ls_device_free(device, c.from);
    ls_device_free(device, c.to);
    return status;
}

static ls_status measure_product(ls_device *device, const gpu_check_settings *settings, ls_dtype dtype,
                                 double *TFLOPs) {
    struct product p = {.plugin = gpu_check_plugin(), .dtype = dtype, .n = settings->quick ? 64 : 8192};
    if (!p.plugin) return LS_ERR_UNSUPPORTED;
    size_t nbytes = p.n * p.n * ls_dtype_nbytes(dtype);
    void **const arrays[] = {&p.a, &p.b, &p.c};
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < 3; i++) {
        status = ls_device_alloc(device, LS_MEMORY_WORKSPACE, nbytes, "a matrix", arrays[i]);
        if (status == LS_OK) status = gpu_check_fill(device, *arrays[i], p.n * p.n, dtype);
    }
    double us = NAN;
    if (status == LS_OK) {
        status = gpu_check_time(ls_device_stream(device, LS_STREAM_COMPUTE), multiply, &p, settings->quick, &us);
    }
    *TFLOPs = 2 * pow((double)p.n, 3) / us * 1e-6;
    for (int i = 0; i < 3; i++) ls_device_free(device, *arrays[i]);
    return status;
}

ls_status gpu_check_measure_peaks(gpu_check_result *result, const gpu_check_settings *settings) {
    gpu_check_peaks *peaks = &result->peaks;
    *peaks = (gpu_check_peaks){NAN, NAN, NAN, NAN, NAN};
    ls_status status = LS_OK;
    for (int tf32 = 0; status == LS_OK && tf32 < 2; tf32++) {
        ls_device_options options = {
            .kind = LS_DEVICE_CUDA, .index = settings->gpu, .devices_on_node = 1, .tf32 = tf32 != 0};
        ls_device *device;
        status = ls_device_open(&device, &options);
        if (status != LS_OK) return status;
        status = measure_product(device, settings, LS_FP32, tf32 ? &peaks->tf32_TFLOPs : &peaks->fp32_TFLOPs);
        if (status == LS_OK && !tf32) status = measure_copy(device, settings, &peaks->copy_GBps);
        if (status == LS_OK && !tf32) status = measure_product(device, settings, LS_FP16, &peaks->fp16_TFLOPs);
        if (status == LS_OK && !tf32) status = measure_product(device, settings, LS_BF16, &peaks->bf16_TFLOPs);
        ls_device_close(device);
    }
    return status;
}
