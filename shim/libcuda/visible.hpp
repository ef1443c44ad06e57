// Which of the GPUs the program is to see: CUDA_VISIBLE_DEVICES (CUDA C++ Programming Guide, "Environment
// Variables"), whose numbers count those that it is given.
#pragma once

#include "handshake.hpp"

namespace fikit::shim {

// Their indices in order, and how many. `wished`: indices and beginnings of UUIDs; nothing counts from the
// first that is wrong on, and what is named twice shows none. nullptr: all.
unsigned visible(const char* wished, const Gpu* gpus, unsigned count, unsigned (&chosen)[most_gpus]);

}  // namespace fikit::shim
