// What a program hands over to be loaded: PTX text, a cubin, a fat binary, or a wrapper of one.
#pragma once

#include <string>
#include <vector>

#include "cubin.hpp"
#include "cuda_interface.hpp"
#include "fatbin.hpp"

namespace fikit::sim {

struct LoadedImage {
    ptx::Module module;
    bool opaque = false;  // machine code
};

// Copies an image whose length only it itself tells. Empty where it has none, or where the process
// has no such memory.
std::vector<std::byte> copy_image(const void* image);

// What a library is loaded from: an image, or the wrapper that nvcc puts around one.
std::vector<std::byte> copy_wrapped(const void* image);

// Takes it apart. On an error, `log` says what was wrong.
CUresult load_image(Bytes image, LoadedImage& loaded, std::string& log,
                    const fatbin::Wanted& wanted = device_major);

}  // namespace fikit::sim
