// Instantiated graphs: made, changed, launched.
#include <new>

#include "bridge.hpp"
#include "capture.hpp"
#include "copies.hpp"
#include "entry.hpp"
#include "graph_copies.hpp"
#include "served.hpp"
#include "sharing.hpp"
#include "stream_values.hpp"

namespace fikit::shim {
namespace {

CUresult instantiate(CUgraphExec* handle, CUgraph graph_handle, uint64_t flags,
                     CUgraphInstantiateResult* problem = nullptr) {
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    const Graph* const graph = graph_of(graph_handle);
    constexpr uint64_t known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                               CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                               CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (handle == nullptr || graph == nullptr || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    auto* const executable = new (std::nothrow) Executable();
    if (executable == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    executable->flags = flags;
    CUresult result = executable->take(*graph);
    if (result == CUDA_ERROR_INVALID_VALUE && problem != nullptr)
        *problem = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    if (result == CUDA_SUCCESS && !executable->occupy()) result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) result = executable->send();
    if (result != CUDA_SUCCESS) {
        delete executable;
        return result;
    }
    *handle = reinterpret_cast<CUgraphExec>(executable);
    return CUDA_SUCCESS;
}

// All rows or none.
CUresult issue_fill(const CUDA_MEMSET_NODE_PARAMS& fill, uint32_t stream) {
    const bool fillable = each_row(
        fill, [&](uint64_t to, uint64_t count) { return is_writable(to, count * fill.elementSize); });
    if (!fillable) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    each_row(fill, [&](uint64_t to, uint64_t count) {
        result = fill_memory(to, fill.value, fill.elementSize, count, stream);
        return result == CUDA_SUCCESS;
    });
    return result;
}

CUresult issue(const Node& node, uint32_t stream) {
    switch (node.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: {
            LaunchShape shape = node.shape;
            shape.stream = stream_number(stream);
            return result_of(producer_of(stream).launch(shape, node.attributes(), node.parameters()));
        }
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return copy_rows(node.copy, stream);
        case CU_GRAPH_NODE_TYPE_MEMSET:
            return issue_fill(node.fill, stream);
        case CU_GRAPH_NODE_TYPE_HOST:
            return result_of(
                producer_of(stream).host_function(stream_number(stream), node.host.fn, node.host.userData));
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT: {
            Event* const event = event_of(node.event);
            if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
            if (node.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) return wait_for_event(stream, *event);
            store_release(event->capture, uint64_t{0});
            return record_event(stream, *event);
        }
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
            return issue_values(node.values.begin(), node.values.size(), stream);
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            use_memory(node);
            return CUDA_SUCCESS;
        default:
            return CUDA_SUCCESS;
    }
}

// Node by node, each on its own device, until one cannot be issued.
CUresult issue(const Executable& executable, Relay& relay) {
    for (const Node* const node : executable.order) {
        if (!node->enabled) continue;
        Device* const home = home_of(*node);
        uint32_t stream = relay.at();
        CUresult result = home != nullptr ? relay.pass(*home, stream) : CUDA_SUCCESS;
        if (result == CUDA_SUCCESS) result = issue(*node, stream);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

CUresult issue_whole(const Executable& executable, Relay& relay) {
    uint32_t stream = 0;
    if (const CUresult result = relay.pass(*executable.device, stream); result != CUDA_SUCCESS) return result;
    for (const Node* const node : executable.memory) use_memory(*node);
    return result_of(executable.device->producer->graph_launch(executable.number, stream_number(stream)));
}

// Where a graph is not what an instantiated one may become: a node, and which of its edges there was not.
struct Difference {
    const Node *node = nullptr, *from = nullptr;
};

const Node* other_edge(const Node& one, const Node& other) {
    for (const auto& given : other.before) {
        bool there = false;
        for (const auto& known : one.before) there = there || known.node->last == given.node->last;
        if (!there) return given.node;
    }
    return nullptr;
}

// The same kinds of nodes after the same ones?
CUgraphExecUpdateResult compare(const Graph& old, const Graph& graph, Difference& where) {
    where = {};
    if (old.nodes.size() != graph.nodes.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (uint32_t i = 0; i < old.nodes.size(); ++i) old.nodes[i]->last = graph.nodes[i]->last = i;
    for (uint32_t i = 0; i < old.nodes.size(); ++i) {
        const Node& one = *old.nodes[i];
        const Node& other = *graph.nodes[i];
        where.node = &other;
        if (one.type != other.type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (one.memory != other.memory) return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
        if ((one.type == CU_GRAPH_NODE_TYPE_MEMCPY && !may_become(one.copy, other.copy)) ||
            (one.type == CU_GRAPH_NODE_TYPE_MEMSET && !may_become(one.fill, other.fill)))
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        if (one.before.size() != other.before.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        where.from = other_edge(one, other);
        if (where.from != nullptr) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        if (one.child != nullptr)
            if (const auto result = compare(*one.child, *other.child, where);
                result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
                return result;
        if (one.condition != other.condition || one.decision != other.decision ||
            one.bodies.size() != other.bodies.size())
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        for (size_t k = 0; k < one.bodies.size(); ++k)
            if (const auto result = compare(*reinterpret_cast<Graph*>(one.bodies[k]),
                                            *reinterpret_cast<Graph*>(other.bodies[k]), where);
                result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
                return result;
    }
    where = {};
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

// The node of an instantiated graph that can be switched off: kernels, copies and fills.
Node* switchable(Executable* executable, CUgraphNode original) {
    const Node* const node = node_of(original);
    if (executable == nullptr || node == nullptr || node->type > CU_GRAPH_NODE_TYPE_MEMSET) return nullptr;
    return executable->graph->copy_of(node);
}

}  // namespace

CUresult cuGraphInstantiate(CUgraphExec* handle, CUgraph graph, CUgraphNode*, char*, size_t) {
    return instantiate(handle, graph, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* handle, CUgraph graph, CUgraphNode*, char*, size_t) {
    return instantiate(handle, graph, 0);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph, unsigned long long flags) {
    return (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                                                    : instantiate(handle, graph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* handle, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
    if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
    parameters->hErrNode_out = nullptr;
    parameters->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    if ((parameters->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    const CUresult result = instantiate(handle, graph, parameters->flags, &parameters->result_out);
    if (result == CUDA_SUCCESS) parameters->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return result;
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream) {
    if (const CUresult result = may_ask(stream, InCapture::refused); result != CUDA_SUCCESS) return result;
    return executable_of(handle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
    Executable* const executable = executable_of(handle);
    uint32_t stream = 0;
    if (const CUresult result = use_stream(stream_handle, stream, InCapture::refused); result != CUDA_SUCCESS)
        return result;
    if (executable == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (executable->changed)
        if (const CUresult result = executable->send(); result != CUDA_SUCCESS) return result;
    if (!executable->whole && executable->graph->conditions != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    if (!executable->may_use_memory()) return CUDA_ERROR_INVALID_VALUE;
    Relay relay(stream);
    CUresult result = executable->whole ? issue_whole(*executable, relay) : issue(*executable, relay);
    const CUresult ended = relay.end();
    if (result == CUDA_SUCCESS) result = ended;
    const CUresult noted = executable->note_launch(stream);
    return result != CUDA_SUCCESS ? result : noted;
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
    Executable* const executable = executable_of(handle);
    if (executable == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = captures.unsafe(); result != CUDA_SUCCESS) return result;
    wipe(executable->magic);
    if (executable->number != 0) executable->device->producer->graph_destroy(executable->number);
    delete executable;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* answer) {
    Executable* const executable = executable_of(handle);
    const Graph* const graph = graph_of(graph_handle);
    if (executable == nullptr || graph == nullptr || answer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Difference where;
    *answer = {};
    answer->result = CU_GRAPH_EXEC_UPDATE_ERROR;
    if (executable->lacks_memory_of(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
    answer->result = compare(*executable->graph, *graph, where);
    answer->errorNode = reinterpret_cast<CUgraphNode>(const_cast<Node*>(where.node));
    answer->errorFromNode = reinterpret_cast<CUgraphNode>(const_cast<Node*>(where.from));
    if (answer->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    return executable->take(*graph);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode original, CUgraph graph_handle) {
    Executable* const executable = executable_of(handle);
    const Graph* const graph = graph_of(graph_handle);
    const Node* const origin = node_of(original);
    if (executable == nullptr || graph == nullptr || origin == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Node* const node = executable->graph->copy_of(origin);
    Difference where;
    if (node == nullptr || node->child == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (compare(*node->child, *graph, where) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    return executable->take(*node, *graph);
}

CUresult cuGraphExecUpdate(CUgraphExec handle, CUgraph graph, CUgraphNode* where,
                           CUgraphExecUpdateResult* result) {
    CUgraphExecUpdateResultInfo answer = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
    const CUresult done = fikit::shim::cuGraphExecUpdate_v2(handle, graph, &answer);
    if (where != nullptr) *where = answer.errorNode;
    if (result != nullptr) *result = answer.result;
    return done;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode original, unsigned int enabled) {
    Executable* const executable = executable_of(handle);
    Node* const node = switchable(executable, original);
    if (node == nullptr || enabled > 1) return CUDA_ERROR_INVALID_VALUE;
    node->enabled = enabled != 0;
    executable->changed = true;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode original, unsigned int* enabled) {
    const Node* const node = switchable(executable_of(handle), original);
    if (node == nullptr || enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *enabled = node->enabled ? 1 : 0;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
    const Executable* const executable = executable_of(handle);
    if (executable == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // Not told of (seen on an H200).
    *flags = executable->flags & ~cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY};
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
