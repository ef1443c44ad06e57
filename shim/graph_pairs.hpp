// Which node of an instantiated graph becomes which of the graph that it is updated by. For whoever answers
// in the driver's place.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <utility>

namespace fikit {

// Where a graph is not what an instantiated one may become: a node, and what that depends on; null where none
// is told.
template <class Node>
struct Difference {
    CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    Node* node = nullptr;
    Node* from = nullptr;
};

// What nothing depends on, the latest first. No node has a partner then.
template <class Nodes, class Edges, class Use>
void each_sink(const Nodes& nodes, Edges before, const Use& use) {
    for (const auto& node : nodes) node->partner = nullptr;
    for (const auto& node : nodes)
        for (const auto& edge : (*node).*before) edge.node->partner = edge.node;  // a mark
    for (std::size_t i = nodes.size(); i-- > 0;)
        if (std::exchange(nodes[i]->partner, nullptr) == nullptr) use(*nodes[i]);
}

// Makes the nodes of two graphs each other's partners where they match, in the way of an H100's driver
// (580.159): from what nothing depends on against the edges, in the order in which these were added, breadth
// first. `check` says what else keeps a node from becoming its partner. `queue` has room for all of `nodes`.
template <class Node, class Nodes, class Edges, class Check>
Difference<Node> pair_nodes(const Nodes& nodes, const Nodes& given, Edges Node::* before, Node** queue,
                            const Check& check) {
    constexpr CUgraphExecUpdateResult other = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (nodes.size() != given.size()) return {other};
    std::size_t paired = 0, sinks = 0;
    Node* surplus = nullptr;
    const auto pair = [](Node& node, Node& partner) {
        node.partner = &partner;
        partner.partner = &node;
    };
    each_sink(nodes, before, [&](Node& node) { queue[paired++] = &node; });
    each_sink(given, before, [&](Node& node) {
        if (sinks < paired) pair(*queue[sinks], node);
        if (sinks++ == paired) surplus = &node;
    });
    if (sinks != paired) return {other, surplus};
    for (std::size_t next = 0; next < paired; ++next) {
        Node& node = *queue[next];
        Node& partner = *node.partner;
        const Edges& wanted = node.*before;
        const Edges& found = partner.*before;
        if (wanted.size() != found.size()) return {other, &partner};
        const Difference<Node> difference = check(node, partner);
        if (difference.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return difference;
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            Node& one = *wanted[i].node;
            Node& two = *found[i].node;
            if (one.partner == nullptr && two.partner == nullptr) {
                pair(one, two);
                queue[paired++] = &one;
            } else if (one.partner != &two) {
                return {other, &partner, &two};
            }
        }
    }
    return {};  // all have partners: what is instantiated has no circles
}

// Were partners made in the same order? Where one node's child graph is given, an H100's driver wants that.
template <class Nodes>
bool in_same_order(const Nodes& nodes, const Nodes& given) {
    bool same = true;
    for (std::size_t i = 0; i < nodes.size(); ++i) same = same && nodes[i]->partner == &*given[i];
    return same;
}

}  // namespace fikit
