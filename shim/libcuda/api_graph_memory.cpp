// Memory that graphs allocate and free.
#include <new>

#include "capture.hpp"
#include "graph_memory.hpp"
#include "graph_memory_use.hpp"
#include "ranges.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

// Under the mutex: what of it counts as used, by device, and what does so although it has been freed.
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
GraphMemoryUse all_use[most_gpus];
List<GraphMemory*> unsettled;

GraphMemory* find(uint64_t address) {
    Range range;
    return ranges.find(address, range) && range.address == address ? range.graph : nullptr;
}

// What the node's graph allocates, as much of it, and has freed whenever the node comes; nullptr: nothing.
GraphMemory* find_freed(const Node& node, const Device& device, uint64_t bytes) {
    const uint64_t look = new_id();
    List<Node*> open;
    const auto add = [&](const Node& later) {
        for (Node* const before : later.before) {
            if (before->missing == look) continue;
            before->missing = look;
            if (!open.add(before)) return false;
        }
        return true;
    };
    for (bool whole = add(node); whole && open.size() != 0;) {
        const Node* const earlier = open.take_last();
        GraphMemory* const memory = earlier->freed != 0 ? find(earlier->freed) : nullptr;
        if (memory != nullptr && memory->graph == node.graph->id && memory->device == &device &&
            memory->bytes == bytes) {
            memory->frees = memory->looked_at == look ? memory->frees + 1 : 1;
            memory->looked_at = look;
            if (memory->frees == memory->nodes) return memory;
        }
        whole = add(*earlier);
    }
    return nullptr;
}

// nullptr: no memory.
GraphMemory* make(Device& device, uint64_t bytes) {
    uint64_t at = 0, charged = 0;
    auto* const memory = new (std::nothrow) GraphMemory();
    if (memory == nullptr || process.open(device) != CUDA_SUCCESS ||
        device.producer->memory_allocate(bytes, at, charged) != status::success) {
        delete memory;
        return nullptr;
    }
    memory->device = &device;
    memory->address = at;
    memory->bytes = bytes;
    memory->references = 1;
    const Range range = {.address = at,
                         .bytes = bytes,
                         .device_address = at,
                         .kind = Range::Kind::device,
                         .device = static_cast<uint8_t>(device.ordinal),
                         .graph = memory};
    if (!ranges.add(range)) {
        device.producer->memory_free(at);
        delete memory;
        return nullptr;
    }
    return memory;
}

bool allocate(Node& node, Device& device, uint64_t bytes) {
    node.memory = find_freed(node, device, bytes);
    if (node.memory != nullptr)
        node.memory->retain();
    else
        node.memory = make(device, bytes);
    if (node.memory == nullptr) return false;
    node.memory->graph = node.graph->id;
    ++node.memory->nodes;
    return true;
}

}  // namespace

// What was launched before may still use it: its place goes after that.
void GraphMemory::release() {
    if (__atomic_sub_fetch(&references, 1u, __ATOMIC_ACQ_REL) != 0) return;
    Range range;
    ranges.take(address, Range::Kind::device, range);
    {
        const Locked lock(mutex);
        unsettled.remove(this);
        if (counted) all_use[device->ordinal].free(bytes);
    }
    device->producer->memory_free(address);
    delete this;
}

void GraphMemory::allocate() {
    const Locked lock(mutex);
    if (in_use != 0) return;
    store_release(in_use, 1u);
    retain();
    unsettled.remove(this);
    if (!counted) all_use[device->ordinal].allocate(bytes);
    counted = true;
}

void GraphMemory::free() {
    {
        const Locked lock(mutex);
        if (in_use == 0) return;
        store_release(in_use, 0u);
        unsettled.add(this);  // without memory for it, it counts on
        store_relaxed(graph_memory_was_freed, true);
    }
    release();
}

bool graph_memory_was_freed = false;

void settle_graph_memory(const Device& device) {
    const Locked lock(mutex);
    for (GraphMemory*& memory : unsettled) {
        if (memory->device != &device) continue;
        memory->counted = false;
        all_use[device.ordinal].free(memory->bytes);
        memory = nullptr;
    }
    unsettled.remove(nullptr);
    store_relaxed(graph_memory_was_freed, unsettled.size() != 0);
}

bool is_graph_memory(uint64_t address) { return find(address) != nullptr; }

bool free_graph_memory(uint64_t address) {
    GraphMemory* const memory = find(address);
    if (memory != nullptr) memory->free();
    return memory != nullptr;
}

CUresult set(Node* node, CUDA_MEM_ALLOC_NODE_PARAMS* given) {
    if (node == nullptr || given == nullptr || node->memory != nullptr || given->bytesize == 0 ||
        given->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        given->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        given->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (given->accessDescs == nullptr && given->accessDescCount != 0))
        return CUDA_ERROR_INVALID_VALUE;
    Device* const device = process.find_device(given->poolProps.location.id);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (!node->access.add(given->accessDescs, given->accessDescCount) ||
        !allocate(*node, *device, given->bytesize))
        return CUDA_ERROR_OUT_OF_MEMORY;
    given->dptr = node->memory->address;
    return CUDA_SUCCESS;
}

CUresult set(Node* node, const CUDA_MEM_FREE_NODE_PARAMS* given) {
    if (node == nullptr || node->freed != 0 || !is_graph_memory(given->dptr)) return CUDA_ERROR_INVALID_VALUE;
    node->freed = given->dptr;
    return CUDA_SUCCESS;
}

CUresult capture_allocation(uint32_t stream, Device& device, CUdeviceptr* address, size_t bytes) {
    if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return captures.add(stream, CU_GRAPH_NODE_TYPE_MEM_ALLOC, [&](Node& node) {
        if (!allocate(node, device, bytes)) return false;
        *address = node.memory->address;
        return true;
    });
}

CUresult capture_free(uint32_t stream, CUdeviceptr address) {
    if (!is_graph_memory(address)) return CUDA_ERROR_INVALID_VALUE;
    return captures.add(stream, CU_GRAPH_NODE_TYPE_MEM_FREE, [&](Node& node) {
        node.freed = address;
        return true;
    });
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
    const Node* const node = node_of(handle);
    if (node == nullptr || node->memory == nullptr || parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *parameters = {};
    parameters->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    parameters->poolProps.location.id = node->memory->device->ordinal;
    parameters->accessDescs = node->access.begin();
    parameters->accessDescCount = node->access.size();
    parameters->bytesize = node->memory->bytes;
    parameters->dptr = node->memory->address;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr* address) {
    const Node* const node = node_of(handle);
    if (node == nullptr || node->freed == 0 || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *address = node->freed;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    if (process.find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const Locked lock(mutex);
    all_use[device].trim();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
    if (process.find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const Locked lock(mutex);
    return all_use[device].get(attribute, value);
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
    if (process.find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const Locked lock(mutex);
    return all_use[device].set(attribute, value);
}

}  // namespace fikit::shim
