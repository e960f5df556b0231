/* waits — the host waits for a stream or an event.
 *
 * CUDA's own waits have no deadline, and while a thread is inside one, a collective operation whose peer has died could
 * not be ended. So the host polls (cudaEventQuery, cudaStreamQuery): without a pause as long as a core is free for it,
 * then yielding the core between two polls, then sleeping LS_SLEEP_US at a time. Every LS_ASK_US it calls the device's
 * watchers.
 *   cost  : a poll takes an estimated microsecond of a core; a wait of milliseconds ends up to LS_SLEEP_US late
 *   fails : LS_ERR_TIMEOUT past ls_wait_timeout_s(), naming the awaited stream or event. The work is still enqueued and
 *           cannot be removed, so later waits of the device poll once and fail, until the stream that hung is idle;
 *           close() does not touch it */
#define _GNU_SOURCE
#include "common/device/cuda/cuda_device.h"

#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define LS_ASK_US 100.0
#define LS_YIELD_US 200.0
#define LS_SLEEP_US 50

static void pause_after(double waited_us, double spin_us) {
    if (waited_us < spin_us) return;
    if (waited_us < spin_us + LS_YIELD_US) {
        sched_yield();
        return;
    }
    struct timespec time = {.tv_nsec = LS_SLEEP_US * 1000};
    nanosleep(&time, NULL);
}

static ls_status timed_out(ls_device *device, const struct ls_cuda_awaited *awaited) {
    struct ls_cuda_device *own = ls_cuda_device_of(device);
    cudaStream_t nobody = NULL;
    if (!atomic_compare_exchange_strong(&own->stuck, &nobody, awaited->stream))
        return LS_ERR_TIMEOUT; /* already reported */
    return ls_fail(LS_ERR_TIMEOUT, "timed out after %g s waiting for the %s \"%s\" of device %d (GPU %d)",
                   ls_wait_timeout_s(), awaited->kind, awaited->name, ls_device_index(device), own->gpu);
}

static ls_status look_until_there(ls_device *device, const struct ls_cuda_awaited *awaited) {
    double begin_us = ls_now_us(), ask_us = begin_us + LS_ASK_US;
    struct ls_cuda_device *own = ls_cuda_device_of(device);
    for (;;) {
        cudaError_t error = awaited->event ? cudaEventQuery(awaited->event) : cudaStreamQuery(awaited->stream);
        if (error != cudaErrorNotReady) {
            return ls_cuda_check(error, own->gpu, awaited->event ? "waiting for an event" : "waiting for a stream");
        }
        double now_us = ls_now_us();
        if (now_us >= ask_us) {
            ls_status status = ls_device_ask_watchers(device, now_us - begin_us);
            if (status != LS_OK) return status;
            ask_us = ls_now_us() + LS_ASK_US;
        }
        if (atomic_load(&own->stuck) != NULL || now_us - begin_us > ls_wait_timeout_s() * 1e6)
            return timed_out(device, awaited);
        pause_after(now_us - begin_us, device->spin_us);
    }
}

ls_status ls_cuda_wait(ls_device *device, const struct ls_cuda_awaited *awaited) {
    struct ls_cuda_device *own = ls_cuda_device_of(device);
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    ls_status status = ls_cuda_use(own->gpu);
    if (status == LS_OK) status = ls_cuda_swap_capture_mode(own->gpu, &mode);
    if (status == LS_OK) {
        status = look_until_there(device, awaited);
        (void)cudaGetLastError(); /* CUDA keeps "not ready" as the last error */
        ls_status restored = ls_cuda_swap_capture_mode(own->gpu, &mode);
        if (status == LS_OK) status = restored;
    }
    if (status != LS_OK) {
        ls_device_fail(device, status);
        return status;
    }
    cudaStream_t rested = awaited->stream;
    if (!awaited->event && atomic_load(&own->stuck) == rested)
        atomic_compare_exchange_strong(&own->stuck, &rested, NULL);
    return LS_OK;
}

/* The stream is idle, so no kernel writes the word; of several threads that read it, one reports. */
static ls_status report_fault(ls_stream *stream) {
    struct ls_cuda_fault *word = ls_cuda_stream_of(stream)->lane.fault, fault = *word;
    fault.kind = __atomic_exchange_n(&word->kind, LS_CUDA_FAULT_NONE, __ATOMIC_ACQ_REL);
    if (fault.kind == LS_CUDA_FAULT_NONE) return LS_OK;
    ls_status status;
    if (fault.kind == LS_CUDA_FAULT_LABEL) {
        status = ls_fail(LS_ERR_INVALID, "cross_entropy: label %" PRId64 " is out of range [0, %d)", fault.value,
                         (int)fault.limit);
    } else if (fault.kind == LS_CUDA_FAULT_TOKEN) {
        status = ls_fail(LS_ERR_INVALID, "embedding: token %" PRId64 " is out of range [0, %d)", fault.value,
                         (int)fault.limit);
    } else {
        status = ls_fail(LS_ERR_INVALID,
                         "batch norm needs more than one value per channel in training; this batch has %" PRId64,
                         fault.value);
    }
    ls_device_fail(stream->device, status);
    return status;
}

ls_status ls_cuda_wait_stream(ls_stream *stream) {
    if (ls_cuda_is_capturing(stream)) {
        ls_status refused =
            ls_fail(LS_ERR_UNSUPPORTED, "the stream \"%s\" is being recorded into a graph and cannot be waited for",
                    ls_stream_kind_name(stream->kind));
        return ls_cuda_capture_failed(refused);
    }
    struct ls_cuda_awaited all = {ls_cuda_stream_of(stream)->lane.stream, NULL, "stream",
                                  ls_stream_kind_name(stream->kind)};
    ls_status status = ls_cuda_wait(stream->device, &all);
    bool timed = atomic_load_explicit(&ls_cuda_stream_of(stream)->timing.count, memory_order_relaxed) > 0;
    if (status == LS_OK && timed) ls_cuda_time_tell(stream);
    return status == LS_OK ? report_fault(stream) : status;
}

ls_status ls_cuda_look_for_faults(ls_device *device) {
    for (int s = 0; s < LS_STREAM_COUNT; s++) {
        const struct ls_cuda_fault *word = ls_cuda_stream_of(device->streams[s])->lane.fault;
        if (__atomic_load_n(&word->kind, __ATOMIC_RELAXED) == LS_CUDA_FAULT_NONE) continue;
        ls_status status = ls_cuda_wait_stream(device->streams[s]);
        if (status != LS_OK) return status;
    }
    return LS_OK;
}

ls_status ls_cuda_check_launch(ls_stream *stream, const char *label) {
    if (!stream->device->options.check_launches || ls_cuda_is_capturing(stream)) return LS_OK;
    char said[400] = "";
    ls_log_sink before = ls_log_capture(said, sizeof said);
    ls_status status = ls_cuda_wait_stream(stream);
    ls_log_restore(before);
    if (status == LS_OK) return LS_OK;
    if (strncmp(said, label, strlen(label)) == 0) return ls_fail(status, "%s", said);
    return ls_fail(status, "%s: %s", label, said[0] ? said : "the GPU has failed earlier");
}
