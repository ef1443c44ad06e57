// Pools of other processes. An imported pool allocates nothing; what is said of an allocation in the other's
// is what is said of memory by cuIpc, and opening it is the same. As on an H200 (driver 580): a pool has one
// handle however often it is imported, an allocation one address, and the first free ends it.
#include <string.h>

#include <new>

#include "entry.hpp"
#include "pool.hpp"
#include "ranges.hpp"
#include "served.hpp"
#include "sharing.hpp"

namespace fikit::shim {

struct PoolImport {
    Pool pool;
    uint32_t times;
    uint32_t session, number;  // of the exporting process, and of the pool there
    uint8_t executor[FIKIT_IDENTITY];
    PoolImport* next;
};

namespace {

// What the descriptor of a pool tells.
struct SharedPool {
    uint32_t magic;
    uint32_t session, number;
    uint32_t reserved;
    uint8_t executor[FIKIT_IDENTITY];
    char gpu[sizeof Gpu::uuid];
};

// What is told of an allocation.
struct SharedAllocation {
    SharedMemory memory;
    uint64_t bytes;
};
static_assert(sizeof(SharedAllocation) <= sizeof(CUmemPoolPtrExportData));

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
PoolImport* all_imports = nullptr;
uint32_t exported = 0;  // so many pools were

bool is_for_files(CUmemAllocationHandleType type, unsigned long long flags) {
    return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && flags == 0;
}

Device* find_gpu(const char (&uuid)[sizeof Gpu::uuid]) {
    for (unsigned i = 0; i < process.device_count(); ++i)
        if (strncmp(process.device(i).gpu.uuid, uuid, sizeof uuid) == 0) return &process.device(i);
    return nullptr;
}

}  // namespace

CUresult cuMemPoolExportToShareableHandle(void* shareable, CUmemoryPool handle,
                                          CUmemAllocationHandleType type, unsigned long long flags) {
    Pool* const pool = pool_of(handle);
    if (shareable == nullptr || pool == nullptr || !pool->shareable || !is_for_files(type, flags))
        return CUDA_ERROR_INVALID_VALUE;
    Device& device = process.device(static_cast<unsigned>(pool->device));
    if (const CUresult result = process.open(device); result != CUDA_SUCCESS) return result;
    fikit_reply_session_identity own{};
    if (const CUresult result = identity(device, own); result != CUDA_SUCCESS) return result;
    {
        const Locked lock(mutex);
        if (pool->number == 0) store_release(pool->number, ++exported);
    }
    SharedPool shared = {shared_pool_magic, own.session, pool->number, 0, {}, {}};
    memcpy(shared.executor, own.executor, sizeof shared.executor);
    memcpy(shared.gpu, device.gpu.uuid, sizeof shared.gpu);
    return publish(&shared, sizeof shared, *static_cast<int*>(shareable));
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* handle, void* system_handle,
                                            CUmemAllocationHandleType type, unsigned long long flags) {
    if (handle == nullptr || !is_for_files(type, flags)) return CUDA_ERROR_INVALID_VALUE;
    SharedPool shared;
    const int descriptor = static_cast<int>(reinterpret_cast<uintptr_t>(system_handle));
    if (const CUresult result = read_published(descriptor, shared_pool_magic, &shared, sizeof shared);
        result != CUDA_SUCCESS)
        return result;
    Device* const device = find_gpu(shared.gpu);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (const CUresult result = process.open(*device); result != CUDA_SUCCESS) return result;
    fikit_reply_session_identity own{};
    if (const CUresult result = identity(*device, own); result != CUDA_SUCCESS) return result;
    if (memcmp(own.executor, shared.executor, sizeof own.executor) != 0) return CUDA_ERROR_INVALID_HANDLE;
    const Locked lock(mutex);
    PoolImport* import = all_imports;
    while (import != nullptr && (import->session != shared.session || import->number != shared.number ||
                                 import->pool.device != device->ordinal))
        import = import->next;
    if (import == nullptr) {
        import = new (std::nothrow) PoolImport{};
        if (import == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
        import->pool.device = device->ordinal;
        import->pool.import = import;
        import->session = shared.session;
        import->number = shared.number;
        memcpy(import->executor, shared.executor, sizeof import->executor);
        import->next = all_imports;
        all_imports = import;
    }
    ++import->times;
    *handle = reinterpret_cast<CUmemoryPool>(&import->pool);
    return CUDA_SUCCESS;
}

CUresult destroy_import(Pool& pool) {
    const Locked lock(mutex);
    if (load_acquire(pool.opened) != 0) return CUDA_ERROR_INVALID_VALUE;
    PoolImport** at = &all_imports;
    while (*at != nullptr && &(*at)->pool != &pool) at = &(*at)->next;
    PoolImport* const import = *at;
    if (import == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (--import->times != 0) return CUDA_SUCCESS;
    *at = import->next;
    wipe(pool.magic);
    delete import;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr address) {
    Range range;
    if (data == nullptr || !ranges.find(address, range) || range.address != address ||
        range.kind != Range::Kind::device || range.pool == nullptr || load_acquire(range.pool->number) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    SharedAllocation shared = {{}, range.bytes};
    if (const CUresult result = export_memory(address, 0, shared.memory); result != CUDA_SUCCESS)
        return result;
    shared.memory.pool = range.pool->number;
    memset(data, 0, sizeof *data);
    memcpy(data->reserved, &shared, sizeof shared);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* address, CUmemoryPool handle, CUmemPoolPtrExportData* data) {
    Pool* const pool = pool_of(handle);
    if (address == nullptr || data == nullptr || pool == nullptr || pool->import == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const PoolImport& import = *pool->import;
    SharedAllocation shared;
    memcpy(&shared, data->reserved, sizeof shared);
    const SharedMemory& memory = shared.memory;
    if (memory.magic != shared_memory_magic || memory.session != import.session ||
        memory.pool != import.number || shared.bytes == 0 ||
        memcmp(memory.executor, import.executor, sizeof memory.executor) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const Locked lock(mutex);
    uint64_t opened = 0;
    Device& device = process.device(static_cast<unsigned>(pool->device));
    const CUresult result = open_memory(memory, shared.bytes, device, false, opened);
    if (result != CUDA_SUCCESS) return result;
    Range range;
    const bool known = ranges.find(opened, range);
    if (known || !ranges.add({.address = opened,
                              .bytes = shared.bytes,
                              .device_address = opened,
                              .kind = Range::Kind::imported,
                              .device = static_cast<uint8_t>(device.ordinal),
                              .pool = pool})) {
        close_memory(opened, false);
        if (!known) return CUDA_ERROR_OUT_OF_MEMORY;
        if (range.address != opened) return CUDA_ERROR_INVALID_VALUE;  // within another one
    } else {
        __atomic_fetch_add(&pool->opened, 1u, __ATOMIC_ACQ_REL);
    }
    *address = opened;
    return CUDA_SUCCESS;
}

CUresult close_imported(const Range& range) {
    const Status status = process.device(range.device).producer->settle();
    __atomic_fetch_sub(&range.pool->opened, 1u, __ATOMIC_ACQ_REL);
    return status == status::success ? close_memory(range.address, false) : result_of(status);
}

CUresult close_imported(const Range& range, uint32_t stream) {
    __atomic_fetch_sub(&range.pool->opened, 1u, __ATOMIC_ACQ_REL);
    return close_memory_behind(stream, range.address, false);
}

}  // namespace fikit::shim
