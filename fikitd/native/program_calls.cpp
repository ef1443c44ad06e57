#include "program_calls.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core.hpp"

namespace fikit {
namespace {

bool whole_granules(uint64_t address, uint64_t size) {
    return size != 0 && address % Arena::granule == 0 && size % Arena::granule == 0;
}

// Whether the session has reserved these addresses together.
bool is_reserved(const Session& session, uint64_t address, uint64_t size) {
    auto reserved = session.reserved.upper_bound(address);
    if (reserved == session.reserved.begin()) return false;
    --reserved;
    const uint64_t into = address - reserved->first;
    return into < reserved->second && size <= reserved->second - into;
}

}  // namespace

ProgramCalls::ProgramCalls(Core& core, Session& session, const std::span<const uint8_t>& extra,
                           uint8_t* reply, uint32_t& bytes)
    : core_(core), driver_(core.driver_), session_(session), extra_(extra), reply_(reply), bytes_(bytes) {}

// Any synchronising call makes the driver write out what kernels have printed; nothing runs on the default
// stream, and none of the others waits for it.
CUresult ProgramCalls::printed(const fikit_request_printed& request, fikit_reply_printed& reply) {
    const CUresult result = driver_.cuStreamSynchronize_(nullptr);
    if (result != CUDA_SUCCESS) return result;
    std::fflush(stdout);
    if (session_.author == nullptr) session_.author = core_.printed_.author(request.bytes == 0);
    const size_t room = std::min<size_t>(request.bytes, FIKIT_MAX_REPLY_BYTES - sizeof reply);
    reply.bytes = static_cast<uint32_t>(core_.printed_.take(reply_ + sizeof reply, room));
    bytes_ += reply.bytes;
    return CUDA_SUCCESS;
}

CUresult ProgramCalls::tensor_map(const fikit_request_tensor_map& request, fikit_reply_tensor_map& reply) {
    // What the driver's types cannot hold never becomes one of them.
    if (request.type > CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B ||
        request.interleave > CU_TENSOR_MAP_INTERLEAVE_32B ||
        request.swizzle > CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B ||
        request.promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
        request.fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
        return CUDA_ERROR_INVALID_VALUE;
    CUtensorMap map{};
    static_assert(sizeof map.opaque == sizeof request.map);
    auto* const address = reinterpret_cast<void*>(request.address);
    const auto type = static_cast<CUtensorMapDataType>(request.type);
    const auto interleave = static_cast<CUtensorMapInterleave>(request.interleave);
    const auto swizzle = static_cast<CUtensorMapSwizzle>(request.swizzle);
    const auto promotion = static_cast<CUtensorMapL2promotion>(request.promotion);
    const auto fill = static_cast<CUtensorMapFloatOOBfill>(request.fill);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (request.kind == FIKIT_TENSOR_REPLACE) {
        std::memcpy(map.opaque, request.map, sizeof map.opaque);
        result = driver_.cuTensorMapReplaceAddress_(&map, address);
    } else if (request.rank == 0 || request.rank > FIKIT_TENSOR_RANK) {
        return result;
    } else if (request.kind == FIKIT_TENSOR_TILED) {
        result =
            driver_.cuTensorMapEncodeTiled_(&map, type, request.rank, address, request.sizes, request.strides,
                                            request.box, request.steps, interleave, swizzle, promotion, fill);
    } else if (request.kind == FIKIT_TENSOR_IM2COL && request.rank > 2) {
        result = driver_.cuTensorMapEncodeIm2col_(
            &map, type, request.rank, address, request.sizes, request.strides, request.lower, request.upper,
            request.channels, request.pixels, request.steps, interleave, swizzle, promotion, fill);
    }
    if (result == CUDA_SUCCESS) std::memcpy(reply.map, map.opaque, sizeof reply.map);
    return result;
}

// The other sessions' kernels may need what they have asked for, so a limit of the context grows only. What
// it takes is memory of who asked, and of the tenant as long as the executor lives: nothing discharges it
// when the session ends. `each`: bytes of memory for one of the limit's.
CUresult ProgramCalls::grow(CUlimit limit, uint64_t wanted, uint64_t each, uint64_t& bytes) {
    const std::lock_guard lock(core_.memory_mutex_);
    size_t now = 0;
    CUresult result = driver_.cuCtxGetLimit_(&now, limit);
    if (result == CUDA_SUCCESS && now < wanted) {
        const uint64_t more = (wanted - now) * each;
        result = core_.within_limits(session_, more, true,
                                     [&](uint64_t most) { return session_.arena->charge(more, most); });
        if (result != CUDA_SUCCESS) return result;
        result = driver_.cuCtxSetLimit_(limit, wanted);
        if (result == CUDA_SUCCESS) now = wanted;
        if (result != CUDA_SUCCESS) session_.arena->discharge(more);
        core_.account_memory(session_);
    }
    bytes = now;
    return result;
}

// The device keeps a stack for each thread that it can hold.
CUresult ProgramCalls::stack_grow(const fikit_request_stack_grow& request, fikit_reply_stack_grow& reply) {
    constexpr uint64_t most = 512 << 10, threads_per_multiprocessor = 2048;
    if (request.bytes > most) return CUDA_ERROR_INVALID_VALUE;
    return grow(CU_LIMIT_STACK_SIZE, request.bytes, threads_per_multiprocessor * core_.multiprocessors_,
                reply.bytes);
}

// The driver refuses once a kernel has taken from it; natively that would be one of another program's.
CUresult ProgramCalls::heap_grow(const fikit_request_heap_grow& request, fikit_reply_heap_grow& reply) {
    if (request.bytes > arena_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = grow(CU_LIMIT_MALLOC_HEAP_SIZE, request.bytes, 1, reply.bytes);
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}

// --- code ---

CUresult ProgramCalls::module_functions(const fikit_request_module_functions& request,
                                        fikit_reply_module_functions& reply) {
    const CUmodule module = session_.module_of(request.module);
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    unsigned count = 0;
    CUresult result = driver_.cuModuleGetFunctionCount_(&count, module);
    if (result != CUDA_SUCCESS) return result;
    std::vector<CUfunction> functions(count);
    if (count > 0) result = driver_.cuModuleEnumerateFunctions_(functions.data(), count, module);
    if (result != CUDA_SUCCESS) return result;
    uint8_t* at = reply_ + sizeof reply;
    const uint8_t* const end = reply_ + FIKIT_MAX_REPLY_BYTES;
    for (size_t i = request.first; i < count; ++i) {
        const char* name = nullptr;
        result = driver_.cuFuncGetName_(&name, functions[i]);
        if (result != CUDA_SUCCESS) return result;
        const size_t length = std::strlen(name) + 1;
        if (length > static_cast<size_t>(end - at)) break;
        std::memcpy(at, name, length);
        at += length;
    }
    reply.functions = count;
    reply.name_bytes = static_cast<uint32_t>(at - reply_ - static_cast<ptrdiff_t>(sizeof reply));
    bytes_ += reply.name_bytes;
    return CUDA_SUCCESS;
}

CUresult ProgramCalls::function_shared(const fikit_request_function_shared& request,
                                       fikit_reply_function_shared& reply) {
    const CUfunction function = function_of(request.function);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (request.blocks == 0 || request.blocks > INT32_MAX || request.block_threads == 0 ||
        request.block_threads > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    size_t bytes = 0;
    const CUresult result = driver_.cuOccupancyAvailableDynamicSMemPerBlock_(
        &bytes, function, static_cast<int>(request.blocks), static_cast<int>(request.block_threads));
    reply.bytes = bytes;
    return result;
}

CUresult ProgramCalls::function_clusters(const fikit_request_function_clusters& request,
                                         fikit_reply_function_clusters& reply) {
    const CUfunction function = function_of(request.function);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = request.cluster[0];
    attribute.value.clusterDim.y = request.cluster[1];
    attribute.value.clusterDim.z = request.cluster[2];
    CUlaunchConfig config{};
    config.gridDimX = request.grid[0];
    config.gridDimY = request.grid[1];
    config.gridDimZ = request.grid[2];
    config.blockDimX = request.block[0];
    config.blockDimY = request.block[1];
    config.blockDimZ = request.block[2];
    config.sharedMemBytes = request.shared_bytes;
    config.attrs = &attribute;
    config.numAttrs = request.cluster[0] != 0 ? 1 : 0;
    return request.question == FIKIT_CLUSTERS_ACTIVE
               ? driver_.cuOccupancyMaxActiveClusters_(&reply.value, function, &config)
               : driver_.cuOccupancyMaxPotentialClusterSize_(&reply.value, function, &config);
}

// --- memory and addresses that the program joins itself ---

CUresult ProgramCalls::memory_reserve(const fikit_request_memory_reserve& request,
                                      fikit_reply_memory_reserve& reply) {
    if (!whole_granules(0, request.size) || (request.alignment & (request.alignment - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (session_.reserved.size() >= core_.settings_.most_reserved) return CUDA_ERROR_OUT_OF_MEMORY;
    CUdeviceptr address = 0;
    const CUresult result = driver_.cuMemAddressReserve_(&address, request.size, request.alignment,
                                                         core_.own_place(request.size, request.wished), 0);
    if (result != CUDA_SUCCESS) return result;
    session_.reserved[address] = request.size;
    reply.address = address;
    return CUDA_SUCCESS;
}

CUresult ProgramCalls::memory_unreserve(const fikit_request_memory_unreserve& request,
                                        fikit_reply_memory_unreserve&) {
    auto reserved = session_.reserved.find(request.address);
    if (reserved == session_.reserved.end() || reserved->second != request.size)
        return CUDA_ERROR_INVALID_VALUE;
    const auto mapping = session_.mappings.lower_bound(request.address);
    if (mapping != session_.mappings.end() && mapping->first < request.address + request.size)
        return CUDA_ERROR_INVALID_VALUE;
    session_.reserved.erase(reserved);
    return driver_.cuMemAddressFree_(request.address, request.size);
}

CUresult ProgramCalls::memory_create(const fikit_request_memory_create& request, fikit_reply_memory_create&) {
    if (request.handle == 0 || request.handle >= FIKIT_MAX_MEMORIES ||
        session_.memories.contains(request.handle) || !whole_granules(0, request.size))
        return CUDA_ERROR_INVALID_VALUE;
    OwnMemory memory;
    memory.size = request.size;
    const std::lock_guard lock(core_.memory_mutex_);
    const CUresult result = core_.within_limits(session_, request.size, true, [&](uint64_t limit) {
        return session_.arena->create(request.size, limit, memory.handle);
    });
    if (result == CUDA_SUCCESS) session_.memories[request.handle] = memory;
    return result;
}

CUresult ProgramCalls::memory_release(const fikit_request_memory_release& request,
                                      fikit_reply_memory_release&) {
    auto memory = session_.memories.find(request.handle);
    if (memory == session_.memories.end()) return CUDA_ERROR_INVALID_VALUE;
    memory->second.released = true;
    destroy_unused(memory);
    return CUDA_SUCCESS;
}

void ProgramCalls::destroy_unused(std::unordered_map<uint32_t, OwnMemory>::iterator memory) {
    if (!memory->second.released || memory->second.mappings != 0) return;
    const std::lock_guard lock(core_.memory_mutex_);
    forget_memory(session_, memory->second);
    session_.memories.erase(memory);
    core_.account_memory(session_);
}

CUresult ProgramCalls::session_identity(const fikit_request_session_identity&,
                                        fikit_reply_session_identity& reply) {
    std::copy(core_.identity_.begin(), core_.identity_.end(), reply.executor);
    reply.session = session_.serial;
    return CUDA_SUCCESS;
}

CUresult ProgramCalls::memory_export(const fikit_request_memory_export& request,
                                     fikit_reply_memory_export& reply) {
    const std::lock_guard lock(core_.memory_mutex_);
    std::erase_if(core_.shared_extents_, [](const auto& entry) { return entry.second.expired(); });
    const uint32_t number = core_.shares_ + 1;
    std::shared_ptr<SharedExtent> shared;
    if (request.address != 0) {
        shared = session_.arena->share(request.address, number, reply.offset);
    } else if (const auto memory = session_.memories.find(request.handle);
               memory != session_.memories.end()) {
        OwnMemory& own = memory->second;
        if (own.shared == nullptr)
            own.shared = std::make_shared<SharedExtent>(driver_, own.handle, own.size, number);
        shared = own.shared;
    }
    if (shared == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (shared->number == number) core_.shared_extents_[++core_.shares_] = shared;
    std::copy(core_.identity_.begin(), core_.identity_.end(), reply.executor);
    reply.session = session_.serial;
    reply.number = shared->number;
    reply.size = shared->size;
    return CUDA_SUCCESS;
}

CUresult ProgramCalls::memory_import(const fikit_request_memory_import& request,
                                     fikit_reply_memory_import& reply) {
    if (request.handle == 0 || request.handle >= FIKIT_MAX_MEMORIES ||
        session_.memories.contains(request.handle))
        return CUDA_ERROR_INVALID_VALUE;
    if (!std::equal(core_.identity_.begin(), core_.identity_.end(), request.executor))
        return CUDA_ERROR_INVALID_HANDLE;  // of another trust domain, or of an executor that is no more
    const std::lock_guard lock(core_.memory_mutex_);
    const auto entry = core_.shared_extents_.find(request.number);
    OwnMemory memory;
    if (entry != core_.shared_extents_.end()) memory.shared = entry->second.lock();
    if (memory.shared == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    memory.handle = memory.shared->handle;
    reply.size = memory.size = memory.shared->size;
    const CUresult result = core_.within_limits(session_, memory.size, true, [&](uint64_t limit) {
        return session_.arena->charge(memory.size, limit);
    });
    if (result == CUDA_SUCCESS) session_.memories[request.handle] = memory;
    return result;
}

CUresult ProgramCalls::memory_map(const fikit_request_memory_map& request, fikit_reply_memory_map&) {
    auto memory = session_.memories.find(request.handle);
    if (memory == session_.memories.end() || !whole_granules(request.address, request.size) ||
        request.offset % Arena::granule != 0 || request.offset > memory->second.size ||
        request.size > memory->second.size - request.offset)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_reserved(session_, request.address, request.size)) return CUDA_ERROR_INVALID_VALUE;
    if (std::max(session_.buffers.size(), session_.mappings.size()) >= core_.settings_.most_buffers)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result =
        driver_.cuMemMap_(request.address, request.size, request.offset, memory->second.handle, 0);
    if (result != CUDA_SUCCESS) return result;
    ++memory->second.mappings;
    session_.mappings[request.address] = {request.size, request.handle};
    return CUDA_SUCCESS;
}

CUresult ProgramCalls::memory_unmap(const fikit_request_memory_unmap& request, fikit_reply_memory_unmap&) {
    if (request.size == 0 || request.size > UINT64_MAX - request.address) return CUDA_ERROR_INVALID_VALUE;
    const uint64_t end = request.address + request.size;
    // Mappings go whole. What else is in the range holds nothing, and need not be reserved (as driver 580).
    auto mapping = session_.mappings.lower_bound(request.address);
    const bool before = mapping != session_.mappings.begin() &&
                        std::prev(mapping)->first + std::prev(mapping)->second.size > request.address;
    uint64_t last = request.address;
    for (auto each = mapping; each != session_.mappings.end() && each->first < end; ++each)
        last = each->first + each->second.size;
    if (before || last > end || !is_reserved(session_, request.address, 1)) return CUDA_ERROR_INVALID_VALUE;
    for (; mapping != session_.mappings.end() && mapping->first < end;
         mapping = session_.mappings.erase(mapping)) {
        const CUresult result = driver_.cuMemUnmap_(mapping->first, mapping->second.size);
        if (result != CUDA_SUCCESS) return result;
        session_.buffers.erase(mapping->first);
        auto memory = session_.memories.find(mapping->second.memory);
        --memory->second.mappings;
        destroy_unused(memory);
    }
    return CUDA_SUCCESS;
}

CUresult ProgramCalls::memory_access(const fikit_request_memory_access& request, fikit_reply_memory_access&) {
    if (request.size == 0 || !is_reserved(session_, request.address, request.size))
        return CUDA_ERROR_INVALID_VALUE;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = core_.device_;
    access.flags = static_cast<CUmemAccess_flags>(request.flags);
    const CUresult result = driver_.cuMemSetAccess_(request.address, request.size, &access, 1);
    if (result != CUDA_SUCCESS) return result;
    // What the driver lets nobody reach, or nobody write to, is a fault of all sessions' that anyone does.
    const uint64_t end = request.address + request.size;
    for (auto mapping = session_.mappings.lower_bound(request.address);
         mapping != session_.mappings.end() && mapping->first < end; ++mapping)
        if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
            access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            session_.buffers[mapping->first] = {mapping->second.size, Buffer::no_module,
                                                access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        else
            session_.buffers.erase(mapping->first);
    return CUDA_SUCCESS;
}

std::vector<std::pair<std::string, uint64_t>> Session::notes() const {
    std::vector<std::pair<std::string, uint64_t>> found;
    const auto* note = reinterpret_cast<const fikit_note*>(outbox.data() + FIKIT_NOTES_OFFSET);
    for (unsigned i = 0; i < FIKIT_NOTES; ++i) {
        fikit_note copy;
        std::memcpy(&copy, note + i, sizeof copy);
        const size_t length = strnlen(copy.name, sizeof copy.name);
        const bool named =
            length > 0 && length < sizeof copy.name &&
            std::all_of(
                copy.name, copy.name + length,
                [](char character) {
                    return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '_';
                });
        if (!named) break;
        // No more than that even the sum of many sessions' is a number that messages can have.
        if (copy.count > 0) found.emplace_back(copy.name, std::min<uint64_t>(copy.count, uint64_t{1} << 40));
    }
    return found;
}

// The driver keeps what is still mapped.
void forget_memory(Session& session, const OwnMemory& memory) {
    if (memory.shared != nullptr)
        session.arena->discharge(memory.size);
    else
        session.arena->destroy(memory.size, memory.handle);
}

void release_mappings(const Driver& driver, Session& session) {
    for (const auto& [address, mapping] : session.mappings) driver.cuMemUnmap_(address, mapping.size);
    session.mappings.clear();
    for (const auto& [handle, memory] : session.memories) forget_memory(session, memory);
    session.memories.clear();
    for (const auto& [address, size] : session.reserved) driver.cuMemAddressFree_(address, size);
    session.reserved.clear();
}

}  // namespace fikit
