/* Capture: work enqueued on a capturing stream becomes a node of a graph instead of running.
 *   terms : a capture begins on its origin; a stream that waits for an event recorded in the capture joins it; a
 *           stream's front is the set of nodes that its next node follows. Recording an event notes the front,
 *           waiting adds the noted front to the stream's own
 *   end   : on the origin, by the thread that began (unless relaxed), when all nodes come before the origin's front
 *           (else cudaErrorStreamCaptureUnjoined)
 *   fails : as CUDA documents, and then the capture is invalid: enqueuing on its streams returns
 *           cudaErrorStreamCaptureInvalidated until it is ended. Waiting, querying or allocating during a capture:
 *           cudaErrorStreamCaptureUnsupported (in other threads too, unless the capture is thread-local or relaxed). A
 *           dependency on work outside: ...Isolation; on another capture: ...Merge; the host querying an event of a
 *           capture: cudaErrorCapturedEvent
 *   stricter than CUDA : no capture of copies from or to pageable memory, cudaMallocFromPoolAsync or cudaGraphLaunch */
#include <algorithm>

#include "tests/cuda_on_cpu/state.h"

namespace cuda_on_cpu {

namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/* The nodes of `front`, and all nodes that come before them. */
Nodes before_and(const CUgraph_st &graph, const Nodes &front) {
    Nodes reached;
    std::vector<int> rest(front.begin(), front.end());
    while (!rest.empty()) {
        int node = rest.back();
        rest.pop_back();
        if (!reached.insert(node).second) continue;
        const Nodes &after = graph.nodes[static_cast<size_t>(node)].after;
        rest.insert(rest.end(), after.begin(), after.end());
    }
    return reached;
}

} // namespace

cudaError_t invalidate(cudaStream_t stream, cudaError_t why) {
    stream->capture->invalid = true;
    return why;
}

cudaError_t capture_task(cudaStream_t stream, const Task &task) {
    if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    auto &nodes = stream->capture->graph->nodes;
    nodes.push_back({task, stream->front});
    stream->front = {static_cast<int>(nodes.size()) - 1};
    return cudaSuccess;
}

cudaError_t capture_record(cudaStream_t stream, cudaEvent_t event) {
    if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    event->capture = stream->capture;
    event->front = stream->front;
    event->latest = nullptr;
    return cudaSuccess;
}

/* At least one of the two must be in a capture. */
cudaError_t capture_wait(cudaStream_t stream, cudaEvent_t event) {
    if (stream->capture && stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (!event->capture) return event->latest ? invalidate(stream, cudaErrorStreamCaptureIsolation) : cudaSuccess;
    if (event->capture->ended) {
        if (stream->capture) stream->capture->invalid = true;
        return cudaErrorCapturedEvent;
    }
    if (event->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (stream->capture && stream->capture != event->capture) return invalidate(stream, cudaErrorStreamCaptureMerge);
    stream->capture = event->capture;
    stream->capture->members.insert(stream);
    stream->front.insert(event->front.begin(), event->front.end());
    return cudaSuccess;
}

/* For calls that might wait for a device implicitly. */
cudaError_t refuse_while_capturing(State &s) {
    if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
    bool refused = false;
    for (const CaptureRef &capture : s.captures) {
        bool own = capture->thread == std::this_thread::get_id() && capture->mode != cudaStreamCaptureModeRelaxed;
        bool others = capture->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
        if (!own && !others) continue;
        capture->invalid = true;
        refused = true;
    }
    return refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

/* The caller takes the graph first if it is to be kept. */
void leave_capture(State &s, Capture &capture) {
    capture.ended = true;
    delete capture.graph;
    capture.graph = nullptr;
    s.captures.erase(std::remove_if(s.captures.begin(), s.captures.end(), [](const CaptureRef &c) { return c->ended; }),
                     s.captures.end());
    std::set<cudaStream_t> members = std::move(capture.members);
    capture.members.clear();
    for (cudaStream_t member : members) {
        member->capture = nullptr;
        member->front.clear();
    }
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    cudaError_t error = enter("cudaStreamBeginCapture");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t found = find_stream(s, stream);
    if (!found) return fail(cudaErrorInvalidResourceHandle);
    if (s.devices[static_cast<size_t>(found->device)].legacy == found) return fail(cudaErrorStreamCaptureUnsupported);
    if (found->capture) return fail(cudaErrorIllegalState);
    auto capture = std::make_shared<Capture>();
    capture->origin = found;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->graph = new CUgraph_st;
    capture->members.insert(found);
    found->capture = capture;
    found->front.clear();
    s.captures.push_back(capture);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph) {
    cudaError_t error = enter("cudaStreamEndCapture");
    if (error != cudaSuccess && device_count() == 0) return error;
    if (!pGraph) return fail(cudaErrorInvalidValue);
    *pGraph = nullptr;
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t found = find_stream(s, stream);
    if (!found) return fail(cudaErrorInvalidResourceHandle);
    if (!found->capture) return fail(error != cudaSuccess ? error : cudaErrorIllegalState);
    CaptureRef capture = found->capture;
    if (capture->origin != found) return fail(invalidate(found, cudaErrorStreamCaptureUnmatched));
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
        return fail(cudaErrorStreamCaptureWrongThread);
    }
    if (error == cudaSuccess && capture->invalid) error = cudaErrorStreamCaptureInvalidated;
    if (error == cudaSuccess && before_and(*capture->graph, found->front).size() < capture->graph->nodes.size()) {
        error = cudaErrorStreamCaptureUnjoined;
    }
    if (error == cudaSuccess) {
        *pGraph = capture->graph;
        s.graphs.insert(capture->graph);
        capture->graph = nullptr;
    }
    leave_capture(s, *capture);
    return fail(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus) {
    cudaError_t error = enter("cudaStreamIsCapturing");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t found = find_stream(s, stream);
    if (!found) return fail(cudaErrorInvalidResourceHandle);
    *pCaptureStatus = !found->capture           ? cudaStreamCaptureStatusNone
                      : found->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                                : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    cudaError_t error = enter("cudaThreadExchangeStreamCaptureMode");
    if (error == cudaSuccess) std::swap(*mode, thread_mode);
    return error;
}

} // extern "C"
