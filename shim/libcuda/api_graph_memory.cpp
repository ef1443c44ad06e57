// Memory that graphs allocate and free.
#include <new>

#include "capture.hpp"
#include "entry.hpp"
#include "graph_memory.hpp"
#include "ranges.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

// By device and CUgraphMem_attribute: used now and at most, reserved now and at most; bytes.
using Use = uint64_t[CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH + 1];
Use all_use[most_gpus];

void add(const Device& device, CUgraphMem_attribute now, CUgraphMem_attribute most, uint64_t bytes) {
    Use& use = all_use[device.ordinal];
    const uint64_t sum = __atomic_add_fetch(&use[now], bytes, __ATOMIC_RELAXED);
    uint64_t before = load_relaxed(use[most]);
    while (before < sum && !__atomic_compare_exchange_n(&use[most], &before, sum, false, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED)) {
    }
}
void subtract(const Device& device, CUgraphMem_attribute now, uint64_t bytes) {
    __atomic_fetch_sub(&all_use[device.ordinal][now], bytes, __ATOMIC_RELAXED);
}

GraphMemory* find(uint64_t address) {
    Range range;
    return ranges.find(address, range) && range.address == address ? range.graph : nullptr;
}

}  // namespace

GraphMemory* make_graph_memory(Device& device, uint64_t bytes) {
    uint64_t at = 0, charged = 0;
    auto* const memory = new (std::nothrow) GraphMemory();
    if (memory == nullptr || process.open(device) != CUDA_SUCCESS ||
        device.producer->memory_allocate(bytes, at, charged) != status::success) {
        delete memory;
        return nullptr;
    }
    *memory = {&device, at, bytes, 1, 0};
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
    add(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, bytes);
    return memory;
}

// What was launched before may still use it: its place goes after that.
void GraphMemory::release() {
    if (__atomic_sub_fetch(&references, 1u, __ATOMIC_ACQ_REL) != 0) return;
    Range range;
    ranges.take(address, Range::Kind::device, range);
    subtract(*device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, bytes);
    if (!process_is_exiting()) device->producer->memory_free(address);
    delete this;
}

void GraphMemory::allocate() {
    if (__atomic_exchange_n(&in_use, 1u, __ATOMIC_ACQ_REL) != 0) return;
    retain();
    add(*device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, bytes);
}

void GraphMemory::free() {
    if (__atomic_exchange_n(&in_use, 0u, __ATOMIC_ACQ_REL) == 0) return;
    subtract(*device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, bytes);
    release();
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
    node->memory = make_graph_memory(*device, given->bytesize);
    if (node->memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    given->dptr = node->memory->address;
    return CUDA_SUCCESS;
}

CUresult set(Node* node, const CUDA_MEM_FREE_NODE_PARAMS* given) {
    if (node == nullptr || node->freed != 0 || !is_graph_memory(given->dptr)) return CUDA_ERROR_INVALID_VALUE;
    node->freed = given->dptr;
    return CUDA_SUCCESS;
}

CUresult capture_allocation(uint32_t stream, CUdeviceptr* address, size_t bytes) {
    if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    return captures.add(stream, CU_GRAPH_NODE_TYPE_MEM_ALLOC, [&](Node& node) {
        node.memory = make_graph_memory(device_of(stream), bytes);
        if (node.memory == nullptr) return false;
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

// What is reserved belongs to nodes: there is nothing to give back before these go.
CUresult cuDeviceGraphMemTrim(CUdevice device) {
    return process.find_device(device) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
    if (process.find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (value == nullptr || attribute < 0 || attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    *static_cast<cuuint64_t*>(value) = load_relaxed(all_use[device][attribute]);
    return CUDA_SUCCESS;
}

// The most that there was can only be forgotten.
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
    if (process.find_device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (value == nullptr || *static_cast<cuuint64_t*>(value) != 0 ||
        (attribute != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
        return CUDA_ERROR_INVALID_VALUE;
    Use& use = all_use[device];
    const bool used = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
    store_relaxed(
        use[attribute],
        load_relaxed(
            use[used ? CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT : CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT]));
    return CUDA_SUCCESS;
}

}  // namespace fikit::shim
