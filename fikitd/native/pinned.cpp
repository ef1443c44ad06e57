// Memory of the host's that the GPU reaches: pinned for a tenant, or a tenant's own that it registers. And
// the addresses that are the same in the tenant's process.
#include <sys/auxv.h>

#include <cstring>

#include "core.hpp"
#include "program_calls.hpp"

namespace fikit {
namespace {

// Whether what a tenant wants to have mapped there is in nobody's way, if nothing is there now: around null
// nothing must be, and the stack of this program's first thread may grow.
bool is_out_of_the_way(uint64_t address, uint64_t size) {
#if defined(__SANITIZE_THREAD__)
    constexpr uint64_t first = uint64_t{0x7f} << 40;  // its shadow memory lies below
#else
    constexpr uint64_t first = 1 << 16;
#endif
    constexpr uint64_t end = uint64_t{1} << 47, stack = uint64_t{1} << 30;
    if (address % FIKIT_PAGE != 0 || address < first || address >= end || size > end - address) return false;
    const uint64_t above = getauxval(AT_RANDOM);  // at the top of that stack
    return address + size <= above - stack || address >= above + stack;
}

}  // namespace

CUresult Core::may_pin(const Session& session, uint32_t handle, uint64_t size) const {
    if (handle == 0 || handle >= FIKIT_MAX_HOST_BUFFERS || session.host_buffers.contains(handle) || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    const uint64_t limit = settings_.host_limit_bytes;
    return size <= limit && session.host_bytes <= limit - size ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

std::shared_ptr<void> Core::count_host(uint64_t bytes) {
    const std::lock_guard lock(host_mutex_);
    if (!host_ledger_.reserve(bytes, settings_.host_tenant_bytes, true)) return nullptr;
    return {this, [bytes](Core* core) { core->host_ledger_.give_back(bytes); }};
}

CUresult Core::pin(Session& session, uint32_t handle, SharedMemory memory, uint64_t& device_address) {
    const uint64_t size = memory.size();
    std::shared_ptr<void> counted = count_host(size);
    if (counted == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    memory.count(std::move(counted));
    PinnedBuffer buffer{.memory = std::move(memory), .registered = true};
    const CUresult result = driver_.cuMemHostRegister_(
        buffer.memory.data(), size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result != CUDA_SUCCESS) return result;
    driver_.cuMemHostGetDevicePointer_(&buffer.device, buffer.memory.data(), 0);
    device_address = buffer.device;
    session.host_bytes += size;
    if (buffer.device != 0) session.buffers[buffer.device] = {size, Buffer::pinned};
    session.host_buffers.emplace(handle, std::move(buffer));
    return CUDA_SUCCESS;
}

PinnedBuffer Core::unpin(Session& session, uint32_t handle) const {
    const auto found = session.host_buffers.find(handle);
    if (found == session.host_buffers.end()) return {};
    PinnedBuffer buffer = std::move(found->second);
    session.buffers.erase(buffer.device);
    session.host_buffers.erase(found);
    return buffer;
}

CUresult ProgramCalls::host_register(const fikit_request_host_register& request,
                                     fikit_reply_host_register& reply) {
    const TenantDescriptor file = std::exchange(session_.offered, {});
    if (const CUresult result = core_.may_pin(session_, request.handle, request.size); result != CUDA_SUCCESS)
        return result;
    const uint64_t size = (request.size + FIKIT_PAGE - 1) / FIKIT_PAGE * FIKIT_PAGE;
    const auto pin_at = [&](uint64_t place) {
        SharedMemory memory;
        if (!file || !memory.open(file.get(), request.offset, size, place)) return CUDA_ERROR_INVALID_VALUE;
        return core_.pin(session_, request.handle, std::move(memory), reply.device_address);
    };
    // The driver may have something against an address, too.
    if (is_out_of_the_way(request.own, size) && pin_at(request.own) == CUDA_SUCCESS) return CUDA_SUCCESS;
    return pin_at(core_.pinned_place(size));
}

// Pinned memory is to lie at the same address in the tenant's process.
uint64_t Core::pinned_place(uint64_t size) {
#if defined(__SANITIZE_THREAD__)
    // Its shadow memory leaves no such addresses to programs.
    (void)size;
    return 0;
#else
    const std::lock_guard lock(memory_mutex_);
    // Those of several executors that one program uses should differ.
    const uint64_t first = first_pinned + uint64_t(getpid() % 256) * (uint64_t{1} << 34);
    return take_place(pinned_at_, size, first, last_pinned);
#endif
}

// For what a program maps itself: each GPU has addresses of its own (session.hpp).
uint64_t Core::own_place(uint64_t size, uint64_t wished) {
#if defined(__SANITIZE_THREAD__)
    (void)size;
    return wished;
#else
    const std::lock_guard lock(memory_mutex_);
    const uint64_t first = first_mapped + settings_.gpu % address_regions * mapped_region_bytes;
    const uint64_t end = first + mapped_region_bytes;
    // What is larger goes where the arenas of the last GPUs lie, which few programs use at the same time.
    if (size > end - first) return lowest_arena;
    if (wished >= first && wished < end && size <= end - wished) return wished;
    return take_place(own_at_, size, first, end);
#endif
}

}  // namespace fikit
