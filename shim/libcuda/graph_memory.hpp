// Memory that nodes of graphs allocate. It has its address from the node's beginning and keeps its place as
// long as a node, in a graph, a copy or an instantiated one, may allocate it, or somebody uses it: so a
// launch allocates nothing, and the executor sees only addresses. What a graph frees, in all orders of its
// nodes, before one of them allocates as much has the same place, as an H200's.
#pragma once

#include <cstdint>

#include "graph.hpp"

namespace fikit::shim {

struct GraphMemory {
    Device* device;
    uint64_t address, bytes;
    unsigned references;  // nodes, and one of whoever uses it
    uint64_t graph;       // whose nodes allocate it, by its id,
    unsigned nodes;       // how many do,
    unsigned frees;       // and free it before one that is looked at:
    uint64_t looked_at;   // by whom
    uint32_t in_use;      // a launch has allocated it and nobody has freed it
    bool counted;         // as used: until the host has synchronised after it was freed, as on an H200
    bool instantiated;    // the driver allows one executable at a time

    void retain() { __atomic_fetch_add(&references, 1u, __ATOMIC_RELAXED); }
    void release();
    void allocate();
    void free();
};

bool is_graph_memory(uint64_t address);
// The host has synchronised with the device: what is free no longer counts as used.
extern bool graph_memory_was_freed;
void settle_graph_memory(const Device& device);
// False where the address is of no such memory.
bool free_graph_memory(uint64_t address);

CUresult set(Node* node, CUDA_MEM_ALLOC_NODE_PARAMS* given);
CUresult set(Node* node, const CUDA_MEM_FREE_NODE_PARAMS* given);
CUresult capture_allocation(uint32_t stream, Device& device, CUdeviceptr* address, size_t bytes);
CUresult capture_free(uint32_t stream, CUdeviceptr address);

}  // namespace fikit::shim
