#include "process.hpp"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string_view>

#include "entry.hpp"
#include "handshake.hpp"

namespace fikit::shim {

constinit Process process;

namespace {

uint32_t exiting = 0;

// CUDA_VISIBLE_DEVICES, as far as one GPU per process goes: its first entry, an index or the beginning of a
// UUID. Empty: any. False: no GPU is to be seen (CUDA C++ Programming Guide, "Environment Variables").
bool wished_gpu(std::string_view& gpu) {
    const char* text = getenv("CUDA_VISIBLE_DEVICES");
    gpu = {};
    if (text == nullptr) return true;
    gpu = std::string_view(text, strcspn(text, ","));
    const bool uuid = gpu.substr(0, 4) == "GPU-";
    const size_t length = gpu.size() - (uuid ? 4 : 0);
    return length != 0 && length <= (uuid ? 36 : 3) &&
           gpu.find_first_not_of(uuid ? "0123456789abcdef-" : "0123456789", uuid ? 4 : 0) == gpu.npos;
}

}  // namespace

bool process_is_exiting() { return load_relaxed(exiting) != 0; }

CUresult Process::initialise() {
    const Locked lock(mutex_);
    if (producer_ != nullptr)
        return producer_->channel().forked() ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
    const CUresult result = open();
    if (result != CUDA_SUCCESS) call_log.say("no session: error %d", static_cast<int>(result));
    return result;
}

CUresult Process::open() {
    std::string_view gpu;
    if (!wished_gpu(gpu)) return CUDA_ERROR_NO_DEVICE;
    Opened opened;
    char reason[256];
    if (!open_session(gpu, opened, reason)) {
        call_log.say("%s", reason);
        return opened.no_such_gpu ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_SYSTEM_NOT_READY;
    }
    Producer* producer = nullptr;
    Status status = Producer::attach(opened.outbox, opened.inbox, opened.lifeline, producer);
    if (status == status::success) {
        const fikit_request_device_attributes request = {};
        Reply reply = {&device_, sizeof device_, 0};
        status = producer->call(fikit_call_device_attributes, {&request, sizeof request}, reply);
    }
    CUresult result = result_of(status);
    CUcontext primary = reinterpret_cast<CUcontext>(&contexts_[0]);
    if (result == CUDA_SUCCESS && opened.nvidia_driver) {
        result = genuine.initialise(device_.uuid, primary);
        // Programs that use the driver API alone do without.
        genuine_ = result == CUDA_SUCCESS;
        result = CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS) {
        delete producer;
        close(opened.connection);
        return result;
    }
    contexts_[0] = {.handle = primary, .flags = 0, .references = 0, .primary = true, .cache = {}};
    keep_away(device_.addresses, device_.address_bytes);
    memory_limit_ = opened.memory_limit;
    driver_version_ = genuine_ ? genuine.driver_version() : device_.driver_version;
    atexit([] { store_relaxed(exiting, 1u); });
    store_release(producer_, producer);
    return CUDA_SUCCESS;
}

bool Process::keep_away(uint64_t address, uint64_t bytes) {
    if (bytes == 0) return true;
    void* const wished = reinterpret_cast<void*>(address);
    void* const kept = mmap(wished, bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (kept == wished) {
        madvise(kept, bytes, MADV_DONTDUMP);
        return true;
    }
    if (kept != MAP_FAILED) munmap(kept, bytes);
    call_log.say("device addresses %#llx, %llu bytes: something of this process is there",
                 static_cast<unsigned long long>(address), static_cast<unsigned long long>(bytes));
    return false;
}

void Process::give_way(uint64_t address, uint64_t bytes) {
    if (bytes != 0) munmap(reinterpret_cast<void*>(address), bytes);
}

uint64_t Process::memory_bytes() const {
    return memory_limit_ != 0 && memory_limit_ < device_.memory_bytes ? memory_limit_ : device_.memory_bytes;
}

// --- contexts ---

Context* Process::find(CUcontext handle) {
    if (handle == nullptr) return nullptr;
    for (Context& context : contexts_)
        if (load_acquire(context.handle) == handle) return &context;
    return nullptr;
}

Context* Process::create(unsigned flags) {
    const Locked lock(contexts_mutex_);
    for (unsigned tried = 1; tried < most_contexts; ++tried) {
        Context& context = contexts_[1 + (latest_context_ + tried - 1) % (most_contexts - 1)];
        if (context.handle != nullptr) continue;
        latest_context_ = static_cast<unsigned>(&context - contexts_);
        context.flags = flags;
        context.references = 1;
        context.primary = false;
        context.cache = {};
        store_release(context.handle, reinterpret_cast<CUcontext>(&context));
        return &context;
    }
    return nullptr;
}

void Process::destroy(Context& context) { store_release(context.handle, CUcontext{nullptr}); }

}  // namespace fikit::shim
