// Records as the executor takes them from a ring: copied once, then checked. Nothing here believes the
// tenant.
#pragma once

#include <abi.h>

#include <algorithm>
#include <atomic>
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

// Of an operation that is no launch.
const char* what_is_wrong_beside_launches(const Operation& operation);

inline const char* what_is_wrong(const fikit_launch& launch) {
    if (launch.function >= FIKIT_MAX_FUNCTIONS) [[unlikely]]
        return "launch: function handle out of range";
    if (launch.attributes > FIKIT_MAX_ATTRIBUTES) [[unlikely]]
        return "launch: too many attributes";
    if (launch.parameter_bytes > FIKIT_MAX_PARAMETERS) [[unlikely]]
        return "launch: too many parameter bytes";
    if (sizeof(fikit_launch) + launch.attributes * sizeof(fikit_attribute) + launch.parameter_bytes >
        launch.record.bytes) [[unlikely]]
        return "launch: attributes and parameters exceed the record";
    return nullptr;
}

// What is wrong with a copied record, or nullptr. Sizes, handles, limits and enumerations only: whether a
// handle exists is for the session to know.
inline const char* what_is_wrong(const Operation& operation) {
    const fikit_record& record = operation.record();
    if (record.stream >= FIKIT_MAX_STREAMS) [[unlikely]]
        return "stream handle out of range";
    return record.op == FIKIT_OP_LAUNCH ? what_is_wrong(operation.as<fikit_launch>())
                                        : what_is_wrong_beside_launches(operation);
}

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
    // The compiler must not read from the ring again what was copied from it.
    static void read_once() { std::atomic_signal_fence(std::memory_order_acq_rel); }
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

// Here, as every operation goes through it.
inline RingReader::Result RingReader::next(Operation& into) {
    for (;;) {
        if (seen_ == tail_)
            if (const Result result = look(); result != Result::ready) return result;
        const uint64_t offset = tail_ & (ring_bytes_ - 1);
        const uint64_t room = std::min(seen_ - tail_, ring_bytes_ - offset);
        // The first cache line holds the header; what it says is read from the copy alone.
        const uint8_t* from = ring_ + offset;
        std::memcpy(into.bytes, from, FIKIT_RECORD_ALIGN);
        read_once();
        const uint32_t bytes = into.record().bytes;
        if (bytes < FIKIT_RECORD_ALIGN || bytes % FIKIT_RECORD_ALIGN != 0 || bytes > room) [[unlikely]]
            return fail("ring: impossible record size");
        if (into.record().op == FIKIT_OP_PAD) [[unlikely]] {
            // At its end only: endless padding would keep the dispatch thread in this ring.
            if (offset == 0 || offset + bytes != ring_bytes_) return fail("ring: padding in its middle");
            tail_ += bytes;
            continue;
        }
        if (bytes > FIKIT_MAX_RECORD) [[unlikely]]
            return fail("ring: record too large");
        for (uint32_t line = FIKIT_RECORD_ALIGN; line < bytes; line += FIKIT_RECORD_ALIGN)
            std::memcpy(into.bytes + line, from + line, FIKIT_RECORD_ALIGN);
        read_once();
        tail_ += bytes;
        if (tail_ != seen_) {
            // The next record comes from the tenant's core; it may travel while this one is issued.
            const uint8_t* following = ring_ + (tail_ & (ring_bytes_ - 1));
            __builtin_prefetch(following);
            __builtin_prefetch(following + FIKIT_RECORD_ALIGN);
        }
        if (const char* wrong = what_is_wrong(into); wrong != nullptr) [[unlikely]]
            return fail(wrong);
        return Result::ready;
    }
}

}  // namespace fikit
