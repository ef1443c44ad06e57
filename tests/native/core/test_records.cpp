// Records as the core reads them from a ring: every refusal by name, wraps, and that the copy is what counts.
#include <calls.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "check.hpp"
#include "records.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

constexpr uint64_t ring_bytes = 1u << 17;

struct Ring {
    alignas(64) fikit_outbox header{};
    std::vector<uint8_t> storage = std::vector<uint8_t>(ring_bytes);
    RingReader reader{reinterpret_cast<const uint8_t*>(&header), storage.data(), ring_bytes};
    Operation operation{};

    template <class Record>
    void put(const Record& record, uint64_t at) {
        std::memcpy(storage.data() + at % ring_bytes, &record, sizeof record);
    }
    void head(uint64_t value) { __atomic_store_n(&header.head, value, __ATOMIC_RELEASE); }
    RingReader::Result next() { return reader.next(operation); }
};

fikit_record record_of(uint16_t op, uint32_t bytes = 64, uint32_t stream = 0) {
    return {.bytes = bytes, .op = op, .flags = 0, .stream = stream, .reserved = 0};
}

template <class Record>
void refused(const Record& record, const char* reason) {
    Ring ring;
    ring.put(record, 0);
    ring.head(reinterpret_cast<const fikit_record&>(record).bytes);
    CHECK(ring.next() == RingReader::Result::broken);
    CHECK_EQUAL(std::string(ring.reader.error()), reason);
    CHECK(ring.next() == RingReader::Result::broken);  // and not read again
}

template <class Record>
void accepted(const Record& record) {
    Ring ring;
    ring.put(record, 0);
    ring.head(reinterpret_cast<const fikit_record&>(record).bytes);
    CHECK(ring.next() == RingReader::Result::ready);
    CHECK(std::memcmp(ring.operation.bytes, &record, sizeof record) == 0);
    CHECK(ring.next() == RingReader::Result::empty);
}

void copies_of_rows_are_refused() {
    fikit_copy_rows rows{};
    rows.copy.record = record_of(FIKIT_OP_COPY, 192);
    rows.copy.record.flags = FIKIT_ROWS;
    rows.to.array = 1;
    rows.from.pitch = 64;
    rows.from.height = 4;
    rows.width = 64;
    rows.rows = 4;
    rows.slices = 2;
    rows.copy.size = 512;
    accepted(rows);
    const auto changed = [&](auto member, uint64_t value, const char* reason) {
        fikit_copy_rows other = rows;
        other.*member = value;
        refused(other, reason);
    };
    for (const uint64_t width : {uint64_t{0}, uint64_t{65}})
        changed(&fikit_copy_rows::width, width, "copy of rows: not the size of its rows");
    changed(&fikit_copy_rows::rows, UINT64_MAX, "copy of rows: impossible size");
    changed(&fikit_copy_rows::slices, uint64_t{1} << 40, "copy of rows: not the size of its rows");
    fikit_copy_rows other = rows;
    other.copy.record.bytes = 64;
    refused(other, "copy of rows: the record is too short");
    other = rows;
    other.from.array = 1;
    refused(other, "copy of rows: an array is not on the host");
    other = rows;
    other.copy.kind = FIKIT_COPY_TO_HOST;
    refused(other, "copy of rows: an array is not on the host");
    other = rows;
    other.to.array = FIKIT_MAX_ARRAYS;
    refused(other, "copy of rows: array handle out of range");
    for (const uint64_t pitch : {uint64_t{63}, UINT64_MAX, uint64_t{1} << 62}) {
        other = rows;
        other.from.pitch = pitch;
        refused(other, "copy of rows: impossible pitch");
    }
    for (const uint64_t pitch : {uint64_t{0}, uint64_t{63}}) {  // and of slices of one row
        other = rows;
        other.rows = 1;
        other.slices = 8;
        other.from.pitch = pitch;
        refused(other, "copy of rows: impossible pitch");
    }
    other = rows;
    other.from.height = 3;
    refused(other, "copy of rows: impossible pitch");
}

