// Graphs: commands and the order between them; and what an instantiated one adds.
//
// An executable graph owns a copy, whose nodes remember the nodes that they were copied from, so that the
// calls which change it can name those. All of it is under the driver's mutex.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "command.hpp"
#include "graph_pairs.hpp"

namespace fikit::sim {

// Of an edge whose later node waits for the end of the earlier one.
inline bool is_full(const CUgraphEdgeData& data) {
    return data.from_port == 0 && data.to_port == 0 && data.type == 0;
}

struct GraphNode {
    using Edge = GraphEdge;
    CUgraphNode handle{};
    Graph* graph = nullptr;
    unsigned id = 0;             // in its graph, never given again
    std::uint64_t identity = 0;  // of this node alone
    std::uint64_t original = 0;  // the identity of the node it is a copy of; its own where of none
    Command command;
    std::vector<Edge> dependencies;
    std::vector<Edge> dependents;
    bool enabled = true;
    GraphNode* partner = nullptr;  // in the graph that its own is compared with (graph_pairs.hpp)

    CUgraphNodeType type() const;
};

struct UserObject {
    CUuserObject handle{};
    void* data = nullptr;
    CUhostFn destroy = nullptr;
    unsigned references = 0;
    std::vector<OperationPtr> launches;  // the latest of graphs that kept it and have ended: it outlives them
};

struct Graph {
    CUgraph handle{};  // null: a child's or an executable's, which have none of their own until asked for
    std::uint64_t id = 0;
    std::uint64_t original = 0;  // the id of the graph that it is a copy of; 0: of none
    unsigned next_node = 0;
    Graph* parent = nullptr;  // of the node whose child it is
    std::vector<std::shared_ptr<GraphNode>> nodes;
    std::map<UserObject*, unsigned> user_objects;  // with the references that it holds
    std::vector<Condition> conditions;             // made for it
    CUgraphExec instance = nullptr;                // what was made from it last

    std::size_t edges() const;
};

struct GraphExec : std::enable_shared_from_this<GraphExec> {
    CUgraphExec handle{};
    std::uint64_t id = 0;
    unsigned long long flags = 0;
    Context* context = nullptr;
    std::shared_ptr<Graph> graph;
    OperationPtr last;  // of its latest launch: it does not run beside itself
};

// The graphs that are part of a command: a child, or the bodies of a conditional node.
std::vector<std::shared_ptr<Graph>*> inner_graphs(Command& command);
std::vector<const Graph*> inner_graphs(const Command& command);

// Adds a node behind others of the same graph.
GraphNode& add_node(Driver& driver, Graph& graph, Command command, const std::vector<GraphNode::Edge>& after);
void connect(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data);
bool disconnect(GraphNode& from, GraphNode& to);
bool depends_on(const GraphNode& later, const GraphNode& earlier);
void remove_node(Driver& driver, GraphNode& node);

std::shared_ptr<Graph> make_graph(Driver& driver);
// A copy with nodes of its own. `registered`: callers may name the copy's nodes.
std::shared_ptr<Graph> clone_graph(Driver& driver, const Graph& graph, bool registered);
// Lets go of handles and of the references to user objects.
// What it keeps alive is needed until `launched` has run for the last time.
void retire_graph(Driver& driver, Graph& graph, const GraphExec* launched = nullptr);
// The node that is a copy of `original`, also in children; null where there is none.
GraphNode* find_copy(const Graph& graph, std::uint64_t original);
// Whether a node of an instantiated graph can have that command, of the same kind, instead.
bool may_become(const Command& was, const Command& given);

// The nodes in the order in which an H200 issues them: as they were added, but behind each at once what that
// was the last to keep waiting, of which kernels come first. Nothing where they depend on each other in a
// circle.
std::optional<std::vector<GraphNode*>> issue_order(const Graph& graph);

void release_user_object(Driver& driver, UserObject& object, unsigned count);

// Memory that a graph's node allocates; null where there is none. What is freed is the address's use:
// the pages stay the node's. False where the address is of no such memory. In use it outlives its graph (CUDA
// C++ Programming Guide, "Graph Memory Nodes").
std::shared_ptr<GraphAllocation> allocate_graph_memory(Driver& driver, int device, std::size_t bytes);
bool is_graph_memory(CUdeviceptr address);
bool free_graph_memory(CUdeviceptr address);
// All work of a context is over: what is free and no graph's goes.
void let_go_of_graph_memory();
// The host has synchronised: what is free no longer counts as used.
void settle_graph_memory(Driver& driver);
// Whether nodes of the graph, or inside them, allocate or free: it cannot be copied then, nor lose a node or
// an edge, and has one executable at a time.
bool has_memory(const Graph& graph);
// Whether it has empty nodes alone, its children too.
bool only_empty(const Graph& graph);
// Memory and conditions are one graph's.
bool can_be_copied(const Graph& graph);

CUresult instantiate(Driver& driver, Context& context, Graph& graph, unsigned long long flags,
                     CUgraphInstantiateResult* problem, CUgraphExec* handle);
CUresult launch_graph(Driver& driver, GraphExec& exec, Stream& stream);
// Takes over the commands of a graph with the same nodes and edges; or tells where it has not.
Difference<GraphNode> update_graph(Graph& target, const Graph& source);
// Likewise, of nodes made in the same order; or false.
bool update_child(Graph& target, const Graph& source);

}  // namespace fikit::sim
