// The library's state: initialised or not, the GPUs, the genuine library where it knows them.
#pragma once

#include <pthread.h>

#include "../channel.hpp"
#include "devices.hpp"
#include "interface.hpp"
#include "locked.hpp"

namespace fikit::nvml {

class Library {
  public:
    nvmlReturn_t initialise(unsigned flags);
    nvmlReturn_t shut_down();
    // The genuine library's function; nullptr where there is none for these GPUs.
    void* genuine(const char* name);

    // Calls `use` with all GPUs as they were when the library was initialised.
    template <class Use>
    nvmlReturn_t with_devices(const Use& use) {
        const Uncancelled whole;
        const Locked lock(mutex_);
        return uses_ != 0 ? use(devices_) : NVML_ERROR_UNINITIALIZED;
    }
    // Calls `use` with the GPU of the handle, as it was then, or as the daemon says that it is now.
    template <class Use>
    nvmlReturn_t with_device(nvmlDevice_t handle, const Use& use) {
        return with_devices([&](Devices& devices) {
            Device* const device = find(devices, handle);
            return device != nullptr ? use(*device) : NVML_ERROR_INVALID_ARGUMENT;
        });
    }
    template <class Use>
    nvmlReturn_t with_device_now(nvmlDevice_t handle, const Use& use) {
        return with_devices([&](Devices& devices) {
            Device* const device = find(devices, handle);
            if (device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
            return refresh(*device) ? use(*device) : NVML_ERROR_DRIVER_NOT_LOADED;
        });
    }
    // The program's handle of a GPU. With the mutex held.
    nvmlReturn_t handle_of(const Device& device, nvmlDevice_t& handle) const;
    unsigned index_of(const Device& device) const { return static_cast<unsigned>(&device - devices_.device); }

  private:
    bool load(unsigned flags);
    void aim();
    Device* find(Devices& devices, nvmlDevice_t handle);
    bool refresh(Device& device);

    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    unsigned uses_ = 0;
    bool looked_ = false;
    void* file_ = nullptr;  // the genuine library
    bool genuine_ = false;  // and it knows the GPUs
    Devices devices_ = {};
    // The genuine library's handles where it knows the GPUs. Asked for once: it answers no forked child.
    nvmlDevice_t handles_[most_devices] = {};
};

extern Library library;

}  // namespace fikit::nvml
