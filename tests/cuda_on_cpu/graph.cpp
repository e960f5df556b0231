/* Graphs: nodes, each with the nodes it follows, made by a capture (capture.cpp) and launched as a whole.
 *   launch: one empty item that follows the stream and the graph's previous launch, one item per node with the edges
 *           that were captured, and one empty item that follows the nodes without followers; this is the stream's new
 *           end. So nodes without an edge between them may run in any order, as on a GPU
 *   copies: the executable graph and each launch have their own copies, so that graphs may be destroyed at any later
 *           time
 *   fails : a node of a device whose context is broken does nothing, as elsewhere */
#include <algorithm>

#include "tests/cuda_on_cpu/state.h"

using namespace cuda_on_cpu;

static cudaError_t launch(State &s, CUgraphExec_st &exec, cudaStream_t stream) {
    int device = stream->device;
    std::vector<ItemRef> before = {stream->tail, exec.last};
    ItemRef begin = add_item(s, {"a graph's begin", device, Kind::work, nullptr}, before);
    std::vector<ItemRef> items;
    Nodes ends;
    for (const CUgraphNode_st &node : exec.nodes) {
        before.assign(1, begin);
        for (int earlier : node.after) {
            before.push_back(items[static_cast<size_t>(earlier)]);
            ends.erase(earlier);
        }
        ends.insert(static_cast<int>(items.size()));
        items.push_back(add_item(s, node.task, before));
        if (node.task.kind == Kind::kernel) count_kernel(s, *items.back());
    }
    before.assign(1, begin);
    for (int end : ends) before.push_back(items[static_cast<size_t>(end)]);
    stream->tail = exec.last = add_item(s, {"a graph's end", device, Kind::work, nullptr}, before);
    return cudaSuccess;
}

static bool holds(const std::deque<CUgraphNode_st> &nodes, const void *owner) {
    return std::any_of(nodes.begin(), nodes.end(), [owner](const auto &node) { return node.task.owner == owner; });
}

bool cuda_on_cpu::is_recorded(const void *owner) {
    State &s = state();
    Guard guard(s.lock);
    bool found = false;
    for (cudaGraph_t graph : s.graphs) found = found || holds(graph->nodes, owner);
    for (cudaGraphExec_t exec : s.execs) found = found || holds(exec->nodes, owner);
    for (const CaptureRef &capture : s.captures) found = found || holds(capture->graph->nodes, owner);
    return found;
}

extern "C" {

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes) {
    cudaError_t error = enter("cudaGraphGetNodes");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    if (!s.graphs.count(graph) || !numNodes) return fail(cudaErrorInvalidValue);
    size_t room = nodes ? *numNodes : 0;
    for (size_t i = 0; i < room; i++) nodes[i] = i < graph->nodes.size() ? &graph->nodes[i] : nullptr;
    if (!nodes || room > graph->nodes.size()) *numNodes = graph->nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph, unsigned long long flags) {
    cudaError_t error = enter("cudaGraphInstantiate");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    if (!pGraphExec || !s.graphs.count(graph) || flags != 0) return fail(cudaErrorInvalidValue);
    *pGraphExec = *s.execs.insert(new CUgraphExec_st{graph->nodes, nullptr}).first;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
    cudaError_t error = enter("cudaGraphLaunch");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t found = find_stream(s, stream);
    if (!found) return fail(cudaErrorInvalidResourceHandle);
    if (!s.execs.count(graphExec)) return fail(cudaErrorInvalidValue);
    if (found->capture) return fail(invalidate(found, cudaErrorStreamCaptureUnsupported));
    cudaError_t broken = s.devices[static_cast<size_t>(found->device)].broken;
    return fail(broken != cudaSuccess ? broken : launch(s, *graphExec, found));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    cudaError_t error = enter("cudaGraphDestroy");
    if (forked_too_late()) return error;
    State &s = state();
    Guard guard(s.lock);
    if (!s.graphs.erase(graph)) return fail(cudaErrorInvalidValue);
    delete graph;
    return error;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
    cudaError_t error = enter("cudaGraphExecDestroy");
    if (forked_too_late()) return error;
    State &s = state();
    Guard guard(s.lock);
    if (!s.execs.erase(graphExec)) return fail(cudaErrorInvalidValue);
    delete graphExec;
    return error;
}

} // extern "C"
