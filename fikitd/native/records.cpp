#include "records.hpp"

#include <calls.h>

#include <cstring>

namespace fikit {
namespace {

constexpr uint64_t prefetched = 4 * FIKIT_RECORD_ALIGN;

// Bytes of a call's fixed request, or 0 for a number that names no call.
uint32_t request_bytes(uint32_t call) {
    switch (call) {
#define FIKIT_REQUEST_BYTES(number, name) \
    case number:                          \
        return sizeof(fikit_request_##name);
        FIKIT_CALLS(FIKIT_REQUEST_BYTES)
#undef FIKIT_REQUEST_BYTES
        default:
            return 0;
    }
}

const char* check_launch(const Operation& operation, uint32_t bytes) {
    const auto& launch = operation.as<fikit_launch>();
    if (launch.function >= FIKIT_MAX_FUNCTIONS) return "launch: function handle out of range";
    if (launch.attributes > FIKIT_MAX_ATTRIBUTES) return "launch: too many attributes";
    if (launch.parameter_bytes > FIKIT_MAX_PARAMETERS) return "launch: too many parameter bytes";
    if (sizeof(fikit_launch) + launch.attributes * sizeof(fikit_attribute) + launch.parameter_bytes > bytes)
        return "launch: attributes and parameters exceed the record";
    return nullptr;
}

const char* check_copy(const Operation& operation) {
    const auto& copy = operation.as<fikit_copy>();
    if (copy.kind > FIKIT_COPY_ON_DEVICE) return "copy: unknown kind";
    if (copy.host_buffer >= FIKIT_MAX_HOST_BUFFERS) return "copy: host buffer handle out of range";
    if (copy.size == 0 || copy.size > uint64_t{1} << 47) return "copy: impossible size";
    return nullptr;
}

const char* check_fill(const Operation& operation) {
    const auto& fill = operation.as<fikit_fill>();
    if (fill.width != 1 && fill.width != 2 && fill.width != 4) return "fill: width is not 1, 2 or 4";
    if (fill.count == 0 || fill.count > uint64_t{1} << 47) return "fill: impossible count";
    if (fill.device % fill.width != 0) return "fill: address not aligned to its width";
    return nullptr;
}

const char* check_call(const Operation& operation, uint32_t bytes) {
    const auto& call = operation.as<fikit_call_record>();
    const uint32_t fixed = request_bytes(call.call);
    if (fixed == 0) return "call: unknown number";
    if (call.payload_bytes > FIKIT_MAX_CALL_BYTES || sizeof(fikit_call_record) + call.payload_bytes > bytes)
        return "call: payload exceeds the record";
    if (call.payload_bytes < fixed) return "call: payload shorter than its request";
    return nullptr;
}

}  // namespace

const char* check_record(const Operation& operation) {
    const fikit_record& record = operation.record();
    if (record.stream >= FIKIT_MAX_STREAMS) return "stream handle out of range";
    switch (record.op) {
        case FIKIT_OP_LAUNCH:
            return check_launch(operation, record.bytes);
        case FIKIT_OP_COPY:
            return check_copy(operation);
        case FIKIT_OP_FILL:
            return check_fill(operation);
        case FIKIT_OP_EVENT_RECORD:
        case FIKIT_OP_EVENT_WAIT:
        case FIKIT_OP_EVENT_DESTROY:
            return operation.as<fikit_event>().event < FIKIT_MAX_EVENTS ? nullptr
                                                                        : "event handle out of range";
        case FIKIT_OP_STREAM_CREATE:
        case FIKIT_OP_STREAM_DESTROY:
            return record.stream != 0 ? nullptr : "the legacy default stream cannot be created or destroyed";
        case FIKIT_OP_HOST_FREE:
            return operation.as<fikit_free>().address < FIKIT_MAX_HOST_BUFFERS
                       ? nullptr
                       : "host buffer handle out of range";
        case FIKIT_OP_SYNC:
        case FIKIT_OP_HOST_FUNCTION:
        case FIKIT_OP_FREE:
            return nullptr;
        case FIKIT_OP_CALL:
            return check_call(operation, record.bytes);
        default:
            return "unknown operation";
    }
}

RingReader::Result RingReader::next(Operation& into) {
    if (error_ != nullptr) return Result::broken;
    for (;;) {
        if (seen_ == tail_) seen_ = __atomic_load_n(head_, __ATOMIC_ACQUIRE);
        const uint64_t available = seen_ - tail_;
        if (available == 0) return Result::empty;
        if (available > ring_bytes_ || available % FIKIT_RECORD_ALIGN != 0)
            return fail("ring: impossible head");
        const uint64_t offset = tail_ & (ring_bytes_ - 1);
        const uint64_t room = available < ring_bytes_ - offset ? available : ring_bytes_ - offset;
        // The first cache line holds the header; what it says is read from the copy alone.
        std::memcpy(into.bytes, ring_ + offset, FIKIT_RECORD_ALIGN);
        const fikit_record& record = into.record();
        if (record.bytes < FIKIT_RECORD_ALIGN || record.bytes % FIKIT_RECORD_ALIGN != 0 ||
            record.bytes > room)
            return fail("ring: impossible record size");
        if (record.op == FIKIT_OP_PAD) {
            // At its end only: endless padding would keep the dispatch thread in this ring.
            if (offset == 0 || offset + record.bytes != ring_bytes_)
                return fail("ring: padding in its middle");
            tail_ += record.bytes;
            continue;
        }
        if (record.bytes > FIKIT_MAX_RECORD) return fail("ring: record too large");
        if (record.bytes > FIKIT_RECORD_ALIGN)
            std::memcpy(into.bytes + FIKIT_RECORD_ALIGN, ring_ + offset + FIKIT_RECORD_ALIGN,
                        record.bytes - FIKIT_RECORD_ALIGN);
        tail_ += record.bytes;
        // The next record comes from the tenant's core; it may travel while this one is issued.
        for (uint64_t line = 0; line < prefetched && tail_ + line < seen_; line += FIKIT_RECORD_ALIGN)
            __builtin_prefetch(ring_ + ((tail_ + line) & (ring_bytes_ - 1)));
        error_ = check_record(into);
        return error_ == nullptr ? Result::ready : Result::broken;
    }
}

}  // namespace fikit
