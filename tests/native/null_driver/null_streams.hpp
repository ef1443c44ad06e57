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
    enum Kind { work, write, wait_value, record_event, wait_event };
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

CUresult submit(CUstream stream, Item item);
CUresult query(CUstream stream);
CUresult query(CUevent event);
Event* event_of(CUevent event);
CUevent new_event();
void forget(CUstream stream);

}  // namespace fikit::null_driver
