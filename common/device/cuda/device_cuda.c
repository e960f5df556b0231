/* device_cuda — a GPU, or one of several logical devices that share it: three streams, a pool of memory, cuBLAS.
 *
 * Work is enqueued and runs asynchronously; only host tasks (ls_stream_launch), copies from and to pageable memory and
 * waits block the host. The streams are non-blocking ones, independent of CUDA's default stream, which is unused; comm
 * has the highest priority, so that a bucket's reduction starts as soon as the GPU has room rather than when the
 * backward pass ends.
 *
 * Same bits at every run: one cuBLAS handle, bound to the compute stream, with a workspace of its own (cuBLAS
 * promises reproducible results for that). Matrix multiplies of fp32 do not use TF32 unless options.tf32 allows it, and
 * those of fp16 and bf16 accumulate in fp32 throughout: by default cuBLAS may add partial sums in the type of the
 * result.
 *
 * Memory that the device itself needs (each stream's scratch, cuBLAS's workspace) comes from the pool, too, but is
 * charged to no category, like the hundreds of MB of a CUDA context.
 *
 * fails : a GPU that hangs or is broken is not closed: its streams, events and memory are released when the process
 *         ends */
#include "common/device/cuda/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nvtx3/nvToolsExt.h>

#include "common/base/cores.h"
#include "common/base/log.h"
#include "common/device/plugin.h"

const struct ls_cuda_lane *ls_cuda_lane_of(ls_stream *stream) {
    const struct ls_cuda_lane *lane = &ls_cuda_stream_of(stream)->lane;
    (void)ls_cuda_use(lane->gpu); /* if that fails, so does the caller's next call */
    return lane;
}

/* --- opening ----------------------------------------------------------------------------------------------------- */

/* Memory for the device itself. */
static ls_status take(ls_device *device, size_t nbytes, void **out) {
    struct ls_cuda_device *own = ls_cuda_device_of(device);
    ls_status status = ls_cuda_pool_alloc(own->pool, nbytes, out);
    if (status != LS_ERR_NO_MEMORY) return status;
    size_t left = 0, all = 0;
    (void)cudaMemGetInfo(&left, &all);
    (void)cudaGetLastError();
    return ls_fail(
        status,
        "GPU %d has no memory left to open device %d on it: %zu of %zu bytes are free; use fewer devices on it, "
        "or end the programs that nvidia-smi shows",
        own->gpu, device->options.index, left, all);
}

static ls_status open_blas(ls_device *device, struct ls_cuda_lane *lane, int major) {
    struct ls_cuda_device *own = ls_cuda_device_of(device);
    size_t nbytes;
    int math = lane->tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH;
    math |= CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    ls_status status = ls_cuda_workspace_nbytes(major, &nbytes);
    if (status == LS_OK && nbytes > 0) status = take(device, nbytes, &own->workspace);
    if (status == LS_OK) status = LS_CUBLAS(lane->gpu, cublasCreate(&lane->blas));
    if (status == LS_OK) status = LS_CUBLAS(lane->gpu, cublasSetStream(lane->blas, lane->stream));
    if (status == LS_OK && nbytes > 0)
        status = LS_CUBLAS(lane->gpu, cublasSetWorkspace(lane->blas, own->workspace, nbytes));
    if (status == LS_OK) status = LS_CUBLAS(lane->gpu, cublasSetMathMode(lane->blas, (cublasMath_t)math));
    return status;
}

