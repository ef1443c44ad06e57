// Variables of modules: where they are, and the memory of those that are managed.
#pragma once

#include "images.hpp"
#include "managed_image.hpp"
#include "objects.hpp"

namespace fikit::shim {

// The managed variables of a module, in memory of the program's, and the image that names this memory.
struct PlacedVariables {
    ManagedVariables variables;
    Bytes image;

    ~PlacedVariables();
};

// nullptr: the image has none, or they cannot be placed; then it is loaded as it is.
PlacedVariables* place_variables(Device& device, const Image& image);

// What they are at first, once the module is loaded.
CUresult fill_variables(Module& module);

CUresult find_variable(Module* module, const char* name, CUdeviceptr* address, size_t* bytes);
// A managed one; nullptr: it is none.
const ManagedVariable* find_managed_variable(const Module& module, const char* name);

}  // namespace fikit::shim
