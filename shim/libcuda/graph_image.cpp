// What of an instantiated graph the executor runs as one operation, and how it gets it.
#include <time.h>

#include <algorithm>

#include "../records.hpp"
#include "copies.hpp"
#include "entry.hpp"
#include "graph.hpp"

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
        if (node->apart) continue;
        image.graph = graph;
        before.clear();
        bool written = true;
        for (const Node* const each : node->flat)
            written = written && (each->apart || before.add(each->last));
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

// Where an earlier launch of a graph that decides is put off (behind a function of the host's, say), that
// needs the one before, and there is one at a time. Other calls are answered meanwhile, which may end the
// wait.
Status create(Executable& executable, const Image& image) {
    constexpr int64_t patience = 1'000'000'000;
    const Uncancelled whole;
    const Conditions* const given = executable.graph->conditions;
    const uint32_t conditions = given != nullptr ? given->number() : 0;
    Producer& producer = *executable.device->producer;
    for (const int64_t until = now_ns() + patience;;) {
        const Status status =
            producer.graph_create(image.bytes(), image.size(), executable.number, conditions);
        if (status != status::not_ready) return status;
        if (now_ns() >= until) return Status{CUDA_ERROR_NOT_SUPPORTED};
        const timespec pause = {0, 200'000};
        nanosleep(&pause, nullptr);
    }
}

}  // namespace

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

// Of a graph that decides, the rest is the executor's, if what cannot be sent is not between two parts of it.
bool Executable::set_apart(const Device& home) {
    ahead.clear();
    following.clear();
    for (Node* const node : order) {
        node->apart = !can_be_sent(*node, home);
        if (node->apart && (graph->conditions == nullptr || node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL))
            return false;
        node->stage = Node::Stage::before;
        for (const Node* const each : node->flat) node->stage = std::max(node->stage, each->stage);
        if (node->apart) {
            const bool early = node->stage == Node::Stage::before;
            if (!early) node->stage = Node::Stage::behind;
            if (!(early ? ahead : following).add(node)) return false;
        } else if (!does_nothing(*node)) {
            if (node->stage == Node::Stage::behind) return false;
            node->stage = Node::Stage::within;
        }
    }
    return true;
}

CUresult Executable::send() {
    changed = false;
    whole = false;
    const Conditions* const conditions = graph->conditions;
    Device* const home = conditions != nullptr ? &conditions->device() : home_of(order);
    if (home == nullptr) return CUDA_SUCCESS;
    if (!set_apart(*home)) return conditions == nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    if (number != 0 && device != home) {
        device->producer->graph_destroy(number);
        number = 0;
    }
    device = home;
    Image image;
    if (!write_nodes(order, image)) return CUDA_ERROR_OUT_OF_MEMORY;
    // A condition that nothing goes by is refused, as by the driver.
    if (image.size() == 0) return conditions == nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    const Status status = create(*this, image);
    // What the driver does not take as a graph still runs node by node, unless only the GPU knows which
    // nodes.
    whole = status == status::success;
    changed = conditions != nullptr && !whole;  // to be tried again
    return conditions != nullptr ? result_of(status) : CUDA_SUCCESS;
}

}  // namespace fikit::shim
