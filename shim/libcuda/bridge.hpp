// What goes between devices. The sessions of a process on several GPUs are in different executors, which know
// nothing of each other: what one's stream is to wait for of another's is told by this process.
#pragma once

#include <cstdint>

#include "cuda_interface.hpp"

namespace fikit::shim {

struct Device;

// The stream waits for the latest record of an event of another device's.
CUresult wait_across(uint32_t stream, const Device& device, uint32_t event);

// A side of a copy: device memory, or host memory of any kind.
struct Place {
    uint64_t address;
    int device;  // ordinal; -1: on the host
};

// In the order of the stream, whose device need not be any of theirs. `wait`: until the data are there.
CUresult copy_across(uint32_t stream, const Place& to, const Place& from, uint64_t bytes, bool wait);
CUresult fill_across(uint32_t stream, const Place& to, uint64_t count, uint32_t value, uint32_t width);

// What one stream launches and several devices run, piece behind piece (the nodes of a graph): on the stream
// itself what is for its device, on one that another device has for this what is for that.
class Relay {
  public:
    explicit Relay(uint32_t stream) : home_(stream), at_(stream) {}
    // The stream for the device's next piece, behind all pieces before.
    CUresult pass(Device& device, uint32_t& stream);
    // The stream that launches goes on behind the last piece.
    CUresult end() { return go(home_); }
    uint32_t at() const { return at_; }

  private:
    CUresult go(uint32_t stream);

    const uint32_t home_;
    uint32_t at_;
};

}  // namespace fikit::shim
