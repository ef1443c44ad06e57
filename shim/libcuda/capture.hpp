// Stream capture. What a program does on a capturing stream becomes a node of the graph, after what the
// stream did before. So a capture is the program's own affair: nothing of it reaches the context that others
// share, and its mode forbids nobody anything.
#pragma once

#include <cstdint>

#include "graph.hpp"

namespace fikit::shim {

class Captures {
  public:
    // No capture is under way anywhere in the process: what most calls find, at the price of one load.
    bool none() const { return load_relaxed(active_) == 0; }
    bool capturing(uint32_t stream) const { return !none() && load_acquire(of_[stream]) != nullptr; }

    // Into the given graph, behind the given nodes of it; without one into a new one.
    CUresult begin(uint32_t stream, CUstreamCaptureMode mode, Graph* into, const CUgraphNode* nodes,
                   size_t count);
    CUresult end(uint32_t stream, Graph*& graph);
    CUresult information(uint32_t stream, CUstreamCaptureStatus& status, cuuint64_t& id, Graph*& graph,
                         CUgraphNode const*& last, size_t& count);

    // The stream is capturing: a node for what it does next. `fill_in` completes it, and may fail.
    template <class FillIn>
    CUresult add(uint32_t stream, CUgraphNodeType type, const FillIn& fill_in);
    // An event recorded on a capturing stream stands for what the stream did so far; who waits for it joins.
    uint64_t record(uint32_t stream, Event& event);  // the capture's number; 0: none
    CUresult join(uint32_t stream, const Event& event);
    // Adds to what the stream's next node depends on, or replaces it.
    CUresult depend(uint32_t stream, CUgraphNode* nodes, size_t count, bool replace);
    // A call that no capture allows; the capture is spoilt.
    CUresult forbid(uint32_t stream);

  private:
    struct Capture {
        Graph* graph;
        uint64_t id;
        uint32_t origin;
        bool spoilt;
        bool given;    // the graph was there before
        size_t first;  // of its nodes that are captured
    };
    // A stream in a capture: what its next node depends on.
    struct Branch {
        Capture* capture;
        List<Node*> last;
    };

    Node* begin_node(uint32_t stream, CUgraphNodeType type);
    bool all_joined(const Branch& origin) const;
    void leave(uint32_t stream);

    mutable pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    uint32_t active_ = 0;
    uint64_t ids_ = 0;
    uint32_t streams() const { return process.device_count() << stream_bits; }

    Branch* of_[most_gpus << stream_bits] = {};  // by a stream's name
};

template <class FillIn>
CUresult Captures::add(uint32_t stream, CUgraphNodeType type, const FillIn& fill_in) {
    const Locked lock(mutex_);
    if (of_[stream] == nullptr || of_[stream]->capture->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    Node* const node = begin_node(stream, type);
    if (node == nullptr || !fill_in(*node)) {
        of_[stream]->capture->spoilt = true;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

extern Captures captures;

}  // namespace fikit::shim
