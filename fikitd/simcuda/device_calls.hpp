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

// At most one way to wait, and nothing unknown.
inline bool are_context_flags(unsigned flags) {
    const unsigned ways = flags & CU_CTX_SCHED_MASK;
    return (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0 && (ways & (ways - 1)) == 0;
}

// Of every device; 0 for what the simulator does not have. The ids of the bus are the device's own.
int device_attribute(CUdevice_attribute attribute);

}  // namespace fikit::sim
