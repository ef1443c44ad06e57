// The trace: recorded operations in a ring buffer of fixed size, overwritten when nobody takes them.
#pragma once

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
        written_ = taken_ = dropped_ = 0;
    }
    void stop() { on_ = false; }
    void add(const TraceRecord& record) {
        records_[written_ % capacity] = record;
        ++written_;
        if (written_ - taken_ > capacity) {
            ++taken_;
            ++dropped_;
        }
    }
    std::vector<TraceRecord> take(size_t limit, uint64_t& dropped) {
        std::vector<TraceRecord> out;
        for (; taken_ < written_ && out.size() < limit; ++taken_) out.push_back(records_[taken_ % capacity]);
        dropped = dropped_;
        return out;
    }

  private:
    std::vector<TraceRecord> records_;
    uint64_t written_ = 0, taken_ = 0, dropped_ = 0;
    bool on_ = false;
};

}  // namespace fikit
