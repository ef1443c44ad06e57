// CUDA graphs as this process keeps them: nodes and what each depends on. Instantiated, a graph is a copy of
// its own, and one operation of the executor's; one that needs this process for a node (host memory, a
// function) is issued node by node instead.
#pragma once

#include <stdlib.h>
#include <string.h>

#include <cstdint>

#include "objects.hpp"
#include "user_objects.hpp"

namespace fikit::shim {

inline constexpr uint32_t graph_magic = 0x46475250, executable_magic = 0x46475845, node_magic = 0x46474e44;

// Plain values, one behind the other.
template <class Value>
class List {
  public:
    List() = default;
    List(const List&) = delete;
    List& operator=(const List&) = delete;
    ~List() { free(values_); }

    // So many more, of any value.
    bool grow(size_t count) {
        if (count > room_ - size_) {
            const size_t room = size_ + count < 2 * room_ ? 2 * room_ : size_ + count;
            void* const grown = realloc(static_cast<void*>(values_), room * sizeof(Value));
            if (grown == nullptr) return false;
            values_ = static_cast<Value*>(grown);
            room_ = room;
        }
        size_ += count;
        return true;
    }
    bool add(const Value* values, size_t count) {
        if (!grow(count)) return false;
        if (count != 0) memcpy(static_cast<void*>(values_ + size_ - count), values, count * sizeof(Value));
        return true;
    }
    bool add(const Value& value) { return add(&value, 1); }
    bool assign(const List& other) {
        size_ = 0;
        return add(other.values_, other.size_);
    }
    template <class Other = Value>
    bool contains(const Other& value) const {
        for (const Value& each : *this)
            if (each == value) return true;
        return false;
    }
    template <class Other = Value>
    void remove(const Other& value) {
        size_t kept = 0;
        for (size_t i = 0; i < size_; ++i)
            if (values_[i] != value) values_[kept++] = values_[i];
        size_ = kept;
    }
    void clear() { size_ = 0; }
    Value take_last() { return values_[--size_]; }

    size_t size() const { return size_; }
    Value* begin() const { return values_; }
    Value* end() const { return values_ + size_; }
    Value& operator[](size_t index) const { return values_[index]; }

