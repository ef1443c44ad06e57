// Memory that processes share: exported allocations and pools as file descriptors, and handles of
// ordinary allocations and of pools' allocations, which name the memory in 64 bytes.
//
// A handle of an ordinary allocation says where the memfd of the device's pages is open (/proc/PID/fd/N),
// so it works between processes of one user, while the exporter lives. What is opened is checked to be
// such a memfd before it is mapped.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "pool.hpp"

using namespace fikit::sim;

namespace {

// What a 64-byte handle holds.
struct Named {
    std::uint64_t magic;
    std::int32_t process;
    std::int32_t descriptor;
    std::uint64_t offset, bytes;
    std::uint64_t pool;  // the number of its memfd; 0: none
};
constexpr std::uint64_t ipc_magic = 0x666b746970633031;
constexpr std::uint64_t pool_magic = 0x666b74706f6f6c31;
static_assert(sizeof(Named) <= CU_IPC_HANDLE_SIZE && sizeof(Named) <= sizeof(CUmemPoolPtrExportData));

// An allocation of another process, mapped here. Opened again it has the same address, and as many closes to
// go.
struct Import {
    std::size_t bytes = 0;
    std::byte* view = nullptr;
    Named name{};
    unsigned opened = 1;
};
std::map<CUdeviceptr, Import>& imports() {
    static auto* all = new std::map<CUdeviceptr, Import>;
    return *all;
}

// Where in the pages an allocation lies; false where they are not in one piece.
bool locate(Driver& driver, const PhysicalMemory& physical, const Block& block, std::uint64_t& offset) {
    const std::byte* first = driver.space.at(block.address, 1, false);
    if (first == nullptr) return false;
    for (std::size_t at = 0; at < block.bytes; at += model::page) {
        if (driver.space.at(block.address + at, 1, false) != first + at) return false;
    }
    offset = static_cast<std::uint64_t>(first - physical.view(0));
    return true;
}

// Gives foreign pages an address here; 0 where there is none. `view` is where the host sees them.
std::uint64_t map_import(Driver& driver, std::byte* view, std::size_t bytes, int device,
                         MemoryPool* pool = nullptr) {
    Block block;
    block.kind = Block::Kind::imported;
    block.address = reserve_addresses(bytes, model::page, 0);
    if (block.address == 0) return 0;
    driver.space.map({block.address, bytes, view, Access::read_write, device});
    block.bytes = bytes;
    block.device = device;
    block.id = driver.next_id++;
    block.pool = pool;
    driver.blocks[block.address] = block;
    return block.address;
}

int open_pages(const Named& name) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", name.process, name.descriptor);
    const int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return -1;
    struct stat status{};
    char target[64] = {};
    const bool is_ours = readlink(path, target, sizeof target - 1) > 0 &&
                         std::strstr(target, "memfd:fikit-sim-device") != nullptr;
    const bool inside = fstat(descriptor, &status) == 0 &&
                        name.offset <= static_cast<std::uint64_t>(status.st_size) &&
                        name.bytes <= static_cast<std::uint64_t>(status.st_size) - name.offset;
    if (is_ours && inside && name.bytes > 0) return descriptor;
    close(descriptor);
    return -1;
}

