#include "library.hpp"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "forward.hpp"
#include "search.hpp"

namespace fikit::nvml {

constinit Library library;

namespace {

nvmlReturn_t not_initialised() { return NVML_ERROR_UNINITIALIZED; }
nvmlReturn_t not_supported() { return NVML_ERROR_NOT_SUPPORTED; }

void* address_of(nvmlReturn_t (*function)()) { return reinterpret_cast<void*>(function); }

void aim_at(unsigned index, void* target) { __atomic_store_n(targets + index, target, __ATOMIC_RELEASE); }

[[gnu::constructor]] void aim_at_nothing() {
    for (unsigned i = 0; i < forward_count; ++i) aim_at(i, address_of(not_initialised));
}

}  // namespace

// With the genuine library's nvmlInit, which has to know the first of the GPUs: the daemon may serve others.
bool Library::load(unsigned flags) {
    if (!looked_) file_ = shim::find_library("libnvidia-ml.so.1", "fikit_nvml");
    looked_ = true;
    if (file_ == nullptr || devices_.count == 0) return false;
    using Begin = nvmlReturn_t (*)(unsigned);
    auto* const begin = reinterpret_cast<Begin>(dlsym(file_, "nvmlInitWithFlags"));
    if (begin == nullptr || begin(flags) != NVML_SUCCESS) return false;
    using Ask = nvmlReturn_t (*)(const char*, nvmlDevice_t*);
    auto* const ask = reinterpret_cast<Ask>(dlsym(file_, "nvmlDeviceGetHandleByUUID"));
    for (unsigned i = 0; ask != nullptr && i < devices_.count; ++i)
        if (ask(devices_.device[i].uuid, &handles_[i]) != NVML_SUCCESS) handles_[i] = nullptr;
    if (ask != nullptr && handles_[0] != nullptr) return true;
    if (void* const end = dlsym(file_, "nvmlShutdown"); end != nullptr)
        reinterpret_cast<nvmlReturn_t (*)()>(end)();
    return false;
}

void Library::aim() {
    for (unsigned i = 0; i < forward_count; ++i) {
        void* const target = forwards[i].withheld ? nullptr : genuine(forwards[i].name);
        aim_at(i, target != nullptr ? target : address_of(not_supported));
    }
}

nvmlReturn_t Library::initialise(unsigned flags) {
    // Held while the daemon is asked, by a thread that a child forked meanwhile has not.
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(
        &once, [] { pthread_atfork(nullptr, nullptr, [] { library.mutex_ = PTHREAD_MUTEX_INITIALIZER; }); });
    const Uncancelled whole;
    const Locked lock(mutex_);
    if (uses_ == 0) {
        if (!ask_daemon(devices_)) return NVML_ERROR_DRIVER_NOT_LOADED;
        genuine_ = load(flags);
        for (unsigned i = 0; !genuine_ && i < devices_.count; ++i)
            handles_[i] = reinterpret_cast<nvmlDevice_t>(&devices_.device[i]);
        aim();
    }
    ++uses_;
    return NVML_SUCCESS;
}

nvmlReturn_t Library::shut_down() {
    const Uncancelled whole;
    const Locked lock(mutex_);
    if (uses_ == 0) return NVML_ERROR_UNINITIALIZED;
    if (--uses_ != 0) return NVML_SUCCESS;
    aim_at_nothing();
    if (void* const end = genuine("nvmlShutdown"); end != nullptr)
        reinterpret_cast<nvmlReturn_t (*)()>(end)();
    genuine_ = false;
    return NVML_SUCCESS;
}

void* Library::genuine(const char* name) { return genuine_ ? dlsym(file_, name) : nullptr; }

nvmlReturn_t Library::handle_of(const Device& device, nvmlDevice_t& handle) const {
    handle = handles_[index_of(device)];
    return handle != nullptr ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

Device* Library::find(Devices& devices, nvmlDevice_t wanted) {
    if (wanted == nullptr) return nullptr;
    for (unsigned i = 0; i < devices.count; ++i)
        if (handles_[i] == wanted) return &devices.device[i];
    return nullptr;
}

// The GPU as it is now.
bool Library::refresh(Device& device) {
    auto* const now = static_cast<Devices*>(malloc(sizeof(Devices)));
    bool found = now != nullptr && ask_daemon(*now);
    if (found) {
        unsigned at = 0;
        while (at < now->count && strcmp(now->device[at].uuid, device.uuid) != 0) ++at;
        found = at < now->count;
        if (found) device = now->device[at];
    }
    free(now);
    return found;
}

}  // namespace fikit::nvml
