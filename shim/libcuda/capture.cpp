#include "capture.hpp"

#include <memory>
#include <new>

namespace fikit::shim {

constinit Captures captures;

namespace {

// What is waited for twice is waited for to its end, unless it is the same both times.
bool add_once(List<Edge>& edges, const Edge& added) {
    for (Edge& edge : edges) {
        if (edge.node != added.node) continue;
        if (memcmp(&edge.data, &added.data, sizeof edge.data) != 0) edge.data = {};
        return true;
    }
    return edges.add(added);
}

// The program's, of this graph.
CUresult add_given(List<Edge>& edges, const Graph* graph, const CUgraphNode* nodes,
                   const CUgraphEdgeData* data, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        Node* const node = node_of(nodes[i]);
        if (node == nullptr || node->graph != graph) return CUDA_ERROR_INVALID_VALUE;
        if (!add_once(edges, {node, data != nullptr ? data[i] : CUgraphEdgeData{}}))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

}  // namespace

CUresult Captures::begin(CUstream handle, uint32_t stream, CUstreamCaptureMode mode, Graph* into,
                         const CUgraphNode* nodes, const CUgraphEdgeData* edges, size_t count) {
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    // The legacy default stream cannot be captured (CUDA C++ Programming Guide, "Stream Capture").
    if (stream_number(stream) == 0) {
        const CUresult result = admit(stream, InCapture::recorded);
        return result == CUDA_SUCCESS ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : result;
    }
    auto* const capture = new (std::nothrow) Capture();
    auto* const graph = into != nullptr ? into : new (std::nothrow) Graph();
    auto* const branch = new (std::nothrow) Branch();
    CUresult result =
        capture != nullptr && graph != nullptr && branch != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) result = add_given(branch->last, into, nodes, edges, count);
    std::unique_ptr<Graph> unused;  // ends, which captures hear of, once the mutex is free
    const Locked lock(mutex_);
    if (of_[stream] != nullptr) result = CUDA_ERROR_ILLEGAL_STATE;
    if (result != CUDA_SUCCESS) {
        delete capture;
        if (into == nullptr) unused.reset(graph);
        delete branch;
        return result;
    }
    capture->graph = graph;
    capture->id = ++ids_;
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = pthread_self();
    capture->given = into != nullptr;
    branch->capture = capture;
    enter(handle, stream, branch);
    store_release(active_, active_ + 1);
    return CUDA_SUCCESS;
}

CUresult Captures::end(uint32_t stream, Graph** graph) {
    std::unique_ptr<Graph> unused;
    const Locked lock(mutex_);
    Capture* const capture = of_[stream] != nullptr ? of_[stream]->capture : nullptr;
    if (graph == nullptr && (capture == nullptr || !capture->given)) return CUDA_ERROR_INVALID_VALUE;
    if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) {
        capture->spoilt = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    CUresult result = CUDA_SUCCESS;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        pthread_equal(capture->thread, pthread_self()) == 0)
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    else if (capture->spoilt)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!all_joined(*of_[stream]))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    close(capture);
    if (result == CUDA_SUCCESS && graph != nullptr)
        *graph = capture->graph;
    else if (!capture->given)
        unused.reset(capture->graph);
    delete capture;
    return result;
}

void Captures::enter(CUstream handle, uint32_t stream, Branch* branch) {
    const Context* const context = context_of(handle);
    branch->context = context != nullptr ? context : &device_of(stream).primary();
    branch->blocking = is_blocking(handle);
    store_release(of_[stream], branch);
    if (branch->blocking) store_release(blocking(*branch), blocking(*branch) + 1);
}

void Captures::leave(uint32_t stream) {
    Branch* const branch = of_[stream];
    store_release(of_[stream], static_cast<Branch*>(nullptr));
    if (branch->blocking) store_release(blocking(*branch), blocking(*branch) - 1);
    delete branch;
}

void Captures::close(Capture* capture) {
    for (uint32_t each = 0; each < streams(); ++each)
        if (of_[each] != nullptr && of_[each]->capture == capture) leave(each);
    store_release(active_, active_ - 1);
}

void Captures::abandon(uint32_t stream) {
    if (!capturing(stream)) return;
    std::unique_ptr<Graph> unused;
    const Locked lock(mutex_);
    if (of_[stream] == nullptr) return;  // another thread has ended it
    Capture* const capture = of_[stream]->capture;
    if (capture->origin != stream) {
        for (Node* const node : of_[stream]->last)
            if (!capture->left.add(node)) capture->spoilt = true;
        leave(stream);
        return;
    }
    close(capture);
    if (!capture->given) unused.reset(capture->graph);
    delete capture;
}

