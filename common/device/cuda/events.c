/* events — CUDA's events behind device.h's.
 *
 * The native event is made at the first record, on the GPU of that stream, and made again if the event is recorded on
 * another GPU.
 *
 * Recordings: an event that is recorded while its stream is recorded into a graph does not complete then, but at each
 * launch of the graph. CUDA lets nobody outside of the recording refer to it; device.h does, and means the latest
 * launch. So the event remembers its recording, and who waits for it later waits for an event that is recorded behind
 * each launch of the graph: later than necessary, never too early. The other way round, a recorded stream that is to
 * wait for an event of outside cannot have the wait in its graph: the host waits, now, for what was enqueued before;
 * launches of the graph are ordered by their stream and by waits before the launch. */
#include "common/device/cuda/cuda_device.h"

#include <stdlib.h>

#include "common/base/log.h"

struct native {
    cudaEvent_t event;
    int gpu;
    struct ls_cuda_recording *recording; /* in which it was recorded last; NULL: in none */
};

static void set_recording(struct native *native, struct ls_cuda_recording *recording) {
    if (native->recording == recording) return;
    if (native->recording) ls_cuda_recording_release(native->recording);
    if (recording) atomic_fetch_add(&recording->holders, 1);
    native->recording = recording;
}

static void release(void *memory) {
    struct native *native = memory;
    set_recording(native, NULL);
    if (!ls_cuda_is_broken(native->gpu) && ls_cuda_use(native->gpu) == LS_OK) (void)cudaEventDestroy(native->event);
    free(native);
}

static ls_status make_native(ls_event *event, int gpu) {
    struct native *native = calloc(1, sizeof *native);
    if (!native) return ls_fail(LS_ERR_NO_MEMORY, "no memory for event \"%s\"", event->name);
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
    set_recording(native, ls_cuda_is_recording(stream) ? ls_cuda_current_recording() : NULL);
    if (event->stream != stream) event->stream = stream;
    atomic_fetch_add(&event->recorded, 1);
    return LS_OK;
}

/* What has to complete for the latest record to be reached; NULL: it has not been put on a stream yet, or never was. */
static cudaEvent_t latest(const ls_event *event) {
    const struct native *native = event->native;
    if (atomic_load(&event->recorded) == 0) return NULL;
    if (!native->recording || native->recording == ls_cuda_current_recording()) return native->event;
    return atomic_load(&native->recording->launched) ? native->recording->done : NULL;
}

static ls_status wait_on_host(ls_event *event, cudaEvent_t what) {
    struct ls_cuda_awaited awaited = {ls_cuda_stream_of(event->stream)->lane.stream, what, "event", event->name};
    return ls_cuda_wait(event->stream->device, &awaited);
}

static bool is_of_this_recording(const ls_event *event) {
    const struct native *native = event->native;
    return native->recording && native->recording == ls_cuda_current_recording();
}

ls_status ls_cuda_stream_wait_event(ls_stream *stream, ls_event *event) {
    cudaEvent_t what = latest(event);
    if (!what) return LS_OK;
    const struct ls_cuda_lane *lane = ls_cuda_lane_of(stream);
    if (ls_cuda_is_recording(stream) && !is_of_this_recording(event)) return wait_on_host(event, what);
    return LS_CUDA(lane->gpu, cudaStreamWaitEvent(lane->stream, what, 0));
}

ls_status ls_cuda_event_synchronize(ls_event *event) {
    cudaEvent_t what = latest(event);
    if (!what) return LS_OK;
    if (is_of_this_recording(event)) {
        ls_status refused =
            ls_fail(LS_ERR_UNSUPPORTED, "the event \"%s\" is being recorded into a graph and cannot be waited for",
                    event->name);
        return ls_cuda_recording_failed(refused);
    }
    ls_status status = wait_on_host(event, what);
    return status == LS_OK ? ls_cuda_look_for_faults(event->stream->device) : status;
}
