// Launches of an instantiated graph one behind another, and its end: what it keeps alive outlives them.
#include "bridge.hpp"
#include "entry.hpp"
#include "graph.hpp"

namespace fikit::shim {

Executable::~Executable() {
    if (alone) occupy(false);
    retire(graph);
    if (launched_ != 0) launched_on_->producer->event_destroy(launched_);
}

// CUDA driver API, cuGraphLaunch: ordered behind all earlier launches of the graph, in whatever stream. The
// driver sees to that for what it has got; what waits in another stream may not have come to it yet.
CUresult Executable::order_launch(uint32_t stream) const {
    // A graph of empty nodes alone is no action of its stream; one whose kernels are all disabled is (H200).
    if (!acts || launched_ == 0 || launched_in_ == stream) return CUDA_SUCCESS;
    if (launched_on_ == &device_of(stream))
        return result_of(launched_on_->producer->event_wait(launched_, stream_number(stream)));
    const bool waits = launched_on_->producer->event_status(launched_) == status::not_ready;
    return waits ? wait_across(stream, *launched_on_, launched_) : CUDA_SUCCESS;
}

CUresult Executable::note_launch(uint32_t stream) {
    if (!acts && !graph->keeps_objects()) return CUDA_SUCCESS;
    launched_in_ = stream;
    Device& here = device_of(stream);
    if (launched_on_ != &here) {
        uint32_t event = 0;
        if (const Status status = here.producer->event_create(event)) return result_of(status);
        if (launched_ != 0) launched_on_->producer->event_destroy(launched_);
        launched_on_ = &here;
        launched_ = event;
    }
    return result_of(here.producer->event_record(launched_, stream_number(stream), false));
}

// Behind the latest launch, as far as that is not over.
void Executable::retire(Graph* old) {
    if (old == nullptr) return;
    const auto end = [](void* given) { delete static_cast<Graph*>(given); };
    uint32_t behind = 0;
    if (launched_ != 0 && old->keeps_objects() &&
        launched_on_->producer->event_status(launched_) == status::not_ready &&
        launched_on_->producer->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, behind) == status::success) {
        Producer& producer = *launched_on_->producer;
        Status status = producer.event_wait(launched_, behind);
        if (status == status::success) status = producer.host_function(behind, end, old);
        producer.stream_destroy(behind);
        if (status == status::success) return;
    }
    delete old;
}

}  // namespace fikit::shim