static ls_status open_stream(ls_device *device, ls_stream_kind kind, int multiprocessors) {
    struct ls_cuda_device *own = ls_cuda_device_of(device);
    struct ls_cuda_stream *stream = calloc(1, sizeof *stream);
    if (!stream) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a stream");
    stream->base.device = device;
    stream->base.kind = kind;
    pthread_mutex_init(&stream->timing.lock, NULL);
    stream->lane = (struct ls_cuda_lane){
        .gpu = own->gpu, .multiprocessors = multiprocessors, .tf32 = device->options.tf32, .fault = &own->faults[kind]};
    device->streams[kind] = &stream->base;
    int lowest = 0, highest = 0;
    ls_status status = LS_CUDA(own->gpu, cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    int priority = kind == LS_STREAM_COMM ? highest : lowest;
    if (status != LS_OK) return status;
    status = LS_CUDA(own->gpu, cudaStreamCreateWithPriority(&stream->lane.stream, cudaStreamNonBlocking, priority));
    if (status != LS_OK) return status;
    return take(device, LS_CUDA_SCRATCH_NBYTES, &stream->lane.scratch);
}

static ls_status open_parts(ls_device *device) {
    struct ls_cuda_device *own = ls_cuda_device_of(device);
    int gpu = own->gpu;
    struct cudaDeviceProp properties;
    ls_status status = ls_cuda_use(gpu);
    if (status == LS_OK) status = LS_CUDA(gpu, cudaGetDeviceProperties(&properties, gpu));
    if (status != LS_OK) return status;
    snprintf(own->name, sizeof own->name, "%s", properties.name);
    status = LS_CUDA(gpu, cudaHostAlloc((void **)&own->faults, LS_STREAM_COUNT * sizeof *own->faults,
                                        cudaHostAllocPortable | cudaHostAllocMapped));
    if (status != LS_OK) return status;
    memset(own->faults, 0, LS_STREAM_COUNT * sizeof *own->faults);
    status = ls_cuda_pool_open(&own->pool, device, gpu);
    for (int s = 0; s < LS_STREAM_COUNT && status == LS_OK; s++)
        status = open_stream(device, (ls_stream_kind)s, properties.multiProcessorCount);
    if (status == LS_OK)
        status = open_blas(device, &ls_cuda_stream_of(device->streams[LS_STREAM_COMPUTE])->lane, properties.major);
    return status;
}

static void cuda_close(ls_device *device);

static ls_status cuda_open(ls_device *device) {
    ls_status status = ls_cuda_check_index(device->options.index);
    if (status != LS_OK) return status;
    if (ls_cuda_is_broken(device->options.index)) {
        return ls_fail(LS_ERR_SYSTEM, "GPU %d has failed in this process, which must be restarted to use it",
                       device->options.index);
    }
    struct ls_cuda_device *own = calloc(1, sizeof *own);
    if (!own) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for device %d", device->options.index);
    own->gpu = device->options.index;
    device->backend_state = own;
    device->stream_mode = "cuda";
    device->runs_behind = true;
    device->spin_us = ls_spin_us_for(device->options.devices_on_node);
    status = open_parts(device);
    if (status != LS_OK) cuda_close(device);
    return status;
}

/* --- closing, also a partly open device --------------------------------------------------------------------------- */

static void close_stream(ls_stream *base, bool abandon) {
    struct ls_cuda_stream *stream = ls_cuda_stream_of(base);
    if (!abandon) {
        if (stream->lane.blas) (void)cublasDestroy(stream->lane.blas);
        ls_cuda_staging_close(&stream->staging);
        if (stream->lane.stream) (void)cudaStreamDestroy(stream->lane.stream);
    }
    ls_cuda_timing_close(&stream->timing, abandon);
    free(stream);
}

bool ls_cuda_must_be_left_alone(const ls_device *device) {
    struct ls_cuda_device *own = ls_cuda_device_of(device);
    return ls_cuda_is_broken(own->gpu) || atomic_load(&own->stuck) != NULL || ls_cuda_use(own->gpu) != LS_OK;
}

static void cuda_close(ls_device *device) {
    struct ls_cuda_device *own = ls_cuda_device_of(device);
    for (int s = 0; s < LS_STREAM_COUNT; s++) {
        if (device->streams[s] && ls_cuda_stream_of(device->streams[s])->lane.stream)
            (void)ls_cuda_wait_stream(device->streams[s]);
    }
    bool abandon = ls_cuda_must_be_left_alone(device);
    ls_cuda_unpin_all(device);
    for (int s = 0; s < LS_STREAM_COUNT; s++) {
        if (!device->streams[s]) continue;
        if (!abandon) ls_cuda_pool_free(own->pool, ls_cuda_stream_of(device->streams[s])->lane.scratch);
        close_stream(device->streams[s], abandon);
    }
    if (!abandon && own->workspace) ls_cuda_pool_free(own->pool, own->workspace);
    ls_cuda_pool_close(own->pool, abandon);
    if (!abandon && own->faults) (void)cudaFreeHost(own->faults);
    if (!abandon) (void)cudaGetLastError();
    free(own);
}

/* --- work -------------------------------------------------------------------------------------------------------- */

/* Runs a host task when the stream reaches it. `meets` is ignored: while the task waits for peers, the GPU runs on. */
static ls_status cuda_launch(ls_stream *stream, const char *label, ls_task_fn task, const void *arguments,
                             size_t nbytes, bool meets) {
    (void)nbytes;
    (void)meets;
    if (ls_cuda_is_capturing(stream))
        return ls_fail(LS_ERR_UNSUPPORTED, "%s runs on the host and cannot be part of a graph", label);
    ls_status status = ls_cuda_wait_stream(stream);
    if (status != LS_OK) return status;
    uint32_t number = ls_stream_launch_number(stream);
    return number > 0 ? ls_probe_run_task(stream, label, number, task, arguments) : task(arguments);
}

static ls_status cuda_memory_alloc(ls_device *device, size_t nbytes, void **out) {
    return ls_cuda_pool_alloc(ls_cuda_device_of(device)->pool, nbytes, out);
}

static void cuda_memory_free(ls_device *device, void *memory) {
    ls_cuda_pool_free(ls_cuda_device_of(device)->pool, memory);
}

static size_t cuda_memory_reserved(const ls_device *device) {
    return ls_cuda_pool_reserved(ls_cuda_device_of(device)->pool);
}

static bool cuda_memory_free_total(const ls_device *device, size_t *free_bytes, size_t *total_bytes) {
    if (ls_cuda_use(ls_cuda_device_of(device)->gpu) != LS_OK) return false;
    if (cudaMemGetInfo(free_bytes, total_bytes) == cudaSuccess) return true;
    (void)cudaGetLastError();
    return false;
}

/* The thread may run on any core: CUDA's own threads and the driver know better which one is near the GPU. */
static ls_status cuda_bind_thread(const ls_device *device) { return ls_cuda_use(ls_cuda_device_of(device)->gpu); }

static ls_status blas_version(ls_stream *stream, int *version) {
    const struct ls_cuda_lane *lane = ls_cuda_lane_of(stream);
    return LS_CUBLAS(lane->gpu, cublasGetVersion(lane->blas, version));
}

static const char *cuda_model_name(const ls_device *device) { return ls_cuda_device_of(device)->name; }

static void cuda_mark(const ls_device *device, const char *name) {
    static _Thread_local bool in_range;
    (void)device;
    if (in_range) (void)nvtxRangePop();
    if (name) (void)nvtxRangePushA(name);
    in_range = name != NULL;
}

static const struct ls_backend ls_backend_cuda = {
    .name = "cuda",
    .memory_is_host = false,
    .open = cuda_open,
    .close = cuda_close,
    .bind_thread = cuda_bind_thread,
    .memory_alloc = cuda_memory_alloc,
    .memory_free = cuda_memory_free,
    .launch = cuda_launch,
    .copy = ls_cuda_copy,
    .event_record = ls_cuda_event_record,
    .stream_wait_event = ls_cuda_stream_wait_event,
    .event_synchronize = ls_cuda_event_synchronize,
    .stream_synchronize = ls_cuda_wait_stream,
    .model_name = cuda_model_name,
    .is_gpu_memory = ls_cuda_is_gpu_memory,
    .pin_host = ls_cuda_pin_host,
    .unpin_host = ls_cuda_unpin_host,
    .graph_begin = ls_cuda_graph_begin,
    .graph_end = ls_cuda_graph_end,
    .graph_launch = ls_cuda_graph_launch,
    .graph_destroy = ls_cuda_graph_destroy,
    .mark = cuda_mark,
    .enqueue_op = ls_cuda_enqueue_op,
    .memory_free_total = cuda_memory_free_total,
    .memory_reserved = cuda_memory_reserved,
};

extern const struct ls_cuda_plugin ls_cuda_plugin;
const struct ls_cuda_plugin ls_cuda_plugin = {
    .version = LS_PLUGIN_VERSION,
    .backend = &ls_backend_cuda,
    .find = ls_cuda_find,
    .list = ls_cuda_list,
    .describe = ls_cuda_describe,
    .matmul = ls_cuda_enqueue_matmul,
    .blas_version = blas_version,
};
