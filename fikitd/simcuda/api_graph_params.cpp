// Graphs: what nodes do, asked for and changed, in a graph and in an executable one.
#include "graph_calls.hpp"
#include "node_attributes.hpp"
#include "node_params.hpp"
#include "of_thread.hpp"

using namespace fikit::sim;

namespace {

// Reads a node's command as one kind.
template <typename Kind, typename Give>
CUresult get(CUgraphNode handle, Give give) {
    return with_node(handle, [&](Driver&, GraphNode& node) -> CUresult {
        auto* command = std::get_if<Kind>(&node.command);
        return command == nullptr ? CUDA_ERROR_INVALID_VALUE : give(*command);
    });
}

enum class Instantiated : std::uint8_t { no, yes };

// Replaces a node's command by another of its kind.
template <typename Read>
CUresult replace(Driver& driver, GraphNode& node, Instantiated instantiated, Read read) {
    Command command = node.command;
    if (const CUresult result = read(driver, command); result != CUDA_SUCCESS) return result;
    if (instantiated == Instantiated::yes && !may_become(node.command, command))
        return CUDA_ERROR_INVALID_VALUE;
    node.command = std::move(command);
    return CUDA_SUCCESS;
}

template <typename Kind, typename Read>
CUresult replace(Driver& driver, GraphNode& node, Instantiated instantiated, Read read) {
    return std::holds_alternative<Kind>(node.command) ? replace(driver, node, instantiated, read)
                                                      : CUDA_ERROR_INVALID_VALUE;
}

template <typename Kind, typename Read>
CUresult set(CUgraphNode handle, Read read) {
    return with_node(handle, [&](Driver& driver, GraphNode& node) {
        return replace<Kind>(driver, node, Instantiated::no, read);
    });
}

template <typename Kind, typename Read>
CUresult set(CUgraphExec exec, CUgraphNode handle, Read read) {
    return with_exec_node(exec, handle, [&](Driver& driver, GraphExec&, GraphNode& node) {
        return replace<Kind>(driver, node, Instantiated::yes, read);
    });
}

CUresult check_node_attribute(const LaunchCommand& launch, const CUlaunchAttribute& attribute) {
    const CUlaunchAttributeValue& value = attribute.value;
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        return fikit::may_be_of_node(attribute.id, value, model::sync_domains) ? CUDA_SUCCESS
                                                                               : CUDA_ERROR_INVALID_VALUE;
    std::optional<Cluster> cluster;
    const Cluster wanted{value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
    return choose_cluster(*launch.function, launch.shape, wanted, cluster);
}

template <typename Kind>
CUresult get_event(CUgraphNode node, CUevent* event) {
    return get<Kind>(node, [&](Kind& command) -> CUresult {
        if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *event = command.event->handle;
        return CUDA_SUCCESS;
    });
}

// The list that a caller is given points into the node's own parameters, and stays until the thread asks
// again.
std::vector<void*>& listed_pointers() { return of_thread<std::vector<void*>>(); }

CUresult replace_any(Driver& driver, GraphNode& node, Instantiated instantiated, CUgraphNodeParams* params) {
    if (params == nullptr || params->type != node.type()) return CUDA_ERROR_INVALID_VALUE;
    // In the place of a child comes a copy of another graph than its own.
    const bool other = params->type != CU_GRAPH_NODE_TYPE_GRAPH ||
                       (params->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE &&
                        driver.graphs.find(params->graph.graph) != node.graph);
    if (!other || params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        params->type == CU_GRAPH_NODE_TYPE_MEM_FREE || params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Command before = node.command;
    const CUresult result = replace(driver, node, instantiated, [&](Driver&, Command& command) {
        return read_params(driver, *params, command);
    });
    if (result != CUDA_SUCCESS) return result;
    for (auto* inner : inner_graphs(before)) retire_graph(driver, **inner);
    for (auto* inner : inner_graphs(node.command)) (*inner)->parent = node.graph;
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams* params) {
    return with_node(handle, [&](Driver& driver, GraphNode& node) {
        return replace_any(driver, node, Instantiated::no, params);
    });
}
CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode handle, CUgraphNodeParams* params) {
    if (params != nullptr && params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return cuGraphExecChildGraphNodeSetParams(exec, handle, params->graph.graph);
    return with_exec_node(exec, handle, [&](Driver& driver, GraphExec&, GraphNode& node) {
        return replace_any(driver, node, Instantiated::yes, params);
    });
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* params) {
    return get<LaunchCommand>(node, [&](LaunchCommand& command) -> CUresult {
        if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
        write_params(command, listed_pointers(), *params);
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* params) {
    CUDA_KERNEL_NODE_PARAMS full;
    if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = cuGraphKernelNodeGetParams_v2(node, &full);
    if (result != CUDA_SUCCESS) return result;
    *params = {full.func,      full.gridDimX,  full.gridDimY,       full.gridDimZ,     full.blockDimX,
               full.blockDimY, full.blockDimZ, full.sharedMemBytes, full.kernelParams, full.extra};
    return CUDA_SUCCESS;
}
CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
    return set<LaunchCommand>(node, kernel_reader(params));
}
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* params) {
    return set<LaunchCommand>(node, kernel_reader(params));
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* params) {
    return set<LaunchCommand>(exec, node, kernel_reader(params));
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* params) {
    return set<LaunchCommand>(exec, node, kernel_reader(params));
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       const CUkernelNodeAttrValue* value) {
    return get<LaunchCommand>(node, [&](LaunchCommand& command) -> CUresult {
        if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
        CUlaunchAttribute attribute{};
        attribute.id = id;
        attribute.value = *value;
        if (const CUresult fault = Driver::instance().sticky(); fault != CUDA_SUCCESS) return fault;
        LaunchOptions options = command.options;
        CUresult result = check_node_attribute(command, attribute);
        if (result == CUDA_SUCCESS) result = read_launch_attribute(attribute, options);
        if (result != CUDA_SUCCESS) return result;
        command.set(options);
        command.attributes[id] = *value;
        if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) command.attributes[id].priority = *command.options.priority;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       CUkernelNodeAttrValue* value) {
    return get<LaunchCommand>(node, [&](LaunchCommand& command) -> CUresult {
        if (value == nullptr || !fikit::is_node_attribute(id)) return CUDA_ERROR_INVALID_VALUE;
        const auto given = command.attributes.find(id);
        *value = given != command.attributes.end() ? given->second : CUkernelNodeAttrValue{};
        if (given != command.attributes.end()) return CUDA_SUCCESS;
        if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) value->cooperative = command.options.cooperative ? 1 : 0;
        if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) value->priority = command.options.priority.value_or(0);
        if (id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) value->memSyncDomainMap = {0, 1};
        // cuda.core takes any dimension for a cluster.
        if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
            command.options.cluster.value_or(Cluster{1, 1, 1}) != Cluster{1, 1, 1}) {
            value->clusterDim.x = (*command.options.cluster)[0];
            value->clusterDim.y = (*command.options.cluster)[1];
            value->clusterDim.z = (*command.options.cluster)[2];
        }
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
    return with_node(from, [&](Driver& driver, GraphNode& source) -> CUresult {
        GraphNode* target = driver.nodes.find(to);
        auto* given = std::get_if<LaunchCommand>(&source.command);
        auto* taking = target == nullptr ? nullptr : std::get_if<LaunchCommand>(&target->command);
        if (given == nullptr || taking == nullptr) return CUDA_ERROR_INVALID_VALUE;
        taking->attributes = given->attributes;
        taking->set(given->options);
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* params) {
    return get<CopyCommand>(node, [&](CopyCommand& command) -> CUresult {
        if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *params = command.shape;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* params) {
    return set<CopyCommand>(node, reader(params));
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* params,
                                        CUcontext) {
    return set<CopyCommand>(exec, node, reader(params));
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* params) {
    return get<FillCommand>(node, [&](FillCommand& command) -> CUresult {
        if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *params = command.shape;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params) {
    return set<FillCommand>(node, reader(params));
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* params, CUcontext) {
    return set<FillCommand>(exec, node, reader(params));
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* params) {
    return get<HostCommand>(node, [&](HostCommand& command) -> CUresult {
        if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *params = {command.function, command.data};
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
    return set<HostCommand>(node, reader(params));
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS* params) {
    return set<HostCommand>(exec, node, reader(params));
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
    return get<ChildCommand>(node, [&](ChildCommand& command) -> CUresult {
        if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *graph = command.graph->handle;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph handle) {
    return with_exec_node(exec, node, [&](Driver& driver, GraphExec&, GraphNode& found) -> CUresult {
        auto* child = std::get_if<ChildCommand>(&found.command);
        const Graph* graph = driver.graphs.find(handle);
        if (child == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return update_child(*child->graph, *graph) ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    });
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) {
    return get_event<RecordCommand>(node, event);
}
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
    return set<RecordCommand>(node, event_reader<RecordCommand>(event));
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
    return set<RecordCommand>(exec, node, event_reader<RecordCommand>(event));
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) {
    return get_event<WaitCommand>(node, event);
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
    return set<WaitCommand>(node, event_reader<WaitCommand>(event));
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
    return set<WaitCommand>(exec, node, event_reader<WaitCommand>(event));
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
    return get<ValuesCommand>(node, [&](ValuesCommand& command) -> CUresult {
        if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *params = {};
        params->ctx = command.context;
        params->count = static_cast<unsigned>(command.list.size());
        params->paramArray = command.list.data();
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
    return set<ValuesCommand>(node, reader(params));
}
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
    return set<ValuesCommand>(exec, node, reader(params));
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
    return get<AllocateCommand>(node, [&](AllocateCommand& command) -> CUresult {
        if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *params = {};
        params->poolProps = command.properties;
        params->accessDescs = command.access.data();
        params->accessDescCount = command.access.size();
        params->bytesize = command.memory->bytes;
        params->dptr = command.memory->address;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* address) {
    return get<FreeCommand>(node, [&](FreeCommand& command) -> CUresult {
        if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *address = command.address;
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
