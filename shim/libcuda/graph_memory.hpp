// Memory that nodes of graphs allocate. It has its address from the node's beginning and keeps its place as
// long as a node, in a graph, a copy or an instantiated one, may allocate it, or somebody uses it: so a
// launch allocates nothing, and the executor sees only addresses.
#pragma once

#include <cstdint>

#include "graph.hpp"

namespace fikit::shim {

struct GraphMemory {
    Device* device;
    uint64_t address, bytes;
    unsigned references;  // nodes, and one of whoever uses it
    uint32_t in_use;      // a launch has allocated it and nobody has freed it
    bool counted;         // as used: until the host has synchronised after it was freed, as on an H200
    bool instantiated;    // the driver allows one executable at a time

    void retain() { __atomic_fetch_add(&references, 1u, __ATOMIC_RELAXED); }
    void release();
    void allocate();
    void free();
};

// nullptr: no memory.
GraphMemory* make_graph_memory(Device& device, uint64_t bytes);
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
