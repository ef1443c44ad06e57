// Names that are not answered here: each a jump through `targets`.
#pragma once

namespace fikit::nvml {

struct Forward {
    const char* name;
    bool withheld;  // not passed on either
};
extern const Forward forwards[];
extern const unsigned forward_count;
extern void** const targets;  // by index; set before anybody calls (library.cpp)

}  // namespace fikit::nvml
