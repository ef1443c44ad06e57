// Executable graphs, the memory of graphs and user objects.
#include <unordered_map>

#include "capture.hpp"
#include "graph_calls.hpp"
#include "graph_picture.hpp"

using namespace fikit::sim;

namespace {

CUresult instantiate_handle(CUgraphExec* exec, CUgraph handle, unsigned long long flags,
                            CUgraphInstantiateResult* problem) {
    return with_graph(handle, [&](Driver& driver, Graph& graph) -> CUresult {
        Context* context = nullptr;
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult result = current_context(driver, context); result != CUDA_SUCCESS) return result;
        if (const CUresult fault = driver.sticky(); fault != CUDA_SUCCESS) return fault;
        return instantiate(driver, *context, graph, flags, problem, exec);
    });
}

CUresult instantiate_handle(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
    CUgraphInstantiateResult problem = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return instantiate_handle(exec, graph, flags, &problem);
}

CUresult update(CUgraphExec exec_handle, CUgraph handle, CUgraphExecUpdateResultInfo& info) {
    info = {};
    info.result = CU_GRAPH_EXEC_UPDATE_ERROR;
    return with_exec(exec_handle, [&](Driver& driver, GraphExec& exec) -> CUresult {
        const Graph* graph = driver.graphs.find(handle);
        if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
        // Memory that another instance owns.
        const GraphExec* owner = has_memory(*graph) ? driver.graph_execs.find(graph->instance) : nullptr;
        if (owner != nullptr && owner != &exec) return CUDA_ERROR_NOT_SUPPORTED;
        const auto [result, node, from] = update_graph(*exec.graph, *graph);
        info.result = result;
        info.errorNode = node != nullptr ? node->handle : nullptr;
        info.errorFromNode = from != nullptr ? from->handle : nullptr;
        return info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                           : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    });
}

bool can_be_disabled(const GraphNode& node) {
    const CUgraphNodeType type = node.type();
    return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           type == CU_GRAPH_NODE_TYPE_MEMSET;
}

void draw(const Graph& graph, fikit::GraphPicture& picture) {
    const unsigned number = picture.begin();
    std::unordered_map<const GraphNode*, unsigned> places;
    for (const auto& node : graph.nodes) {
        const auto place = static_cast<unsigned>(places.size());
        places.emplace(node.get(), place);
        if (const auto* launch = std::get_if<LaunchCommand>(&node->command)) {
            const auto& [grid, block] = std::pair(launch->shape.grid, launch->shape.block);
            picture.kernel(number, place, launch->function->kernel->name.c_str(), {grid[0], grid[1], grid[2]},
                           {block[0], block[1], block[2]}, launch->shape.dynamic_shared);
        } else if (const auto* copy = std::get_if<CopyCommand>(&node->command)) {
            picture.copy(number, place, copy->shape);
        } else if (const auto* fill = std::get_if<FillCommand>(&node->command)) {
            picture.fill(number, place, fill->shape);
        } else {
            picture.node(number, place, node->type());
        }
        for (const Graph* inner : inner_graphs(std::as_const(node->command))) draw(*inner, picture);
    }
    for (const auto& node : graph.nodes)
        for (const GraphNode::Edge& edge : node->dependencies)
            picture.edge(number, places.at(edge.node), places.at(node.get()));
    picture.end();
}

template <typename Body>
CUresult with_graph_memory(CUdevice device, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (device < 0 || static_cast<std::size_t>(device) >= driver.devices.size())
            return CUDA_ERROR_INVALID_DEVICE;
        return body(driver.devices[static_cast<std::size_t>(device)]->graph_memory);
    });
}

template <typename Body>
CUresult with_user_object(CUuserObject handle, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        UserObject* object = driver.user_objects.find(handle);
        return object == nullptr ? CUDA_ERROR_INVALID_VALUE : body(driver, *object);
    });
}

}  // namespace