TEST(every_refusal_has_its_name) {
    refused(record_of(FIKIT_OP_SYNC, 64, FIKIT_MAX_STREAMS), "stream handle out of range");
    refused(record_of(FIKIT_OP_COUNT), "unknown operation");
    refused(record_of(0xffff), "unknown operation");
    for (const uint16_t op : {FIKIT_OP_STREAM_CREATE, FIKIT_OP_STREAM_DESTROY})
        refused(record_of(op), "the legacy default stream cannot be created or destroyed");

    fikit_launch launch{};
    launch.record = record_of(FIKIT_OP_LAUNCH, 128);
    launch.parameter_bytes = 64;
    accepted(launch);
    launch.parameter_bytes = 65;
    refused(launch, "launch: attributes and parameters exceed the record");
    launch.parameter_bytes = 0;
    launch.attributes = 1;
    refused(launch, "launch: attributes and parameters exceed the record");
    launch.attributes = FIKIT_MAX_ATTRIBUTES + 1;
    refused(launch, "launch: too many attributes");
    launch.attributes = 0;
    launch.parameter_bytes = FIKIT_MAX_PARAMETERS + 1;
    refused(launch, "launch: too many parameter bytes");
    launch.parameter_bytes = UINT32_MAX;
    refused(launch, "launch: too many parameter bytes");
    launch.parameter_bytes = 0;
    launch.function = FIKIT_MAX_FUNCTIONS;
    refused(launch, "launch: function handle out of range");

    fikit_copy copy{};
    copy.record = record_of(FIKIT_OP_COPY);
    copy.size = 1;
    accepted(copy);
    copy.kind = 3;
    refused(copy, "copy: unknown kind");
    copy.kind = FIKIT_COPY_TO_HOST;
    copy.host_buffer = FIKIT_MAX_HOST_BUFFERS;
    refused(copy, "copy: host buffer handle out of range");
    copy.host_buffer = 0;
    for (const uint64_t size : {uint64_t{0}, (uint64_t{1} << 47) + 1, UINT64_MAX}) {
        copy.size = size;
        refused(copy, "copy: impossible size");
    }

    copies_of_rows_are_refused();

    fikit_fill fill{};
    fill.record = record_of(FIKIT_OP_FILL);
    fill.count = 1;
    fill.width = 3;
    refused(fill, "fill: width is not 1, 2 or 4");
    fill.width = 4;
    fill.device = 2;
    refused(fill, "fill: address not aligned to its width");
    fill.device = 4;
    accepted(fill);
    for (const uint64_t count : {uint64_t{0}, UINT64_MAX}) {
        fill.count = count;
        refused(fill, "fill: impossible count");
    }

    fikit_event event{};
    for (const uint16_t op : {FIKIT_OP_EVENT_RECORD, FIKIT_OP_EVENT_WAIT, FIKIT_OP_EVENT_DESTROY}) {
        event.record = record_of(op);
        event.event = FIKIT_MAX_EVENTS - 1;
        accepted(event);
        event.event = FIKIT_MAX_EVENTS;
        refused(event, "event handle out of range");
    }
    fikit_free free{};
    free.record = record_of(FIKIT_OP_HOST_FREE);
    free.address = FIKIT_MAX_HOST_BUFFERS;
    refused(free, "host buffer handle out of range");

    struct {
        fikit_call_record call;
        uint8_t payload[104];
    } call{};
    call.call.record = record_of(FIKIT_OP_CALL, 128);
    call.call.call = 0;
    refused(call, "call: unknown number");
    call.call.call = fikit_call_limit;
    refused(call, "call: unknown number");
    call.call.call = fikit_call_module_load;
    call.call.payload_bytes = sizeof(fikit_request_module_load) - 1;
    refused(call, "call: payload shorter than its request");
    for (const uint32_t bytes : {105u, uint32_t{FIKIT_MAX_CALL_BYTES} + 1, UINT32_MAX}) {
        call.call.payload_bytes = bytes;
        refused(call, "call: payload exceeds the record");
    }
    call.call.payload_bytes = sizeof(fikit_request_module_load);
    accepted(call);
}

