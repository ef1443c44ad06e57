// What generate_exports.py makes: the table behind cuGetProcAddress, and the errors' names and texts.
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

struct ErrorText {
    int code;
    const char *name, *text;
};

extern const ErrorText error_texts[];
extern const std::size_t error_text_count;

}  // namespace fikit::sim
