// See capture.hpp. The rules are those of the CUDA programming guide, "Creating a Graph Using Stream
// Capture", and of the driver API's pages on the calls.
#include "capture.hpp"

#include <algorithm>
#include <cstring>

namespace fikit::sim {

namespace {

std::set<Capture*>& going_on() {
    static auto* all = new std::set<Capture*>;
    return *all;
}

void close_capture(Capture& capture) {
    for (Stream* stream : capture.streams) {
        stream->capture = {};
        --stream->context->captures;
    }
    capture.streams.clear();
    going_on().erase(&capture);
}

void join(Stream& stream, const std::shared_ptr<Capture>& capture, std::vector<GraphEdge> ends) {
    stream.capture = {capture, std::move(ends)};
    ++stream.context->captures;
    capture->streams.insert(&stream);
}

// The legacy stream waits for all blocking streams, which a captured one cannot let it do.
bool holds_up_legacy(const Capture& capture, const Stream& legacy) {
    return std::any_of(capture.streams.begin(), capture.streams.end(), [&](const Stream* other) {
        return other->context == legacy.context && other->blocking();
    });
}

CUresult fail(Capture& capture, CUresult result) {
    capture.invalid = true;
    return result;
}

// Every forked stream must have come back to the one in which the capture began.
bool joined(const Capture& capture) {
    const std::vector<GraphEdge>& ends = capture.origin->capture.ends;
    const auto reached = [&](const GraphEdge& edge) {
        return std::any_of(ends.begin(), ends.end(),
                           [&](const GraphEdge& end) { return depends_on(*end.node, *edge.node); });
    };
    return std::all_of(capture.left.begin(), capture.left.end(), reached) &&
           std::all_of(capture.streams.begin(), capture.streams.end(), [&](const Stream* stream) {
               return std::all_of(stream->capture.ends.begin(), stream->capture.ends.end(), reached);
           });
}

}  // namespace

// What is waited for twice is waited for to its end, unless it is the same both times.
void add_unique(std::vector<GraphEdge>& ends, const std::vector<GraphEdge>& more) {
    for (const GraphEdge& edge : more) {
        const auto same = std::find_if(ends.begin(), ends.end(),
                                       [&](const GraphEdge& each) { return each.node == edge.node; });
        if (same == ends.end())
            ends.push_back(edge);
        else if (std::memcmp(&same->data, &edge.data, sizeof edge.data) != 0)
            same->data = {};
    }
}

CUstreamCaptureMode& thread_capture_mode() {
    thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return mode;
}

CUresult may_enqueue(Driver&, Stream& stream) {
    if (stream.capture.capture)
        return stream.capture.capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    if (stream.kind != Stream::Kind::legacy || stream.context->captures == 0) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (Capture* capture : going_on())
        if (holds_up_legacy(*capture, stream)) result = fail(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    return result;
}

bool waits_for_captured(const Stream& stream) {
    return stream.kind == Stream::Kind::legacy &&
           std::any_of(going_on().begin(), going_on().end(),
                       [&](const Capture* capture) { return holds_up_legacy(*capture, stream); });
}

CUresult admit(Driver& driver, Stream& stream, InCapture in_capture) {
    if (in_capture == InCapture::answered) return CUDA_SUCCESS;
    if (in_capture == InCapture::refused && stream.capture.capture) return refuse_in_capture(stream);
    return may_enqueue(driver, stream);
}

CUresult capture_command(Driver& driver, Stream& stream, Command command) {
    Capture& capture = *stream.capture.capture;
    std::vector<GraphEdge>& ends = stream.capture.ends;
    const auto* const launch = std::get_if<LaunchCommand>(&command);
    if (launch != nullptr && launch->options.early)
        for (GraphEdge& end : ends)
            if (is_full(end.data) && end.node->type() == CU_GRAPH_NODE_TYPE_KERNEL)
                end.data = {
                    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, 0, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, {}};
    GraphNode& node = add_node(driver, *capture.graph, std::move(command), ends);
    for (auto* inner : inner_graphs(node.command)) (*inner)->parent = node.graph;
    ends = {{&node, {}}};
    return CUDA_SUCCESS;
}

CUresult refuse_in_capture(Stream& stream) {
    if (!stream.capture.capture) return CUDA_SUCCESS;
    return fail(*stream.capture.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult refuse_in_capture(Driver&, const Context& context) {
    CUresult result = CUDA_SUCCESS;
    if (context.captures == 0) return result;
    for (Capture* capture : going_on()) {
        const bool met = std::any_of(capture->streams.begin(), capture->streams.end(),
                                     [&](const Stream* stream) { return stream->context == &context; });
        if (met) result = fail(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return result;
}

CUresult refuse_unsafe(Driver&) {
    if (going_on().empty() || thread_capture_mode() == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (Capture* capture : going_on()) {
        const bool own = capture->thread == std::this_thread::get_id();
        const bool forbids = own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                 : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                       thread_capture_mode() == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (forbids) result = fail(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return result;
}

CUresult begin_capture(Driver& driver, Stream& stream, CUstreamCaptureMode mode, std::shared_ptr<Graph> graph,
                       std::vector<GraphEdge> after) {
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream.capture.capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (const CUresult result = may_enqueue(driver, stream); result != CUDA_SUCCESS) return result;
    if (stream.kind == Stream::Kind::legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    auto capture = std::make_shared<Capture>();
    capture->id = driver.next_id++;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->context = stream.context;
    capture->origin = &stream;
    capture->given_graph = graph != nullptr;
    capture->graph = graph != nullptr ? std::move(graph) : make_graph(driver);
    going_on().insert(capture.get());
    join(stream, capture, std::move(after));
    return CUDA_SUCCESS;
}

CUresult end_capture(Driver& driver, Stream& stream, CUgraph* handle) {
    const std::shared_ptr<Capture> capture = stream.capture.capture;
    // Who gave the graph has it already.
    if (handle == nullptr && !(capture && capture->given_graph)) return CUDA_ERROR_INVALID_VALUE;
    if (handle != nullptr) *handle = nullptr;
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    CUresult result = CUDA_SUCCESS;
    if (capture->origin != &stream) return fail(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    else if (capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!joined(*capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    close_capture(*capture);
    if (result == CUDA_SUCCESS && handle != nullptr)
        *handle = capture->graph->handle;
    else if (!capture->given_graph)
        retire_graph(driver, *capture->graph);
    return result;
}

void abandon_capture(Driver& driver, Stream& stream) {
    const std::shared_ptr<Capture> capture = stream.capture.capture;
    if (!capture) return;
    if (capture->origin == &stream) {
        capture->invalid = true;
        close_capture(*capture);
        if (!capture->given_graph) retire_graph(driver, *capture->graph);
        return;
    }
    add_unique(capture->left, stream.capture.ends);
    capture->streams.erase(&stream);
    --stream.context->captures;
    stream.capture = {};
}

CUresult refuse_captured(const Event& event) {
    if (!event.capture.capture) return CUDA_SUCCESS;
    if (!going_on().contains(event.capture.capture.get()) || event.capture.capture->invalid)
        return CUDA_ERROR_INVALID_VALUE;
    return fail(*event.capture.capture, CUDA_ERROR_CAPTURED_EVENT);
}

std::optional<CUresult> capture_record(Driver& driver, Stream& stream, Event& event, unsigned flags,
                                       const CUgraphEdgeData* data) {
    if (!stream.capture.capture) {
        event.capture = {};
        return std::nullopt;
    }
    if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0)
        return capture_command(driver, stream, RecordCommand{driver.events.share(event.handle)});
    event.capture = stream.capture;
    if (data != nullptr)
        for (GraphEdge& edge : event.capture.ends) edge.data = *data;
    return CUDA_SUCCESS;
}

std::optional<CUresult> capture_wait(Driver& driver, Stream& stream, Event& event, unsigned flags) {
    const bool external = (flags & CU_EVENT_WAIT_EXTERNAL) != 0;
    if (stream.capture.capture && external)
        return capture_command(driver, stream, WaitCommand{driver.events.share(event.handle)});
    if (!event.capture.capture) {
        if (!stream.capture.capture) return std::nullopt;
        if (!event.record) return CUDA_SUCCESS;  // never recorded
        // Work outside the capture is no node to depend on.
        return fail(*stream.capture.capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    // An event of a capture that is over or has failed stands for nothing.
    const std::shared_ptr<Capture>& other = event.capture.capture;
    if (!going_on().contains(other.get()) || other->invalid) {
        refuse_in_capture(stream);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (external) return CUDA_ERROR_ILLEGAL_STATE;
    if (stream.kind == Stream::Kind::legacy) return fail(*other, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (!stream.capture.capture) {
        join(stream, other, event.capture.ends);
        return CUDA_SUCCESS;
    }
    if (stream.capture.capture != other) {
        fail(*stream.capture.capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        return fail(*other, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    add_unique(stream.capture.ends, event.capture.ends);
    return CUDA_SUCCESS;
}

}  // namespace fikit::sim
