// CUDA graphs, as far as they come from capture.
#include <stdlib.h>
#include <string.h>

#include <new>

#include "capture.hpp"
#include "copies.hpp"
#include "entry.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

Graph* graph_of(CUgraph handle) { return object_of<Graph>(handle, graph_magic); }
Executable* executable_of(CUgraphExec handle) { return object_of<Executable>(handle, executable_magic); }

CUresult instantiate(CUgraphExec* handle, CUgraph graph_handle) {
    const Graph* const graph = graph_of(graph_handle);
    if (handle == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto* const executable = new (std::nothrow) Executable();
    if (executable == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    executable->recording = graph->recording;
    __atomic_add_fetch(&graph->recording->references, 1u, __ATOMIC_RELAXED);
    *handle = reinterpret_cast<CUgraphExec>(executable);
    return CUDA_SUCCESS;
}

CUresult replay(Captured& call, uint32_t stream) {
    switch (call.kind) {
        case Captured::Kind::launch: {
            LaunchShape shape = call.shape;
            shape.stream = stream;
            const auto* attributes = reinterpret_cast<const fikit_attribute*>(call.bytes());
            const uint8_t* parameters = call.bytes() + shape.attributes * sizeof(fikit_attribute);
            return result_of(producer().launch(shape, attributes, parameters));
        }
        case Captured::Kind::copy:
            return copy_memory(call.to, call.from, call.count, stream, false);
        case Captured::Kind::fill:
            return result_of(producer().fill(stream, call.to, call.count, call.value, call.width));
        case Captured::Kind::function:
            return result_of(producer().host_function(stream, reinterpret_cast<HostFunction>(call.to),
                                                      reinterpret_cast<void*>(call.from)));
    }
    return CUDA_ERROR_UNKNOWN;
}

}  // namespace

// --- capture ---

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    uint32_t stream = 0;
    if (const CUresult result = number_of(handle, stream); result != CUDA_SUCCESS) return result;
    return captures.begin(stream, mode);
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph_handle) {
    uint32_t stream = 0;
    if (graph_handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = number_of(handle, stream); result != CUDA_SUCCESS) return result;
    Graph* graph = nullptr;
    const CUresult result = captures.end(stream, graph);
    *graph_handle = reinterpret_cast<CUgraph>(graph);
    return result;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
    return fikit::shim::cuStreamGetCaptureInfo_v2(handle, status, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
    return fikit::shim::cuStreamGetCaptureInfo_v2(handle, status, id, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph_handle, const CUgraphNode** dependencies, size_t* count) {
    uint32_t stream = 0;
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = number_of(handle, stream); result != CUDA_SUCCESS) return result;
    cuuint64_t number = 0;
    Graph* graph = nullptr;
    const CUresult result = captures.information(stream, *status, number, graph);
    if (id != nullptr) *id = number;
    if (graph_handle != nullptr) *graph_handle = reinterpret_cast<CUgraph>(graph);
    if (dependencies != nullptr) *dependencies = nullptr;
    if (count != nullptr) *count = 0;
    return result;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges, size_t* count) {
    if (edges != nullptr) *edges = nullptr;
    return fikit::shim::cuStreamGetCaptureInfo_v2(handle, status, id, graph, dependencies, count);
}

// The mode forbids nothing (capture.hpp); a program may still ask what it has set.
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    const CUstreamCaptureMode before = thread.capture_mode;
    thread.capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

// --- graphs ---

CUresult cuGraphDestroy(CUgraph handle) {
    Graph* const graph = graph_of(handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    let_go(graph->recording);
    graph->magic = 0;
    delete graph;
    return CUDA_SUCCESS;
}

// A node is a captured call.
CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
    const Graph* const graph = graph_of(handle);
    if (graph == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (nodes == nullptr) {
        *count = graph->recording->count;
        return CUDA_SUCCESS;
    }
    size_t given = 0;
    for (Captured* call = graph->recording->first; call != nullptr && given < *count; call = call->next)
        nodes[given++] = reinterpret_cast<CUgraphNode>(call);
    for (size_t i = given; i < *count; ++i) nodes[i] = nullptr;
    *count = given;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
    if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
    constexpr CUgraphNodeType types[] = {CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY,
                                         CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_HOST};
    *type = types[static_cast<unsigned>(reinterpret_cast<const Captured*>(node)->kind)];
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec* handle, CUgraph graph, CUgraphNode*, char*, size_t) {
    return instantiate(handle, graph);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* handle, CUgraph graph, CUgraphNode*, char*, size_t) {
    return instantiate(handle, graph);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph, unsigned long long flags) {
    return (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                                                    : instantiate(handle, graph);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* handle, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
    if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = fikit::shim::cuGraphInstantiateWithFlags(handle, graph, parameters->flags);
    parameters->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream) {
    return executable_of(handle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
    const Executable* const executable = executable_of(handle);
    uint32_t stream = 0;
    if (executable == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = number_of(stream_handle, stream); result != CUDA_SUCCESS) return result;
    if (captures.capturing(stream)) return captures.forbid(stream);  // a graph within a graph
    for (Captured* call = executable->recording->first; call != nullptr; call = call->next)
        if (const CUresult result = replay(*call, stream); result != CUDA_SUCCESS) return result;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
    Executable* const executable = executable_of(handle);
    if (executable == nullptr) return CUDA_ERROR_INVALID_VALUE;
    let_go(executable->recording);
    executable->magic = 0;
    delete executable;
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
