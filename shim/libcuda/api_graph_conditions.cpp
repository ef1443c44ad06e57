// Nodes that decide which graph runs, and how often, by what kernels say. The driver gives out the
// conditions, as kernels name them, for a graph of the executor's; so what decides always runs there.
#include <new>

#include "entry.hpp"
#include "graph.hpp"
#include "served.hpp"

namespace fikit::shim {

CUresult Conditions::create(uint32_t initial, uint32_t flags, uint64_t& condition) {
    const Status status = device_.producer->condition_create(number_, initial, flags, condition);
    if (status != status::success) return result_of(status);
    return given_.add(condition) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void Conditions::release() {
    if (__atomic_sub_fetch(&uses_, 1u, __ATOMIC_ACQ_REL) != 0) return;
    if (number_ != 0) device_.producer->conditions_destroy(number_);
    delete this;
}

CUresult set_decision(Node& node, CUDA_CONDITIONAL_NODE_PARAMS& given) {
    if (node.bodies.size() != 0) return CUDA_ERROR_NOT_SUPPORTED;  // they are the program's already
    bool possible = given.size != 0;
    switch (given.type) {
        case CU_GRAPH_COND_TYPE_IF:
            possible = given.size == 1 || given.size == 2;
            break;
        case CU_GRAPH_COND_TYPE_WHILE:
            possible = given.size == 1;
            break;
        case CU_GRAPH_COND_TYPE_SWITCH:
            break;
        default:
            possible = false;
    }
    const Conditions* const conditions = node.graph->outermost().conditions;
    if (!possible || conditions == nullptr || !conditions->has(given.handle)) return CUDA_ERROR_INVALID_VALUE;
    if (given.size >= FIKIT_MAX_STREAMS) return CUDA_ERROR_NOT_SUPPORTED;
    node.condition = given.handle;
    node.decision = given.type;
    for (unsigned i = 0; i < given.size; ++i)
        if (!node.add_body(new (std::nothrow) Graph())) return CUDA_ERROR_OUT_OF_MEMORY;
    given.phGraph_out = node.bodies.begin();
    return CUDA_SUCCESS;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph graph_handle,
                                        CUcontext context_handle, unsigned int initial, unsigned int flags) {
    Graph* const graph = graph_of(graph_handle);
    if (handle == nullptr || graph == nullptr || (flags & ~unsigned{CU_GRAPH_COND_ASSIGN_DEFAULT}) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const Context* const context =
        context_handle != nullptr ? process.find(context_handle) : thread.current();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    Conditions*& conditions = graph->outermost().conditions;
    if (conditions == nullptr) {
        if (const CUresult result = process.open(*context->device); result != CUDA_SUCCESS) return result;
        conditions = new (std::nothrow) Conditions(*context->device);
    }
    if (conditions == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    if (&conditions->device() != context->device) return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t condition = 0;
    const CUresult result = conditions->create(initial, flags, condition);
    if (result == CUDA_SUCCESS) *handle = condition;
    return result;
}

}  // namespace fikit::shim
