// Stream capture.
#include "capture.hpp"
#include "graph_calls.hpp"
#include "of_thread.hpp"

using namespace fikit::sim;

namespace {

// The nodes that a stream's next one depends on, as the caller gets to see them: the list stays as it is
// until the thread asks again.
struct Listed {
    std::vector<CUgraphNode> nodes;
    std::vector<CUgraphEdgeData> edges;
};
Listed& listed() { return of_thread<Listed>(); }

struct Wanted {
    cuuint64_t* id = nullptr;
    CUgraph* graph = nullptr;
    const CUgraphNode** nodes = nullptr;
    const CUgraphEdgeData** edges = nullptr;
    size_t* count = nullptr;
};

CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, const Wanted& wanted) {
    return with_stream(handle, InCapture::answered,
                       [&](Driver&, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
                           if (waits_for_captured(stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
                           const std::shared_ptr<Capture>& capture = stream.capture.capture;
                           *status = !capture           ? CU_STREAM_CAPTURE_STATUS_NONE
                                     : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                        : CU_STREAM_CAPTURE_STATUS_ACTIVE;
                           if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
                           Listed& list = listed();
                           list.nodes.clear();
                           list.edges.clear();
                           bool full = true;
                           for (const GraphEdge& edge : stream.capture.ends) {
                               list.nodes.push_back(edge.node->handle);
                               list.edges.push_back(edge.data);
                               full = full && is_full(edge.data);
                           }
                           if (wanted.id != nullptr) *wanted.id = capture->id;
                           if (wanted.graph != nullptr) *wanted.graph = capture->graph->handle;
                           if (wanted.nodes != nullptr) *wanted.nodes = list.nodes.data();
                           if (wanted.edges != nullptr) *wanted.edges = list.edges.data();
                           if (wanted.count != nullptr) *wanted.count = list.nodes.size();
                           const bool less = wanted.nodes != nullptr && wanted.edges == nullptr;
                           return less && !full ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
                       });
}

CUresult find_ends(Driver& driver, const Graph& graph, const CUgraphNode* handles,
                   const CUgraphEdgeData* data, std::size_t count, std::vector<GraphEdge>& ends) {
    if (count > 0 && handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t index = 0; index < count; ++index) {
        GraphNode* node = driver.nodes.find(handles[index]);
        const CUgraphEdgeData given = data != nullptr ? data[index] : CUgraphEdgeData{};
        if (node == nullptr || node->graph != &graph || !is_edge_data(given, *node))
            return CUDA_ERROR_INVALID_VALUE;
        add_unique(ends, {{node, given}});
    }
    return CUDA_SUCCESS;
}

CUresult update_dependencies(CUstream handle, const CUgraphNode* handles, const CUgraphEdgeData* data,
                             std::size_t count, unsigned flags) {
    return with_stream(handle,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
                           if (!stream.capture.capture) return CUDA_ERROR_ILLEGAL_STATE;
                           std::vector<GraphEdge> ends;
                           if (flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES) ends = stream.capture.ends;
                           const CUresult result =
                               find_ends(driver, *stream.capture.capture->graph, handles, data, count, ends);
                           if (result == CUDA_SUCCESS) stream.capture.ends = std::move(ends);
                           return result;
                       });
}

}  // namespace

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    return with_stream(handle, InCapture::answered,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) {
                           return begin_capture(driver, stream, mode, nullptr, {});
                       });
}
CUresult cuStreamBeginCapture(CUstream stream) {
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* data, size_t count, CUstreamCaptureMode mode) {
    return with_stream(handle, InCapture::answered,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           std::shared_ptr<Graph> graph = driver.graphs.share(graph_handle);
                           if (!graph) return CUDA_ERROR_INVALID_VALUE;
                           std::vector<GraphEdge> ends;
                           const CUresult result = find_ends(driver, *graph, dependencies, data, count, ends);
                           if (result != CUDA_SUCCESS) return result;
                           return begin_capture(driver, stream, mode, std::move(graph), std::move(ends));
                       });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
    return with_stream(handle, InCapture::answered,
                       [&](Driver& driver, Driver::Lock&, Stream& stream, SimulatedDevice&) -> CUresult {
                           return end_capture(driver, stream, graph);
                       });
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    return capture_info(stream, status, {});
}
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
    return capture_info(stream, status, {id});
}
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** nodes, size_t* count) {
    return capture_info(stream, status, {id, graph, nodes, nullptr, count});
}
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** nodes, const CUgraphEdgeData** edges,
                                   size_t* count) {
    return capture_info(stream, status, {id, graph, nodes, edges, count});
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes, size_t count,
                                           unsigned int flags) {
    return update_dependencies(stream, nodes, nullptr, count, flags);
}
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* nodes,
                                              const CUgraphEdgeData* data, size_t count, unsigned int flags) {
    return update_dependencies(stream, nodes, data, count, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    return with_driver([&](Driver&, Driver::Lock&) -> CUresult {
        if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
            *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        std::swap(thread_capture_mode(), *mode);
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