void Captures::forget_graph(const Graph& graph) {
    const Locked lock(mutex_);
    for (uint32_t stream = 0; stream < streams(); ++stream) {
        if (of_[stream] == nullptr || of_[stream]->capture->graph != &graph) continue;
        of_[stream]->capture->graph = nullptr;
        of_[stream]->capture->spoilt = true;
    }
}

// What comes next depends on it no more.
void Captures::forget_node(const Node& node) {
    const Locked lock(mutex_);
    for (uint32_t stream = 0; stream < streams(); ++stream) {
        if (of_[stream] == nullptr || of_[stream]->capture->graph != node.graph) continue;
        of_[stream]->last.remove(&node);
        of_[stream]->capture->left.remove(&node);
        of_[stream]->capture->shrunk = true;
    }
}

// Does the origin come after what every other stream did last? A capture's nodes stand after what they depend
// on.
bool Captures::all_joined(const Branch& origin) const {
    const Capture* const capture = origin.capture;
    const List<Node*>& nodes = capture->graph->nodes;
    for (Node* const node : nodes) node->joined = false;
    for (Node* const node : origin.last) node->joined = true;
    for (size_t i = nodes.size(); i-- > 0;)
        if (nodes[i]->joined)
            for (Node* const before : nodes[i]->before) before->joined = true;
    for (const Node* const node : capture->left)
        if (!node->joined) return false;
    for (uint32_t stream = 0; stream < streams(); ++stream)
        if (of_[stream] != nullptr && of_[stream]->capture == capture)
            for (const Node* const node : of_[stream]->last)
                if (!node->joined) return false;
    return true;
}

CUresult Captures::information(uint32_t stream, CUstreamCaptureStatus& status, cuuint64_t& id, Graph*& graph,
                               CUgraphNode const*& last, CUgraphEdgeData const*& edges, size_t& count) {
    status = CU_STREAM_CAPTURE_STATUS_NONE;
    id = 0;
    graph = nullptr;
    last = nullptr;
    edges = nullptr;
    count = 0;
    if (none()) return CUDA_SUCCESS;
    const Locked lock(mutex_);
    Branch* const branch = of_[stream];
    if (branch == nullptr)
        return waits_for_captured(stream) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
    const Capture& capture = *branch->capture;
    status = capture.spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (capture.spoilt) return CUDA_SUCCESS;
    id = capture.id;
    graph = capture.graph;
    branch->told.clear();
    branch->told_edges.clear();
    for (const Edge& edge : branch->last)
        if (!branch->told.add(edge.node) || !branch->told_edges.add(edge.data))
            return CUDA_ERROR_OUT_OF_MEMORY;
    last = reinterpret_cast<CUgraphNode const*>(branch->told.begin());
    edges = branch->told_edges.begin();
    count = branch->told.size();
    return CUDA_SUCCESS;
}

// The mutex is held.
Node* Captures::begin_node(uint32_t stream, CUgraphNodeType type) {
    Branch& branch = *of_[stream];
    Node* const node = branch.capture->graph->add(type, nullptr, 0);
    if (node == nullptr || !node->before.assign(branch.last)) return nullptr;
    node->context = branch.context->name;
    branch.last.clear();
    return branch.last.add({node, {}}) ? node : nullptr;
}

CUresult Captures::record(uint32_t stream, Event& event, const CUgraphEdgeData* data, uint64_t& capture) {
    capture = 0;
    if (none()) return CUDA_SUCCESS;
    const Locked lock(mutex_);
    if (const CUresult result = may_enqueue(stream); result != CUDA_SUCCESS) return result;
    const Branch* const branch = of_[stream];
    if (branch == nullptr) return CUDA_SUCCESS;
    capture = UINT64_MAX;
    // Without memory for it nobody could wait for the event: as a capture that is over.
    free(event.captured);
    event.captured_count = 0;
    const size_t bytes = branch->last.size() * sizeof(Edge);
    event.captured = bytes != 0 ? static_cast<Edge*>(malloc(bytes)) : nullptr;
    if (bytes != 0 && event.captured == nullptr) return CUDA_SUCCESS;
    for (const Edge& edge : branch->last)
        event.captured[event.captured_count++] = {edge.node, data != nullptr ? *data : edge.data};
    capture = branch->capture->id;
    return CUDA_SUCCESS;
}

