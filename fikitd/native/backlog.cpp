// Streams that wait for their tenant: for a host function to return, or for a word that a stream memory
// operation waits for. Such a wait may never end, and on the GPU it would hold up everybody in the context:
// loading and unloading code, unregistering and freeing memory take as long as it does (measured on the H200,
// driver 580: each until a cuStreamWaitValue on another stream ended). So nothing that waits for a tenant is
// ever issued. The stream is blocked, and what is behind the block, on that stream or on others through
// events and the legacy default stream, is put off in the session's backlog; the rest of the session goes on,
// also what ends the wait.
#include <algorithm>
#include <cstring>

#include "core.hpp"

namespace fikit {
namespace {

constexpr Nanoseconds least_pause = 20'000, longest_pause = 500'000;  // between two looks at a word

bool is_of_stream(uint16_t op) {
    return is_step(op) || op == FIKIT_OP_STREAM_CREATE || op == FIKIT_OP_STREAM_DESTROY;
}

bool is_blocking(const Session& session, uint32_t stream) {
    const auto& slot = session.streams[stream];
    return stream != 0 && slot != nullptr && slot->blocking;
}

// Have the two streams an order, apart from events?
bool ordered(const Session& session, uint32_t one, uint32_t other) {
    return one == other || (one == 0 && is_blocking(session, other)) ||
           (other == 0 && is_blocking(session, one));
}

bool is_wide(uint32_t operation) {
    return operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

// CUDA driver API, CUstreamWaitValue_flags.
bool satisfies(const Block& block, uint64_t word) {
    const uint64_t all = block.wide ? UINT64_MAX : UINT32_MAX;
    const uint64_t asked = block.value & all;
    word &= all;
    switch (block.flags & 3u) {
        case CU_STREAM_WAIT_VALUE_GEQ:
            return block.wide ? static_cast<int64_t>(word - asked) >= 0
                              : static_cast<int32_t>(static_cast<uint32_t>(word - asked)) >= 0;
        case CU_STREAM_WAIT_VALUE_EQ:
            return word == asked;
        case CU_STREAM_WAIT_VALUE_AND:
            return (word & asked) != 0;
        default:
            return (~(word | asked) & all) != 0;
    }
}

uint64_t read_word(const uint8_t* at, bool wide) {
    return wide ? __atomic_load_n(reinterpret_cast<const uint64_t*>(at), __ATOMIC_ACQUIRE)
                : __atomic_load_n(reinterpret_cast<const uint32_t*>(at), __ATOMIC_ACQUIRE);
}

}  // namespace

// What must not come before anything that is put off: memory, modules, arrays and graphs that go.
bool Core::is_barrier(const Session& session, const Operation& operation) const {
    const uint16_t op = operation.record().op;
    if (op == FIKIT_OP_FREE || op == FIKIT_OP_HOST_FREE) return true;
    if (op != FIKIT_OP_CALL) return false;
    uint32_t handle = 0;
    std::memcpy(&handle, operation.payload(), sizeof handle);
    switch (operation.as<fikit_call_record>().call) {
        case fikit_call_module_unload:
        case fikit_call_memory_unmap:
        case fikit_call_array_destroy:
            return true;
        case fikit_call_graph_create:
        case fikit_call_graph_destroy:
            return std::any_of(session.backlog.begin(), session.backlog.end(), [&](const auto& kept) {
                const Operation& earlier = kept.operation();
                return earlier.record().op == FIKIT_OP_GRAPH && earlier.as<fikit_graph>().graph == handle;
            });
        default:
            return false;
    }
}

// May it go, with so many records of the backlog before it?
bool Core::may_go(const Session& session, const Operation& operation, size_t before) const {
    const fikit_record& record = operation.record();
    if (is_barrier(session, operation)) return before == 0 && session.blocked == 0;
    const bool of_stream = is_of_stream(record.op);
    if (of_stream && session.blocked > 0)
        for (const uint32_t handle : session.used)
            if (session.streams[handle]->block.kind != Block::Kind::none &&
                ordered(session, record.stream, handle))
                return false;
    const bool of_event = record.op == FIKIT_OP_EVENT_WAIT || record.op == FIKIT_OP_EVENT_DESTROY;
    for (size_t i = 0; i < before; ++i) {
        const Operation& earlier = session.backlog[i].operation();
        const fikit_record& other = earlier.record();
        if (of_stream && is_of_stream(other.op) && ordered(session, record.stream, other.stream))
            return false;
        const bool mentions = other.op == FIKIT_OP_EVENT_RECORD ||
                              (other.op == FIKIT_OP_EVENT_WAIT && record.op == FIKIT_OP_EVENT_DESTROY);
        if (of_event && mentions && operation.as<fikit_event>().session == 0 &&
            earlier.as<fikit_event>().event == operation.as<fikit_event>().event)
            return false;
    }
    return true;
}

// Puts the record at the head off where it has to be. False: it may go now.
bool Core::defer(Session& session) {
    if (may_go(session, *session.head, session.backlog.size())) return false;
    session.backlog.emplace_back(*session.head);
    return true;
}

// The first record that may go becomes the head.
bool Core::take_deferred(Session& session) {
    for (size_t i = 0; i < session.backlog.size(); ++i) {
        const KeptOperation& kept = session.backlog[i];
        if (!may_go(session, kept.operation(), i)) continue;
        std::memcpy(session.head->bytes, kept.operation().bytes, kept.bytes());
        session.backlog.erase(session.backlog.begin() + static_cast<std::ptrdiff_t>(i));
        session.head_ready = true;
        return true;
    }
    session.rescan = false;
    return false;
}

void Core::block(Session& session, SessionStream& stream, const Block& block) {
    stream.block = block;
    ++session.blocked;
    ++blocked_;
}

// The words of the record at the head up to the first wait, checked, as the driver wants them.
CUresult Core::prepare_values(Session& session, std::vector<CUstreamBatchMemOpParams>& writes,
                              uint32_t& upto) {
    const uint32_t count = session.head->as<fikit_values>().count;
    for (upto = 0; upto < count; ++upto) {
        fikit_value value;
        std::memcpy(&value, session.head->values() + upto, sizeof value);
        CUstreamBatchMemOpParams entry{};
        entry.operation = static_cast<CUstreamBatchMemOpType>(value.operation);
        const uint64_t bytes = is_wide(value.operation) ? 8 : 4;
        const CUdeviceptr address = session.word(value, bytes);
        const bool there = address != 0 && address % bytes == 0;
        switch (value.operation) {
            case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            case CU_STREAM_MEM_OP_WAIT_VALUE_64:
                return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
            case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            case CU_STREAM_MEM_OP_WRITE_VALUE_64:
                if (!there) return CUDA_ERROR_INVALID_VALUE;
                entry.writeValue.address = address;
                entry.writeValue.value64 = value.value;
                entry.writeValue.flags = value.flags;
                break;
            case CU_STREAM_MEM_OP_BARRIER:
                entry.memoryBarrier.flags = value.flags;
                break;
            case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
                break;
            default:
                return CUDA_ERROR_INVALID_VALUE;
        }
        writes.push_back(entry);
    }
    return CUDA_SUCCESS;
}

// True: the record at the head has no wait, or is wrong; it is a step like others. Otherwise what comes
// before the first wait is issued, the stream is blocked, and what comes behind it is put off.
bool Core::begin_values(Session& session) {
    std::vector<CUstreamBatchMemOpParams> writes;
    uint32_t upto = 0;
    auto& record = *reinterpret_cast<fikit_values*>(session.head->bytes);
    if (prepare_values(session, writes, upto) != CUDA_SUCCESS || upto == record.count) return true;
    const uint32_t handle = record.record.stream;
    SessionStream& stream = *session.streams[handle];
    if (stream.lane == nullptr) place(session, stream, handle, whole_gpu);
    if (handle == 0 ? session.used.size() > 1 : stream.blocking) order_with_legacy(session, stream, handle);
    fikit_value value;
    std::memcpy(&value, session.head->values() + upto, sizeof value);
    Block wait;
    wait.kind = Block::Kind::word;
    wait.wide = is_wide(value.operation);
    wait.flags = value.flags;
    wait.value = value.value;
    if (value.host_buffer == 0)
        wait.device = value.address;
    else
        wait.host = session.pinned(value, wait.wide ? 8 : 4)->memory.data() + value.address;
    // The word counts once all that the stream did before is done.
    const CUdeviceptr gate = session.host_gate_device + handle * sizeof(HostGate);
    CUresult result = CUDA_SUCCESS;
    if (!writes.empty())
        result = driver_.cuStreamBatchMemOp_(stream.lane->stream, static_cast<unsigned>(writes.size()),
                                             writes.data(), 0);
    if (result == CUDA_SUCCESS)
        result = driver_.cuStreamWriteValue64_(stream.lane->stream, gate + offsetof(HostGate, passed),
                                               ++stream.fences, CU_STREAM_WRITE_VALUE_DEFAULT);
    if (result != CUDA_SUCCESS) {
        check(session, handle, result, "stream memory operation");
        record.count = 0;
        return true;
    }
    const uint32_t left = record.count - upto - 1;
    std::memmove(session.head->bytes + sizeof record, session.head->values() + upto + 1,
                 left * sizeof(fikit_value));
    record.count = left;
    session.backlog.emplace_front(*session.head);
    block(session, stream, wait);
    return false;
}

// An event of another session's, whose record is put off there, has to be waited for here.
bool Core::begin_event_wait(Session& session) {
    const auto& record = session.head->as<fikit_event>();
    if (record.session == 0 || !will_record(record.session, record.event)) return true;
    SessionStream& stream = *session.streams[record.record.stream];
    if (stream.lane == nullptr) place(session, stream, record.record.stream, whole_gpu);
    Block wait;
    wait.kind = Block::Kind::event;
    wait.session = record.session;
    wait.event = record.event;
    session.backlog.emplace_front(*session.head);
    block(session, stream, wait);
    return false;
}

bool Core::will_record(uint32_t serial, uint32_t event) const {
    const Session* const of = find(serial);
    return of != nullptr && std::any_of(of->backlog.begin(), of->backlog.end(), [&](const auto& kept) {
               const Operation& operation = kept.operation();
               return operation.record().op == FIKIT_OP_EVENT_RECORD &&
                      operation.as<fikit_event>().event == event;
           });
}

bool Core::look_at_blocks(Session& session) {
    bool progress = false;
    for (const uint32_t handle : session.used) {
        SessionStream& stream = *session.streams[handle];
        if (stream.block.kind == Block::Kind::none || !is_over(session, stream, handle)) continue;
        stream.block.kind = Block::Kind::none;
        --session.blocked;
        --blocked_;
        session.rescan = progress = true;
    }
    return progress;
}

bool Core::is_over(Session& session, SessionStream& stream, uint32_t handle) {
    const Block& block = stream.block;
    if (block.kind == Block::Kind::event) return !will_record(block.session, block.event);
    if (block.kind == Block::Kind::word) return look_at_word(session, stream, handle);
    const auto* done = reinterpret_cast<const uint64_t*>(session.outbox.data() + FIKIT_HOST_DONE_OFFSET);
    return __atomic_load_n(done + handle, __ATOMIC_ACQUIRE) >= block.value;
}

// A word in pinned memory is read here; one on the device is fetched, now and then.
bool Core::look_at_word(Session& session, SessionStream& stream, uint32_t handle) {
    Block& block = stream.block;
    HostGate& gate = session.host_gate[handle];
    if (__atomic_load_n(&gate.passed, __ATOMIC_ACQUIRE) < stream.fences) return false;
    if (block.host != nullptr) return satisfies(block, read_word(block.host, block.wide));
    if (__atomic_load_n(&gate.read, __ATOMIC_ACQUIRE) < stream.reads) return false;
    if (block.pause != 0 && satisfies(block, gate.word)) return true;
    if (now_ < block.next_look) return false;
    block.pause = std::clamp(2 * block.pause, least_pause, longest_pause);
    block.next_look = now_ + block.pause;
    CUresult result = driver_.cuMemcpyDtoHAsync_(&gate.word, block.device, block.wide ? 8 : 4, monitor_);
    if (result == CUDA_SUCCESS)
        result = driver_.cuStreamWriteValue64_(
            monitor_, session.host_gate_device + handle * sizeof(HostGate) + offsetof(HostGate, read),
            ++stream.reads, CU_STREAM_WRITE_VALUE_DEFAULT);
    if (result != CUDA_SUCCESS) fail(result, "looking at a word");
    return false;
}

bool Core::reads_words(const Session& session) const {
    return std::any_of(session.used.begin(), session.used.end(), [&](uint32_t handle) {
        return __atomic_load_n(&session.host_gate[handle].read, __ATOMIC_ACQUIRE) <
               session.streams[handle]->reads;
    });
}

// The session is over.
void Core::forget_backlog(Session& session) {
    session.backlog.clear();
    blocked_ -= session.blocked;
    session.blocked = 0;
    session.rescan = false;
    for (const uint32_t handle : session.used) session.streams[handle]->block = {};
}

}  // namespace fikit
