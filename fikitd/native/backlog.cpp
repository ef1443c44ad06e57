// Streams that wait for their tenant: for a host function to return, or for a word that a stream memory
// operation waits for. Such a wait may never end, and on the GPU it would hold up everybody in the context:
// loading and unloading code, unregistering and freeing memory take as long as it does (measured on the H200,
// driver 580: each until a cuStreamWaitValue on another stream ended). So nothing that waits for a tenant is
// ever issued. The stream is blocked, and what is behind the block, on that stream or on others through
// events and the legacy default stream, is put off in the session's backlog; the rest of the session goes on,
// also what ends the wait.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "core.hpp"

namespace fikit {
namespace {

constexpr Nanoseconds least_pause = 20'000, longest_pause = 500'000;  // between two looks at a word
constexpr size_t looks_per_turn = 16;   // at blocked streams of all sessions, but for one of each
constexpr size_t scanned_at_once = 16;  // records of a backlog, in place of one of the ring's

bool is_of_stream(uint16_t op) {
    return is_step(op) || op == FIKIT_OP_STREAM_CREATE || op == FIKIT_OP_STREAM_DESTROY;
}

bool is_blocking(const Session& session, uint32_t stream) {
    const auto& slot = session.streams[stream];
    return stream != 0 && slot != nullptr && slot->blocking;
}

// Whether a stream waits for a word there, where memory is to go: words are looked at for as long.
bool waits_for_word(const Session& session, uint64_t first, uint64_t bytes) {
    const auto word = session.words.lower_bound(first);
    return word != session.words.end() && *word - first < bytes;
}

// The module in a variable of which the word is, if it is in one.
uint32_t module_of(const Session& session, CUdeviceptr word) {
    const auto behind = session.buffers.upper_bound(word);
    return behind == session.buffers.begin() ? Buffer::no_module : std::prev(behind)->second.module;
}

// While a call is not answered, no other thread of the tenant's can make one, and it may be one of those that
// ends the wait. So only what a launch surely needs is not taken from it.
bool is_held(const Session& session, const PutOff& earlier, const Operation& call) {
    const uint32_t number = call.as<fikit_call_record>().call;
    if (number == fikit_call_module_unload) {
        const auto request = call.request<fikit_request_module_unload>();
        return (request.handle < FIKIT_MAX_MODULES && earlier.modules[request.handle]) ||
               session.word_modules.has(request.handle);
    }
    if (number != fikit_call_memory_unmap) return false;
    const auto request = call.request<fikit_request_memory_unmap>();
    return waits_for_word(session, request.address, request.size);
}

// Memory that no work on the GPU uses any more, or that goes in the order of its stream.
bool is_held(const Session& session, const PutOff& earlier, const fikit_free& free) {
    const fikit_record& record = free.record;
    if (record.op == FIKIT_OP_HOST_FREE) {
        const auto buffer = session.host_buffers.find(static_cast<uint32_t>(free.address));
        return buffer != session.host_buffers.end() &&
               waits_for_word(session, reinterpret_cast<uintptr_t>(buffer->second.memory.data()),
                              buffer->second.memory.size());
    }
    const auto buffer = session.buffers.find(free.address);
    return earlier.holds(record.stream, is_blocking(session, record.stream)) ||
           (buffer != session.buffers.end() && waits_for_word(session, free.address, buffer->second.size));
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

bool is_own(const Session& session, const fikit_event& event) {
    return event.session == 0 || event.session == session.serial;
}

// Has the record to wait for something that is put off? Memory does not go before what may use it.
bool is_held(const Session& session, const Operation& operation) {
    const PutOff& earlier = session.put_off;
    const fikit_record& record = operation.record();
    switch (record.op) {
        case FIKIT_OP_FREE:
        case FIKIT_OP_HOST_FREE:
            return (record.flags & FIKIT_IN_ORDER) != 0
                       ? is_held(session, earlier, operation.as<fikit_free>())
                       : earlier.any;
        case FIKIT_OP_CALL:
            return is_held(session, earlier, operation);
        case FIKIT_OP_EVENT_WAIT:
        case FIKIT_OP_EVENT_DESTROY: {
            const auto& event = operation.as<fikit_event>();
            if (is_own(session, event) && earlier.to_record[event.event]) return true;
            if (record.op == FIKIT_OP_EVENT_DESTROY) return earlier.to_wait_for[event.event];
            break;
        }
        default:
            break;
    }
    return is_of_stream(record.op) && earlier.holds(record.stream, is_blocking(session, record.stream));
}

}  // namespace

// What comes behind may have to wait for the record.
void Core::put_off(Session& session, const Operation& operation, const SessionGraph* graph) {
    PutOff& all = session.put_off;
    const fikit_record& record = operation.record();
    all.any = true;
    if (is_of_stream(record.op)) all.add_stream(record.stream, is_blocking(session, record.stream));
    if (const auto& event = operation.as<fikit_event>();
        (record.op == FIKIT_OP_EVENT_RECORD || record.op == FIKIT_OP_EVENT_WAIT) && is_own(session, event))
        (record.op == FIKIT_OP_EVENT_RECORD ? all.to_record : all.to_wait_for).set(event.event);
    if (graph != nullptr)
        for (const uint16_t module : graph->modules) all.modules.set(module);
    if (record.op != FIKIT_OP_LAUNCH) return;
    const uint32_t function = operation.as<fikit_launch>().function;
    if (function < session.functions.size()) all.modules.set(session.functions[function].module);
}

// Puts the record at the head off where it has to be. False: it may go now.
bool Core::defer(Session& session) {
    if (!is_held(session, *session.head)) return false;
    session.backlog.push_back({KeptOperation(*session.head), graph_of(session, *session.head)});
    put_off(session, *session.head, session.backlog.back().graph.get());
    count_record(session, *session.head, true);
    return true;
}

// The first record that may go becomes the head. Those before it still cannot, so the next look begins there,
// or behind those that one look takes. False: none may go.
bool Core::take_deferred(Session& session) {
    const size_t most = session.scanned + scanned_at_once;
    for (size_t& at = session.scanned; at < session.backlog.size(); ++at) {
        if (at == most) return true;
        const auto& [kept, graph] = session.backlog[at];
        const Operation& operation = kept.operation();
        if (is_held(session, operation)) {
            put_off(session, operation, graph.get());
            continue;
        }
        std::memcpy(session.head->bytes, operation.bytes, kept.bytes());
        count_record(session, operation, false);
        session.head_graph = graph;
        session.backlog.erase(session.backlog.begin() + static_cast<std::ptrdiff_t>(at));
        session.head_ready = true;
        return true;
    }
    session.rescan = false;
    return false;
}

// `behind`: a part of the record at the head, or all of it, comes once the block is over.
void Core::block(Session& session, SessionStream& stream, uint32_t handle, const Block& block, bool behind) {
    if (session.blocked.empty() && session.backlog.empty()) session.put_off = {};
    stream.block = block;
    session.blocked.push_back(handle);
    for (PutOff* const all : {&session.blocks, &session.put_off})
        all->add_stream(handle, is_blocking(session, handle));
    if (block.kind == Block::Kind::word) {
        session.words.insert(block.word());
        session.word_modules.add(block.module);
    }
    ++blocked_;
    if (!behind) return;
    session.backlog.push_front({KeptOperation(*session.head), nullptr});
    ++session.scanned;
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
        const bool stores = value.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                            value.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        const CUdeviceptr address = session.word(value, bytes, stores);
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
    if (!stream.active) place(session, stream, handle, whole_gpu);
    if (handle == 0 ? session.used.size() > 1 : stream.blocking) order_with_legacy(session, stream, handle);
    fikit_value value;
    std::memcpy(&value, session.head->values() + upto, sizeof value);
    Block wait;
    wait.kind = Block::Kind::word;
    wait.wide = is_wide(value.operation);
    wait.flags = value.flags;
    wait.value = value.value;
    if (value.host_buffer == 0) {
        wait.device = value.address;
        wait.module = module_of(session, value.address);
    } else {
        wait.host = session.pinned(value, wait.wide ? 8 : 4)->memory.data() + value.address;
    }
    // The word counts once all that the stream did before is done.
    const CUdeviceptr gate = session.host_gate_device + handle * sizeof(HostGate);
    CUresult result = CUDA_SUCCESS;
    if (!writes.empty())
        result = driver_.cuStreamBatchMemOp_(stream.lane->stream, static_cast<unsigned>(writes.size()),
                                             writes.data(), 0);
    if (result == CUDA_SUCCESS)
        result = driver_.cuStreamWriteValue64_(stream.lane->stream, gate + offsetof(HostGate, passed),
                                               stream.fences + 1, CU_STREAM_WRITE_VALUE_DEFAULT);
    if (result != CUDA_SUCCESS) {
        check(session, result, "stream memory operation");
        record.count = 0;
        return true;
    }
    ++stream.fences;
    const uint32_t left = record.count - upto - 1;
    std::memmove(session.head->bytes + sizeof record, session.head->values() + upto + 1,
                 left * sizeof(fikit_value));
    record.count = left;
    block(session, stream, handle, wait, true);
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
    block(session, stream, record.record.stream, wait, true);
    return false;
}

bool Core::will_record(uint32_t serial, uint32_t event) const {
    const Session* const of = find(serial);
    return of != nullptr && of->to_record.has(event);
}

// At a few of the blocked streams, in turn: a look may take driver calls, and other sessions wait meanwhile.
// `waiting`: so many sessions have some.
bool Core::look_at_blocks(Session& session, size_t waiting) {
    bool progress = false;
    const size_t most = std::max<size_t>(looks_per_turn / waiting, 1);
    for (size_t looks = std::min(session.blocked.size(), most); looks > 0; --looks) {
        if (session.next_look >= session.blocked.size()) session.next_look = 0;
        uint32_t& handle = session.blocked[session.next_look];
        SessionStream& stream = *session.streams[handle];
        if (!is_over(session, stream, handle)) {
            ++session.next_look;
            continue;
        }
        if (session.state != Session::State::running) return true;
        session.blocks.take_stream(handle, is_blocking(session, handle));
        if (stream.block.kind == Block::Kind::word) {
            session.words.extract(stream.block.word());
            session.word_modules.take(stream.block.module);
        }
        stream.block.kind = Block::Kind::none;
        handle = session.blocked.back();
        session.blocked.pop_back();
        --blocked_;
        progress = true;
    }
    if (!progress) return false;
    session.rescan = true;
    session.scanned = 0;
    session.put_off = session.blocks;
    return true;
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
            stream.reads + 1, CU_STREAM_WRITE_VALUE_DEFAULT);
    if (result == CUDA_SUCCESS) {
        ++stream.reads;
        return false;
    }
    // Memory that the session has and may not use yet: it is refused like any other step of the stream's.
    check(session, result, "stream memory operation");
    return true;
}

// Has the GPU yet to pass a fence, or to read a word? Those are no steps, nor is what a stream writes before
// it waits; all of that is over once the fence behind it is.
bool Core::is_at_gates(const Session& session) const {
    return std::any_of(session.used.begin(), session.used.end(), [&](uint32_t handle) {
        const HostGate& gate = session.host_gate[handle];
        const SessionStream& stream = *session.streams[handle];
        return __atomic_load_n(&gate.passed, __ATOMIC_ACQUIRE) < stream.fences ||
               __atomic_load_n(&gate.read, __ATOMIC_ACQUIRE) < stream.reads;
    });
}

// Whose event it is knows that it will be recorded, maybe by another session.
void Core::count_record(Session& session, const Operation& operation, bool put_off) const {
    if (operation.record().op != FIKIT_OP_EVENT_RECORD) return;
    const auto& event = operation.as<fikit_event>();
    Session* const of = event.session == 0 ? &session : find(event.session);
    if (of == nullptr) return;
    if (put_off)
        of->to_record.add(event.event);
    else
        of->to_record.take(event.event);
}

// The session is over.
void Core::forget_backlog(Session& session) {
    for (const PutOffOperation& each : session.backlog) count_record(session, each.kept.operation(), false);
    session.backlog.clear();
    session.to_record.clear();
    blocked_ -= static_cast<uint32_t>(session.blocked.size());
    for (const uint32_t handle : session.blocked) session.streams[handle]->block = {};
    session.blocked.clear();
    session.blocks = {};
    session.words.clear();
    session.word_modules.clear();
    session.rescan = false;
}

}  // namespace fikit