CUresult open_ipc(Driver& driver, Context& context, const Named& name, CUdeviceptr* address) {
    if (name.magic != ipc_magic) return CUDA_ERROR_INVALID_HANDLE;
    // The exporter has an address for it already.
    if (name.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
    for (auto& [start, import] : imports()) {
        if (std::memcmp(&import.name, &name, sizeof name) != 0) continue;
        ++import.opened;
        *address = start;
        return CUDA_SUCCESS;
    }
    const int descriptor = open_pages(name);
    if (descriptor < 0) return CUDA_ERROR_INVALID_HANDLE;
    // A mapping begins at a page of the host; an allocation, at 512 bytes.
    const std::uint64_t lead = name.offset % 4096;
    void* view = mmap(nullptr, name.bytes + lead, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      descriptor, static_cast<off_t>(name.offset - lead));
    close(descriptor);
    if (view == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    Import import;
    import.bytes = name.bytes;
    import.view = static_cast<std::byte*>(view) + lead;
    import.name = name;
    *address = map_import(driver, import.view, import.bytes, context.device);
    if (*address == 0) {
        munmap(view, name.bytes + lead);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    imports()[*address] = import;
    return CUDA_SUCCESS;
}

CUresult close_import(Driver& driver, CUdeviceptr address) {
    const auto found = imports().find(address);
    if (found == imports().end()) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.opened > 0) return CUDA_SUCCESS;
    const Import import = found->second;
    imports().erase(found);
    driver.blocks.erase(address);
    driver.space.unmap(address, 1);
    free_addresses(address, import.bytes);
    const std::uint64_t lead = reinterpret_cast<std::uint64_t>(import.view) % 4096;
    munmap(import.view - lead, import.bytes + lead);
    return CUDA_SUCCESS;
}

CUresult export_descriptor(int descriptor, void* out) {
    const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int*>(out) = own;
    return CUDA_SUCCESS;
}

// What a descriptor is of: an allocation, or a pool.
CUresult import_descriptor(void* handle, bool pool, std::unique_ptr<SharedMemory>& shared) {
    shared = SharedMemory::open(static_cast<int>(reinterpret_cast<std::intptr_t>(handle)));
    if (!shared) return CUDA_ERROR_UNKNOWN;
    return shared->description().pool == pool ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

bool has_device(const Driver& driver, const CUmemLocation& location) {
    return location.id >= 0 && static_cast<std::size_t>(location.id) < driver.devices.size();
}

}  // namespace

extern "C" {

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
    return with_memory([&](Driver& driver) -> CUresult {
        const PhysicalAllocation* allocation = driver.allocation_of(handle);
        if (out == nullptr || allocation == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
        if (!allocation->shared) return CUDA_ERROR_INVALID_VALUE;
        return export_descriptor(allocation->shared->descriptor(), out);
    });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* descriptor,
                                        CUmemAllocationHandleType type) {
    return with_memory([&](Driver& driver) -> CUresult {
        if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
        std::unique_ptr<SharedMemory> shared;
        if (const CUresult result = import_descriptor(descriptor, false, shared); result != CUDA_SUCCESS)
            return result;
        if (shared->description().bytes % model::page != 0) return CUDA_ERROR_INVALID_VALUE;
        const CUmemLocation& location = shared->description().properties.location;
        if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && !has_device(driver, location))
            return CUDA_ERROR_INVALID_DEVICE;
        auto allocation = std::make_shared<PhysicalAllocation>();
        allocation->properties = shared->description().properties;
        allocation->bytes = shared->description().bytes;
        allocation->imported = true;
        allocation->shared = std::move(shared);
        *handle = driver.allocations.add(std::move(allocation));
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolExportToShareableHandle(void* out, CUmemoryPool handle, CUmemAllocationHandleType type,
                                          unsigned long long flags) {
    return with_memory([&](Driver& driver) -> CUresult {
        MemoryPool* pool = driver.pools.find(handle);
        if (out == nullptr || pool == nullptr || flags != 0 || !pool->pages ||
            type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        pool->exported = true;
        return export_descriptor(pool->pages->descriptor(), out);
    });
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* handle, void* descriptor,
                                            CUmemAllocationHandleType type, unsigned long long flags) {
    return with_memory([&](Driver& driver) -> CUresult {
        if (handle == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
            return CUDA_ERROR_INVALID_VALUE;
        std::unique_ptr<SharedMemory> shared;
        if (const CUresult result = import_descriptor(descriptor, true, shared); result != CUDA_SUCCESS)
            return result;
        const CUmemAllocationProp& properties = shared->description().properties;
        if (!has_device(driver, properties.location)) return CUDA_ERROR_INVALID_DEVICE;
        MemoryPool* known = nullptr;
        driver.pools.each([&](MemoryPool& pool) {
            if (pool.imported && pool.imported->number() == shared->number()) known = &pool;
        });
        if (known == nullptr) {
            auto pool = std::make_shared<MemoryPool>();
            pool->properties.allocType = properties.type;
            pool->properties.handleTypes = properties.requestedHandleTypes;
            pool->properties.location = properties.location;
            pool->imported = std::move(shared);
            known = pool.get();
            driver.pools.add(std::move(pool));
        }
        ++known->imports;
        *handle = known->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* out, CUdeviceptr address) {
    return with_memory([&](Driver& driver) -> CUresult {
        const Block* block = driver.block_of(address);
        if (out == nullptr || block == nullptr || block->address != address || block->pool == nullptr ||
            !block->pool->exported)
            return CUDA_ERROR_INVALID_VALUE;
        const PhysicalMemory& pages = *block->pool->pages;
        Named name{pool_magic, getpid(), -1, 0, block->bytes, file_number(pages.descriptor())};
        if (!locate(driver, pages, *block, name.offset)) return CUDA_ERROR_NOT_SUPPORTED;
        *out = {};
        std::memcpy(out, &name, sizeof name);
        return CUDA_SUCCESS;
    });
}

CUresult cuMemPoolImportPointer(CUdeviceptr* address, CUmemoryPool handle, CUmemPoolPtrExportData* data) {
    return with_memory([&](Driver& driver) -> CUresult {
        MemoryPool* pool = driver.pools.find(handle);
        if (address == nullptr || pool == nullptr || data == nullptr || !pool->imported)
            return CUDA_ERROR_INVALID_VALUE;
        Named name;
        std::memcpy(&name, data, sizeof name);
        const std::uint64_t total = pool->imported->description().bytes;
        if (name.magic != pool_magic || name.pool != pool->imported->number() || name.bytes == 0 ||
            name.offset > total || name.bytes > total - name.offset)
            return CUDA_ERROR_INVALID_VALUE;
        std::byte* const view = pool->imported->data() + name.offset;
        // Imported again it has the same address, and the first free ends it.
        for (const auto& [start, block] : driver.blocks) {
            if (block.pool != pool || driver.space.at(start, 1, false) != view) continue;
            *address = start;
            return CUDA_SUCCESS;
        }
        *address = map_import(driver, view, name.bytes, pool->properties.location.id, pool);
        return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    });
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
    return with_context([&](Driver& driver, Driver::Lock&, Context&, SimulatedDevice& device) -> CUresult {
        const Block* block = driver.block_of(address);
        if (handle == nullptr || block == nullptr || block->kind != Block::Kind::device)
            return CUDA_ERROR_INVALID_VALUE;
        Named name{ipc_magic, getpid(), device.physical.descriptor(), 0, block->bytes, 0};
        if (!locate(driver, device.physical, *block, name.offset)) return CUDA_ERROR_NOT_SUPPORTED;
        *handle = {};
        std::memcpy(handle, &name, sizeof name);
        return CUDA_SUCCESS;
    });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
    return with_context([&](Driver& driver, Driver::Lock&, Context& context, SimulatedDevice&) -> CUresult {
        if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
            return CUDA_ERROR_INVALID_VALUE;
        Named name;
        std::memcpy(&name, &handle, sizeof name);
        return open_ipc(driver, context, name, address);
    });
}
CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
    return cuIpcOpenMemHandle_v2(address, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    return with_context(
        [&](Driver& driver, Driver::Lock& lock, Context& context, SimulatedDevice&) -> CUresult {
            if (!imports().contains(address)) return CUDA_ERROR_INVALID_VALUE;
            if (const CUresult result = driver.synchronize(lock, context); result != CUDA_SUCCESS)
                return result;
            return close_import(driver, address);
        });
}

}  // extern "C"
