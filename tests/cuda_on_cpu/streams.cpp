/* Streams and events.
 *
 * A stream is the last item enqueued on it; the next item follows that one. All streams are created with
 * cudaStreamNonBlocking, so the legacy stream (NULL; each device has one) is a stream like the others. Recording an
 * event puts an empty item on the stream, which the event then points to; waiting for the event makes the stream's next
 * item follow the one that the event points to at that moment, so later records do not matter, and an event that was
 * never recorded causes no wait.
 *
 * As in CUDA, an event is recorded only on streams of its own device (cudaErrorInvalidResourceHandle), and a stream
 * of any device may wait for it. */
#include <algorithm>

#include "tests/cuda_on_cpu/state.h"

namespace cuda_on_cpu {

cudaStream_t find_stream(State &s, cudaStream_t handle) {
    if (s.devices.empty()) return nullptr;
    if (!handle) return s.devices[static_cast<size_t>(current_device())].legacy;
    return s.streams.count(handle) ? handle : nullptr;
}

static bool is_legacy(const State &s, cudaStream_t stream) {
    return s.devices[static_cast<size_t>(stream->device)].legacy == stream;
}

/* Appends an item to the stream, which also follows `also`. */
static cudaError_t append_after(State &s, cudaStream_t stream, Task task, const ItemRef &also, ItemRef *out) {
    cudaError_t broken = s.devices[static_cast<size_t>(stream->device)].broken;
    if (broken != cudaSuccess) return broken;
    bool kernel = task.kind == Kind::kernel;
    stream->tail = add_item(s, std::move(task), {stream->tail, also});
    if (kernel) count_kernel(s, *stream->tail);
    if (out) *out = stream->tail;
    return cudaSuccess;
}

cudaError_t append(State &s, cudaStream_t stream, Task task, ItemRef *out) {
    if (stream->capture) return capture_task(stream, task);
    return append_after(s, stream, std::move(task), nullptr, out);
}

cudaError_t device_of_stream(cudaStream_t stream, int *device) {
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t found = find_stream(s, stream);
    if (!found) return fail(cudaErrorInvalidResourceHandle);
    *device = found->device;
    return cudaSuccess;
}

bool is_capturing(cudaStream_t stream) {
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t found = find_stream(s, stream);
    return found && found->capture;
}

static cudaError_t broken_on(const State &s, int device) { return s.devices[static_cast<size_t>(device)].broken; }

/* The item that a wait or a query of the stream refers to. */
static cudaError_t goal_of(State &s, cudaStream_t stream, ItemRef *goal) {
    if (stream->capture) return invalidate(stream, cudaErrorStreamCaptureUnsupported);
    cudaError_t error = refuse_while_capturing(s);
    if (error != cudaSuccess) return error;
    *goal = stream->tail;
    return cudaSuccess;
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority) {
    (void)priority; /* every order is allowed anyway */
    cudaError_t error = enter("cudaStreamCreateWithPriority");
    if (error != cudaSuccess) return error;
    if (!pStream || flags != cudaStreamNonBlocking) return fail(cudaErrorInvalidValue);
    State &s = state();
    Guard guard(s.lock);
    *pStream = *s.streams.insert(new CUstream_st{current_device(), nullptr, nullptr, {}}).first;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags) {
    cudaError_t error = enter("cudaStreamCreateWithFlags");
    return error == cudaSuccess ? cudaStreamCreateWithPriority(pStream, flags, 0) : error;
}

/* Enqueued work still runs. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    cudaError_t error = enter("cudaStreamDestroy");
    if (forked_too_late()) return error;
    State &s = state();
    Guard guard(s.lock);
    if (!s.streams.count(stream) || is_legacy(s, stream)) return fail(cudaErrorInvalidResourceHandle);
    if (stream->capture) {
        stream->capture->invalid = true;
        if (stream->capture->origin == stream) leave_capture(s, *CaptureRef(stream->capture));
        if (stream->capture) stream->capture->members.erase(stream);
    }
    if (stream->tail && !stream->tail->done)
        s.devices[static_cast<size_t>(stream->device)].orphans.push_back(stream->tail);
    s.streams.erase(stream);
    delete stream;
    return error;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    cudaError_t error = enter("cudaStreamQuery");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    ItemRef goal;
    cudaStream_t found = find_stream(s, stream);
    if (!found) return fail(cudaErrorInvalidResourceHandle);
    int device = found->device;
    error = goal_of(s, found, &goal);
    if (error != cudaSuccess) return fail(error);
    let_run(s, guard, goal);
    if (broken_on(s, device) != cudaSuccess) return fail(broken_on(s, device));
    return fail(!goal || goal->done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    cudaError_t error = enter("cudaStreamSynchronize");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    ItemRef goal;
    cudaStream_t found = find_stream(s, stream);
    if (!found) return fail(cudaErrorInvalidResourceHandle);
    int device = found->device;
    error = goal_of(s, found, &goal);
    if (error != cudaSuccess) return fail(error);
    s.host_waits++;
    wait_for(s, guard, goal);
    return fail(broken_on(s, device));
}

cudaError_t cudaDeviceSynchronize(void) {
    cudaError_t error = enter("cudaDeviceSynchronize");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    int device = current_device();
    error = refuse_while_capturing(s);
    for (cudaStream_t stream : s.streams) {
        if (stream->device == device && stream->capture) error = invalidate(stream, cudaErrorStreamCaptureUnsupported);
    }
    if (error != cudaSuccess) return fail(error);
    s.host_waits++;
    wait_for_device(s, guard, device);
    return fail(broken_on(s, device));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    cudaError_t error = enter("cudaStreamWaitEvent");
    if (error != cudaSuccess) return error;
    if (flags != cudaEventWaitDefault) return fail(cudaErrorInvalidValue);
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t found = find_stream(s, stream);
    if (!found || !s.events.count(event)) return fail(cudaErrorInvalidResourceHandle);
    if (found->capture || event->capture) return fail(capture_wait(found, event));
    if (!event->latest) return cudaSuccess;
    return fail(
        append_after(s, found, {"cudaStreamWaitEvent", found->device, Kind::work, nullptr}, event->latest, nullptr));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData) {
    cudaError_t error = enter("cudaLaunchHostFunc");
    if (error != cudaSuccess) return error;
    if (!fn) return fail(cudaErrorInvalidValue);
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t found = find_stream(s, stream);
    if (!found) return fail(cudaErrorInvalidResourceHandle);
    auto work = [fn, userData] {
        fn(userData);
        return Progress::done;
    };
    return fail(append(s, found, {"cudaLaunchHostFunc", found->device, Kind::host_function, work}, nullptr));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    cudaError_t error = enter("cudaEventCreateWithFlags");
    if (error != cudaSuccess) return error;
    if (!event || flags > (cudaEventBlockingSync | cudaEventDisableTiming)) return fail(cudaErrorInvalidValue);
    State &s = state();
    Guard guard(s.lock);
    *event = *s.events.insert(new CUevent_st{current_device(), flags, nullptr, nullptr, {}}).first;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    cudaError_t error = enter("cudaEventDestroy");
    if (forked_too_late()) return error;
    State &s = state();
    Guard guard(s.lock);
    if (!s.events.erase(event)) return fail(cudaErrorInvalidResourceHandle);
    delete event;
    return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    cudaError_t error = enter("cudaEventRecord");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t found = find_stream(s, stream);
    if (!found || !s.events.count(event) || found->device != event->device) return fail(cudaErrorInvalidResourceHandle);
    if (found->capture) return fail(capture_record(found, event));
    ItemRef item;
    error = append(s, found, {"cudaEventRecord", found->device, Kind::work, nullptr}, &item);
    if (error != cudaSuccess) return fail(error);
    event->latest = item;
    event->capture = nullptr;
    return cudaSuccess;
}

/* Whether the host may query or wait for this event. */
static cudaError_t event_error(State &s, cudaEvent_t event) {
    if (!s.events.count(event)) return cudaErrorInvalidResourceHandle;
    if (event->capture) {
        event->capture->invalid = true;
        return cudaErrorCapturedEvent;
    }
    return refuse_while_capturing(s);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    cudaError_t error = enter("cudaEventQuery");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    error = event_error(s, event);
    if (error != cudaSuccess) return fail(error);
    int device = event->device;
    ItemRef goal = event->latest;
    let_run(s, guard, goal);
    if (broken_on(s, device) != cudaSuccess) return fail(broken_on(s, device));
    return fail(!goal || goal->done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    cudaError_t error = enter("cudaEventSynchronize");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    error = event_error(s, event);
    if (error != cudaSuccess) return fail(error);
    int device = event->device;
    s.host_waits++;
    wait_for(s, guard, ItemRef(event->latest));
    return fail(broken_on(s, device));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    cudaError_t error = enter("cudaEventElapsedTime");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    if (!ms) return fail(cudaErrorInvalidValue);
    for (cudaEvent_t event : {start, end}) {
        if (!s.events.count(event) || (event->flags & cudaEventDisableTiming))
            return fail(cudaErrorInvalidResourceHandle);
        if (event->capture) return fail(cudaErrorCapturedEvent);
        if (!event->latest) return fail(cudaErrorInvalidResourceHandle);
    }
    if (!start->latest->done || !end->latest->done) return fail(cudaErrorNotReady);
    *ms = static_cast<float>(end->latest->done_ms - start->latest->done_ms);
    return cudaSuccess;
}

} // extern "C"
