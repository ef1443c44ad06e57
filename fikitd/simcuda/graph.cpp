// See graph.hpp; executable graphs are graph_exec.cpp's.
#include <algorithm>
#include <unordered_map>

#include "capture.hpp"

namespace fikit::sim {

namespace {

std::vector<GraphNode::Edge>::iterator find_edge(std::vector<GraphNode::Edge>& edges, const GraphNode* node) {
    return std::find_if(edges.begin(), edges.end(),
                        [&](const GraphNode::Edge& edge) { return edge.node == node; });
}

// Inner graphs are part of the graph: a copy has copies of them.
void own_inner(Driver& driver, GraphNode& node, bool registered) {
    for (std::shared_ptr<Graph>* inner : inner_graphs(node.command)) {
        *inner = clone_graph(driver, **inner, registered);
        (*inner)->parent = node.graph;
    }
    if (auto* conditional = std::get_if<ConditionalCommand>(&node.command)) {
        conditional->handles.clear();
        for (const auto& body : conditional->bodies) conditional->handles.push_back(body->handle);
    }
}

// Streams and events of captures must not keep a node that is gone.
void forget(std::vector<GraphEdge>& ends, const GraphNode* node) {
    std::erase_if(ends, [&](const GraphEdge& edge) { return edge.node == node; });
}

}  // namespace

CUgraphNodeType GraphNode::type() const {
    constexpr CUgraphNodeType types[] = {
        CU_GRAPH_NODE_TYPE_EMPTY,        CU_GRAPH_NODE_TYPE_KERNEL,     CU_GRAPH_NODE_TYPE_MEMCPY,
        CU_GRAPH_NODE_TYPE_MEMSET,       CU_GRAPH_NODE_TYPE_HOST,       CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_GRAPH,
        CU_GRAPH_NODE_TYPE_MEM_ALLOC,    CU_GRAPH_NODE_TYPE_MEM_FREE,   CU_GRAPH_NODE_TYPE_CONDITIONAL};
    static_assert(std::size(types) == std::variant_size_v<Command>);
    return types[command.index()];
}

std::vector<std::shared_ptr<Graph>*> inner_graphs(Command& command) {
    std::vector<std::shared_ptr<Graph>*> found;
    if (auto* child = std::get_if<ChildCommand>(&command)) found.push_back(&child->graph);
    if (auto* conditional = std::get_if<ConditionalCommand>(&command)) {
        for (auto& body : conditional->bodies) found.push_back(&body);
    }
    return found;
}

std::vector<const Graph*> inner_graphs(const Command& command) {
    std::vector<const Graph*> found;
    for (const auto* inner : inner_graphs(const_cast<Command&>(command))) found.push_back(inner->get());
    return found;
}

std::size_t Graph::edges() const {
    std::size_t count = 0;
    for (const auto& node : nodes) count += node->dependencies.size();
    return count;
}

bool has_memory(const Graph& graph) {
    return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
        const auto inner = inner_graphs(std::as_const(node->command));
        return std::holds_alternative<AllocateCommand>(node->command) ||
               std::holds_alternative<FreeCommand>(node->command) ||
               std::any_of(inner.begin(), inner.end(), [](const Graph* part) { return has_memory(*part); });
    });
}

bool only_empty(const Graph& graph) {
    return std::all_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
        const auto* const child = std::get_if<ChildCommand>(&node->command);
        return std::holds_alternative<EmptyCommand>(node->command) ||
               (child != nullptr && only_empty(*child->graph));
    });
}

bool can_be_copied(const Graph& graph) {
    const bool decides = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
        return std::holds_alternative<ConditionalCommand>(node->command);
    });
    return graph.conditions.empty() && !decides && !has_memory(graph);
}

void connect(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
    to.dependencies.push_back({&from, data});
    from.dependents.push_back({&to, data});
}

bool disconnect(GraphNode& from, GraphNode& to) {
    const auto forward = find_edge(from.dependents, &to);
    if (forward == from.dependents.end()) return false;
    from.dependents.erase(forward);
    to.dependencies.erase(find_edge(to.dependencies, &from));
    return true;
}

bool depends_on(const GraphNode& later, const GraphNode& earlier) {
    std::set<const GraphNode*> seen;
    std::vector<const GraphNode*> open{&later};
    while (!open.empty()) {
        const GraphNode* node = open.back();
        open.pop_back();
        if (node == &earlier) return true;
        if (!seen.insert(node).second) continue;
        for (const GraphNode::Edge& edge : node->dependencies) open.push_back(edge.node);
    }
    return false;
}

namespace {

// Memory of so many bytes that the graph allocates, and frees in all orders before this node: an H200 takes
// it again. nullptr: there is none.
std::shared_ptr<GraphAllocation> freed_before(const GraphNode& node, const GraphAllocation& wanted) {
    std::set<const GraphNode*> seen{&node};
    std::vector<const GraphNode*> open{&node};
    std::map<CUdeviceptr, unsigned> frees;
    while (!open.empty()) {
        const GraphNode* next = open.back();
        open.pop_back();
        if (const auto* free = std::get_if<FreeCommand>(&next->command)) ++frees[free->address];
        for (const GraphNode::Edge& edge : next->dependencies)
            if (seen.insert(edge.node).second) open.push_back(edge.node);
    }
    for (const GraphNode* earlier : seen) {
        const auto* allocation = std::get_if<AllocateCommand>(&earlier->command);
        if (allocation == nullptr || earlier == &node) continue;
        const GraphAllocation& memory = *allocation->memory;
        if (memory.graph == node.graph->id && memory.bytes == wanted.bytes &&
            memory.device == wanted.device && frees[memory.address] == memory.nodes)
            return allocation->memory;
    }
    return nullptr;
}

}  // namespace

