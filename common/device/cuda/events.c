/* events — CUDA's events behind device.h's.
 *
 * The native event is made at the first record, on the GPU of that stream, and made again if the event is recorded on
 * another GPU.
 *
 * Capture: an event that is recorded on a capturing stream does not complete then, but at each launch of the graph.
 * CUDA forbids any use of it outside of the capture. device.h allows it, and means the latest launch. So the event
 * remembers its capture, and a later wait for it waits for an event that is recorded after each launch of the graph:
 * later than necessary, never too early. The other way round, a capturing stream that is to wait for an event from
 * outside cannot have the wait in its graph. The host waits at once for the work enqueued before; launches of the graph
 * are ordered by their stream and by waits before the launch. */
#include "common/device/cuda/cuda_device.h"

#include <stdlib.h>

#include "common/base/log.h"

struct native {
    cudaEvent_t event;
    int gpu;
    struct ls_cuda_capture *capture; /* in which it was recorded last; NULL: in none */
};

static void set_capture(struct native *native, struct ls_cuda_capture *capture) {
    if (native->capture == capture) return;
    if (native->capture) ls_cuda_capture_release(native->capture);
    if (capture) atomic_fetch_add(&capture->holders, 1);
    native->capture = capture;
}

static void release(void *memory) {
    struct native *native = memory;
    set_capture(native, NULL);
    if (!ls_cuda_is_broken(native->gpu) && ls_cuda_use(native->gpu) == LS_OK) (void)cudaEventDestroy(native->event);
    free(native);
}

static ls_status make_native(ls_event *event, int gpu) {
    struct native *native = calloc(1, sizeof *native);
    if (!native) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for event \"%s\"", event->name);
    native->gpu = gpu;
    ls_status status = LS_CUDA(gpu, cudaEventCreateWithFlags(&native->event, cudaEventDisableTiming));
    if (status != LS_OK) {
        free(native);
        return status;
    }
    event->native = native;
    event->release = release;
    return LS_OK;
}

ls_status ls_cuda_event_record(ls_event *event, ls_stream *stream) {
    const struct ls_cuda_lane *lane = ls_cuda_lane_of(stream);
    struct native *native = event->native;
    ls_status status = LS_OK;
    if (native && native->gpu != lane->gpu) {
        release(native);
        event->native = native = NULL;
        (void)ls_cuda_use(lane->gpu);
    }
    if (!native) status = make_native(event, lane->gpu);
    if (status != LS_OK) return status;
    native = event->native;
    status = LS_CUDA(lane->gpu, cudaEventRecord(native->event, lane->stream));
    if (status != LS_OK) return status;
    set_capture(native, ls_cuda_is_capturing(stream) ? ls_cuda_current_capture() : NULL);
    if (event->stream != stream) event->stream = stream;
    atomic_fetch_add(&event->recorded, 1);
    return LS_OK;
}

/* The native event that completes when the latest record is reached; NULL: it is not on a stream yet, or never was
 * recorded. */
static cudaEvent_t latest(const ls_event *event) {
    const struct native *native = event->native;
    if (atomic_load(&event->recorded) == 0) return NULL;
    if (!native->capture || native->capture == ls_cuda_current_capture()) return native->event;
    return atomic_load(&native->capture->launched) ? native->capture->done : NULL;
}

static ls_status wait_on_host(ls_event *event, cudaEvent_t what) {
    struct ls_cuda_awaited awaited = {ls_cuda_stream_of(event->stream)->lane.stream, what, "event", event->name};
    return ls_cuda_wait(event->stream->device, &awaited);
}

static bool is_of_this_capture(const ls_event *event) {
    const struct native *native = event->native;
    return native->capture && native->capture == ls_cuda_current_capture();
}

ls_status ls_cuda_stream_wait_event(ls_stream *stream, ls_event *event) {
    cudaEvent_t what = latest(event);
    if (!what) return LS_OK;
    const struct ls_cuda_lane *lane = ls_cuda_lane_of(stream);
    if (ls_cuda_is_capturing(stream) && !is_of_this_capture(event)) return wait_on_host(event, what);
    return LS_CUDA(lane->gpu, cudaStreamWaitEvent(lane->stream, what, 0));
}

ls_status ls_cuda_event_synchronize(ls_event *event) {
    cudaEvent_t what = latest(event);
    if (!what) return LS_OK;
    if (is_of_this_capture(event)) {
        ls_status refused =
            ls_fail(LS_ERR_UNSUPPORTED, "the event \"%s\" is being recorded into a graph and cannot be waited for",
                    event->name);
        return ls_cuda_capture_failed(refused);
    }
    ls_status status = wait_on_host(event, what);
    return status == LS_OK ? ls_cuda_look_for_faults(event->stream->device) : status;
}