TEST(impossible_rings_are_refused) {
    for (const uint64_t head : {uint64_t{1}, uint64_t{63}, ring_bytes + 64, UINT64_MAX - 63}) {
        Ring ring;
        ring.put(record_of(FIKIT_OP_SYNC), 0);
        ring.head(head);
        CHECK(ring.next() == RingReader::Result::broken);
        CHECK_EQUAL(std::string(ring.reader.error()), "ring: impossible head");
    }
    for (const uint32_t bytes : {0u, 63u, 65u, 128u, uint32_t{ring_bytes}, UINT32_MAX}) {
        Ring ring;
        ring.put(record_of(FIKIT_OP_SYNC, bytes), 0);
        ring.head(64);
        CHECK(ring.next() == RingReader::Result::broken);
        CHECK_EQUAL(std::string(ring.reader.error()), "ring: impossible record size");
    }
    Ring ring;
    ring.put(record_of(FIKIT_OP_SYNC, FIKIT_MAX_RECORD + 64), 0);
    ring.head(ring_bytes);
    CHECK(ring.next() == RingReader::Result::broken);
    CHECK_EQUAL(std::string(ring.reader.error()), "ring: record too large");
}

// A head that moves backwards is a head that is far ahead.
TEST(a_head_cannot_go_back) {
    Ring ring;
    ring.put(record_of(FIKIT_OP_SYNC), 0);
    ring.head(64);
    CHECK(ring.next() == RingReader::Result::ready);
    ring.head(0);
    CHECK(ring.next() == RingReader::Result::broken);
    CHECK_EQUAL(std::string(ring.reader.error()), "ring: impossible head");
}

TEST(padding_leads_to_the_start_of_the_ring) {
    Ring ring;
    uint64_t at = 0;
    for (; at < ring_bytes - 128; at += 64) {
        ring.put(record_of(FIKIT_OP_SYNC), at);
        ring.head(at + 64);
        CHECK(ring.next() == RingReader::Result::ready);
    }
    ring.put(record_of(FIKIT_OP_PAD, 128), at);
    ring.put(record_of(FIKIT_OP_SYNC, 64, 5), at + 128);
    ring.head(at + 192);
    CHECK(ring.next() == RingReader::Result::ready);
    CHECK_EQUAL(ring.operation.record().stream, 5u);
    CHECK_EQUAL(ring.reader.tail(), at + 192);
}

// Padding only ever fills the end of the ring. Otherwise a tenant that goes on publishing padding could keep
// the dispatch thread in this one ring.
TEST(padding_anywhere_else_is_refused) {
    for (const uint32_t bytes : {64u, 128u, uint32_t{ring_bytes}}) {
        Ring ring;
        ring.put(record_of(FIKIT_OP_PAD, bytes), 0);
        ring.head(ring_bytes);
        CHECK(ring.next() == RingReader::Result::broken);
        CHECK_EQUAL(std::string(ring.reader.error()), "ring: padding in its middle");
    }
}

#ifndef __SANITIZE_THREAD__  // the race is the point
// The tenant writes on while the core reads: what was checked is what is used.
TEST(the_copy_is_what_counts) {
    Ring ring;
    fikit_launch good{};
    good.record = record_of(FIKIT_OP_LAUNCH, 128);
    good.parameter_bytes = 64;
    std::atomic<bool> stop{false};
    std::thread tenant([&] {
        auto* word =
            reinterpret_cast<uint32_t*>(ring.storage.data() + offsetof(fikit_launch, parameter_bytes));
        while (!stop.load(std::memory_order_relaxed)) {
            __atomic_store_n(word, 64u, __ATOMIC_RELAXED);
            __atomic_store_n(word, 0xffffffffu, __ATOMIC_RELAXED);
        }
    });
    int ready = 0;
    ring.put(good, 0);
    for (int round = 0; round < 20'000; ++round) {
        RingReader reader(reinterpret_cast<const uint8_t*>(&ring.header), ring.storage.data(), ring_bytes);
        ring.head(128);
        if (reader.next(ring.operation) != RingReader::Result::ready) continue;
        ++ready;
        CHECK_EQUAL(ring.operation.as<fikit_launch>().parameter_bytes, 64u);
    }
    stop = true;
    tenant.join();
    CHECK(ready > 0);
}
#endif

}  // namespace
