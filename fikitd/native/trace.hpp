// The trace: recorded operations in a ring buffer of fixed size, the oldest overwritten. Readers keep their
// own cursors, counted since the executor began, so that none takes anything from another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "clock.hpp"

namespace fikit {

struct TraceRecord {
    uint32_t session = 0;  // serial number of the session
    uint32_t stream = 0;
    uint16_t op = 0;
    uint16_t detail = 0;  // copy kind
    uint32_t name = 0;    // kernel name index, for launches
    Nanoseconds arrived = 0, issued = 0, started = 0, ended = 0;
    uint64_t bytes = 0;
    uint64_t blocks = 0;
    uint32_t multiprocessors = 0;  // of the partition; 0: the whole GPU
};

class Trace {
  public:
    static constexpr size_t capacity = 1u << 17;

    bool on() const { return on_; }
    void start() {
        records_.resize(capacity);
        on_ = true;
    }
    void stop() { on_ = false; }
    void add(const TraceRecord& record) {
        records_[written_ % capacity] = record;
        ++written_;
    }
    // The cursor of what is recorded next.
    uint64_t cursor() const { return written_; }
    std::vector<TraceRecord> read(uint64_t& cursor, size_t limit, uint64_t& dropped) const {
        const uint64_t oldest = written_ > capacity ? written_ - capacity : 0;
        dropped = cursor < oldest ? oldest - cursor : 0;
        cursor = std::min(std::max(cursor, oldest), written_);
        std::vector<TraceRecord> out;
        for (; cursor < written_ && out.size() < limit; ++cursor) out.push_back(records_[cursor % capacity]);
        return out;
    }

  private:
    std::vector<TraceRecord> records_;
    uint64_t written_ = 0;
    bool on_ = false;
};

}  // namespace fikit
