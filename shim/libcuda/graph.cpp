#include "graph.hpp"

#include <new>
#include <utility>

#include "capture.hpp"
#include "copies.hpp"
#include "graph_memory.hpp"

namespace fikit::shim {
namespace {

// The nodes of a new copy take the place of those whose partners they are copies of, also in the order in
// which they are issued. clone() has left each partner its index.
void stand_for(const Graph& copy, const Graph& old) {
    for (uint32_t i = 0; i < old.nodes.size(); ++i) {
        const Node& was = *old.nodes[i];
        Node& node = *copy.nodes[was.partner->last];
        node.last = i;
        node.origin = was.origin;
        node.enabled = was.enabled;
        if (was.child != nullptr) stand_for(*node.child, *was.child);
        for (size_t body = 0; body < was.bodies.size(); ++body)
            stand_for(*reinterpret_cast<Graph*>(node.bodies[body]),
                      *reinterpret_cast<Graph*>(was.bodies[body]));
    }
    for (uint32_t i = 0; i < copy.nodes.size(); ++i)
        while (copy.nodes[i]->last != i) std::swap(copy.nodes[i], copy.nodes[copy.nodes[i]->last]);
}

}  // namespace

Node::~Node() {
    wipe(magic);
    free(packed);
    each_inner([](Graph& inner) { delete &inner; });
    if (memory != nullptr) memory->release();
}

bool can_carry(const CUgraphNode* from, const CUgraphEdgeData* edges, size_t count) {
    for (size_t i = 0; i < count && from != nullptr && edges != nullptr; ++i) {
        const CUgraphEdgeData& edge = edges[i];
        for (const unsigned char reserved : edge.reserved)
            if (reserved != 0) return false;
        if (Edge{nullptr, edge}.is_full()) continue;
        const Node* const node = node_of(from[i]);
        const bool programmatic = edge.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
        const bool can_be = edge.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER ||
                            (edge.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC && programmatic);
        if (node == nullptr || node->type != CU_GRAPH_NODE_TYPE_KERNEL || edge.to_port != 0 ||
            edge.type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC || !can_be)
            return false;
    }
    return true;
}

bool Node::adopt(Graph* graph_given) {
    if (graph_given == nullptr) return false;
    delete child;
    child = graph_given;
    child->parent = this;
    return true;
}

bool Node::add_body(Graph* body) {
    if (body == nullptr) return false;
    if (!bodies.add(reinterpret_cast<CUgraph>(body))) {
        delete body;
        return false;
    }
    body->parent = this;
    body->within = this;
    return true;
}

Graph::~Graph() {
    wipe(magic);
    captures.forget(*this);
    if (conditions != nullptr) conditions->release();
    for (Node* const node : nodes) delete node;
    for (const Kept& each : kept) each.object->release(each.count);
}

Node* Graph::add(CUgraphNodeType type, Node* const* before, size_t count) {
    auto* const node = new (std::nothrow) Node();
    if (node == nullptr) return nullptr;
    node->type = type;
    node->graph = this;
    bool whole = nodes.add(node);
    for (size_t i = 0; i < count; ++i) whole = whole && node->before.add({before[i], {}});
    if (whole) return node;
    nodes.remove(node);
    delete node;
    return nullptr;
}

Graph* Graph::clone() const {
    auto* const copy = new (std::nothrow) Graph();
    if (copy == nullptr) return nullptr;
    bool whole = true;
    copy->origin = id;
    copy->conditions = conditions;
    if (conditions != nullptr) conditions->retain();
    // By index: what a node depends on may stand behind it.
    for (uint32_t i = 0; i < nodes.size(); ++i) nodes[i]->last = i;
    for (const Node* const node : nodes) {
        Node* const made = whole ? copy->add(node->type, nullptr, 0) : nullptr;
        whole = made != nullptr;
        if (!whole) break;
        made->origin = node->id;
        made->function = node->function;
        whole = made->hints.assign(node->hints) && whole;
        whole = made->access.assign(node->access) && whole;
        made->context = node->context;
        made->shape = node->shape;
        made->copy = node->copy;
        made->fill = node->fill;
        made->host = node->host;
        made->event = node->event;
        made->memory = node->memory;
        if (made->memory != nullptr) made->memory->retain();
        made->freed = node->freed;
        made->enabled = node->enabled;
        if (node->packed != nullptr) {
            const Function* const function = function_of(node->function);
            whole = function != nullptr && make_room(*made, *function);
            if (whole)
                memcpy(made->packed, node->packed,
                       node->shape.attributes * sizeof(fikit_attribute) + node->shape.parameter_bytes);
        }
        whole = made->values.assign(node->values) && whole;
        if (node->child != nullptr) whole = made->adopt(node->child->clone()) && whole;
        made->condition = node->condition;
        made->decision = node->decision;
        for (const CUgraph body : node->bodies)
            whole = made->add_body(reinterpret_cast<Graph*>(body)->clone()) && whole;
    }
    for (uint32_t i = 0; i < nodes.size() && whole; ++i)
        for (const Edge& edge : nodes[i]->before)
            whole = whole && copy->nodes[i]->before.add({copy->nodes[edge.node->last], edge.data});
    whole = whole && copy->kept.assign(kept);
    for (const Kept& each : copy->kept) each.object->retain(each.count);
    if (whole) return copy;
    delete copy;
    return nullptr;
}

Node* Graph::copy_of(const Node* node) const {
    for (Node* const each : nodes) {
        Node* found = each->origin == node->id ? each : nullptr;
        each->each_inner([&](const Graph& inner) {
            if (found == nullptr) found = inner.copy_of(node);
        });
        if (found != nullptr) return found;
    }
    return nullptr;
}

bool Graph::has_memory() const {
    bool any = false;
    for (const Node* const node : nodes) {
        any = any || node->memory != nullptr || node->freed != 0;
        node->each_inner([&](const Graph& inner) { any = any || inner.has_memory(); });
    }
    return any;
}

bool Graph::decides() const {
    for (const Node* const node : nodes)
        if (node->bodies.size() != 0) return true;
    return conditions != nullptr;
}

bool Graph::keeps_objects() const {
    bool any = kept.size() != 0;
    for (const Node* const node : nodes)
        node->each_inner([&](const Graph& inner) { any = any || inner.keeps_objects(); });
    return any;
}

bool make_room(Node& node, const Function& function) {
    const size_t attribute_bytes = node.shape.attributes * sizeof(fikit_attribute);
    const size_t parameter_bytes = (size_t{node.shape.parameter_bytes} + 7) & ~size_t{7};
    auto* const packed = static_cast<uint8_t*>(
        realloc(node.packed, attribute_bytes + parameter_bytes + (function.parameters + 1) * sizeof(void*)));
    if (packed == nullptr) return false;
    node.packed = packed;
    auto** const pointers = reinterpret_cast<void**>(packed + attribute_bytes + parameter_bytes);
    for (uint32_t i = 0; i < function.parameters; ++i)
        pointers[i] = packed + attribute_bytes + function.layout[i].offset;
    return true;
}

bool Executable::occupy() {
    bool taken = graph->conditions != nullptr && graph->conditions->instantiated;
    for (const Node* const node : memory)
        taken = taken || (node->memory != nullptr && node->memory->instantiated);
    if (taken) return false;
    alone = true;
    occupy(true);
    return true;
}

bool Executable::lacks(const Graph& other) const {
    const bool others = other.conditions != nullptr && other.conditions != graph->conditions;
    if (others && other.conditions->instantiated) return true;
    for (const Node* const node : other.nodes) {
        if (node->memory == nullptr || !node->memory->instantiated) continue;
        bool own = false;
        for (const Node* const mine : memory) own = own || mine->memory == node->memory;
        if (!own) return true;
    }
    return false;
}

void Executable::occupy(bool is) {
    if (graph->conditions != nullptr) graph->conditions->instantiated = is;
    for (const Node* const node : memory)
        if (node->memory != nullptr) node->memory->instantiated = is;
}

bool Executable::may_use_memory() const {
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0) return true;
    for (const Node* const node : memory)
        if (node->memory != nullptr && load_acquire(node->memory->in_use) != 0) return false;
    return true;
}

void use_memory(const Node& node) {
    if (node.memory != nullptr)
        node.memory->allocate();
    else
        free_graph_memory(node.freed);
}

CUresult Executable::take(const Graph& wanted) {
    Graph* const copy = wanted.clone();
    if (copy == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    if (graph != nullptr) stand_for(*copy, *graph);
    if (alone) occupy(false);
    retire(graph);
    graph = copy;
    changed = true;
    const CUresult result = arrange();
    if (alone) occupy(true);
    return result;
}

CUresult Executable::take(Node& node, const Graph& child) {
    Graph* const copy = child.clone();
    if (copy == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    stand_for(*copy, *node.child);
    retire(node.child);
    node.child = nullptr;
    node.adopt(copy);
    changed = true;
    return arrange();
}

}  // namespace fikit::shim
