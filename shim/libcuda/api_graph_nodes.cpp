// The nodes of graphs that are built by hand, and their parameters, in a graph or in an instantiated one.
#include "copies.hpp"
#include "entry.hpp"
#include "graph_copies.hpp"
#include "graph_memory.hpp"
#include "launches.hpp"
#include "served.hpp"
#include "stream_values.hpp"

namespace fikit::shim {
namespace {

// The node of an instantiated graph that was made from one of its graph's; nullptr: there is none.
Node* node_in(CUgraphExec handle, CUgraphNode original, CUgraphNodeType type) {
    Executable* const executable = executable_of(handle);
    const Node* const node = node_of(original);
    if (executable == nullptr || node == nullptr || node->type != type) return nullptr;
    Node* const copy = executable->graph->copy_of(node);
    if (copy != nullptr) executable->changed = true;
    return copy;
}

const Function* function_of(const CUDA_KERNEL_NODE_PARAMS& given) {
    return given.func != nullptr ? shim::function_of(given.func) : shim::function_of(given.kern);
}

// Whether a node of an instantiated graph can become that: a kernel only one of the same device.
bool may_become(const Node* node, const CUDA_KERNEL_NODE_PARAMS* given) {
    if (node == nullptr || given == nullptr) return false;
    const Function* const function = function_of(*given);
    return function == nullptr || &process.device(function->device) == &device_of(node->shape.stream);
}
bool may_become(const Node* node, const CUDA_MEMCPY3D* given) {
    return node != nullptr && given != nullptr && fikit::may_become(node->copy, *given);
}
bool may_become(const Node* node, const CUDA_MEMSET_NODE_PARAMS* given) {
    return node != nullptr && given != nullptr && fikit::may_become(node->fill, *given);
}

// Of what runs in a context: the current one's session is not over.
CUresult usable_here() {
    const Context* const context = thread.current();
    return context != nullptr ? usable(*context->device->producer) : CUDA_SUCCESS;
}

CUresult set(Node* node, const CUDA_KERNEL_NODE_PARAMS* given) {
    if (node == nullptr || given == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (given->func == nullptr && given->kern == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const Function* const function = function_of(*given);
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (given->ctx == nullptr && thread.current() == nullptr) return no_context();
    if (const CUresult result = usable_here(); result != CUDA_SUCCESS) return result;
    const uint32_t attributes = node->shape.attributes;
    List<fikit_attribute> kept;
    if (attributes != 0 && !kept.add(node->attributes(), attributes)) return CUDA_ERROR_OUT_OF_MEMORY;
    const LaunchShape shape = {function->number,
                               process.device(function->device).stream(0),
                               {given->gridDimX, given->gridDimY, given->gridDimZ},
                               {given->blockDimX, given->blockDimY, given->blockDimZ},
                               given->sharedMemBytes,
                               function->parameter_bytes,
                               attributes};
    if (const CUresult result = refusal(shape, *function); result != CUDA_SUCCESS) return result;
    // What is given may be the node's own.
    List<uint8_t> packed;
    const uint32_t bytes = function->parameter_bytes;
    if (!packed.grow(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (given->kernelParams != nullptr) {
        if (given->extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
        FromPointers{*function, given->kernelParams}(packed.begin());
    } else if (function->parameters != 0) {
        FromBuffer buffer;
        if (const CUresult result = buffer.find(*function, given->extra); result != CUDA_SUCCESS)
            return result;
        buffer(packed.begin());
    }
    if (const CUresult result = check_reach(*function, FromBuffer{packed.begin(), bytes});
        result != CUDA_SUCCESS)
        return result;
    node->shape = shape;
    node->context = given->ctx != nullptr ? given->ctx : thread.current()->name;
    node->function = reinterpret_cast<CUfunction>(const_cast<Function*>(function));
    if (!make_room(*node, *function)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (attributes != 0) memcpy(node->packed, kept.begin(), attributes * sizeof(fikit_attribute));
    if (bytes != 0) memcpy(node->parameters(), packed.begin(), bytes);
    return CUDA_SUCCESS;
}

CUresult set(Node* node, const CUDA_MEMCPY3D* given) {
    if (node == nullptr || given == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (given->WidthInBytes == 0 || given->Height == 0 || given->Depth == 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = usable_here(); result != CUDA_SUCCESS) return result;
    if (const CUresult result = check_rows(*given); result != CUDA_SUCCESS) return result;
    node->copy = *given;
    return CUDA_SUCCESS;
}

CUresult set(Node* node, const CUDA_MEMSET_NODE_PARAMS* given) {
    if (node == nullptr || given == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const unsigned element = given->elementSize;
    if ((element != 1 && element != 2 && element != 4) || given->width == 0 || given->height == 0 ||
        given->dst % element != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (given->height > 1 && (given->pitch % element != 0 || given->pitch / element < given->width))
        return CUDA_ERROR_INVALID_VALUE;
    size_t row = 0, last = 0, bytes = 0;
    if (__builtin_mul_overflow(given->width, element, &row) ||
        __builtin_mul_overflow(given->pitch, given->height - 1, &last) ||
        __builtin_add_overflow(last, row, &bytes) || !is_writable(given->dst, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = usable_here(); result != CUDA_SUCCESS) return result;
    node->fill = *given;
    return CUDA_SUCCESS;
}

CUresult set(Node* node, const CUDA_HOST_NODE_PARAMS* given) {
    if (node == nullptr || given == nullptr || given->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
    node->host = *given;
    return CUDA_SUCCESS;
}

// An empty one has none.
CUresult set(Node* node, std::nullptr_t) { return node != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

CUresult set(Node* node, const CUevent* given) {
    if (node == nullptr || given == nullptr || event_of(*given) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    node->event = *given;
    return CUDA_SUCCESS;
}

CUresult set(Node* node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
    if (node == nullptr || given == nullptr || given->ctx == nullptr || given->flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = usable_here(); result != CUDA_SUCCESS) return result;
    if (const CUresult result = check_values(given->paramArray, given->count); result != CUDA_SUCCESS)
        return result;
    List<CUstreamBatchMemOpParams> values;  // what is given may be the node's own
    if (!values.add(given->paramArray, given->count) || !node->values.assign(values))
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->context = given->ctx;
    return CUDA_SUCCESS;
}

CUresult set(Node* node, const CUgraph* given) {
    const Graph* const child = given != nullptr ? graph_of(*given) : nullptr;
    if (node == nullptr || child == nullptr || child == node->graph) return CUDA_ERROR_INVALID_VALUE;
    if (!child->can_be_copied()) return CUDA_ERROR_NOT_SUPPORTED;
    return node->adopt(child->clone()) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// A child as CUgraphNodeParams has it: a copy of the graph, or that itself.
CUresult set(Node* node, const CUDA_CHILD_GRAPH_NODE_PARAMS* given) {
    if (given->ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) return set(node, &given->graph);
    Graph* const child = graph_of(given->graph);
    if (node == nullptr || child == nullptr || child->parent != nullptr || child == &node->graph->whole())
        return CUDA_ERROR_INVALID_VALUE;  // it would be a part of itself
    if (child->conditions != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    node->adopt(child);
    return CUDA_SUCCESS;
}

CUresult set(Node* node, CUDA_CONDITIONAL_NODE_PARAMS* given) {
    return node != nullptr ? set_decision(*node, *given) : CUDA_ERROR_INVALID_VALUE;
}

// Calls with the parameters of a kind in the form that `set` takes: nullptr for a kind without any.
template <class Use>
CUresult with_parameters(CUgraphNodeParams& given, const Use& use) {
    switch (given.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: {
            const CUDA_KERNEL_NODE_PARAMS_v3& kernel = given.kernel;
            CUDA_KERNEL_NODE_PARAMS parameters = {};
            parameters.func = kernel.func;
            parameters.kern = kernel.kern;
            parameters.gridDimX = kernel.gridDimX;
            parameters.gridDimY = kernel.gridDimY;
            parameters.gridDimZ = kernel.gridDimZ;
            parameters.blockDimX = kernel.blockDimX;
            parameters.blockDimY = kernel.blockDimY;
            parameters.blockDimZ = kernel.blockDimZ;
            parameters.sharedMemBytes = kernel.sharedMemBytes;
            parameters.kernelParams = kernel.kernelParams;
            parameters.extra = kernel.extra;
            parameters.ctx = kernel.ctx;
            return use(&parameters);
        }
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return use(&given.memcpy.copyParams);
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            const CUDA_MEMSET_NODE_PARAMS_v2& fill = given.memset;
            const CUDA_MEMSET_NODE_PARAMS parameters = {fill.dst,         fill.pitch, fill.value,
                                                        fill.elementSize, fill.width, fill.height};
            return use(&parameters);
        }
        case CU_GRAPH_NODE_TYPE_HOST: {
            const CUDA_HOST_NODE_PARAMS parameters = {given.host.fn, given.host.userData};
            return use(&parameters);
        }
        case CU_GRAPH_NODE_TYPE_GRAPH:
            return use(&given.graph);
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            return use(&given.eventRecord.event);
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            return use(&given.eventWait.event);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
            const CUDA_BATCH_MEM_OP_NODE_PARAMS parameters = {given.memOp.ctx, given.memOp.count,
                                                              given.memOp.paramArray, given.memOp.flags};
            return use(&parameters);
        }
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
            CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
            parameters.poolProps = given.alloc.poolProps;
            parameters.accessDescs = given.alloc.accessDescs;
            parameters.accessDescCount = given.alloc.accessDescCount;
            parameters.bytesize = given.alloc.bytesize;
            const CUresult result = use(&parameters);
            given.alloc.dptr = parameters.dptr;
            return result;
        }
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            return use(&given.free);
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            return use(&given.conditional);
        case CU_GRAPH_NODE_TYPE_EMPTY:
            return use(nullptr);
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
    }
}

// A new node.
template <class Parameters>
CUresult add(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* before, size_t count,
             CUgraphNodeType type, Parameters parameters) {
    Graph* const graph = graph_of(graph_handle);
    if (handle == nullptr || graph == nullptr || (before == nullptr && count != 0))
        return CUDA_ERROR_INVALID_VALUE;
    List<Node*> nodes;
    for (size_t i = 0; i < count; ++i) {
        Node* const node = node_of(before[i]);
        if (node == nullptr || node->graph != graph || nodes.contains(node)) return CUDA_ERROR_INVALID_VALUE;
        if (!nodes.add(node)) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    Node* const node = graph->add(type, nodes.begin(), count);
    if (node == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    if (const CUresult result = set(node, parameters); result != CUDA_SUCCESS) {
        graph->nodes.remove(node);
        delete node;
        return result;
    }
    *handle = reinterpret_cast<CUgraphNode>(node);
    return CUDA_SUCCESS;
}

template <class Value>
CUresult give(Value* into, const Node* node, const Value& value) {
    if (into == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *into = value;
    return CUDA_SUCCESS;
}

}  // namespace

// --- kernels ---

CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* parameters) {
    return add(node, graph, before, count, CU_GRAPH_NODE_TYPE_KERNEL, parameters);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* parameters) {
    const Node* const node = node_of(handle, CU_GRAPH_NODE_TYPE_KERNEL);
    if (node == nullptr || parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Function* const function = function_of(node->function);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const LaunchShape& shape = node->shape;
    *parameters = {};
    // The runtime finds its own name for a library's kernel, which is what it launched, by that field alone.
    if (function->module->library != nullptr)
        parameters->kern = reinterpret_cast<CUkernel>(node->function);
    else
        parameters->func = node->function;
    parameters->gridDimX = shape.grid[0];
    parameters->gridDimY = shape.grid[1];
    parameters->gridDimZ = shape.grid[2];
    parameters->blockDimX = shape.block[0];
    parameters->blockDimY = shape.block[1];
    parameters->blockDimZ = shape.block[2];
    parameters->sharedMemBytes = shape.shared_bytes;
    parameters->kernelParams = node->pointers();
    parameters->ctx = function->context != nullptr ? function->context->name : node->context;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters) {
    return set(node_of(node, CU_GRAPH_NODE_TYPE_KERNEL), parameters);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* parameters) {
    Node* const kernel = node_in(executable, node, CU_GRAPH_NODE_TYPE_KERNEL);
    return may_become(kernel, parameters) ? set(kernel, parameters) : CUDA_ERROR_INVALID_VALUE;
}

// --- copies, fills, functions, children, nothing ---

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                              const CUDA_MEMCPY3D* parameters, CUcontext) {
    return add(node, graph, before, count, CU_GRAPH_NODE_TYPE_MEMCPY, parameters);
}
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D* parameters) {
    const Node* const node = node_of(handle, CU_GRAPH_NODE_TYPE_MEMCPY);
    return node != nullptr ? give(parameters, node, node->copy) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* parameters) {
    return set(node_of(node, CU_GRAPH_NODE_TYPE_MEMCPY), parameters);
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_MEMCPY3D* parameters, CUcontext) {
    Node* const copy = node_in(executable, node, CU_GRAPH_NODE_TYPE_MEMCPY);
    return may_become(copy, parameters) ? set(copy, parameters) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext) {
    return add(node, graph, before, count, CU_GRAPH_NODE_TYPE_MEMSET, parameters);
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS* parameters) {
    const Node* const node = node_of(handle, CU_GRAPH_NODE_TYPE_MEMSET);
    return node != nullptr ? give(parameters, node, node->fill) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* parameters) {
    return set(node_of(node, CU_GRAPH_NODE_TYPE_MEMSET), parameters);
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext) {
    Node* const fill = node_in(executable, node, CU_GRAPH_NODE_TYPE_MEMSET);
    return may_become(fill, parameters) ? set(fill, parameters) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                            const CUDA_HOST_NODE_PARAMS* parameters) {
    return add(node, graph, before, count, CU_GRAPH_NODE_TYPE_HOST, parameters);
}
CUresult cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS* parameters) {
    const Node* const node = node_of(handle, CU_GRAPH_NODE_TYPE_HOST);
    return node != nullptr ? give(parameters, node, node->host) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* parameters) {
    return set(node_of(node, CU_GRAPH_NODE_TYPE_HOST), parameters);
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS* parameters) {
    return set(node_in(executable, node, CU_GRAPH_NODE_TYPE_HOST), parameters);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters) {
    return add(node, graph, before, count, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, parameters);
}
CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters) {
    const Node* const node = node_of(handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
    if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_BATCH_MEM_OP_NODE_PARAMS is = {node->context, static_cast<unsigned>(node->values.size()),
                                              node->values.begin(), 0};
    return give(parameters, node, is);
}
CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters) {
    return set(node_of(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP), parameters);
}
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters) {
    return set(node_in(executable, node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP), parameters);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                                   CUevent event) {
    return add(node, graph, before, count, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &event);
}
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode handle, CUevent* event) {
    const Node* const node = node_of(handle, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    return node != nullptr ? give(event, node, node->event) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
    return set(node_of(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD), &event);
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec executable, CUgraphNode node, CUevent event) {
    return set(node_in(executable, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD), &event);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                                 CUevent event) {
    return add(node, graph, before, count, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &event);
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode handle, CUevent* event) {
    const Node* const node = node_of(handle, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    return node != nullptr ? give(event, node, node->event) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
    return set(node_of(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT), &event);
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec executable, CUgraphNode node, CUevent event) {
    return set(node_in(executable, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT), &event);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                                  CUgraph child) {
    return add(node, graph, before, count, CU_GRAPH_NODE_TYPE_GRAPH, &child);
}
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* graph) {
    const Node* const node = node_of(handle, CU_GRAPH_NODE_TYPE_GRAPH);
    return node != nullptr ? give(graph, node, reinterpret_cast<CUgraph>(node->child))
                           : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count) {
    return add(node, graph, before, count, CU_GRAPH_NODE_TYPE_EMPTY, nullptr);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
    return add(node, graph, before, count, CU_GRAPH_NODE_TYPE_MEM_ALLOC, parameters);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                               CUdeviceptr address) {
    const CUDA_MEM_FREE_NODE_PARAMS parameters = {address};
    return add(node, graph, before, count, CU_GRAPH_NODE_TYPE_MEM_FREE, &parameters);
}

// --- any kind ---

CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                        CUgraphNodeParams* given) {
    if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return with_parameters(
        *given, [&](auto parameters) { return add(node, graph, before, count, given->type, parameters); });
}

CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                           const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* given) {
    if (!can_carry(before, edges, count)) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = fikit::shim::cuGraphAddNode(node, graph, before, count, given);
    for (size_t i = 0; i < count && edges != nullptr && result == CUDA_SUCCESS; ++i)
        node_of(*node)->before[i].data = edges[i];
    return result;
}

CUresult cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams* given) {
    if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Node* const node = node_of(handle, given->type);
    // In the place of a child comes a copy.
    const bool moves = given->type == CU_GRAPH_NODE_TYPE_GRAPH &&
                       given->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    if (node == nullptr || moves) return CUDA_ERROR_INVALID_VALUE;
    return with_parameters(*given, [&](auto parameters) { return set(node, parameters); });
}

CUresult cuGraphExecNodeSetParams(CUgraphExec executable, CUgraphNode handle, CUgraphNodeParams* given) {
    if (given == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (given->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return fikit::shim::cuGraphExecChildGraphNodeSetParams(executable, handle, given->graph.graph);
    Node* const node = node_in(executable, handle, given->type);
    return with_parameters(*given, [&](auto parameters) -> CUresult {
        if constexpr (requires { may_become(node, parameters); })
            return may_become(node, parameters) ? set(node, parameters) : CUDA_ERROR_INVALID_VALUE;
        else
            return set(node, parameters);
    });
}

}  // namespace fikit::shim
