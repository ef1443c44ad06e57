// The NVIDIA driver's own library of a name that we bear too.
#pragma once

namespace fikit::shim {

// Opened, or nullptr where there is none. `mark`: a symbol that only stand-ins of ours export.
void* find_library(const char* name, const char* mark);

}  // namespace fikit::shim
