/* graph — what is enqueued between begin and end becomes a graph, which one call then launches.
 *
 * By CUDA's stream capture, in the thread-local mode: other threads go on as they like, and this one cannot by
 * mistake call something that waits. A recording in which an operation failed gives no graph: the step has been
 * enqueued in part only. What events mean across the border of a recording stands in events.c.
 *   cost  : recording and making the graph take milliseconds, once; a launch takes microseconds for any number of
 *           operations */
#include "common/device/cuda/cuda_device.h"

#include <stdlib.h>

#include "common/base/log.h"

struct cuda_graph {
    struct ls_graph base;
    cudaGraphExec_t executable;
    struct ls_cuda_recording *recording;
};

static _Thread_local struct ls_cuda_recording *current;

struct ls_cuda_recording *ls_cuda_current_recording(void) {
    return current;
}

bool ls_cuda_is_recording(ls_stream *stream) {
    if (!current) return false;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    (void)cudaStreamIsCapturing(ls_cuda_stream_of(stream)->lane.stream, &status);
    return status != cudaStreamCaptureStatusNone;
}

ls_status ls_cuda_swap_capture_mode(int gpu, enum cudaStreamCaptureMode *mode) {
    return current ? LS_CUDA(gpu, cudaThreadExchangeStreamCaptureMode(mode)) : LS_OK;
}

static struct ls_cuda_recording *new_recording(ls_device *device) {
    struct ls_cuda_recording *recording = calloc(1, sizeof *recording);
    if (!recording) {
        (void)ls_fail(LS_ERR_NO_MEMORY, "no memory for a graph");
        return NULL;
    }
    recording->holders = 1;
    recording->gpu = ls_cuda_device_of(device)->gpu;
    if (LS_CUDA(recording->gpu, cudaEventCreateWithFlags(&recording->done, cudaEventDisableTiming)) == LS_OK)
        return recording;
    free(recording);
    return NULL;
}

void ls_cuda_recording_release(struct ls_cuda_recording *recording) {
    if (atomic_fetch_sub(&recording->holders, 1) > 1) return;
    if (!ls_cuda_is_broken(recording->gpu) && ls_cuda_use(recording->gpu) == LS_OK)
        (void)cudaEventDestroy(recording->done);
    free(recording);
}

ls_status ls_cuda_graph_begin(ls_stream *stream) {
    if (current) return ls_fail(LS_ERR_INVALID, "this thread is recording a graph already");
    ls_status status = ls_device_status(stream->device);
    if (status != LS_OK) return status;
    const struct ls_cuda_lane *lane = ls_cuda_lane_of(stream);
    struct ls_cuda_recording *recording = new_recording(stream->device);
    if (!recording) return LS_ERR_SYSTEM;
    status = LS_CUDA(lane->gpu, cudaStreamBeginCapture(lane->stream, cudaStreamCaptureModeThreadLocal));
    if (status == LS_OK)
        current = recording;
    else
        ls_cuda_recording_release(recording);
    return status;
}

ls_status ls_cuda_recording_failed(ls_status status) {
    if (current && current->failure == LS_OK) current->failure = status;
    return status;
}

ls_status ls_cuda_graph_end(ls_stream *stream, ls_graph **out) {
    *out = NULL;
    struct ls_cuda_recording *recording = current;
    if (!recording) return ls_fail(LS_ERR_INVALID, "there is no graph to end: nothing is being recorded");
    const struct ls_cuda_lane *lane = ls_cuda_lane_of(stream);
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamEndCapture(lane->stream, &graph);
    current = NULL;
    ls_status status = recording->failure;                          /* which may well be why CUDA complains now */
    if (status == LS_OK) status = ls_device_status(stream->device); /* what was enqueued since then did nothing */
    if (status != LS_OK)
        (void)cudaGetLastError();
    else
        status = ls_cuda_check(error, lane->gpu, "recording a graph");
    struct cuda_graph *made = status == LS_OK ? calloc(1, sizeof *made) : NULL;
    if (status == LS_OK && !made) status = ls_fail(LS_ERR_NO_MEMORY, "no memory for a graph");
    if (status == LS_OK) status = LS_CUDA(lane->gpu, cudaGraphInstantiate(&made->executable, graph, 0));
    if (graph) (void)cudaGraphDestroy(graph);
    if (status != LS_OK) {
        ls_cuda_recording_release(recording);
        free(made);
        return status;
    }
    made->base.backend = stream->device->backend;
    made->recording = recording;
    *out = &made->base;
    return LS_OK;
}

ls_status ls_cuda_graph_launch(ls_graph *graph, ls_stream *stream) {
    struct cuda_graph *own = (struct cuda_graph *)graph;
    const struct ls_cuda_lane *lane = ls_cuda_lane_of(stream);
    ls_status status = LS_CUDA(lane->gpu, cudaGraphLaunch(own->executable, lane->stream));
    if (status == LS_OK) status = LS_CUDA(lane->gpu, cudaEventRecord(own->recording->done, lane->stream));
    if (status == LS_OK) atomic_store(&own->recording->launched, true);
    return status == LS_OK ? ls_cuda_check_launch(stream, "graph") : status;
}

void ls_cuda_graph_destroy(ls_graph *graph) {
    struct cuda_graph *own = (struct cuda_graph *)graph;
    int gpu = own->recording->gpu;
    if (!ls_cuda_is_broken(gpu) && ls_cuda_use(gpu) == LS_OK) (void)cudaGraphExecDestroy(own->executable);
    ls_cuda_recording_release(own->recording);
    free(own);
}