extern "C" {

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;  // to no stream
    return instantiate_handle(exec, graph, flags);
}
CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* culprit, char* log, size_t bytes) {
    if (culprit != nullptr) *culprit = nullptr;
    if (log != nullptr && bytes > 0) *log = '\0';
    return instantiate_handle(exec, graph, 0);
}
CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* culprit, char* log,
                               size_t bytes) {
    return cuGraphInstantiate(exec, graph, culprit, log, bytes);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
    if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    params->hErrNode_out = nullptr;
    return instantiate_handle(exec, graph, params->flags, &params->result_out);
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
    return with_exec(handle, [&](Driver&, GraphExec& exec) -> CUresult {
        if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
        // As seen on an H200.
        constexpr cuuint64_t untold =
            CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
        *flags = exec.flags & ~untold;
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream where) {
    return with_stream(
        where, InCapture::refused, [&](Driver& driver, Driver::Lock&, Stream&, SimulatedDevice&) -> CUresult {
            return driver.graph_execs.find(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
        });
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream where) {
    return with_stream(where, InCapture::refused,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           GraphExec* exec = driver.graph_execs.find(handle);
                           return exec == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                  : launch_graph(driver, *exec, stream);
                       });
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
    return with_exec(handle, [&](Driver& driver, GraphExec& exec) -> CUresult {
        if (const CUresult result = refuse_unsafe(driver); result != CUDA_SUCCESS) return result;
        const std::shared_ptr<GraphExec> kept = driver.graph_execs.share(handle);
        retire_graph(driver, *exec.graph, &exec);
        driver.graph_execs.remove(&exec);
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
    return info == nullptr ? CUDA_ERROR_INVALID_VALUE : update(exec, graph, *info);
}
CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* culprit,
                           CUgraphExecUpdateResult* outcome) {
    CUgraphExecUpdateResultInfo info;
    if (outcome == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = update(exec, graph, info);
    *outcome = info.result;
    if (culprit != nullptr) *culprit = info.errorNode;
    return result;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned int enabled) {
    return with_exec_node(exec, handle, [&](Driver&, GraphExec&, GraphNode& node) -> CUresult {
        if (!can_be_disabled(node)) return CUDA_ERROR_INVALID_VALUE;
        node.enabled = enabled != 0;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned int* enabled) {
    return with_exec_node(exec, handle, [&](Driver&, GraphExec&, GraphNode& node) -> CUresult {
        if (enabled == nullptr || !can_be_disabled(node)) return CUDA_ERROR_INVALID_VALUE;
        *enabled = node.enabled ? 1 : 0;
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned int flags) {
    return with_graph(handle, [&](Driver&, Graph& graph) -> CUresult {
        if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
        fikit::GraphPicture picture(path, flags);
        draw(graph, picture);
        return picture.finish();
    });
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    return with_graph_memory(device, [](fikit::GraphMemoryUse& use) {
        use.trim();
        return CUDA_SUCCESS;
    });
}
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
    return with_graph_memory(device,
                             [&](const fikit::GraphMemoryUse& use) { return use.get(attribute, value); });
}
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
    return with_graph_memory(device, [&](fikit::GraphMemoryUse& use) { return use.set(attribute, value); });
}

CUresult cuUserObjectCreate(CUuserObject* handle, void* data, CUhostFn destroy, unsigned int references,
                            unsigned int flags) {
    return with_driver([&](Driver& driver, Driver::Lock&) -> CUresult {
        if (handle == nullptr || destroy == nullptr || references == 0 || references > 0x7fffffff ||
            flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        auto object = std::make_shared<UserObject>();
        object->data = data;
        object->destroy = destroy;
        object->references = references;
        *handle = driver.user_objects.add(std::move(object));
        return CUDA_SUCCESS;
    });
}
CUresult cuUserObjectRetain(CUuserObject handle, unsigned int count) {
    return with_user_object(handle, [&](Driver&, UserObject& object) -> CUresult {
        if (count == 0) return CUDA_ERROR_INVALID_VALUE;
        object.references += count;
        return CUDA_SUCCESS;
    });
}
CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count) {
    return with_user_object(handle, [&](Driver& driver, UserObject& object) -> CUresult {
        if (count == 0 || count > object.references) return CUDA_ERROR_INVALID_VALUE;
        release_user_object(driver, object, count);
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphRetainUserObject(CUgraph handle, CUuserObject object_handle, unsigned int count,
                                 unsigned int flags) {
    return with_user_object(object_handle, [&](Driver& driver, UserObject& object) -> CUresult {
        Graph* graph = driver.graphs.find(handle);
        if (graph == nullptr || count == 0 ||
            (flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) != 0)
            return CUDA_ERROR_INVALID_VALUE;
        if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) object.references += count;
        graph->user_objects[&object] += count;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphReleaseUserObject(CUgraph handle, CUuserObject object_handle, unsigned int count) {
    return with_user_object(object_handle, [&](Driver& driver, UserObject& object) -> CUresult {
        Graph* graph = driver.graphs.find(handle);
        if (graph == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
        const auto held = graph->user_objects.find(&object);
        if (held == graph->user_objects.end()) return CUDA_ERROR_INVALID_VALUE;
        if (held->second < count) return CUDA_SUCCESS;  // so says an H200's driver, and releases none
        held->second -= count;
        if (held->second == 0) graph->user_objects.erase(held);
        release_user_object(driver, object, count);
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
