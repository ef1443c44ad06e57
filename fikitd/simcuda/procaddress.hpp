// What generate_exports.py takes from cuda.h: the table behind cuGetProcAddress, and the errors'
// names.
#pragma once

#include <cstddef>

namespace fikit::sim {

struct EntryPoint {
    const char* name;  // without version
    int version;       // of CUDA that introduced it; 0: not served, any version
    void* plain;       // stream 0 is the legacy default stream
    void* per_thread;  // stream 0 is the thread's own
};

extern const EntryPoint entry_points[];
extern const std::size_t entry_point_count;

struct ErrorName {
    int code;
    const char* name;
};

extern const ErrorName error_names[];
extern const std::size_t error_name_count;

}  // namespace fikit::sim
