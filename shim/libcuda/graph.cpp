#include "graph.hpp"

#include <new>
#include <utility>

#include "../records.hpp"
#include "capture.hpp"
#include "copies.hpp"
#include "graph_memory.hpp"

namespace fikit::shim {
namespace {

// A graph for the executor (calls.h, graph_create).
class Image {
  public:
    // Room for a record that depends on the given ones; nullptr: no memory.
    void* add(uint16_t op, uint32_t record_bytes, const List<uint32_t>& before) {
        const size_t listed = (before.size() * sizeof(uint32_t) + 7) & ~size_t{7};
        const size_t more = sizeof(fikit_graph_node) + listed + record_bytes;
        if (!bytes_.grow(more)) return nullptr;
        uint8_t* at = bytes_.end() - more;
        memset(at, 0, more);
        const fikit_graph_node head = {static_cast<uint32_t>(before.size()), record_bytes};
        memcpy(at, &head, sizeof head);
        if (before.size() != 0) memcpy(at + sizeof head, before.begin(), before.size() * sizeof(uint32_t));
        at += sizeof head + listed;
        const fikit_record record = {record_bytes, op, 0, graph, 0};
        memcpy(at, &record, sizeof record);
        ++count_;
        return at;
    }
    uint32_t last() const { return count_ - 1; }
    const uint8_t* bytes() const { return bytes_.begin(); }
    size_t size() const { return bytes_.size(); }

    uint32_t graph = 0;   // of what is added
    uint32_t graphs = 1;  // so far

