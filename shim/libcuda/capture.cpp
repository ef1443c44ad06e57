#include "capture.hpp"

#include <stdlib.h>
#include <string.h>

#include <new>

namespace fikit::shim {

constinit Captures captures;

void let_go(Recording* recording) {
    if (recording == nullptr || __atomic_sub_fetch(&recording->references, 1u, __ATOMIC_ACQ_REL) != 0) return;
    for (Captured* call = recording->first; call != nullptr;) {
        Captured* const next = call->next;
        free(call);
        call = next;
    }
    delete recording;
}

CUresult Captures::begin(uint32_t stream, CUstreamCaptureMode mode) {
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    // The legacy default stream cannot be captured (CUDA C++ Programming Guide, "Stream Capture").
    if (stream == 0) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    auto* const capture = new (std::nothrow) Capture();
    auto* const graph = new (std::nothrow) Graph();
    auto* const recording = new (std::nothrow) Recording();
    const Locked lock(mutex_);
    if (capture == nullptr || graph == nullptr || recording == nullptr || of_[stream] != nullptr) {
        const bool twice = of_[stream] != nullptr;
        delete capture;
        delete graph;
        delete recording;
        return twice ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    graph->recording = recording;
    *capture = {graph, ++ids_, stream, false};
    store_release(of_[stream], capture);
    store_release(active_, active_ + 1);
    return CUDA_SUCCESS;
}

CUresult Captures::end(uint32_t stream, Graph*& graph) {
    const Locked lock(mutex_);
    Capture* const capture = of_[stream];
    if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    for (Capture*& joined : of_)
        if (joined == capture) store_release(joined, static_cast<Capture*>(nullptr));
    store_release(active_, active_ - 1);
    graph = capture->graph;
    const bool spoilt = capture->spoilt;
    delete capture;
    if (!spoilt) return CUDA_SUCCESS;
    let_go(graph->recording);
    delete graph;
    graph = nullptr;
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult Captures::information(uint32_t stream, CUstreamCaptureStatus& status, cuuint64_t& id,
                               Graph*& graph) {
    status = CU_STREAM_CAPTURE_STATUS_NONE;
    id = 0;
    graph = nullptr;
    if (none()) return CUDA_SUCCESS;
    const Locked lock(mutex_);
    const Capture* const capture = of_[stream];
    if (capture == nullptr) return CUDA_SUCCESS;
    status = capture->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    id = capture->id;
    graph = capture->graph;
    return CUDA_SUCCESS;
}

CUresult Captures::add(uint32_t stream, const Captured& call, const void* attributes, size_t attribute_bytes,
                       Captured*& added, size_t more_bytes) {
    void* const memory = malloc(sizeof(Captured) + attribute_bytes + more_bytes);
    if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    added = new (memory) Captured(call);
    added->next = nullptr;
    if (attribute_bytes != 0) memcpy(added->bytes(), attributes, attribute_bytes);
    const Locked lock(mutex_);
    Capture* const capture = of_[stream];
    if (capture == nullptr || capture->spoilt) {
        free(memory);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    Recording& recording = *capture->graph->recording;
    *recording.last = added;
    recording.last = &added->next;
    ++recording.count;
    return CUDA_SUCCESS;
}

uint64_t Captures::capture_of(uint32_t stream) const {
    if (none()) return 0;
    const Locked lock(mutex_);
    return of_[stream] != nullptr ? of_[stream]->id : 0;
}

CUresult Captures::join(uint32_t stream, uint64_t wanted) {
    const Locked lock(mutex_);
    for (Capture* const capture : of_) {
        if (capture == nullptr || capture->id != wanted) continue;  // one that is over cannot be joined
        if (of_[stream] == capture) return CUDA_SUCCESS;
        if (of_[stream] != nullptr) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
        store_release(of_[stream], capture);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult Captures::forbid(uint32_t stream) {
    const Locked lock(mutex_);
    if (of_[stream] != nullptr) of_[stream]->spoilt = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

}  // namespace fikit::shim