GraphNode& add_node(Driver& driver, Graph& graph, Command command,
                    const std::vector<GraphNode::Edge>& after) {
    auto node = std::make_shared<GraphNode>();
    node->graph = &graph;
    node->id = graph.next_node++;
    node->identity = node->original = driver.next_id++;
    node->command = std::move(command);
    for (const GraphNode::Edge& edge : after) connect(*edge.node, *node, edge.data);
    if (auto* allocation = std::get_if<AllocateCommand>(&node->command)) {
        allocation->memory->graph = graph.id;
        if (auto freed = freed_before(*node, *allocation->memory)) allocation->memory = std::move(freed);
        ++allocation->memory->nodes;
    }
    graph.nodes.push_back(node);
    driver.nodes.add(node);
    return *node;
}

void remove_node(Driver& driver, GraphNode& node) {
    while (!node.dependencies.empty()) disconnect(*node.dependencies.back().node, node);
    while (!node.dependents.empty()) disconnect(node, *node.dependents.back().node);
    driver.streams.each([&](Stream& stream) {
        forget(stream.capture.ends, &node);
        if (stream.capture.capture) forget(stream.capture.capture->left, &node);
    });
    driver.events.each([&](Event& event) { forget(event.capture.ends, &node); });
    driver.contexts.each([&](Context& context) {
        for (auto& entry : context.per_thread) forget(entry.second->capture.ends, &node);
    });
    for (const auto* inner : inner_graphs(node.command)) retire_graph(driver, **inner);
    Graph& graph = *node.graph;
    driver.nodes.remove(&node);
    std::erase_if(graph.nodes, [&](const std::shared_ptr<GraphNode>& other) { return other.get() == &node; });
}

std::shared_ptr<Graph> make_graph(Driver& driver) {
    auto graph = std::make_shared<Graph>();
    graph->id = driver.next_id++;
    driver.graphs.add(graph);
    return graph;
}

std::shared_ptr<Graph> clone_graph(Driver& driver, const Graph& graph, bool registered) {
    auto copy = std::make_shared<Graph>();
    copy->id = driver.next_id++;
    copy->original = graph.id;
    copy->next_node = graph.next_node;
    if (registered) driver.graphs.add(copy);
    std::unordered_map<const GraphNode*, GraphNode*> copies;
    for (const auto& node : graph.nodes) {
        auto twin = std::make_shared<GraphNode>();
        twin->graph = copy.get();
        twin->id = node->id;
        twin->identity = driver.next_id++;
        twin->original = node->identity;
        twin->command = node->command;
        twin->enabled = node->enabled;
        own_inner(driver, *twin, registered);
        copies[node.get()] = twin.get();
        if (registered) driver.nodes.add(twin);
        copy->nodes.push_back(std::move(twin));
    }
    for (const auto& node : graph.nodes) {
        for (const GraphNode::Edge& edge : node->dependencies)
            connect(*copies[edge.node], *copies[node.get()], edge.data);
    }
    copy->conditions = graph.conditions;
    for (const auto& [object, count] : graph.user_objects) {
        copy->user_objects[object] = 1;
        ++object->references;
    }
    return copy;
}

void retire_graph(Driver& driver, Graph& graph, const GraphExec* launched) {
    for (const auto& node : graph.nodes) {
        for (const auto* inner : inner_graphs(node->command)) retire_graph(driver, **inner, launched);
        driver.nodes.remove(node.get());
    }
    const auto held = std::exchange(graph.user_objects, {});
    for (const auto& [object, count] : held) {
        if (launched != nullptr && launched->last != nullptr) object->launches.push_back(launched->last);
        release_user_object(driver, *object, count);
    }
    driver.graphs.remove(&graph);
}

GraphNode* find_copy(const Graph& graph, std::uint64_t original) {
    for (const auto& node : graph.nodes) {
        if (node->original == original) return node.get();
        for (const Graph* inner : inner_graphs(std::as_const(node->command))) {
            if (GraphNode* found = find_copy(*inner, original)) return found;
        }
    }
    return nullptr;
}

std::optional<std::vector<GraphNode*>> issue_order(const Graph& graph) {
    std::unordered_map<const GraphNode*, std::size_t> missing;
    std::vector<GraphNode*> order, open;  // open: can be next, the last one first
    for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
        missing[node->get()] = (*node)->dependencies.size();
        if ((*node)->dependencies.empty()) open.push_back(node->get());
    }
    while (!open.empty()) {
        const GraphNode* node = order.emplace_back(open.back());
        open.pop_back();
        for (const bool kernels : {false, true}) {
            for (auto edge = node->dependents.rbegin(); edge != node->dependents.rend(); ++edge) {
                GraphNode* const next = edge->node;
                if ((next->type() == CU_GRAPH_NODE_TYPE_KERNEL) == kernels && --missing[next] == 0)
                    open.push_back(next);
            }
        }
    }
    if (order.size() != graph.nodes.size()) return std::nullopt;
    return order;
}

void release_user_object(Driver& driver, UserObject& object, unsigned count) {
    object.references -= std::min(count, object.references);
    if (object.references > 0) return;
    // Its end is told on the driver's own thread, in which no call of the driver may be made.
    auto operation = std::make_shared<Operation>();
    operation->work = HostCall{[destroy = object.destroy, data = object.data] { destroy(data); }};
    std::vector<Dependency> after;
    for (const OperationPtr& launch : object.launches) after.push_back({launch, false});
    SimulatedDevice& device = *driver.devices.front();
    driver.start(device);
    device.engine.submit(operation, after, driver.clock.now());
    driver.wake();
    driver.user_objects.remove(&object);
}

}  // namespace fikit::sim
