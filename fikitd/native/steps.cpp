// The driver calls of copies, fills, events, host functions and words.
#include <algorithm>
#include <cstring>

#include "core.hpp"

namespace fikit {

CUresult Core::issue_copy(Session& session, CUstream stream) {
    const auto& copy = session.head->as<fikit_copy>();
    if ((copy.record.flags & FIKIT_ROWS) != 0) return issue_rows(session, stream);
    if (!session.owns(copy.device, copy.size, copy.kind != FIKIT_COPY_TO_HOST))
        return CUDA_ERROR_INVALID_VALUE;
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
    if (!session.owns(fill.device, fill.count * fill.width, true)) return CUDA_ERROR_INVALID_VALUE;
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

CUresult Core::issue_event(Session& session, SessionStream& stream, CUstream lane) {
    const auto& record = session.head->as<fikit_event>();
    Session* const of = record.session == 0 ? &session : find(record.session);
    if (record.record.op == FIKIT_OP_EVENT_WAIT) {
        // Waiting for an event never recorded waits for nothing.
        const bool recorded =
            of != nullptr && record.event < of->events.size() && of->events[record.event].recorded;
        const CUevent event = recorded ? of->events[record.event].event : nullptr;
        if (recorded && (record.session == 0 || driver_.cuEventQuery_(event) != CUDA_SUCCESS))
            return driver_.cuStreamWaitEvent_(lane, event, 0);
        // Who asks whether a shared one is over is told at once, whatever the GPU and the lane are at.
        const uint64_t known = std::max(stream.completed, session.mark(record.record.stream));
        if (!stream.blocking && known == stream.issued) {
            stream.marked = stream.issued + 1;
            __atomic_store_n(session.mark_word(record.record.stream), stream.marked, __ATOMIC_RELEASE);
        }
        return CUDA_SUCCESS;
    }
    if (of == nullptr) return CUDA_SUCCESS;  // nobody will wait for it
    // Another session's is one that it has recorded, without timing, when it let others have it.
    if (of != &session && (record.event >= of->events.size() || of->events[record.event].event == nullptr ||
                           of->events[record.event].timing))
        return CUDA_SUCCESS;
    if (record.event >= of->events.size()) of->events.resize(record.event + 1);
    SessionEvent& event = of->events[record.event];
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
    return driver_.cuEventRecord_(event.event, lane);
}

// The step is marked when the function may run; what is behind it on the stream is not issued before the
// tenant says that the function has returned.
CUresult Core::issue_host_function(Session& session, SessionStream& stream, uint32_t handle) {
    const uint64_t step = stream.issued + 1;
    const CUresult result = driver_.cuStreamWriteValue64_(stream.lane->stream, session.mark_device(handle),
                                                          step, CU_STREAM_WRITE_VALUE_DEFAULT);
    if (result != CUDA_SUCCESS) return result;
    stream.marked = step;
    stream.await(step);
    Block block;
    block.kind = Block::Kind::host_function;
    block.value = step;
    this->block(session, stream, handle, block, false);
    return CUDA_SUCCESS;
}

// What is left of a record has no more waits (backlog.cpp).
CUresult Core::issue_values(Session& session, CUstream stream) {
    std::vector<CUstreamBatchMemOpParams> writes;
    uint32_t upto = 0;
    const CUresult result = prepare_values(session, writes, upto);
    if (result != CUDA_SUCCESS || writes.empty()) return result;
    return driver_.cuStreamBatchMemOp_(stream, static_cast<unsigned>(writes.size()), writes.data(), 0);
}

}  // namespace fikit
