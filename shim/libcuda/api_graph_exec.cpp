// Instantiated graphs: made, changed, launched.
#include <new>

#include "bridge.hpp"
#include "capture.hpp"
#include "copies.hpp"
#include "entry.hpp"
#include "graph_copies.hpp"
#include "graph_pairs.hpp"
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

// Each on its own device, until one cannot be issued.
CUresult issue(const List<Node*>& nodes, Relay& relay) {
    for (const Node* const node : nodes) {
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

// In several operations.
CUresult issue_apart(const Executable& executable, uint32_t launched_in, Relay& relay) {
    const Producer::Chain chain(producer_of(launched_in), stream_number(launched_in));
    if (!executable.whole || executable.graph->conditions == nullptr) return issue(executable.order, relay);
    CUresult result = issue(executable.ahead, relay);
    if (result == CUDA_SUCCESS) result = issue_whole(executable, relay);
    return result == CUDA_SUCCESS ? issue(executable.following, relay) : result;
}

using Change = Difference<Node>;

Change compare(const Graph& old, const Graph& graph);

// May the one become the other?
Change compare(Node& one, Node& other) {
    if (one.type != other.type) return {CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, &other};
    if (one.memory != other.memory) return {CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, &other};
    if (one.type == CU_GRAPH_NODE_TYPE_KERNEL &&
        &device_of(one.shape.stream) != &device_of(other.shape.stream))
        return {CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED, &other};
    if ((one.type == CU_GRAPH_NODE_TYPE_MEMCPY && !may_become(one.copy, other.copy)) ||
        (one.type == CU_GRAPH_NODE_TYPE_MEMSET && !may_become(one.fill, other.fill)) ||
        one.decision != other.decision || one.bodies.size() != other.bodies.size())
        return {CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, &other};
    Change change;
    if (one.child != nullptr) change = compare(*one.child, *other.child);
    for (size_t i = 0; i < one.bodies.size() && change.result == CU_GRAPH_EXEC_UPDATE_SUCCESS; ++i)
        change =
            compare(*reinterpret_cast<Graph*>(one.bodies[i]), *reinterpret_cast<Graph*>(other.bodies[i]));
    return change;
}

Change compare(const Graph& old, const Graph& graph) {
    List<Node*> queue;
    if (!queue.grow(old.nodes.size())) return {CU_GRAPH_EXEC_UPDATE_ERROR};
    return pair_nodes(old.nodes, graph.nodes, &Node::before, queue.begin(),
                      [](Node& one, Node& other) { return compare(one, other); });
}

// What the calls say of it.
CUresult result_of(const Change& change) {
    if (change.result == CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_SUCCESS;
    return change.result == CU_GRAPH_EXEC_UPDATE_ERROR ? CUDA_ERROR_OUT_OF_MEMORY
                                                       : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

// The node of an instantiated graph that can be switched off: kernels, copies and fills.
Node* switchable(Executable* executable, CUgraphNode original) {
    const Node* const node = node_of(original);
    if (executable == nullptr || node == nullptr || node->type > CU_GRAPH_NODE_TYPE_MEMSET) return nullptr;
    return executable->graph->copy_of(node);
}

}  // namespace

CUresult cuGraphInstantiate(CUgraphExec* handle, CUgraph graph, CUgraphNode* culprit, char* log,
                            size_t bytes) {
    // Programs of before CUDA 12 show both where it fails.
    if (culprit != nullptr) *culprit = nullptr;
    if (log != nullptr && bytes > 0) *log = '\0';
    return instantiate(handle, graph, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* handle, CUgraph graph, CUgraphNode* culprit, char* log,
                               size_t bytes) {
    return fikit::shim::cuGraphInstantiate(handle, graph, culprit, log, bytes);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph, unsigned long long flags) {
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;  // to no stream
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
    const bool apart =
        !executable->whole || executable->ahead.size() + executable->following.size() != 0 ||
        (executable->graph->conditions == nullptr && executable->device->producer->channel().graphs_apart());
    CUresult result = executable->order_launch(stream);
    Relay relay(stream);
    if (result == CUDA_SUCCESS)
        result = apart ? issue_apart(*executable, stream, relay) : issue_whole(*executable, relay);
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
    *answer = {};
    answer->result = CU_GRAPH_EXEC_UPDATE_ERROR;
    if (executable->lacks(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
    const Change change = compare(*executable->graph, *graph);
    answer->result = change.result;
    answer->errorNode = reinterpret_cast<CUgraphNode>(change.node);
    answer->errorFromNode = reinterpret_cast<CUgraphNode>(change.from);
    const CUresult result = result_of(change);
    return result == CUDA_SUCCESS ? executable->take(*graph) : result;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode original, CUgraph graph_handle) {
    Executable* const executable = executable_of(handle);
    const Graph* const graph = graph_of(graph_handle);
    const Node* const origin = node_of(original);
    if (executable == nullptr || graph == nullptr || origin == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Node* const node = executable->graph->copy_of(origin);
    if (node == nullptr || node->child == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = result_of(compare(*node->child, *graph));
    if (result != CUDA_SUCCESS) return result;
    return in_same_order(node->child->nodes, graph->nodes) ? executable->take(*node, *graph)
                                                           : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
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
    if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
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
    // As seen on an H200.
    constexpr cuuint64_t untold =
        CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    *flags = executable->flags & ~untold;
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
