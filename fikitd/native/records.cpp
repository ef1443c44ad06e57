#include "records.hpp"

#include <calls.h>

namespace fikit {
namespace {

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

const char* check_rows(const fikit_copy_rows& copy) {
    if (copy.copy.record.bytes < sizeof copy) return "copy of rows: the record is too short";
    constexpr uint64_t most = uint64_t{1} << 40;
    if (copy.width > most || copy.rows > most || copy.slices > most) return "copy of rows: impossible size";
    uint64_t slice = 0, all = 0;
    if (__builtin_mul_overflow(copy.width, copy.rows, &slice) ||
        __builtin_mul_overflow(slice, copy.slices, &all) || all != copy.copy.size)
        return "copy of rows: not the size of its rows";
    if ((copy.copy.kind == FIKIT_COPY_TO_HOST && copy.to.array != 0) ||
        (copy.copy.kind == FIKIT_COPY_TO_DEVICE && copy.from.array != 0))
        return "copy of rows: an array is not on the host";
    for (const fikit_copy_end* const end : {&copy.to, &copy.from}) {
        uint64_t bytes = 0;
        if (end->array >= FIKIT_MAX_ARRAYS) return "copy of rows: array handle out of range";
        if (end->array == 0 && !span_of(copy, *end, bytes)) return "copy of rows: impossible pitch";
    }
    return nullptr;
}

const char* check_copy(const Operation& operation) {
    const auto& copy = operation.as<fikit_copy>();
    if (copy.kind > FIKIT_COPY_ON_DEVICE) return "copy: unknown kind";
    if (copy.host_buffer >= FIKIT_MAX_HOST_BUFFERS) return "copy: host buffer handle out of range";
    if (copy.size == 0 || copy.size > uint64_t{1} << 47) return "copy: impossible size";
    return (copy.record.flags & FIKIT_ROWS) != 0 ? check_rows(operation.as<fikit_copy_rows>()) : nullptr;
}

const char* check_fill(const Operation& operation) {
    const auto& fill = operation.as<fikit_fill>();
    if (fill.width != 1 && fill.width != 2 && fill.width != 4) return "fill: width is not 1, 2 or 4";
    if (fill.count == 0 || fill.count > uint64_t{1} << 47) return "fill: impossible count";
    if (fill.device % fill.width != 0) return "fill: address not aligned to its width";
    return nullptr;
}

const char* check_values(const Operation& operation, uint32_t bytes) {
    const auto& values = operation.as<fikit_values>();
    if (values.count == 0 || values.count > FIKIT_MAX_VALUES) return "values: impossible count";
    if (sizeof(fikit_values) + values.count * sizeof(fikit_value) > bytes)
        return "values: they exceed the record";
    for (uint32_t i = 0; i < values.count; ++i)
        if (operation.values()[i].host_buffer >= FIKIT_MAX_HOST_BUFFERS)
            return "values: host buffer handle out of range";
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

// Between slices of one row it counts, too, that to the driver a pitch of 0 is the width.
bool span_of(const fikit_copy_rows& copy, const fikit_copy_end& end, uint64_t& bytes) {
    uint64_t slice = 0, slices = 0, rows = 0;
    if (((copy.rows > 1 || copy.slices > 1) && end.pitch < copy.width) ||
        (copy.slices > 1 && end.height < copy.rows) ||
        __builtin_mul_overflow(end.pitch, end.height, &slice) ||
        __builtin_mul_overflow(slice, copy.slices - 1, &slices) ||
        __builtin_mul_overflow(end.pitch, copy.rows - 1, &rows) ||
        __builtin_add_overflow(slices, rows, &bytes))
        return false;
    return !__builtin_add_overflow(bytes, copy.width, &bytes);
}

const char* what_is_wrong_beside_launches(const Operation& operation) {
    const fikit_record& record = operation.record();
    switch (record.op) {
        case FIKIT_OP_GRAPH:
            return operation.as<fikit_graph>().graph < FIKIT_MAX_GRAPHS ? nullptr
                                                                        : "graph handle out of range";
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
        case FIKIT_OP_VALUES:
            return check_values(operation, record.bytes);
        case FIKIT_OP_CALL:
            return check_call(operation, record.bytes);
        default:
            return "unknown operation";
    }
}

// Looks how far the tenant has written.
RingReader::Result RingReader::look() {
    if (error_ != nullptr) return Result::broken;
    const uint64_t head = __atomic_load_n(head_, __ATOMIC_ACQUIRE);
    if (head == tail_) return Result::empty;
    if (head - tail_ > ring_bytes_ || (head - tail_) % FIKIT_RECORD_ALIGN != 0)
        return fail("ring: impossible head");
    seen_ = head;
    return Result::ready;
}

}  // namespace fikit
