// Stream capture: what a stream would do becomes nodes of a graph.
#pragma once

#include "graph.hpp"

namespace fikit::sim {

struct Capture {
    std::uint64_t id = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id thread;
    Context* context = nullptr;
    Stream* origin = nullptr;
    std::shared_ptr<Graph> graph;
    bool given_graph = false;  // cuStreamBeginCaptureToGraph's
    bool invalid = false;
    std::set<Stream*> streams;
    std::vector<GraphEdge> left;  // the last ones of streams destroyed meanwhile
};

// Whether work may be put into a stream now: not into the legacy stream while a blocking stream of its
// context is captured, and not into a capture that has failed.
CUresult may_enqueue(Driver& driver, Stream& stream);
// Is it the legacy stream of such a context?
bool waits_for_captured(const Stream& stream);
CUresult capture_command(Driver& driver, Stream& stream, Command command);
// For calls that a capture forbids: it fails, and so does the call.
CUresult refuse_in_capture(Stream& stream);
CUresult refuse_in_capture(Driver& driver, const Context& context);
// For calls that are unsafe during captures of this thread or, in global mode, of others. An H200 checks that
// before anything else.
CUresult refuse_unsafe(Driver& driver);

CUresult begin_capture(Driver& driver, Stream& stream, CUstreamCaptureMode mode, std::shared_ptr<Graph> graph,
                       std::vector<GraphEdge> after);
CUresult end_capture(Driver& driver, Stream& stream, CUgraph* graph);
// A stream that ends, or whose context does, takes its capture along.
void abandon_capture(Driver& driver, Stream& stream);

// To what a stream's next node depends on.
void add_unique(std::vector<GraphEdge>& ends, const std::vector<GraphEdge>& more);

// As the program asks. In a capture it stands for that much of what the stream did last; without `data` for
// its end.
CUresult record_event(CUevent event, CUstream stream, unsigned flags, const CUgraphEdgeData* data);

// What an event stands for, or who waits for it, is all of a context.
CUresult record_event(Driver& driver, Context& context, CUevent event);
CUresult wait_for_event(Driver& driver, Context& context, CUevent event);

// cuEventRecord and cuStreamWaitEvent, where one side is captured. Nothing where neither is.
std::optional<CUresult> capture_record(Driver& driver, Stream& stream, Event& event, unsigned flags,
                                       const CUgraphEdgeData* data);
std::optional<CUresult> capture_wait(Driver& driver, Stream& stream, Event& event, unsigned flags);
// An event whose last record was captured tells of no work: who asks spoils the capture. Of one that is over
// or has failed it tells nothing.
CUresult refuse_captured(const Event& event);

CUstreamCaptureMode& thread_capture_mode();

}  // namespace fikit::sim
