// The entries of a fatbin as they were before they were packed.
#pragma once

#include "fatbin_entries.hpp"
#include "images.hpp"
#include "managed_image.hpp"

namespace fikit::shim {

// A fatbin's entry with its content as it was before it was packed.
class Unpacked {
  public:
    // False: damaged, or there is no library for it.
    bool open(const fatbin::Entry& entry, const uint8_t* content) {
        data_ = content;
        bytes_ = entry.bytes;
        if (!entry.packed()) return true;
        const fatbin::Packed packed(reinterpret_cast<const std::byte*>(content), entry.bytes);
        bytes_ = fatbin::expanded_size(entry, packed);
        own_.grow(bytes_);
        data_ = own_.data();
        return bytes_ != 0 && !own_.failed() &&
               fatbin::expand(entry, packed, {reinterpret_cast<std::byte*>(own_.data()), bytes_});
    }
    const uint8_t* data() const { return data_; }
    uint64_t bytes() const { return bytes_; }

  private:
    Bytes own_;
    const uint8_t* data_ = nullptr;
    uint64_t bytes_ = 0;
};

// Each entry of a fatbin that the device is to have; false: it is not read for certain, or `take` did not.
template <class Take>
bool each_useful(const Image& image, const fatbin::Wanted& wanted, const Take& take) {
    return fatbin::each_entry(image.data, image.bytes,
                              [&](const fatbin::Entry& entry, const uint8_t* header, const uint8_t* content) {
                                  return !entry.useful(wanted) || take(entry, header, content);
                              });
}

}  // namespace fikit::shim
