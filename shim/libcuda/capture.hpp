// Stream capture. What a program does on a capturing stream becomes a node of the graph, after what the
// stream did before. So a capture is the program's own affair: nothing of it reaches the context that others
// share. What a capture forbids is refused here (CUDA C++ Programming Guide, "Creating a Graph Using Stream
// Capture").
#pragma once

#include <cstdint>

#include "graph.hpp"

namespace fikit::shim {

// What a call does with a stream that is captured: most become nodes, some are always refused.
enum class InCapture { recorded, refused };
// No copy or fill that waits becomes a node, though a thread's default stream may be captured.
inline InCapture in_capture(bool wait) { return wait ? InCapture::refused : InCapture::recorded; }

class Captures {
  public:
    // No capture is under way anywhere in the process: what most calls find, at the price of one load.
    bool none() const { return load_relaxed(active_) == 0; }
    // Also of the current context's legacy default stream, which no work may enter while a stream is captured
    // that it waits for.
    bool capturing(uint32_t stream) const {
        if (none()) return false;
        return load_acquire(of_[stream]) != nullptr || waits_for_captured(stream);
    }

    // Into the given graph, behind the given nodes of it; without one into a new one. `stream` is the
    // handle's name.
    CUresult begin(CUstream handle, uint32_t stream, CUstreamCaptureMode mode, Graph* into,
                   const CUgraphNode* nodes, const CUgraphEdgeData* edges, size_t count);
    CUresult end(uint32_t stream, Graph** graph);  // null: of who gave the graph
    CUresult information(uint32_t stream, CUstreamCaptureStatus& status, cuuint64_t& id, Graph*& graph,
                         CUgraphNode const*& last, CUgraphEdgeData const*& edges, size_t& count);
    // The stream ends, and with it the capture that it began.
    void abandon(uint32_t stream);
    // A graph, or a node of one, ends while it is captured into.
    void forget(const Graph& graph) {
        if (!none()) forget_graph(graph);
    }
    void forget(const Node& node) {
        if (!none()) forget_node(node);
    }

    // The stream is capturing: a node for what it does next. `fill_in` completes it, and may fail.
    template <class FillIn>
    CUresult add(uint32_t stream, CUgraphNodeType type, const FillIn& fill_in);
    // An event recorded on a capturing stream stands for what the stream did so far; who waits for it joins.
    // `capture`: its number; 0: none. Without `data` it stands for the end of that.
    CUresult record(uint32_t stream, Event& event, const CUgraphEdgeData* data, uint64_t& capture);
    // Not inlined: few waits are for an event in a capture, and the others would pay for this one's
    // registers.
    [[gnu::noinline]] CUresult join(CUstream handle, uint32_t stream, const Event& event);
    // Adds to what the stream's next node depends on, or replaces it.
    CUresult depend(uint32_t stream, const CUgraphNode* nodes, const CUgraphEdgeData* edges, size_t count,
                    bool replace);
    // What its captures have against a call that is given the stream, as a real driver asks before it looks
    // at anything else. SUCCESS: it may go on, and is recorded where the stream is captured.
    CUresult admit(uint32_t stream, InCapture in_capture) {
        return none() ? CUDA_SUCCESS : look_at(stream, in_capture);
    }
    // A call that went wrong for a reason of its own, and spoils the stream's capture, if there is one.
    CUresult forbid(uint32_t stream, CUresult why);
    // A call that might wait for any stream, also captured ones: refused as the captures' modes ask.
    CUresult unsafe() { return none() ? CUDA_SUCCESS : refuse_unsafe(); }
    // An event whose last record was captured tells of no work: who asks spoils the capture. Of one that is
    // over or has failed it tells nothing.
    [[gnu::noinline]] CUresult refuse(const Event& event);
    // Its last record was captured, in what is over or has failed.
    bool is_over(const Event& event);
    // A call that is about all of a context's streams.
    CUresult forbid_all(const Context& context) { return none() ? CUDA_SUCCESS : refuse_all(context); }

  private:
    struct Capture {
        Graph* graph;
        uint64_t id;
        uint32_t origin;
        CUstreamCaptureMode mode;
        pthread_t thread;
        bool spoilt;
        bool given;        // the graph was there before
        bool shrunk;       // nodes of it have ended, which events may name still
        List<Node*> left;  // the last ones of streams destroyed meanwhile
    };
    // A stream in a capture: what its next node depends on.
    struct Branch {
        Capture* capture;
        const Context* context;
        bool blocking;  // the context's legacy default stream waits for it
        List<Edge> last;
        // The same as the program asked for it last.
        List<Node*> told;
        List<CUgraphEdgeData> told_edges;
    };

    bool waits_for_captured(uint32_t stream) const {
        const Context* const context = stream_number(stream) == 0 ? thread.current() : nullptr;
        return context != nullptr && load_relaxed(blocking_[process.number_of(*context)]) != 0;
    }
    Node* begin_node(uint32_t stream, CUgraphNodeType type);
    bool all_joined(const Branch& origin) const;
    void enter(CUstream handle, uint32_t stream, Branch* branch);
    uint32_t& blocking(const Branch& branch) { return blocking_[process.number_of(*branch.context)]; }
    void leave(uint32_t stream);
    void close(Capture* capture);
    void forget_graph(const Graph& graph);
    void forget_node(const Node& node);
    CUresult look_at(uint32_t stream, InCapture in_capture);
    CUresult refuse_unsafe();
    CUresult refuse_all(const Context& context);
    CUresult spoil_blocking();
    CUresult may_enqueue(uint32_t stream);
    CUresult spoil(uint32_t stream, CUresult why);

    mutable pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    uint32_t active_ = 0;
    uint32_t blocking_[most_gpus + Process::most_contexts] = {};  // branches, by context
    uint64_t ids_ = 0;
    uint32_t streams() const { return process.device_count() << stream_bits; }

    Branch* of_[most_gpus << stream_bits] = {};  // by a stream's name
};

template <class FillIn>
CUresult Captures::add(uint32_t stream, CUgraphNodeType type, const FillIn& fill_in) {
    const Locked lock(mutex_);
    if (const CUresult result = may_enqueue(stream); result != CUDA_SUCCESS) return result;
    if (of_[stream] == nullptr) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;  // another thread has ended it
    Node* const node = begin_node(stream, type);
    if (node == nullptr || !fill_in(*node)) {
        of_[stream]->capture->spoilt = true;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

extern Captures captures;

// The stream that a call is given, which its captures let have it.
inline CUresult use_stream(CUstream handle, uint32_t& name, InCapture in_capture = InCapture::recorded) {
    const CUresult result = find_stream(handle, name);
    return result == CUDA_SUCCESS ? captures.admit(name, in_capture) : result;
}
// An event, as the program asks. In a capture it stands for that much of what the stream did last; without
// `data` for its end.
CUresult record_event(CUevent handle, CUstream stream, unsigned flags, const CUgraphEdgeData* data);
// Of a call that asks about the stream alone, so that it needs nothing of the context.
inline CUresult may_ask(CUstream handle, InCapture in_capture = InCapture::recorded) {
    uint32_t name = 0;
    return captures.none() ? CUDA_SUCCESS : use_stream(handle, name, in_capture);
}

}  // namespace fikit::shim
