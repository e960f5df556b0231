/* step_graph — a step is captured once and then launched.
 *   idea  : the work that a step enqueues is the same in each step: the same operations on the same memory with the
 *           same numbers (values that vary are on the device). All that changes is kept out of the capture:
 *
 *               wait for the batch        before the launch; the copy stream copies the batch into one of several
 *                                         buffers in turn, so there is a graph for each buffer (and each
 *                                         micro-batch)
 *               forward .. optimizer      the launch
 *               the loss to its place     after it: copied from a fixed address to the step's in the ring
 *               the batch is used         after it
 *
 *           and all that the host counts when it enqueues (batch norm's batches, bytes moved) is added at each launch
 *   cost  : two launches and a copy of 4 bytes for the host, for any model. The clocks attribute all of it to the phase
 *           "graph". Only a profiler sees inside of it, by the names of kernels
 *   order : that of the capture; operations and sums are the same as without a graph, and so are the bits
 *   fails : an operation that needs the host cannot be captured; the function that enqueues it reports that, and the
 *           run ends */
#include "common/seam/step_graph.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

/* The capture of a micro-batch of the step, for one buffer. */
struct capture {
    ls_graph *graph;
    uint64_t bytes[LS_PHASE_COUNT]; /* its bytes, as the clocks count them */
    int64_t batches_tracked;        /* the increase in each batch norm: 1, or 0 without samples */
};

struct ls_step_graph {
    ls_stream *compute;
    int64_t steps, launches;
    struct captured_batch {
        size_t count, global_count; /* of the captured step: the largest of the first steps */
        struct capture *captures;   /* for each buffer */
    } * batches;                    /* one for each micro-batch */
};

static bool alloc_captures(const ls_parallel *p, struct ls_step_graph *graph) {
    graph->batches = calloc((size_t)p->micro_batches, sizeof *graph->batches);
    bool done = graph->batches != NULL;
    for (int b = 0; done && b < p->micro_batches; b++) {
        struct captured_batch *batch = &graph->batches[b];
        batch->captures = calloc((size_t)p->places.count, sizeof *batch->captures);
        done = batch->captures != NULL;
    }
    return done;
}

ls_status ls_step_graph_create(ls_parallel *p) {
    if (ls_device_kind_of(p->devices[0]) != LS_DEVICE_CUDA) {
        return ls_fail(LS_ERR_USAGE, "--cuda-graph needs GPUs; this run is on CPU devices");
    }
    const char *obstacle = p->mode->graph_obstacle ? p->mode->graph_obstacle(p) : NULL;
    if (ls_optimizer_offload_report(p->optimizer)) obstacle = "--offload optimizer, whose updates the host computes";
    if (obstacle) return ls_fail(LS_ERR_USAGE, "--cuda-graph cannot be combined with %s", obstacle);
    struct ls_step_graph *graph = p->graph = calloc(1, sizeof *graph);
    if (!graph || !alloc_captures(p, graph)) {
        ls_step_graph_destroy(p);
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the graph of a step");
    }
    graph->compute = ls_device_stream(p->devices[0], LS_STREAM_COMPUTE);
    return LS_OK;
}

/* The same in all batch norm layers. */
static int64_t batches_tracked(const ls_parallel *p) {
    return ls_model_batchnorm_count(p->model) > 0 ? *ls_model_batches_tracked(p->model, 0) : 0;
}

static ls_status capture_step(ls_parallel *p, struct capture *capture, ls_status (*enqueue)(ls_parallel *p)) {
    const struct ls_step_graph *graph = p->graph;
    memcpy(capture->bytes, p->clocks->bytes, sizeof capture->bytes);
    capture->batches_tracked = batches_tracked(p);
    ls_status status = ls_graph_begin(graph->compute);
    if (status != LS_OK) return status;
    p->is_capturing = true;
    /* each launch of the first one has to cast the parameters to half precision, even if an evaluation has cast them
     * already */
    if (ls_parallel_is_first(p)) ls_model_parameters_changed(p->model);
    status = enqueue(p);
    p->is_capturing = false;
    ls_status ended = ls_graph_end(graph->compute, &capture->graph);
    for (int i = 0; i < LS_PHASE_COUNT; i++) capture->bytes[i] = p->clocks->bytes[i] - capture->bytes[i];
    capture->batches_tracked = batches_tracked(p) - capture->batches_tracked;
    return status != LS_OK ? status : ended;
}

/* Adds what the host counted in the captured step. */
static void count_again(ls_parallel *p, const struct capture *capture) {
    size_t layers = ls_model_batchnorm_count(p->model);
    for (size_t b = 0; b < layers; b++) *ls_model_batches_tracked(p->model, b) += capture->batches_tracked;
    for (int i = 0; i < LS_PHASE_COUNT; i++) p->clocks->bytes[i] += capture->bytes[i];
}

static ls_status launch(ls_parallel *p, const struct capture *capture) {
    struct ls_step_graph *graph = p->graph;
    ls_parallel_await_batch(p, graph->compute);
    ls_status status = ls_graph_launch(capture->graph, graph->compute);
    if (ls_parallel_is_last(p)) {
        ls_model_parameters_changed(p->model); /* as an update does, for passes outside of the graph */
        ls_copy(graph->compute, ls_parallel_ring_slot(p), p->losses + LS_LOSS_RING, sizeof *p->losses);
    }
    ls_parallel_end_backward(p, graph->compute);
    graph->launches++;
    return ls_parallel_status(p, status);
}

ls_status ls_step_graph_run(ls_parallel *p, ls_status (*enqueue)(ls_parallel *p)) {
    struct ls_step_graph *graph = p->graph;
    const struct ls_device_batch *batch = p->batch;
    struct captured_batch *captured = &graph->batches[batch->index];
    if (ls_parallel_is_first(p)) graph->steps++;
    if (graph->steps <= LS_GRAPH_WARMUP_STEPS && batch->global_count > captured->global_count) {
        captured->count = batch->count;
        captured->global_count = batch->global_count;
    }
    bool same = batch->count == captured->count && batch->global_count == captured->global_count;
    if (!same || graph->steps <= LS_GRAPH_WARMUP_STEPS) return enqueue(p);
    struct capture *capture = &captured->captures[p->places.newest];
    bool is_new = !capture->graph;
    ls_status status = is_new ? capture_step(p, capture, enqueue) : LS_OK;
    ls_phase_enter(p->clocks, LS_PHASE_GRAPH);
    if (status == LS_OK) status = launch(p, capture);
    if (status == LS_OK && !is_new) count_again(p, capture);
    ls_phase_enter(p->clocks, LS_PHASE_OTHER);
    return status;
}

int64_t ls_step_graph_launches(const ls_parallel *p) { return p->graph->launches; }

void ls_step_graph_note_idle(const ls_parallel *p) {
    if (!p->graph || p->rank > 0 || ls_step_graph_launches(p) > 0) return;
    ls_note("--cuda-graph had no effect: steps are launched as a graph after %d others with the same batch size, and "
            "this run had no more",
            LS_GRAPH_WARMUP_STEPS);
}

void ls_step_graph_destroy(ls_parallel *p) {
    struct ls_step_graph *graph = p->graph;
    if (!graph) return;
    for (int b = 0; graph->batches && b < p->micro_batches; b++) {
        struct capture *captures = graph->batches[b].captures;
        for (int i = 0; captures && i < p->places.count; i++) ls_graph_destroy(captures[i].graph);
        free(captures);
    }
    free(graph->batches);
    free(graph);
    p->graph = NULL;
}
