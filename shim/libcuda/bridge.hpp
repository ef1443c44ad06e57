// What goes between devices. The sessions of a process on several GPUs are in different executors, which know
// nothing of each other: what one's stream is to wait for of another's is told by this process.
#pragma once

#include <cstdint>

#include "cuda_interface.hpp"

namespace fikit::shim {

struct Event;

// The stream waits for the latest record of an event of another device's.
CUresult wait_across(uint32_t stream, const Event& event);

// A side of a copy: device memory, or host memory of any kind.
struct Place {
    uint64_t address;
    int device;  // ordinal; -1: on the host
};

// In the order of the stream, whose device need not be any of theirs. `wait`: until the data are there.
CUresult copy_across(uint32_t stream, const Place& to, const Place& from, uint64_t bytes, bool wait);
CUresult fill_across(uint32_t stream, const Place& to, uint64_t count, uint32_t value, uint32_t width);

}  // namespace fikit::shim