  private:
    List<uint8_t> bytes_;
    uint32_t count_ = 0;
};

bool write_kernel(const Node& node, Image& image, const List<uint32_t>& before) {
    const size_t attribute_bytes = node.shape.attributes * sizeof(fikit_attribute);
    const size_t bytes = sizeof(fikit_launch) + attribute_bytes + node.shape.parameter_bytes;
    auto* const record = static_cast<fikit_launch*>(image.add(FIKIT_OP_LAUNCH, whole_lines(bytes), before));
    if (record == nullptr) return false;
    const LaunchShape& shape = node.shape;
    record->function = shape.function;
    memcpy(record->grid, shape.grid, sizeof record->grid);
    memcpy(record->block, shape.block, sizeof record->block);
    record->shared_bytes = shape.shared_bytes;
    record->parameter_bytes = shape.parameter_bytes;
    record->attributes = shape.attributes;
    if (bytes > sizeof *record) memcpy(record + 1, node.packed, bytes - sizeof *record);
    return true;
}

// Rows one after the other, each after the one before.
template <class Write>
bool write_rows(Image& image, List<uint32_t>& before, const Write& write) {
    if (!write()) return false;
    before.clear();
    return before.add(image.last());
}

bool write_copy(const Node& node, Image& image, List<uint32_t>& before) {
    return each_row(node.copy, [&](uint64_t to, uint64_t from, uint64_t bytes) {
        return write_rows(image, before, [&] {
            auto* const record = static_cast<fikit_copy*>(image.add(FIKIT_OP_COPY, 64, before));
            if (record == nullptr) return false;
            record->kind = FIKIT_COPY_ON_DEVICE;
            record->device = to;
            record->other = from;
            record->size = bytes;
            return true;
        });
    });
}

bool write_fill(const Node& node, Image& image, List<uint32_t>& before) {
    return each_row(node.fill, [&](uint64_t to, uint64_t count) {
        return write_rows(image, before, [&] {
            auto* const record = static_cast<fikit_fill*>(image.add(FIKIT_OP_FILL, 64, before));
            if (record == nullptr) return false;
            record->device = to;
            record->count = count;
            record->value = node.fill.value;
            record->width = node.fill.elementSize;
            return true;
        });
    });
}

bool does_nothing(const Node& node) {
    return !node.enabled || node.type == CU_GRAPH_NODE_TYPE_EMPTY || node.type == CU_GRAPH_NODE_TYPE_GRAPH ||
           node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node.type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}

// Where a graph is to run: where its kernels are; without any, where its memory is. nullptr: anywhere.
Device* home_of(const List<Node*>& order) {
    for (const Node* const node : order)
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) return home_of(*node);
    for (const Node* const node : order)
        if (Device* const home = home_of(*node)) return home;
    return nullptr;
}

// Whether the executor can run it without this process.
bool bodies_can_be_sent(const Node& node, const Device& device);

bool can_be_sent(const Node& node, const Device& device) {
    if (does_nothing(node)) return true;
    if (node.type == CU_GRAPH_NODE_TYPE_KERNEL) return &device_of(node.shape.stream) == &device;
    if (node.type == CU_GRAPH_NODE_TYPE_MEMSET) return node.fill.width != 0 && fills(device, node.fill.dst);
    if (node.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return bodies_can_be_sent(node, device);
    if (node.type != CU_GRAPH_NODE_TYPE_MEMCPY) return false;
    return each_row(node.copy, [&](uint64_t to, uint64_t from, uint64_t bytes) {
        return bytes != 0 && is_memory_of(to, device) && is_memory_of(from, device);
    });
}

bool bodies_can_be_sent(const Node& node, const Device& device) {
    bool all = true;
    node.each_inner([&](const Graph& body) {
        List<Node*> order;
        const List<Node*> none;
        all = all && put_in_order(body, none, order) == CUDA_SUCCESS;
        for (const Node* const inner : order)
            all = all && inner->memory == nullptr && inner->freed == 0 && can_be_sent(*inner, device);
    });
    return all;
}

bool write_nodes(const List<Node*>& order, Image& image);

bool write_decision(Node& node, Image& image, const List<uint32_t>& before) {
    auto* const record = static_cast<fikit_decision*>(image.add(FIKIT_OP_DECISION, 64, before));
    if (record == nullptr) return false;
    const auto bodies = static_cast<uint32_t>(node.bodies.size());
    record->condition = node.condition;
    record->type = node.decision;
    record->bodies = bodies;
    node.last = image.last();
    const uint32_t first = image.graphs;
    image.graphs += bodies;
    bool all = true;
    for (uint32_t i = 0; i < bodies && all; ++i) {
        List<Node*> order;
        const List<Node*> none;
        image.graph = first + i;
        all = put_in_order(*reinterpret_cast<Graph*>(node.bodies[i]), none, order) == CUDA_SUCCESS &&
              write_nodes(order, image);
    }
    return all;
}

// The nodes in their order, and then those of bodies. False: no memory.
bool write_nodes(const List<Node*>& order, Image& image) {
    const uint32_t graph = image.graph;
    List<uint32_t> before;
    for (Node* const node : order) {
        image.graph = graph;
        before.clear();
        bool written = true;
        for (const Node* const each : node->flat) written = written && before.add(each->last);
        if (!written) return false;
        if (does_nothing(*node))
            written = image.add(FIKIT_OP_SYNC, 64, before) != nullptr;
        else if (node->type == CU_GRAPH_NODE_TYPE_KERNEL)
            written = write_kernel(*node, image, before);
        else if (node->type == CU_GRAPH_NODE_TYPE_MEMCPY)
            written = write_copy(*node, image, before);
        else if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            written = write_decision(*node, image, before);
        else
            written = write_fill(*node, image, before);
        if (!written) return false;
        if (node->bodies.size() == 0) node->last = image.last();
    }
    return true;
}

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
        malloc(attribute_bytes + parameter_bytes + (function.parameters + 1) * sizeof(void*)));
    if (packed == nullptr) return false;
    free(node.packed);
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

Device* home_of(const Node& node) {
    if (node.type == CU_GRAPH_NODE_TYPE_KERNEL) return &device_of(node.shape.stream);
    if (node.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
        const Event* const event = event_of(node.event);
        return event != nullptr ? event->device : nullptr;
    }
    const bool is_fill = node.type == CU_GRAPH_NODE_TYPE_MEMSET;
    if (!is_fill && node.type != CU_GRAPH_NODE_TYPE_MEMCPY) return nullptr;
    for (unsigned i = 0; i < process.device_count(); ++i) {
        Device& device = process.device(i);
        if (is_fill ? fills(device, node.fill.dst) : is_memory_of(node.copy.dstDevice, device))
            return &device;
    }
    return nullptr;
}

CUresult Executable::send() {
    changed = false;
    whole = false;
    const Conditions* const conditions = graph->conditions;
    Device* const home = conditions != nullptr ? &conditions->device() : home_of(order);
    if (home == nullptr) return CUDA_SUCCESS;
    for (const Node* const node : order)
        if (!can_be_sent(*node, *home))
            return conditions == nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    if (number != 0 && device != home) {
        device->producer->graph_destroy(number);
        number = 0;
    }
    device = home;
    Image image;
    if (!write_nodes(order, image)) return CUDA_ERROR_OUT_OF_MEMORY;
    // A condition that nothing goes by is refused, as by the driver.
    if (image.size() == 0) return conditions == nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    const Status status = device->producer->graph_create(image.bytes(), image.size(), number,
                                                         conditions != nullptr ? conditions->number() : 0);
    // What the driver does not take as a graph still runs node by node, unless only the GPU knows which
    // nodes.
    whole = status == status::success;
    changed = conditions != nullptr && !whole;  // to be tried again
    return conditions != nullptr ? result_of(status) : CUDA_SUCCESS;
}

}  // namespace fikit::shim
