// Records as the executor takes them from a ring: copied once, then checked. Nothing here believes the
// tenant.
#pragma once

#include <abi.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace fikit {

// A copy of one record. What the accessors return lies within it once RingReader has passed it.
struct Operation {
    alignas(FIKIT_RECORD_ALIGN) uint8_t bytes[FIKIT_MAX_RECORD];

    const fikit_record& record() const { return as<fikit_record>(); }
    template <class Record>
    const Record& as() const {
        return *reinterpret_cast<const Record*>(bytes);
    }
    const fikit_attribute* attributes() const {
        return reinterpret_cast<const fikit_attribute*>(bytes + sizeof(fikit_launch));
    }
    const uint8_t* parameters() const {
        return bytes + sizeof(fikit_launch) + as<fikit_launch>().attributes * sizeof(fikit_attribute);
    }
    const fikit_value* values() const {
        return reinterpret_cast<const fikit_value*>(bytes + sizeof(fikit_values));
    }
    const uint8_t* payload() const { return bytes + sizeof(fikit_call_record); }
    // What a call asks for.
    template <class Request>
    Request request() const {
        Request asked;
        std::memcpy(&asked, payload(), sizeof asked);
        return asked;
    }
};

// A record that is kept for later: only the cache lines that it has, aligned as an Operation is.
class KeptOperation {
  public:
    explicit KeptOperation(const Operation& operation)
        : lines_(operation.record().bytes / FIKIT_RECORD_ALIGN) {
        std::memcpy(lines_.data(), operation.bytes, bytes());
    }
    const Operation& operation() const { return *reinterpret_cast<const Operation*>(lines_.data()); }
    size_t bytes() const { return lines_.size() * sizeof(Line); }

  private:
    struct alignas(FIKIT_RECORD_ALIGN) Line {
        uint8_t bytes[FIKIT_RECORD_ALIGN];
    };
    std::vector<Line> lines_;
};

inline bool is_step(uint16_t op) {
    return (op >= FIKIT_OP_LAUNCH && op <= FIKIT_OP_HOST_FUNCTION) || op == FIKIT_OP_VALUES;
}

// How far the memory that is an end of a copy reaches, from the first byte to the last; false: too far.
bool span_of(const fikit_copy_rows& copy, const fikit_copy_end& end, uint64_t& bytes);

// What is wrong with a record that lies in an image, or nullptr; its own size is the caller's to check.
const char* what_is_wrong(const Operation& operation);

// The executor's side of one ring.
class RingReader {
  public:
    enum class Result { empty, ready, broken };

    RingReader() = default;
    // `outbox` is the start of the shared memory, `ring` the ring in it; both stay mapped.
    RingReader(const uint8_t* outbox, const uint8_t* ring, uint64_t ring_bytes)
        : head_(reinterpret_cast<const uint64_t*>(outbox + offsetof(fikit_outbox, head))),
          ring_(ring),
          ring_bytes_(ring_bytes) {}

    bool has_record() const { return seen_ != tail_ || __atomic_load_n(head_, __ATOMIC_ACQUIRE) != tail_; }

    // Copies the next record and checks the copy. After `broken`, error() says why and the ring is not read
    // again.
    Result next(Operation& into);

    uint64_t waiting_bytes() const { return __atomic_load_n(head_, __ATOMIC_ACQUIRE) - tail_; }
    uint64_t tail() const { return tail_; }
    const char* error() const { return error_; }

  private:
    Result look();
    Result fail(const char* why) {
        error_ = why;
        seen_ = tail_;
        return Result::broken;
    }

    const uint64_t* head_ = nullptr;
    const uint8_t* ring_ = nullptr;
    uint64_t ring_bytes_ = 0;
    uint64_t tail_ = 0;
    uint64_t seen_ = 0;  // the head when it was last looked at: the tenant's line is left alone meanwhile
    const char* error_ = nullptr;
};

}  // namespace fikit
