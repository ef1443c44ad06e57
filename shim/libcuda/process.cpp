#include "process.hpp"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "../older_libc.hpp"
#include "entry.hpp"
#include "printed.hpp"
#include "visible.hpp"

namespace fikit::shim {

constinit Process process;

namespace {

void set_uuid(const char* text, uint8_t (&uuid)[16]) {
    unsigned digits = 0;
    for (text += strncmp(text, "GPU-", 4) == 0 ? 4 : 0; *text != '\0' && digits < 2 * sizeof uuid; ++text) {
        if (*text == '-') continue;
        uint8_t value = 0;
        std::from_chars(text, text + 1, value, 16);
        uuid[digits / 2] = static_cast<uint8_t>(digits % 2 == 0 ? value << 4 : uuid[digits / 2] | value);
        ++digits;
    }
}

bool same_kind(const Gpu& one, const Gpu& other) {
    return one.capability == other.capability && strcmp(one.name, other.name) == 0;
}

bool overlap(const fikit_reply_device_attributes& one, const fikit_reply_device_attributes& other) {
    return one.addresses < other.addresses + other.address_bytes &&
           other.addresses < one.addresses + one.address_bytes;
}

}  // namespace

CUresult Process::initialise() {
    const Uncancelled whole;
    // Held while the daemon is asked, by a thread that a child forked meanwhile has not.
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(
        &once, [] { pthread_atfork(nullptr, nullptr, [] { process.mutex_ = PTHREAD_MUTEX_INITIALIZER; }); });
    const Locked lock(mutex_);
    if (count_ != 0) return usable() ? CUDA_SUCCESS : unusable();
    const CUresult result = look();
    if (result != CUDA_SUCCESS) call_log.say("no GPU: error %d", static_cast<int>(result));
    return result;
}

CUresult Process::look() {
    Gpu gpus[most_gpus];
    unsigned there = 0, count = 0, chosen[most_gpus];
    char reason[256];
    if (!list_gpus(gpus, there, reason)) {
        call_log.say("%s", reason);
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    const char* uuids[most_gpus];
    for (unsigned i = 0; i < there; ++i) uuids[i] = gpus[i].uuid;
    if (!known_order(getenv("CUDA_DEVICE_ORDER")) ||
        !VisibleDevices{uuids, there}.choose(getenv("CUDA_VISIBLE_DEVICES"), chosen, count))
        return CUDA_ERROR_INVALID_DEVICE;
    if (count == 0) return CUDA_ERROR_NO_DEVICE;
    CUcontext primaries[most_gpus];
    // Who names a driver has one, whatever the daemon's devices are.
    const bool named = getenv("FIKIT_NVIDIA_DRIVER") != nullptr;
    bool nvidia = true;
    for (unsigned i = 0; i < count; ++i) {
        devices_[i].ordinal = static_cast<int>(i);
        devices_[i].gpu = gpus[chosen[i]];
        uuids[i] = devices_[i].gpu.uuid;
        primaries[i] = reinterpret_cast<CUcontext>(&contexts_[i]);
        nvidia = nvidia && (named || devices_[i].gpu.nvidia_driver);
    }
    // Programs that use the driver API alone do without.
    const CUresult begun = nvidia ? genuine.initialise(uuids, count, primaries) : CUDA_ERROR_NO_DEVICE;
    if (begun == CUDA_ERROR_NOT_INITIALIZED) return begun;
    genuine_ = begun == CUDA_SUCCESS;
    void* const page = mmap(nullptr, FIKIT_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    madvise(page, FIKIT_PAGE, MADV_WIPEONFORK);
    auto* const alive = static_cast<uint32_t*>(page);
    *alive = 1;
    for (unsigned i = 0; i < count; ++i) {
        contexts_[i].name = primaries[i];
        contexts_[i].device = &devices_[i];
        contexts_[i].primary = true;
        contexts_[i].home = &contexts_[i];
        contexts_[i].stream = devices_[i].stream(0);
        contexts_[i].forget_settings();
    }
    atexit([] {
        store_relaxed(process.ended_, true);
        store_release(process.alive_, &nothing);
    });
    const char* const blocking = getenv("CUDA_LAUNCH_BLOCKING");
    launches_block_ = blocking != nullptr && atoi(blocking) != 0;
    Channel::ended = show_failed_assertions;
    store_release(count_, count);
    store_release(alive_, static_cast<const uint32_t*>(alive));
    return CUDA_SUCCESS;
}

CUresult Process::open(Device& device) {
    if (load_acquire(device.producer) != nullptr) return result_of(device.producer->channel().usable());
    if (!usable()) return unusable();
    const Uncancelled whole;
    const Locked lock(mutex_);
    if (device.producer != nullptr) return CUDA_SUCCESS;
    const CUresult result = attach(device);
    if (result != CUDA_SUCCESS)
        call_log.say("no session on GPU %llu: error %d", static_cast<unsigned long long>(device.gpu.index),
                     static_cast<int>(result));
    return result;
}

CUresult Process::attach(Device& device) {
    NewSession opened;
    char reason[256];
    if (!open_session(device.gpu.index, opened, reason)) {
        call_log.say("%s", reason);
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    Producer* producer = nullptr;
    fikit_reply_device_attributes attributes = {};
    Status status = Producer::attach(opened.outbox, opened.inbox, opened.lifeline, producer);
    if (status == status::success) {
        const fikit_request_device_attributes request = {};
        Reply reply = {&attributes, sizeof attributes, 0};
        status = producer->call(fikit_call_device_attributes, {&request, sizeof request}, reply);
    }
    for (unsigned i = 0; i < count_ && status == status::success; ++i)
        if (devices_[i].producer != nullptr && overlap(devices_[i].attributes, attributes)) {
            call_log.say("GPU %llu has the addresses of GPU %llu",
                         static_cast<unsigned long long>(device.gpu.index),
                         static_cast<unsigned long long>(devices_[i].gpu.index));
            status = status::operating_system;
        }
    if (status != status::success) {
        delete producer;
        close(opened.connection);
        return result_of(status);
    }
    keep_away(attributes.addresses, attributes.address_bytes);
    device.attributes = attributes;
    device.memory_limit = opened.memory_limit;
    store_release(device.described, true);
    producers_[device.ordinal] = producer;
    store_release(device.producer, producer);
    if (first_opened_ == nullptr) store_release(first_opened_, &device);
    return CUDA_SUCCESS;
}

// GPUs of one kind differ in where they are and what they are called, so that to ask for the attributes of
// all, as the runtime does, starts nothing on those that the program does not use.
CUresult Process::describe(Device& device) {
    if (load_acquire(device.described)) return CUDA_SUCCESS;
    {
        const Locked lock(mutex_);
        for (unsigned i = 0; i < count_ && !device.described; ++i) {
            const Device& like = devices_[i];
            if (like.producer == nullptr || !same_kind(like.gpu, device.gpu)) continue;
            device.attributes = like.attributes;
            set_uuid(device.gpu.uuid, device.attributes.uuid);
            unsigned domain = 0, bus = 0, slot = 0;
            scan(device.gpu.pci, "%x:%x:%x", &domain, &bus, &slot);
            device.attributes.attribute[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID] = static_cast<int>(domain);
            device.attributes.attribute[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] = static_cast<int>(bus);
            device.attributes.attribute[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID] = static_cast<int>(slot);
            device.memory_limit = device.gpu.memory_bytes;
            store_release(device.described, true);
        }
    }
    return device.described ? CUDA_SUCCESS : open(device);
}

bool Process::keep_away(uint64_t address, uint64_t bytes) {
    if (bytes == 0) return true;
    void* const wished = reinterpret_cast<void*>(address);
    // Asked of the kernel itself: ThreadSanitizer's mmap would make another address of one that it knows
    // nothing of, and ends the program if that is 0, which root may have.
    constexpr int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    void* const kept = reinterpret_cast<void*>(syscall(SYS_mmap, wished, bytes, PROT_NONE, kind, -1, 0));
    if (kept == wished) {
        madvise(kept, bytes, MADV_DONTDUMP);
        return true;
    }
    const bool taken = kept != MAP_FAILED || errno == EEXIST;  // else a limit (RLIMIT_AS)
    const char* const why = taken ? "something of this process is there" : strerror(errno);
    if (kept != MAP_FAILED) munmap(kept, bytes);
    call_log.say("device addresses %#llx, %llu bytes: %s", static_cast<unsigned long long>(address),
                 static_cast<unsigned long long>(bytes), why);
    return false;
}

void Process::give_way(uint64_t address, uint64_t bytes) {
    if (bytes != 0) munmap(reinterpret_cast<void*>(address), bytes);
}

uint64_t Device::memory_bytes() const {
    return memory_limit != 0 && memory_limit < attributes.memory_bytes ? memory_limit
                                                                       : attributes.memory_bytes;
}

// --- contexts ---

Context* Process::find(CUcontext handle) {
    if (handle == nullptr) return nullptr;
    for (Context& context : contexts_)
        if (load_acquire(context.handle) == handle) return &context;
    return nullptr;
}

Context* Process::find_any(CUcontext name) {
    if (name == nullptr) return nullptr;
    for (Context& context : contexts_)
        if (load_acquire(context.name) == name) return &context;
    return nullptr;
}

Context* Process::create(Device& device, unsigned flags, const Multiprocessors* part) {
    const Locked lock(contexts_mutex_);
    for (unsigned tried = 1; tried <= most_contexts; ++tried) {
        Context& context = contexts_[most_gpus + (latest_context_ + tried) % most_contexts];
        if (context.handle != nullptr) continue;
        latest_context_ = (latest_context_ + tried) % most_contexts;
        store_relaxed(made_contexts_, true);
        context.device = &device;
        context.forget_settings();
        context.flags = flags;
        context.references = 1;
        context.primary = false;
        context.home = part != nullptr ? &device.primary() : &context;
        context.part = part != nullptr ? *part : Multiprocessors{};
        context.stream = device.stream(0);
        context.name = reinterpret_cast<CUcontext>(&context);
        store_release(context.handle, context.name);
        return &context;
    }
    return nullptr;
}

bool Process::is_divided(const Device& device) {
    const auto divides = [&](const Context& context) {
        return load_acquire(context.handle) != nullptr && context.green() && context.device == &device;
    };
    return made_contexts() && std::any_of(std::begin(contexts_), std::end(contexts_), divides);
}

void Process::destroy(Context& context) { store_release(context.handle, CUcontext{nullptr}); }

}  // namespace fikit::shim
