// One lock over all streams; taken only when something is recorded, held or waited for. Otherwise an
// operation happens at once, which keeps the null driver's own instructions few and constant.
#include "null_streams.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace fikit::null_driver {
namespace {

std::mutex mutex;
std::atomic<bool> careful{false};  // recording, a hook, something held or queued
std::vector<Stream*> listed;       // held, or with a queue
std::deque<Event> all_events;      // for ever: work in a queue may name one that was destroyed
std::vector<Call> calls;
bool recording = false;
std::function<void()> on_launch;
std::atomic<bool> hooked{false};

uint64_t load(uint64_t address) {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(address), __ATOMIC_ACQUIRE);
}

// False: it cannot happen yet.
bool perform(const Stream& stream, const Item& item) {
    switch (item.kind) {
        case Item::work:
            return !stream.held;
        case Item::write:
            __atomic_store_n(reinterpret_cast<uint64_t*>(item.subject), item.value, __ATOMIC_RELEASE);
            return true;
        case Item::wait_value:
            return load(item.subject) >= item.value;
        case Item::wait_equal:
            return load(item.subject) == item.value;
        case Item::record_event:
            __atomic_store_n(&item.event->done, std::max(item.event->done, item.value), __ATOMIC_RELEASE);
            return true;
        case Item::wait_event:
            return __atomic_load_n(&item.event->done, __ATOMIC_ACQUIRE) >= item.value;
    }
    return true;
}

void advance() {
    for (bool progress = true; progress;) {
        progress = false;
        for (Stream* stream : listed)
            while (!stream->queue.empty() && perform(*stream, stream->queue.front())) {
                stream->queue.pop_front();
                progress = true;
            }
    }
    std::erase_if(listed, [](Stream* stream) {
        stream->listed = stream->held || !stream->queue.empty();
        return !stream->listed;
    });
    careful = recording || !listed.empty();
}

void list(Stream& stream) {
    if (!stream.listed) listed.push_back(&stream);
    stream.listed = true;
    careful = true;
}

}  // namespace

CUresult submit(CUstream handle, Item item) {
    auto& stream = *reinterpret_cast<Stream*>(handle);
    if (item.kind == Item::work && hooked.load(std::memory_order_acquire) &&
        (item.function == Function::cuLaunchKernel_ || item.function == Function::cuLaunchKernelEx_))
        on_launch();
    if (item.kind == Item::record_event)
        item.value = __atomic_add_fetch(&item.event->recorded, 1, __ATOMIC_RELAXED);
    if (item.kind == Item::wait_event) item.value = __atomic_load_n(&item.event->recorded, __ATOMIC_RELAXED);
    if (!careful.load(std::memory_order_acquire) && perform(stream, item)) return CUDA_SUCCESS;
    const std::lock_guard lock(mutex);
    if (recording) calls.push_back({item.function, handle, item.subject, item.value});
    stream.queue.push_back(item);
    list(stream);
    advance();
    return CUDA_SUCCESS;
}

CUresult query(CUstream handle) {
    if (!careful.load(std::memory_order_acquire)) return CUDA_SUCCESS;
    const std::lock_guard lock(mutex);
    advance();
    const bool idle = reinterpret_cast<Stream*>(handle)->queue.empty();
    return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult query(CUevent handle) {
    if (careful.load(std::memory_order_acquire)) {
        const std::lock_guard lock(mutex);
        advance();
    }
    const Event& event = *event_of(handle);
    const bool done =
        __atomic_load_n(&event.done, __ATOMIC_ACQUIRE) >= __atomic_load_n(&event.recorded, __ATOMIC_RELAXED);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

Event* event_of(CUevent event) { return reinterpret_cast<Event*>(event); }

void forget(CUstream handle) {
    const std::lock_guard lock(mutex);
    auto* stream = reinterpret_cast<Stream*>(handle);
    std::erase(listed, stream);
    delete stream;
}

CUevent new_event() {
    const std::lock_guard lock(mutex);
    return reinterpret_cast<CUevent>(&all_events.emplace_back());
}

void record(bool on) {
    const std::lock_guard lock(mutex);
    recording = on;
    careful = recording || !listed.empty();
}

std::vector<Call> take_calls() {
    const std::lock_guard lock(mutex);
    return std::exchange(calls, {});
}

void hold(CUstream handle) {
    const std::lock_guard lock(mutex);
    auto& stream = *reinterpret_cast<Stream*>(handle);
    stream.held = true;
    list(stream);
}

void release(CUstream handle) {
    const std::lock_guard lock(mutex);
    reinterpret_cast<Stream*>(handle)->held = false;
    advance();
}

void set_on_launch(std::function<void()> action) {
    hooked = false;
    on_launch = std::move(action);
    hooked = on_launch != nullptr;
}

}  // namespace fikit::null_driver
