// See node_params.hpp.
#include "node_params.hpp"

#include <algorithm>
#include <utility>

namespace fikit::sim {

namespace {

template <typename Kind>
CUresult read_event(Driver& driver, CUevent handle, Command& command) {
    std::shared_ptr<Event> event = driver.events.share(handle);
    if (!event) return CUDA_ERROR_INVALID_VALUE;
    command = Kind{std::move(event)};
    return CUDA_SUCCESS;
}

// The graph itself becomes the child.
CUresult take_child(Driver& driver, CUgraph handle, Command& command) {
    std::shared_ptr<Graph> child = driver.graphs.share(handle);
    if (!child || child->parent != nullptr) return CUDA_ERROR_INVALID_VALUE;
    command = ChildCommand{std::move(child)};
    return CUDA_SUCCESS;
}

// What a node runs, and where: a function in its own context, whichever is given, a kernel in that which is
// given or current.
CUresult find_function(Driver& driver, const CUDA_KERNEL_NODE_PARAMS& params, Context*& home,
                       Function*& function) {
    if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
    if (params.ctx == nullptr) {
        if (const CUresult result = current_context(driver, home); result != CUDA_SUCCESS) return result;
    } else {
        home = driver.contexts.find(params.ctx);
        if (home == nullptr || !home->alive) return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (params.func != nullptr) {
        function = driver.functions.find(params.func);
        if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        home = function->image->context;
        return CUDA_SUCCESS;
    }
    // A function is taken for a kernel, too, but of this context alone (seen on an H200).
    const auto handle = reinterpret_cast<CUfunction>(params.kern);
    if (const CUresult result = find_function(driver, handle, *home, function); result != CUDA_SUCCESS)
        return result;
    return function->image->context == &home_of(*home) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult read_params(Driver& driver, const CUDA_KERNEL_NODE_PARAMS& params, Command& command) {
    Context* home = nullptr;
    Function* function = nullptr;
    CUresult result = find_function(driver, params, home, function);
    if (result != CUDA_SUCCESS) return result;
    LaunchCommand launch;
    result = make_launch(driver, *home, function->handle,
                         {{params.gridDimX, params.gridDimY, params.gridDimZ},
                          {params.blockDimX, params.blockDimY, params.blockDimZ}},
                         params.sharedMemBytes, params.kernelParams, params.extra, {}, nullptr, launch);
    if (result != CUDA_SUCCESS) return result;
    if (const auto* before = std::get_if<LaunchCommand>(&command)) {
        // Attributes stay when the parameters change.
        launch.set(before->options);
        launch.attributes = before->attributes;
    }
    command = std::move(launch);
    return CUDA_SUCCESS;
}

CUresult read_params(Driver& driver, const CUDA_MEMCPY3D& params, Command& command) {
    if (params.WidthInBytes == 0 || params.Height == 0 || params.Depth == 0) return CUDA_ERROR_INVALID_VALUE;
    const CopyCommand copy{params};
    if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
    if (const CUresult result = check(driver, copy); result != CUDA_SUCCESS) return result;
    command = copy;
    return CUDA_SUCCESS;
}

CUresult read_params(Driver& driver, const CUDA_MEMSET_NODE_PARAMS& params, Command& command) {
    if (params.width == 0 || params.height == 0) return CUDA_ERROR_INVALID_VALUE;
    const FillCommand fill{params};
    if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
    if (const CUresult result = check(driver, fill); result != CUDA_SUCCESS) return result;
    command = fill;
    return CUDA_SUCCESS;
}

CUresult read_params(Driver&, const CUDA_HOST_NODE_PARAMS& params, Command& command) {
    if (params.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
    command = HostCommand{params.fn, params.userData};
    return CUDA_SUCCESS;
}

CUresult read_params(Driver& driver, const CUDA_BATCH_MEM_OP_NODE_PARAMS& params, Command& command) {
    if (params.ctx == nullptr || params.flags != 0 || params.count > 256 ||
        (params.count > 0 && params.paramArray == nullptr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
    ValuesCommand values{{params.paramArray, params.paramArray + params.count}, params.ctx};
    if (const CUresult result = check(driver, values); result != CUDA_SUCCESS) return result;
    command = std::move(values);
    return CUDA_SUCCESS;
}

CUresult read_params(Driver& driver, CUDA_MEM_ALLOC_NODE_PARAMS& params, Command& command) {
    const CUmemPoolProps& properties = params.poolProps;
    if (properties.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || params.bytesize == 0 ||
        properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (params.accessDescCount > 0 && params.accessDescs == nullptr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (properties.location.id < 0 ||
        static_cast<std::size_t>(properties.location.id) >= driver.devices.size())
        return CUDA_ERROR_INVALID_DEVICE;
    AllocateCommand allocation;
    allocation.properties = properties;
    allocation.access.assign(params.accessDescs, params.accessDescs + params.accessDescCount);
    allocation.memory = allocate_graph_memory(driver, properties.location.id, params.bytesize);
    if (!allocation.memory) return CUDA_ERROR_OUT_OF_MEMORY;
    params.dptr = allocation.memory->address;
    command = std::move(allocation);
    return CUDA_SUCCESS;
}

CUresult read_free(CUdeviceptr address, Command& command) {
    if (!is_graph_memory(address)) return CUDA_ERROR_INVALID_VALUE;
    command = FreeCommand{address};
    return CUDA_SUCCESS;
}

CUresult read_child(Driver& driver, CUgraph handle, Command& command) {
    const Graph* child = driver.graphs.find(handle);
    if (child == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!can_be_copied(*child)) return CUDA_ERROR_NOT_SUPPORTED;
    command = ChildCommand{clone_graph(driver, *child, true)};
    return CUDA_SUCCESS;
}

namespace {

const Condition* find_condition(const Graph& graph, CUgraphConditionalHandle handle) {
    for (const Condition& condition : graph.conditions) {
        if (condition.handle == handle) return &condition;
    }
    return graph.parent == nullptr ? nullptr : find_condition(*graph.parent, handle);
}

}  // namespace

CUresult read_conditional(Driver& driver, const Graph& graph, CUDA_CONDITIONAL_NODE_PARAMS& params,
                          Command& command) {
    const Condition* condition = find_condition(graph, params.handle);
    if (condition == nullptr) return CUDA_ERROR_INVALID_VALUE;
    switch (params.type) {
        case CU_GRAPH_COND_TYPE_IF:
            if (params.size != 1 && params.size != 2) return CUDA_ERROR_INVALID_VALUE;
            break;
        case CU_GRAPH_COND_TYPE_WHILE:
            if (params.size != 1) return CUDA_ERROR_INVALID_VALUE;
            break;
        case CU_GRAPH_COND_TYPE_SWITCH:
            if (params.size == 0 || params.size > 4096) return CUDA_ERROR_INVALID_VALUE;
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
    ConditionalCommand conditional;
    conditional.condition = *condition;
    conditional.kind = params.type;
    for (unsigned body = 0; body < params.size; ++body) {
        conditional.bodies.push_back(make_graph(driver));
        conditional.handles.push_back(conditional.bodies.back()->handle);
    }
    params.phGraph_out = conditional.handles.data();  // a move of the command keeps it
    command = std::move(conditional);
    return CUDA_SUCCESS;
}

CUresult read_params(Driver& driver, CUgraphNodeParams& params, Command& command) {
    switch (params.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
            return read_params(driver, kernel_params(params.kernel), command);
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return read_params(driver, params.memcpy.copyParams, command);
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            const auto& memset = params.memset;
            return read_params(driver,
                               CUDA_MEMSET_NODE_PARAMS{memset.dst, memset.pitch, memset.value,
                                                       memset.elementSize, memset.width, memset.height},
                               command);
        }
        case CU_GRAPH_NODE_TYPE_HOST:
            return read_params(driver, CUDA_HOST_NODE_PARAMS{params.host.fn, params.host.userData}, command);
        case CU_GRAPH_NODE_TYPE_GRAPH:
            return params.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE
                       ? take_child(driver, params.graph.graph, command)
                       : read_child(driver, params.graph.graph, command);
        case CU_GRAPH_NODE_TYPE_EMPTY:
            command = EmptyCommand{};
            return CUDA_SUCCESS;
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            return read_event<WaitCommand>(driver, params.eventWait.event, command);
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            return read_event<RecordCommand>(driver, params.eventRecord.event, command);
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
            CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
            allocation.poolProps = params.alloc.poolProps;
            allocation.accessDescs = params.alloc.accessDescs;
            allocation.accessDescCount = params.alloc.accessDescCount;
            allocation.bytesize = params.alloc.bytesize;
            const CUresult result = read_params(driver, allocation, command);
            params.alloc.dptr = allocation.dptr;
            return result;
        }
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            return read_free(params.free.dptr, command);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
            const auto& values = params.memOp;
            return read_params(
                driver,
                CUDA_BATCH_MEM_OP_NODE_PARAMS{values.ctx, values.count, values.paramArray, values.flags},
                command);
        }
        case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
        case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

void write_params(LaunchCommand& command, std::vector<void*>& pointers, CUDA_KERNEL_NODE_PARAMS& params) {
    pointers = command.pointers();
    params = {};
    params.func = command.function->handle;
    params.kern = command.function->origin ? command.function->origin->handle : nullptr;
    params.ctx = command.image->context->handle;
    params.gridDimX = command.shape.grid[0];
    params.gridDimY = command.shape.grid[1];
    params.gridDimZ = command.shape.grid[2];
    params.blockDimX = command.shape.block[0];
    params.blockDimY = command.shape.block[1];
    params.blockDimZ = command.shape.block[2];
    params.sharedMemBytes = command.shared;
    params.kernelParams = pointers.data();
}

}  // namespace fikit::sim
