// The null driver's streams: queues that are empty unless something is held or waited for.
#pragma once

#include <atomic>
#include <deque>
#include <memory>

#include "null_driver.hpp"

namespace fikit::null_driver {

struct Event {
    uint64_t recorded = 0, done = 0;  // numbers of records
};

struct Item {
    enum Kind { work, write, wait_value, wait_equal, record_event, wait_event };
    Kind kind;
    Function function;
    uint64_t subject;  // address, or what the recording shows
    uint64_t value;    // for events: the number of the record
    Event* event;
};

struct Stream {
    std::deque<Item> queue;
    bool held = false;
    bool listed = false;
};

// Counts the call; an error where one was asked for.
CUresult enter(Function function);

CUresult submit(CUstream stream, Item item);
CUresult query(CUstream stream);
CUresult query(CUevent event);
Event* event_of(CUevent event);
CUevent new_event();
void forget(CUstream stream);

// How many graphs there are, instantiated or not.
extern std::atomic<int64_t> graphs;
// Plain or mipmapped; textures and surfaces.
extern std::atomic<int64_t> arrays, textures;

}  // namespace fikit::null_driver

#define ENTER(name)                                                                                 \
    if (const CUresult injected = fikit::null_driver::enter(fikit::null_driver::Function::name##_); \
        injected != CUDA_SUCCESS)                                                                   \
    return injected
