// See event.hpp.
#include "event.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace fikit::sim {

namespace {

// What a handle holds: where the memory is open, as handles of allocations say (api_share.cpp).
struct Named {
    std::uint64_t magic;
    std::int32_t process, descriptor;
};
constexpr std::uint64_t event_magic = 0x666b746576656e74;
static_assert(sizeof(Named) <= CU_IPC_HANDLE_SIZE);

constexpr std::size_t mark_bytes = 4096;

}  // namespace

SharedEvent::SharedEvent(AddressSpace& space, std::unique_ptr<SharedMemory> memory, std::uint64_t address)
    : space_(space), memory_(std::move(memory)), address_(address) {}

SharedEvent::~SharedEvent() {
    space_.unmap(address_, 1);
    free_addresses(address_, mark_bytes);
}

std::shared_ptr<SharedEvent> SharedEvent::map(AddressSpace& space, std::unique_ptr<SharedMemory> memory) {
    if (!memory || memory->description().bytes != mark_bytes) return nullptr;
    const std::uint64_t address = reserve_addresses(mark_bytes, mark_bytes, 0);
    if (address == 0) return nullptr;
    space.map({address, mark_bytes, memory->data(), Access::read_write});
    return std::shared_ptr<SharedEvent>(new SharedEvent(space, std::move(memory), address));
}

std::shared_ptr<SharedEvent> SharedEvent::create(AddressSpace& space) {
    return map(space, SharedMemory::create({{}, mark_bytes, false}));
}

CUresult SharedEvent::open(AddressSpace& space, const CUipcEventHandle& handle,
                           std::shared_ptr<SharedEvent>& event) {
    Named name;
    std::memcpy(&name, &handle, sizeof name);
    if (name.magic != event_magic) return CUDA_ERROR_INVALID_HANDLE;
    if (name.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", name.process, name.descriptor);
    const int descriptor = ::open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return CUDA_ERROR_INVALID_HANDLE;
    auto memory = SharedMemory::open(descriptor);
    close(descriptor);
    event = map(space, std::move(memory));
    return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUipcEventHandle SharedEvent::handle() const {
    CUipcEventHandle handle{};
    const Named name{event_magic, getpid(), memory_->descriptor()};
    std::memcpy(&handle, &name, sizeof name);
    return handle;
}

void SharedEvent::reach(std::uint64_t record) {
    std::atomic<std::uint64_t>& latest = counters().reached;
    std::uint64_t before = latest.load();
    while (before < record && !latest.compare_exchange_weak(before, record)) continue;
}

std::uint64_t SharedEvent::address_of_reached() const { return address_ + offsetof(Counters, reached); }

DeviceWork record_work(Event& event) {
    if (!event.shared) return Marker{event.timing()};
    event.number = event.shared->record();
    return Decision{[shared = event.shared, number = event.number](const OperationPtr&, Nanoseconds) {
        shared->reach(number);
        return true;
    }};
}

OperationPtr new_record(Event& event) {
    event.record = std::make_shared<Operation>();
    event.record->work = record_work(event);
    return event.record;
}

OperationPtr record_of(Driver& driver, Event& event) {
    if (!event.shared) return event.record;
    const std::uint64_t latest = event.shared->recorded();
    if (latest == event.number) return event.record;
    if (event.shared->reached(latest)) return nullptr;
    event.number = latest;
    event.record = std::make_shared<Operation>();
    event.record->work =
        WaitValue{event.shared->address_of_reached(), latest, true, CU_STREAM_WAIT_VALUE_GEQ, event.shared};
    driver.submit(event.context->legacy, event.record, {}, 0);
    driver.wake();
    return event.record;
}

}  // namespace fikit::sim
