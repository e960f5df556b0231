/* find — finds the GPUs, or the reason why there are none. */
#include "common/device/cuda/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

/* " (CUDA_VISIBLE_DEVICES=0,1)" if the environment has the variable. */
static void describe_visible(char *text, size_t capacity) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    text[0] = '\0';
    if (visible) snprintf(text, capacity, " (CUDA_VISIBLE_DEVICES=%s)", visible);
}

/* CUDA's versions are 1000 * major + 10 * minor. */
static void describe_driver(char *why, size_t capacity) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        snprintf(why, capacity, "%s", LS_NO_DRIVER);
        return;
    }
    snprintf(why, capacity,
             "the NVIDIA driver is too old: it knows CUDA %d.%d, and this build needs CUDA %d.%d; update the "
             "driver, or build with an older toolkit",
             driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

void ls_cuda_find(int *count, char *why, size_t capacity) {
    char visible[128];
    describe_visible(visible, sizeof visible);
    *count = 0;
    if (capacity > 0) why[0] = '\0';
    cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaSuccess && *count > 0) return;
    (void)cudaGetLastError();
    *count = 0;
    if (error == cudaSuccess || error == cudaErrorNoDevice) {
        snprintf(why, capacity, LS_NO_GPU "%s", visible);
    } else if (error == cudaErrorInsufficientDriver) {
        describe_driver(why, capacity);
    } else {
        snprintf(why, capacity, "CUDA does not start: %s (%s)%s", cudaGetErrorString(error), cudaGetErrorName(error),
                 visible);
    }
}

void ls_cuda_list(char *list, size_t capacity) {
    int count;
    char visible[128], why[512];
    size_t length = 0;
    describe_visible(visible, sizeof visible);
    ls_cuda_find(&count, why, sizeof why);
    list[0] = '\0';
    for (int i = 0; i < count && length < capacity; i++) {
        struct cudaDeviceProp properties;
        const char *name = cudaGetDeviceProperties(&properties, i) == cudaSuccess ? properties.name : "unknown";
        length += (size_t)snprintf(list + length, capacity - length, "%s%d: %s%s", i > 0 ? ", " : "", i, name,
                                   i + 1 == count ? visible : "");
    }
}

ls_status ls_cuda_check_index(int gpu) {
    int count;
    char text[700];
    ls_cuda_find(&count, text, sizeof text);
    if (count == 0) return ls_fail(LS_ERR_UNSUPPORTED, "no GPU can be used: %s", text);
    if (gpu >= 0 && gpu < count && gpu < LS_CUDA_MAX_GPUS) return LS_OK;
    ls_cuda_list(text, sizeof text);
    return ls_fail(LS_ERR_USAGE, "GPU %d does not exist; there are %s", gpu, text);
}

ls_status ls_cuda_describe(int gpu, ls_gpu_facts *facts) {
    *facts = (ls_gpu_facts){0};
    ls_status status = ls_cuda_check_index(gpu);
    struct cudaDeviceProp properties;
    if (status == LS_OK) status = LS_CUDA(gpu, cudaGetDeviceProperties(&properties, gpu));
    if (status == LS_OK) status = LS_CUDA(gpu, cudaDeviceGetPCIBusId(facts->bus_id, sizeof facts->bus_id, gpu));
    if (status == LS_OK) status = LS_CUDA(gpu, cudaDriverGetVersion(&facts->driver_version));
    if (status == LS_OK) status = LS_CUDA(gpu, cudaRuntimeGetVersion(&facts->runtime_version));
    if (status != LS_OK) return status;
    snprintf(facts->name, sizeof facts->name, "%.*s", (int)sizeof facts->name - 1, properties.name);
    facts->capability_major = properties.major;
    facts->capability_minor = properties.minor;
    facts->multiprocessors = properties.multiProcessorCount;
    facts->memory_bytes = properties.totalGlobalMem;
    return LS_OK;
}