  private:
    Value* values_ = nullptr;
    size_t size_ = 0, room_ = 0;
};

struct Graph;
struct GraphMemory;
struct Node;

// A name that nothing else has, now or later.
inline uint64_t new_id() {
    static uint64_t last = 0;
    return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

// A node that another one depends on. Where `data` says that this one may begin before that one has ended
// (programmatic launches), it is told to who asks; the order kept is that of full completion.
struct Edge {
    Node* node;
    CUgraphEdgeData data;

    operator Node*() const { return node; }
    bool is_full() const { return data.from_port == 0 && data.to_port == 0 && data.type == 0; }
    void let_begin_early();
};

// The conditions of a graph that decides, as the executor's driver has them: for the graph, and for all that
// is instantiated from it.
class Conditions {
  public:
    explicit Conditions(Device& device) : device_(device) {}
    CUresult create(uint32_t initial, uint32_t flags, uint64_t& condition);
    void retain() { __atomic_fetch_add(&uses_, 1u, __ATOMIC_RELAXED); }
    void release();
    Device& device() const { return device_; }
    uint32_t number() const { return number_; }
    bool has(uint64_t condition) const { return given_.contains(condition); }
    bool instantiated = false;  // the driver allows one at a time

  private:
    Device& device_;
    uint32_t number_ = 0;
    unsigned uses_ = 1;
    List<uint64_t> given_;
};

struct Node {
    uint32_t magic = node_magic;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    Graph* graph = nullptr;
    uint64_t id = new_id();  // of this one alone
    uint64_t origin = 0;     // of the one that it is a copy of
    List<Edge> before;       // what it depends on
    List<Node*> flat;        // the same with the nodes of children in place of these (put_in_order)
    // What depends on the kind.
    CUfunction function = nullptr;  // kernel: and
    LaunchShape shape = {};         // its stream is one of the kernel's device
    uint8_t* packed = nullptr;      // attributes, then parameters, then a pointer to each of these
    List<fikit_attribute> hints;    // attributes that nobody heeds, but who asks is told of
    CUcontext context = nullptr;    // a library's kernel, words: where they are
    CUDA_MEMCPY3D copy = {};
    CUDA_MEMSET_NODE_PARAMS fill = {};
    CUDA_HOST_NODE_PARAMS host = {};
    List<CUstreamBatchMemOpParams> values;
    CUevent event = nullptr;
    Graph* child = nullptr;
    uint64_t condition = 0;  // by which one of the bodies runs, in the way of the kind:
    CUgraphConditionalNodeType decision = CU_GRAPH_COND_TYPE_IF;
    List<CUgraph> bodies;
    GraphMemory* memory = nullptr;  // allocated
    List<CUmemAccessDesc> access;   // that was asked for with it
    CUdeviceptr freed = 0;
    bool enabled = true;
    bool apart = false;  // of one that decides: issued ahead of the executor's graph, or behind it
    // While the graph is looked at as a whole.
    enum class Stage : uint8_t { before, within, behind } stage = Stage::before;  // of the executor's graph
    bool joined = false;      // before what a capture ends with
    List<Node*> after;        // what depends on it
    size_t missing = 0;       // of what it depends on, how much has no place in the order yet
    uint32_t last = 0;        // index of its last record in an image, or of itself in a picture or a copy
    Node* partner = nullptr;  // in the graph that its own is compared with (graph_pairs.hpp)

    ~Node();
    bool adopt(Graph* graph_given);  // as its child, in place of one that it has; false: there is none
    bool add_body(Graph* body);      // likewise
    // The graphs within it: its child, or its bodies.
    template <class Use>
    void each_inner(const Use& use) const {
        if (child != nullptr) use(*child);
        for (const CUgraph body : bodies) use(*reinterpret_cast<Graph*>(body));
    }
    fikit_attribute* attributes() const { return reinterpret_cast<fikit_attribute*>(packed); }
    void** pointers() const {
        const size_t bytes = (size_t{shape.parameter_bytes} + 7) & ~size_t{7};
        return reinterpret_cast<void**>(parameters() + bytes);
    }
    uint8_t* parameters() const { return packed + shape.attributes * sizeof(fikit_attribute); }
};

struct Graph {
    uint32_t magic = graph_magic;
    uint64_t id = new_id();
    uint64_t origin = 0;  // of the one that it is a copy of
    List<Node*> nodes;
    List<Kept> kept;                   // objects of the program's that live as long as it does
    const Node* parent = nullptr;      // whose child or body it is, which ends with the node
    Node* within = nullptr;            // whose body it is
    Conditions* conditions = nullptr;  // of the outermost graph

    ~Graph();
    // A node that belongs to it; nullptr: no memory.
    Node* add(CUgraphNodeType type, Node* const* before, size_t count);
    // A copy whose nodes name theirs here as their origin; nullptr: no memory.
    Graph* clone() const;
    Node* copy_of(const Node* node) const;  // in it or a child; nullptr: there is none
    bool keeps_objects() const;             // itself or one within
    // Whether nodes of it, or inside them, allocate or free.
    bool has_memory() const;
    // A copy would have its memory, or its conditions, twice.
    bool can_be_copied() const { return !decides() && !has_memory(); }
    // It has conditions, or, as a body, nodes that go by those of the outermost one.
    bool decides() const;
    // The one that it is a part of, through children and bodies.
    const Graph& whole() const { return parent != nullptr ? parent->graph->whole() : *this; }
    Graph& outermost() { return within != nullptr ? within->graph->outermost() : *this; }
};

struct Executable {
    uint32_t magic = executable_magic;
    Graph* graph = nullptr;  // a copy of the one that it was made from
    uint64_t flags = 0;
    List<Node*> order;             // as they are issued, children's nodes too
    List<Node*> memory;            // of these, what allocates and frees
    List<Node*> ahead, following;  // of these, what is apart
    Device* device = nullptr;      // whose session has it
    uint32_t number = 0;           // there; 0: it is not
    bool changed = true;           // since the executor got it
    bool whole = false;            // it can be one operation
    bool acts = false;             // has other nodes than empty ones and children
    bool alone = false;            // has occupied

    ~Executable();
    // Memory and conditions are one executable's at a time, as the driver has it. False: another one's.
    bool occupy();
    // Is any memory of the graph's, or are its conditions, another executable's?
    bool lacks(const Graph& other) const;
    // Becomes a copy of the graph. If it was one before, its nodes have partners there (pair_nodes), and what
    // they become stands for the same ones as before.
    CUresult take(const Graph& graph);
    // The same for the child of one of its nodes.
    CUresult take(Node& node, const Graph& child);
    // Hands it to the executor where it can be one operation.
    CUresult send();
    // Before a launch into the stream: it comes behind the latest one.
    CUresult order_launch(uint32_t stream) const;
    // Behind a launch: until here what the graph keeps alive is needed, and the next launch has to wait.
    CUresult note_launch(uint32_t stream);
    // Before a launch. False: what it allocates is still in use.
    bool may_use_memory() const;

  private:
    // False: it cannot be one operation, whatever were around it.
    bool set_apart(const Device& home);
    void occupy(bool is);
    CUresult arrange();
    // Ends a graph that launches may still use: what it keeps alive outlives these.
    void retire(Graph* graph);

    // The latest launch's stream, which may be gone, and the event that was recorded behind it.
    uint32_t launched_in_ = 0;
    Device* launched_on_ = nullptr;
    uint32_t launched_ = 0;
};

// Adds the nodes in the order in which an H200 issues them: as they were added, but behind each at once what
// that was the last to keep waiting, of which kernels come first. The first ones depend on `outer`.
CUresult put_in_order(const Graph& graph, const List<Node*>& outer, List<Node*>& order);

// Of a node that allocates or frees, when it is issued.
void use_memory(const Node& node);

// Where a node is to run: where its kernel or event is, or the memory that it writes. nullptr: anywhere.
Device* home_of(const Node& node);

// What follows the node by this edge may begin early, as a captured launch of it may ask.
inline void Edge::let_begin_early() {
    if (node->type != CU_GRAPH_NODE_TYPE_KERNEL || !is_full()) return;
    data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
}

inline Graph* graph_of(CUgraph handle) { return object_of<Graph>(handle, graph_magic); }
inline Node* node_of(CUgraphNode handle) { return object_of<Node>(handle, node_magic); }
inline Node* node_of(CUgraphNode handle, CUgraphNodeType type) {
    Node* const node = node_of(handle);
    return node != nullptr && node->type == type ? node : nullptr;
}
inline Executable* executable_of(CUgraphExec handle) {
    return object_of<Executable>(handle, executable_magic);
}

// Whether edges from these nodes can carry that: kernels alone let others begin before they have ended.
bool can_carry(const CUgraphNode* from, const CUgraphEdgeData* edges, size_t count);

// Makes it a node that decides, with bodies for the program to fill.
CUresult set_decision(Node& node, CUDA_CONDITIONAL_NODE_PARAMS& given);

// Room behind a kernel's node for its attributes, `parameter_bytes` and pointers. False: no memory.
bool make_room(Node& node, const Function& function);

// The rows of a copy or fill, for whoever takes one after the other; false ends it.
template <class Take>
bool each_row(const CUDA_MEMSET_NODE_PARAMS& fill, const Take& take) {
    const uint64_t width = fill.width * fill.elementSize;
    if (fill.height <= 1 || fill.pitch == width) return take(fill.dst, fill.width * fill.height);
    for (uint64_t y = 0; y < fill.height; ++y)
        if (!take(fill.dst + y * fill.pitch, fill.width)) return false;
    return true;
}

}  // namespace fikit::shim
