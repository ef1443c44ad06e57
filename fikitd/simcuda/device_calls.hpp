// What the calls on devices begin with.
#pragma once

#include "driver.hpp"

namespace fikit::sim {

template <typename Body>
CUresult with_device(CUdevice device, Body body) {
    return with_driver([&](Driver& driver, Driver::Lock& lock) -> CUresult {
        if (device < 0 || static_cast<std::size_t>(device) >= driver.devices.size())
            return CUDA_ERROR_INVALID_DEVICE;
        return body(driver, lock, *driver.devices[static_cast<std::size_t>(device)]);
    });
}

// Of every device; 0 for what the simulator does not have. The ids of the bus are the device's own.
int device_attribute(CUdevice_attribute attribute);

}  // namespace fikit::sim
