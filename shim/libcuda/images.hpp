// Module images as programs pass them: an address without a length, or a file. What the headers say is
// believed only as far as it makes sense; the executor validates the copy again.
#pragma once

#include <cstdint>
#include <span>

#include "../producer.hpp"
#include "fatbin_entries.hpp"

namespace fikit::shim {

struct Image {
    const void* data = nullptr;
    uint64_t bytes = 0;
    // What `data` was linked from (nvcc -rdc=true), for a device that it has nothing for: a list of fatbins,
    // ended by nullptr.
    const void* const* unlinked = nullptr;
};

// Of an image in memory nobody knows how much there may be.
inline constexpr uint64_t no_limit = UINT64_MAX;

// The image that a program hands to cuModuleLoadData: PTX text, a cubin or a fatbin. False: none of these.
// What claims to be longer than there is of it ends there.
bool find_image(const void* data, Image& image, uint64_t most = no_limit);

// What cuLibraryLoadData takes: an image, or the wrapper that the compiler puts around one.
bool find_wrapped(const void* data, Image& image, uint64_t most = no_limit);

// What of an image a device is to have, in its parts: a fatbin without the machine code of other major
// versions, which never runs there (CUDA C++ Programming Guide, "Binary Compatibility"), and without what the
// environment leaves out. It is all of an image that is none, or is not read for certain, or has nothing for
// the device: then the driver says why.
class UsefulParts {
  public:
    UsefulParts(const Image& image, const fatbin::Wanted& wanted);
    UsefulParts(const UsefulParts&) = delete;
    UsefulParts& operator=(const UsefulParts&) = delete;
    std::span<const Part> parts() const { return {parts_, count_}; }
    bool any() const { return any_; }  // something is certain to be for the device
    // What the environment makes of an image that has nothing else.
    Status refused() const { return refused_; }
    uint64_t bytes() const;

  private:
    static constexpr unsigned most = 32;
    bool choose(const Image& image, const fatbin::Wanted& wanted);

    uint8_t header_[16] = {};
    Part parts_[most];
    unsigned count_ = 0;
    bool any_ = false;
    Status refused_ = status::success;
};

}  // namespace fikit::shim
