// See device.hpp; copies, fills and stream memory operations are device_memory.cpp's.
#include "device.hpp"

#include <algorithm>
#include <utility>

namespace fikit::sim {

Device::Device(GlobalMemory& memory, const DeviceOptions& options) : memory_(memory), options_(options) {}

Compute& Device::compute(unsigned context) {
    if (computes_.size() <= context) computes_.resize(context + 1);
    std::unique_ptr<Compute>& found = computes_[context];
    if (!found) {
        found = std::make_unique<Compute>(memory_, options_.timer_base, options_.interference,
                                          &options_.background);
        for (const SmSet& partition : partitions_) found->machine().add_partition(partition);
    }
    return *found;
}

void Device::schedule(Nanoseconds time, Step step, OperationPtr operation) {
    events_.push({time, ++sequence_, step, std::move(operation)});
}

void Device::submit(const OperationPtr& operation, const std::vector<Dependency>& after, Nanoseconds now) {
    operation->device = this;
    operation->ready_at = now + model::submission;
    const auto* marker = std::get_if<Marker>(&operation->work);
    for (const Dependency& dependency : after) {
        if (!dependency.operation) continue;
        Operation& before = *dependency.operation;
        Nanoseconds delay = dependency.other_stream ? model::cross_stream : 0;
        if (marker != nullptr && marker->timed && std::holds_alternative<Launch>(before.work))
            delay += model::event_flush;
        if (before.done) {
            operation->ready_at = std::max(operation->ready_at, before.completed_at + delay);
            continue;
        }
        ++operation->unfinished;
        if (!before.successor.operation)
            before.successor = {operation, delay};
        else
            before.dependents.push_back({operation, delay});
    }
    if (operation->unfinished == 0) schedule(operation->ready_at, Step::begin, operation);
}

std::optional<Nanoseconds> Device::next_event_time() const {
    if (fault_ != CUDA_SUCCESS) return std::nullopt;
    std::optional<Nanoseconds> next = turn_due_;
    const auto consider = [&](Nanoseconds time) {
        if (!next || time < *next) next = time;
    };
    if (!events_.empty()) consider(events_.top().time);
    for (const auto& compute : computes_) {
        if (!compute) continue;
        if (const auto time = compute->next_event_time()) consider(*time);
    }
    return next;
}

void Device::advance_to(Nanoseconds now) {
    for (;;) {
        const auto next = next_event_time();
        if (!next || *next > now) break;
        const Nanoseconds time = *next;
        // All of one instant first, then the blocks: a kernel of higher priority that becomes ready
        // in the instant in which room is freed gets it.
        bool more = true;
        while (more && fault_ == CUDA_SUCCESS) {
            while (fault_ == CUDA_SUCCESS && !events_.empty() && events_.top().time <= time) {
                const Event event = events_.top();
                events_.pop();
                ++events_processed_;
                process(event);
            }
            for (const auto& compute : computes_) {
                if (compute) collect(*compute, time);
            }
            more = !events_.empty() && events_.top().time <= time;
        }
        take_turns(time);
        for (const auto& compute : computes_) {
            if (compute && !compute->suspended()) compute->place(time);
        }
    }
    if (fault_ == CUDA_SUCCESS && !waiting_values_.empty()) {
        poll(now);
        // A satisfied wait may have made others ready in the past.
        const auto next = next_event_time();
        if (next && *next <= now) advance_to(now);
    }
}

// Brings the kernels of a context up to `time` and completes what has ended.
void Device::collect(Compute& compute, Nanoseconds time) {
    compute.advance_to(time);
    if (!waiting_values_.empty()) poll(time);
    if (compute.fault() != CUDA_SUCCESS) halt(compute.fault());
    std::vector<OperationPtr>& ended = compute.ended();
    for (std::size_t index = 0; index < ended.size(); ++index) {
        const OperationPtr operation = std::move(ended[index]);
        if (std::holds_alternative<Launch>(operation->work))
            complete(operation, time);
        else
            finish_copy(operation, time);
    }
    ended.clear();
}

void Device::take_turns(Nanoseconds time) {
    // What comes out of the background may be of a time before.
    time = turns_at_ = std::max(turns_at_, time);
    if (computes_.size() == 1 || suspended_) {
        turn_due_.reset();
        for (const auto& compute : computes_) {
            if (compute && suspended_) compute->suspend(time);
            if (compute && !suspended_) compute->resume(time);
        }
        return;
    }
    const auto busy = [&](int index) {
        const auto& compute = computes_[static_cast<std::size_t>(index)];
        return compute && compute->busy();
    };
    const int count = static_cast<int>(computes_.size());
    turn_due_ = turns_.update(time, count, busy);
    for (int index = 0; index < count; ++index) {
        const auto& compute = computes_[static_cast<std::size_t>(index)];
        if (!compute) continue;
        if (turns_.runs(index, time))
            compute->resume(time);
        else
            compute->suspend(time);
    }
}

void Device::suspend(Nanoseconds now) {
    suspended_ = true;
    take_turns(now);
}

void Device::resume(Nanoseconds now) {
    suspended_ = false;
    take_turns(now);
}

bool Device::computing() const {
    return std::any_of(computes_.begin(), computes_.end(),
                       [](const auto& compute) { return compute && compute->busy(); });
}

void Device::add_partition(const SmSet& partition) {
    partitions_.push_back(partition);
    for (const auto& compute : computes_) {
        if (compute) compute->machine().add_partition(partition);
    }
}

void Device::remove_partition(const SmSet& partition) {
    const auto found = std::find(partitions_.begin(), partitions_.end(), partition);
    if (found == partitions_.end()) return;
    partitions_.erase(found);
    for (const auto& compute : computes_) {
        if (compute) compute->machine().remove_partition(partition);
    }
}

std::uint64_t Device::events_processed() const {
    std::uint64_t total = events_processed_;
    for (const auto& compute : computes_) total += compute ? compute->events_processed() : 0;
    return total;
}

void Device::process(const Event& event) {
    switch (event.step) {
        case Step::begin:
            begin(event.operation, event.time);
            break;
        case Step::copy_end:
            finish_copy(event.operation, event.time);
            break;
        case Step::write_end:
            if (!perform(std::get<WriteValue>(event.operation->work))) {
                halt(CUDA_ERROR_ILLEGAL_ADDRESS);
                break;
            }
            complete(event.operation, event.time);
            if (!waiting_values_.empty()) poll(event.time);
            break;
        case Step::move:
            compute(event.operation->context)
                .move(event.operation, moved_bytes(*event.operation), event.time);
            break;
    }
}

void Device::begin(const OperationPtr& operation, Nanoseconds time) {
    if (++operations_ == options_.faults.lost_after) {
        halt(CUDA_ERROR_DEVICE_UNAVAILABLE);
        return;
    }
    if (std::holds_alternative<Launch>(operation->work)) {
        if (++launches_ == options_.faults.launch)
            halt(options_.faults.launch_result);
        else
            compute(operation->context).launch(operation, time);
    } else if (const auto* copy = std::get_if<Copy>(&operation->work)) {
        engines_[static_cast<std::size_t>(copy->engine)].queue.push(operation);
        start_copies(copy->engine, time);
    } else if (std::holds_alternative<Fill>(operation->work)) {
        engines_[static_cast<std::size_t>(CopyEngine::on_device)].queue.push(operation);
        start_copies(CopyEngine::on_device, time);
    } else if (std::holds_alternative<WriteValue>(operation->work)) {
        schedule(time + model::write_landing, Step::write_end, operation);
    } else if (const auto* wait = std::get_if<WaitValue>(&operation->work)) {
        if (satisfied(*wait))
            complete(operation, time);
        else if (fault_ == CUDA_SUCCESS)
            waiting_values_.push_back(operation);
    } else if (std::holds_alternative<HostCall>(operation->work)) {
        host_calls_.push_back(operation);
    } else if (const auto* decision = std::get_if<Decision>(&operation->work)) {
        if (decision->decide(operation, time)) complete(operation, time);
    } else {
        complete(operation, time);
    }
}

void Device::complete(const OperationPtr& operation, Nanoseconds time) {
    operation->done = true;
    operation->completed_at = time;
    operation->visible_at = time + model::completion_notice;
    if (engines_[static_cast<std::size_t>(CopyEngine::to_host)].running)
        operation->visible_at += model::notice_behind_copies;
    operation->work = Marker{};
    news_ = news_ || operation->awaited;
    if (operation->successor.operation) release(operation->successor, time);
    for (Operation::Dependent& dependent : operation->dependents) release(dependent, time);
    operation->dependents = {};
}

void Device::release(Operation::Dependent& dependent, Nanoseconds time) {
    const OperationPtr next = std::move(dependent.operation);
    next->ready_at = std::max(next->ready_at, time + dependent.delay);
    if (--next->unfinished > 0) return;
    Device& device = *next->device;
    if (device.fault_ == CUDA_SUCCESS) device.schedule(next->ready_at, Step::begin, next);
}

void Device::host_call_returned(const OperationPtr& operation, Nanoseconds now) {
    if (fault_ == CUDA_SUCCESS) complete(operation, now);
}

void Device::halt(CUresult fault) {
    if (fault_ != CUDA_SUCCESS) return;
    fault_ = fault;
    news_ = true;
    // Nothing completes any more; let go of what waits, so that cycles of dependencies are freed.
    events_ = {};
    for (const auto& compute : computes_) {
        if (compute) compute->clear();
    }
    for (Engine& engine : engines_) engine = {};
    waiting_values_.clear();
    host_calls_.clear();
}

}  // namespace fikit::sim