CUresult Captures::join(CUstream handle, uint32_t stream, const Event& event) {
    const Locked lock(mutex_);
    if (const CUresult result = may_enqueue(stream); result != CUDA_SUCCESS) return result;
    for (uint32_t other = 0; other < streams(); ++other) {
        const Branch* const each = of_[other];
        // What is over or has failed cannot be joined.
        if (each == nullptr || each->capture->id != event.capture || each->capture->spoilt) continue;
        if (&device_of(stream) != &device_of(each->capture->origin)) return CUDA_ERROR_NOT_SUPPORTED;
        Branch* branch = of_[stream];
        if (stream_number(stream) == 0) {
            each->capture->spoilt = true;
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        if (branch != nullptr && branch->capture != each->capture) {
            branch->capture->spoilt = each->capture->spoilt = true;
            return CUDA_ERROR_STREAM_CAPTURE_MERGE;
        }
        if (branch == nullptr) {
            branch = new (std::nothrow) Branch();
            if (branch == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
            branch->capture = each->capture;
            enter(handle, stream, branch);
        }
        for (size_t i = 0; i < event.captured_count; ++i) {
            const Edge& edge = event.captured[i];
            if (each->capture->shrunk && !each->capture->graph->nodes.contains(edge.node)) continue;
            if (!add_once(branch->last, edge)) return CUDA_ERROR_OUT_OF_MEMORY;
        }
        return CUDA_SUCCESS;
    }
    return spoil(stream, CUDA_ERROR_INVALID_VALUE);
}

CUresult Captures::depend(uint32_t stream, const CUgraphNode* nodes, const CUgraphEdgeData* edges,
                          size_t count, bool replace) {
    const Locked lock(mutex_);
    Branch* const branch = of_[stream];
    if (branch == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (branch->capture->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    List<Edge> ends;
    if (!replace && !ends.assign(branch->last)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = add_given(ends, branch->capture->graph, nodes, edges, count);
    return result == CUDA_SUCCESS && !branch->last.assign(ends) ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

CUresult Captures::forbid(uint32_t stream, CUresult why) {
    if (none()) return why;
    const Locked lock(mutex_);
    return spoil(stream, why);
}

CUresult Captures::look_at(uint32_t stream, InCapture in_capture) {
    const Locked lock(mutex_);
    if (in_capture == InCapture::recorded || of_[stream] == nullptr) return may_enqueue(stream);
    of_[stream]->capture->spoilt = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

bool Captures::is_over(const Event& event) {
    const Locked lock(mutex_);
    for (uint32_t stream = 0; stream < streams(); ++stream)
        if (of_[stream] != nullptr && of_[stream]->capture->id == event.capture)
            return of_[stream]->capture->spoilt;
    return event.capture != 0;
}

CUresult Captures::refuse(const Event& event) {
    const Locked lock(mutex_);
    for (uint32_t stream = 0; stream < streams(); ++stream) {
        Branch* const branch = of_[stream];
        if (branch == nullptr || branch->capture->id != event.capture || branch->capture->spoilt) continue;
        branch->capture->spoilt = true;
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

// The mutex is held.
CUresult Captures::spoil(uint32_t stream, CUresult why) {
    const CUresult result = may_enqueue(stream);
    if (result == CUDA_SUCCESS && of_[stream] != nullptr) of_[stream]->capture->spoilt = true;
    return result == CUDA_SUCCESS ? why : result;
}

// The mutex is held. Whether the stream may be given anything, captured or not.
CUresult Captures::may_enqueue(uint32_t stream) {
    if (of_[stream] != nullptr)
        return of_[stream]->capture->spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    return waits_for_captured(stream) ? spoil_blocking() : CUDA_SUCCESS;
}

// The mutex is held: work for the legacy default stream of the current context.
CUresult Captures::spoil_blocking() {
    for (uint32_t other = 0; other < streams(); ++other)
        if (of_[other] != nullptr && of_[other]->blocking && of_[other]->context == thread.current())
            of_[other]->capture->spoilt = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult Captures::refuse_unsafe() {
    if (thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    const Locked lock(mutex_);
    CUresult result = CUDA_SUCCESS;
    for (uint32_t stream = 0; stream < streams(); ++stream) {
        const Branch* const branch = of_[stream];
        if (branch == nullptr) continue;
        Capture& capture = *branch->capture;
        const bool own = pthread_equal(capture.thread, pthread_self()) != 0;
        const bool forbids = own ? capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                 : capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                       thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!forbids) continue;
        capture.spoilt = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

CUresult Captures::refuse_all(const Context& context) {
    const Locked lock(mutex_);
    CUresult result = CUDA_SUCCESS;
    for (uint32_t stream = 0; stream < streams(); ++stream) {
        const Branch* const branch = of_[stream];
        if (branch == nullptr || branch->context != &context) continue;
        branch->capture->spoilt = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

}  // namespace fikit::shim
