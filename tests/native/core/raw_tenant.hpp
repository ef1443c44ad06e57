// A tenant that writes its channel by itself, right or wrong, and looks at nothing.
#pragma once

#include <calls.h>

#include <cstring>
#include <descriptors.hpp>
#include <utility>

#include "rig.hpp"

namespace fikit::test {

class RawTenant {
  public:
    explicit RawTenant(Rig& rig, const std::string& id = "hostile", int level = 5) : rig_(rig) {
        int ends[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        lifeline = Descriptor(ends[1]);
        std::pair<int, int> memories{-1, -1};
        rig.while_turning(
            [&] { memories = rig.core().attach({id, level, 1.0, memory_limit, 0, false, ends[0], -1}); });
        const Descriptor outbox_file(memories.first), inbox_file(memories.second);
        inbox = static_cast<fikit_inbox*>(map(inbox_file.get(), FIKIT_INBOX_BYTES, PROT_READ));
        auto* const header =
            static_cast<fikit_outbox*>(map(outbox_file.get(), sizeof(fikit_outbox), PROT_READ));
        outbox_bytes_ = header->staging_offset + header->staging_bytes;
        munmap(header, sizeof(fikit_outbox));
        outbox = static_cast<fikit_outbox*>(map(outbox_file.get(), outbox_bytes_, PROT_READ | PROT_WRITE));
    }
    RawTenant(const RawTenant&) = delete;
    ~RawTenant() {
        munmap(outbox, outbox_bytes_);
        munmap(inbox, FIKIT_INBOX_BYTES);
    }

    static constexpr uint64_t memory_limit = 64u << 20;

    uint8_t* at(uint64_t offset) { return reinterpret_cast<uint8_t*>(outbox) + offset; }
    uint8_t* staging() { return at(outbox->staging_offset); }
    bool ended() const { return __atomic_load_n(&inbox->ended, __ATOMIC_ACQUIRE) != 0; }
    uint64_t tail() const { return __atomic_load_n(&inbox->tail, __ATOMIC_ACQUIRE); }
    bool is_read() const { return tail() == head_; }
    uint64_t answered() const { return __atomic_load_n(&inbox->call_done, __ATOMIC_ACQUIRE); }
    // So many steps of the stream are over.
    uint64_t mark(uint32_t stream) const {
        const auto* marks = reinterpret_cast<const uint8_t*>(inbox) + FIKIT_MARKS_OFFSET;
        return __atomic_load_n(reinterpret_cast<const uint64_t*>(marks + stream * FIKIT_MARK_STRIDE),
                               __ATOMIC_ACQUIRE);
    }
    std::string deferred_text() const { return inbox->deferred_text; }

    // `record`, whose size this fills in, with `behind` behind it; false when the ring has no room.
    template <class Record>
    bool write(uint16_t op, Record record, const void* behind = nullptr, uint32_t bytes = 0) {
        const uint64_t ring = outbox->ring_bytes;
        const auto whole = static_cast<uint32_t>((sizeof record + bytes + FIKIT_RECORD_ALIGN - 1) /
                                                 FIKIT_RECORD_ALIGN * FIKIT_RECORD_ALIGN);
        const uint64_t left = ring - head_ % ring, pad = whole > left ? left : 0;
        if (head_ + pad + whole - tail() > ring) return false;
        if (pad != 0) {
            fikit_record padding{};
            padding.bytes = static_cast<uint32_t>(pad);
            std::memcpy(at(outbox->ring_offset + head_ % ring), &padding, sizeof padding);
            head_ += pad;
        }
        uint8_t* const to = at(outbox->ring_offset + head_ % ring);
        auto& header = reinterpret_cast<fikit_record&>(record);
        header.bytes = whole;
        header.op = op;
        std::memcpy(to, &record, sizeof record);
        if (bytes != 0) std::memcpy(to + sizeof record, behind, bytes);
        head_ += whole;
        __atomic_store_n(&outbox->head, head_, __ATOMIC_RELEASE);
        return true;
    }
    bool step(uint16_t op, uint32_t stream, uint16_t flags = 0) {
        fikit_record record{};
        record.stream = stream;
        record.flags = flags;
        return write(op, record);
    }
    bool event(uint16_t op, uint32_t stream, uint32_t number, uint32_t session = 0) {
        fikit_event record{};
        record.record.stream = stream;
        record.event = number;
        record.session = session;
        return write(op, record);
    }
    bool stream_create(uint32_t stream, uint32_t flags = FIKIT_STREAM_NON_BLOCKING) {
        fikit_stream record{};
        record.record.stream = stream;
        record.flags = flags;
        return write(FIKIT_OP_STREAM_CREATE, record);
    }
    bool value(uint32_t stream, const fikit_value& value) {
        fikit_values record{};
        record.record.stream = stream;
        record.count = 1;
        return write(FIKIT_OP_VALUES, record, &value, sizeof value);
    }
    // Says that the host functions of a stream up to this step have returned.
    void host_done(uint32_t stream, uint64_t step) {
        __atomic_store_n(reinterpret_cast<uint64_t*>(at(FIKIT_HOST_DONE_OFFSET)) + stream, step,
                         __ATOMIC_RELEASE);
    }
    template <class Request>
    bool ask(uint32_t call, const Request& request, const void* behind = nullptr, uint32_t bytes = 0) {
        std::vector<uint8_t> payload(sizeof request + bytes);
        std::memcpy(payload.data(), &request, sizeof request);
        if (bytes != 0) std::memcpy(payload.data() + sizeof request, behind, bytes);
        fikit_call_record record{};
        record.call = call;
        record.payload_bytes = static_cast<uint32_t>(payload.size());
        return write(FIKIT_OP_CALL, record, payload.data(), record.payload_bytes);
    }
    // Asks, and turns until it is answered: the status.
    template <class Reply, class Request>
    int32_t call(uint32_t number, const Request& request, Reply& reply, const void* behind = nullptr,
                 uint32_t bytes = 0) {
        const uint64_t before = answered();
        CHECK(ask(number, request, behind, bytes));
        rig_.turn_until([&] { return answered() != before; });
        std::memcpy(&reply, reinterpret_cast<const uint8_t*>(inbox) + FIKIT_REPLY_OFFSET, sizeof reply);
        return inbox->call_status;
    }
    uint64_t allocate(uint64_t bytes) {
        fikit_request_memory_allocate request{bytes};
        fikit_reply_memory_allocate reply{};
        CHECK_EQUAL(call(fikit_call_memory_allocate, request, reply), 0);
        return reply.address;
    }

    fikit_outbox* outbox = nullptr;
    fikit_inbox* inbox = nullptr;  // read-only
    Descriptor lifeline;

  private:
    static void* map(int descriptor, size_t bytes, int protection) {
        void* const address = mmap(nullptr, bytes, protection, MAP_SHARED, descriptor, 0);
        CHECK(address != MAP_FAILED);
        return address;
    }

    Rig& rig_;
    size_t outbox_bytes_ = 0;
    uint64_t head_ = 0;
};

// The well-behaved session goes on.
inline void works(Rig& rig, Tenant& tenant) {
    launch(tenant);
    rig.while_turning([&] { CHECK_EQUAL(tenant->synchronize(now_ns() + 5'000'000'000), 0); });
}

}  // namespace fikit::test
