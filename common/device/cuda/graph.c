/* graph — makes a graph of the operations enqueued between begin and end, which one call then launches.
 *
 * It uses CUDA's stream capture in thread-local mode: other threads are not restricted, and in this one a call that
 * would wait fails. A capture in which an operation failed gives no graph, since the step has been enqueued only in
 * part. events.c defines events inside and outside of a capture.
 *   cost  : capturing and making the graph take milliseconds, once; a launch takes microseconds for any number of
 *           operations */
#include "common/device/cuda/cuda_device.h"

#include <stdlib.h>

#include "common/base/log.h"

struct cuda_graph {
    struct ls_graph base;
    cudaGraphExec_t executable;
    struct ls_cuda_capture *capture;
};

static _Thread_local struct ls_cuda_capture *current;

struct ls_cuda_capture *ls_cuda_current_capture(void) {
    return current;
}

bool ls_cuda_is_capturing(ls_stream *stream) {
    if (!current) return false;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    (void)cudaStreamIsCapturing(ls_cuda_stream_of(stream)->lane.stream, &status);
    return status != cudaStreamCaptureStatusNone;
}

ls_status ls_cuda_swap_capture_mode(int gpu, enum cudaStreamCaptureMode *mode) {
    return current ? LS_CUDA(gpu, cudaThreadExchangeStreamCaptureMode(mode)) : LS_OK;
}

static struct ls_cuda_capture *new_capture(ls_device *device) {
    struct ls_cuda_capture *capture = calloc(1, sizeof *capture);
    if (!capture) {
        (void)ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a graph");
        return NULL;
    }
    capture->holders = 1;
    capture->gpu = ls_cuda_device_of(device)->gpu;
    if (LS_CUDA(capture->gpu, cudaEventCreateWithFlags(&capture->done, cudaEventDisableTiming)) == LS_OK)
        return capture;
    free(capture);
    return NULL;
}

void ls_cuda_capture_release(struct ls_cuda_capture *capture) {
    if (atomic_fetch_sub(&capture->holders, 1) > 1) return;
    if (!ls_cuda_is_broken(capture->gpu) && ls_cuda_use(capture->gpu) == LS_OK) (void)cudaEventDestroy(capture->done);
    free(capture);
}

ls_status ls_cuda_graph_begin(ls_stream *stream) {
    if (current) return ls_fail(LS_ERR_INVALID, "this thread is recording a graph already");
    ls_status status = ls_device_status(stream->device);
    if (status != LS_OK) return status;
    const struct ls_cuda_lane *lane = ls_cuda_lane_of(stream);
    struct ls_cuda_capture *capture = new_capture(stream->device);
    if (!capture) return LS_ERR_SYSTEM;
    status = LS_CUDA(lane->gpu, cudaStreamBeginCapture(lane->stream, cudaStreamCaptureModeThreadLocal));
    if (status == LS_OK)
        current = capture;
    else
        ls_cuda_capture_release(capture);
    return status;
}

ls_status ls_cuda_capture_failed(ls_status status) {
    if (current && current->failure == LS_OK) current->failure = status;
    return status;
}

ls_status ls_cuda_graph_end(ls_stream *stream, ls_graph **out) {
    *out = NULL;
    struct ls_cuda_capture *capture = current;
    if (!capture) return ls_fail(LS_ERR_INVALID, "there is no graph to end: nothing is being recorded");
    const struct ls_cuda_lane *lane = ls_cuda_lane_of(stream);
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamEndCapture(lane->stream, &graph);
    current = NULL;
    ls_status status = capture->failure;                            /* probably the cause of CUDA's error */
    if (status == LS_OK) status = ls_device_status(stream->device); /* work enqueued since then did nothing */
    if (status != LS_OK)
        (void)cudaGetLastError();
    else
        status = ls_cuda_check(error, lane->gpu, "recording a graph");
    struct cuda_graph *made = status == LS_OK ? calloc(1, sizeof *made) : NULL;
    if (status == LS_OK && !made) status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a graph");
    if (status == LS_OK) status = LS_CUDA(lane->gpu, cudaGraphInstantiate(&made->executable, graph, 0));
    if (graph) (void)cudaGraphDestroy(graph);
    if (status != LS_OK) {
        ls_cuda_capture_release(capture);
        free(made);
        return status;
    }
    made->base.backend = stream->device->backend;
    made->capture = capture;
    *out = &made->base;
    return LS_OK;
}

ls_status ls_cuda_graph_launch(ls_graph *graph, ls_stream *stream) {
    struct cuda_graph *own = (struct cuda_graph *)graph;
    const struct ls_cuda_lane *lane = ls_cuda_lane_of(stream);
    bool timed = ls_probing() && ls_cuda_time_begin(stream, "graph");
    ls_status status = LS_CUDA(lane->gpu, cudaGraphLaunch(own->executable, lane->stream));
    if (timed) ls_cuda_time_end(stream);
    if (status == LS_OK) status = LS_CUDA(lane->gpu, cudaEventRecord(own->capture->done, lane->stream));
    if (status == LS_OK) atomic_store(&own->capture->launched, true);
    return status == LS_OK ? ls_cuda_check_launch(stream, "graph") : status;
}

void ls_cuda_graph_destroy(ls_graph *graph) {
    struct cuda_graph *own = (struct cuda_graph *)graph;
    int gpu = own->capture->gpu;
    if (!ls_cuda_is_broken(gpu) && ls_cuda_use(gpu) == LS_OK) (void)cudaGraphExecDestroy(own->executable);
    ls_cuda_capture_release(own->capture);
    free(own);
}
