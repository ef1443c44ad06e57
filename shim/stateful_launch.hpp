// What the calls of CUDA 2 say of a function's next launch (cuFuncSetBlockShape, cuParamSet*, cuLaunchGrid):
// PyCUDA still makes some of them. For whoever answers in the driver's place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fikit {

struct StatefulLaunch {
    static constexpr std::size_t most = 4096;
    unsigned block[3] = {1, 1, 1};
    unsigned shared = 0;
    std::size_t bytes = 0;
    std::uint8_t parameters[most] = {};

    bool set_block(int x, int y, int z) {
        if (x <= 0 || y <= 0 || z <= 0 || x > 1024 || y > 1024 || z > 64 || x * y > 1024 || x * y * z > 1024)
            return false;
        block[0] = static_cast<unsigned>(x);
        block[1] = static_cast<unsigned>(y);
        block[2] = static_cast<unsigned>(z);
        return true;
    }
    bool set_size(unsigned size) {
        if (size > most) return false;
        bytes = size;
        return true;
    }
    bool set(int offset, const void* data, unsigned size) {
        if (data == nullptr || offset < 0 || size > most || static_cast<std::size_t>(offset) > most - size)
            return false;
        std::memcpy(parameters + offset, data, size);
        return true;
    }
};

}  // namespace fikit
