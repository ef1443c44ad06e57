// The driver calls of copies, fills, events, host functions and words.
#include <cstring>

#include "core.hpp"

namespace fikit {

CUresult Core::issue_copy(Session& session, CUstream stream) {
    const auto& copy = session.head->as<fikit_copy>();
    if (!session.owns(copy.device, copy.size)) return CUDA_ERROR_INVALID_VALUE;
    session.usage.bytes_copied += copy.size;
    if (copy.kind == FIKIT_COPY_ON_DEVICE) {
        if (!session.owns(copy.other, copy.size)) return CUDA_ERROR_INVALID_VALUE;
        return driver_.cuMemcpyDtoDAsync_(copy.device, copy.other, copy.size, stream);
    }
    uint8_t* host = session.host_memory(copy.host_buffer, settings_.staging_bytes, copy.other, copy.size);
    if (host == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (copy.kind == FIKIT_COPY_TO_DEVICE)
        return driver_.cuMemcpyHtoDAsync_(copy.device, host, copy.size, stream);
    return driver_.cuMemcpyDtoHAsync_(host, copy.device, copy.size, stream);
}

CUresult Core::issue_fill(Session& session, CUstream stream) {
    const auto& fill = session.head->as<fikit_fill>();
    if (!session.owns(fill.device, fill.count * fill.width)) return CUDA_ERROR_INVALID_VALUE;
    switch (fill.width) {
        case 1:
            return driver_.cuMemsetD8Async_(fill.device, static_cast<unsigned char>(fill.value), fill.count,
                                            stream);
        case 2:
            return driver_.cuMemsetD16Async_(fill.device, static_cast<unsigned short>(fill.value), fill.count,
                                             stream);
        default:
            return driver_.cuMemsetD32Async_(fill.device, fill.value, fill.count, stream);
    }
}

CUresult Core::issue_event(Session& session, SessionStream& stream, uint32_t handle) {
    const auto& record = session.head->as<fikit_event>();
    if (record.record.op == FIKIT_OP_EVENT_WAIT) {
        const Session* const of = record.session == 0 ? &session : find(record.session);
        if (of == nullptr || record.event >= of->events.size() || !of->events[record.event].recorded)
            return CUDA_SUCCESS;  // waiting for an event never recorded waits for nothing
        const SessionEvent& event = of->events[record.event];
        const bool held = holds_up(*of, event.stream, event.hold);
        if (held) begin_hold(session, stream);
        const CUresult result = driver_.cuStreamWaitEvent_(stream.lane->stream, event.event, 0);
        return held && result == CUDA_SUCCESS ? end_hold(session, stream, handle) : result;
    }
    if (record.event >= session.events.size()) session.events.resize(record.event + 1);
    SessionEvent& event = session.events[record.event];
    const bool timing = (record.flags & FIKIT_EVENT_TIMING) != 0;
    if (event.event != nullptr && event.timing != timing) {
        driver_.cuEventDestroy_(event.event);
        event.event = nullptr;
    }
    if (event.event == nullptr) {
        const unsigned flags = timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
        const CUresult result = driver_.cuEventCreate_(&event.event, flags);
        if (result != CUDA_SUCCESS) return result;
        event.timing = timing;
    }
    event.recorded = true;
    event.stream = handle;
    event.hold = stream.holding ? stream.holds : 0;
    return driver_.cuEventRecord_(event.event, stream.lane->stream);
}

// The step is marked when the function may run; the stream then waits for a word that only this process
// writes, once the tenant says that the function has returned (or the session ends).
CUresult Core::issue_host_function(Session& session, SessionStream& stream, uint32_t handle) {
    const uint64_t step = stream.issued + 1;
    begin_hold(session, stream);
    const CUstream lane = stream.lane->stream;
    CUresult result =
        driver_.cuStreamWriteValue64_(lane, session.mark_device(handle), step, CU_STREAM_WRITE_VALUE_DEFAULT);
    const CUdeviceptr gate = session.host_gate_device + handle * sizeof(HostGate);
    if (result == CUDA_SUCCESS)
        result = driver_.cuStreamWaitValue64_(lane, gate + offsetof(HostGate, open), step,
                                              CU_STREAM_WAIT_VALUE_GEQ);
    if (result == CUDA_SUCCESS) result = end_hold(session, stream, handle);
    if (result == CUDA_SUCCESS) {
        stream.functions = step;
        stream.marked = step;
        stream.await(step);
    }
    return result;
}

namespace {

// What ends a wait, whatever the word was: false when nothing does.
bool end_of(const fikit_value& value, CUdeviceptr address, bool wide, CUstreamBatchMemOpParams& end) {
    const uint64_t all = wide ? UINT64_MAX : UINT32_MAX;
    uint64_t word = value.value & all;
    const uint32_t condition = value.flags & 3u;
    if (condition == CU_STREAM_WAIT_VALUE_AND && word == 0) return false;
    if (condition == CU_STREAM_WAIT_VALUE_NOR) {
        if (word == all) return false;
        word = 0;
    }
    end.operation = wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
    end.writeValue.address = address;
    end.writeValue.value64 = word;
    return true;
}

}  // namespace

// Words of the session's own memory, written and waited for by the GPU. What it waits for may never come, as
// the return of a host function.
CUresult Core::issue_values(Session& session, SessionStream& stream, uint32_t handle) {
    CUstreamBatchMemOpParams list[FIKIT_MAX_VALUES];
    const uint32_t count = session.head->as<fikit_values>().count;
    std::vector<ValueWait> waits;
    for (uint32_t i = 0; i < count; ++i) {
        fikit_value value;
        std::memcpy(&value, session.head->values() + i, sizeof value);
        const bool wide = value.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                          value.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        const CUdeviceptr address = session.word(value, wide ? 8 : 4);
        CUstreamBatchMemOpParams& entry = list[i] = {};
        entry.operation = static_cast<CUstreamBatchMemOpType>(value.operation);
        switch (value.operation) {
            case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            case CU_STREAM_MEM_OP_WAIT_VALUE_64:
                entry.waitValue.address = address;
                entry.waitValue.value64 = value.value;
                entry.waitValue.flags = value.flags;
                waits.push_back({stream.holds + 1, {}});
                if (!end_of(value, address, wide, waits.back().end)) return CUDA_ERROR_INVALID_VALUE;
                break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            case CU_STREAM_MEM_OP_WRITE_VALUE_64:
                entry.writeValue.address = address;
                entry.writeValue.value64 = value.value;
                entry.writeValue.flags = value.flags;
                break;
            case CU_STREAM_MEM_OP_BARRIER:
                entry.memoryBarrier.flags = value.flags;
                continue;
            case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
                continue;
            default:
                return CUDA_ERROR_INVALID_VALUE;
        }
        if (address == 0 || address % (wide ? 8 : 4) != 0) return CUDA_ERROR_INVALID_VALUE;
    }
    if (!waits.empty()) begin_hold(session, stream);
    const CUresult result = driver_.cuStreamBatchMemOp_(stream.lane->stream, count, list, 0);
    if (waits.empty() || result != CUDA_SUCCESS) return result;
    stream.waits.insert(stream.waits.end(), waits.begin(), waits.end());
    return end_hold(session, stream, handle);
}

}  // namespace fikit
