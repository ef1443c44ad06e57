// Code that a session loads: a library, which the driver compiles while everybody else goes on, and the
// module by which it is on the GPU.
//
// cuModuleLoadData does both in one, and keeps every thread of the process from launching until the JIT is
// done: 2.3 s for 20,000 instructions of PTX, where launches beside cuLibraryLoadData of as many took 0.2 ms
// at most (measured on the H200).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <span>

#include "jit.hpp"

namespace fikit {

struct SessionModule {
    CUlibrary library = nullptr;
    CUmodule module = nullptr;
    uint64_t hash = 0;
    uint64_t variable_bytes = 0;              // charged
    std::shared_ptr<void> counted = nullptr;  // its image, of which the driver has a copy
};

// More than any GPU has: of variables whose size cannot be told, too.
constexpr uint64_t too_many_bytes = uint64_t{1} << 46;

// What is compiled, and not on the GPU yet. The driver may write its logs until it is.
struct Compiled {
    explicit Compiled(std::span<const uint8_t> options) : jit(options) {}

    Jit jit;
    SessionModule module;
    uint64_t variable_bytes = 0;  // to be charged, at most too_many_bytes
};

}  // namespace fikit
