// The end of an instantiated graph: what it keeps alive outlives its launches.
#include "entry.hpp"
#include "graph.hpp"

namespace fikit::shim {

Executable::~Executable() {
    if (alone) occupy(false);
    retire(graph);
    if (launched_ != 0) launched_on_->producer->event_destroy(launched_);
}

CUresult Executable::note_launch(uint32_t stream) {
    if (!keeps) return CUDA_SUCCESS;
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
        launched_on_->producer->event_query(launched_) == status::not_ready &&
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
