// See device.hpp; copies, fills and stream memory operations are device_memory.cpp's.
#include "device.hpp"

#include <algorithm>
#include <utility>

namespace fikit::sim {

struct Wave {
    std::uint64_t blocks = 0;
    Nanoseconds started_at = 0;
};

bool Device::KernelOrder::operator()(const OperationPtr& left, const OperationPtr& right) const {
    // A lower number is a higher priority.
    return left->priority != right->priority ? left->priority < right->priority
                                             : left->sequence < right->sequence;
}

void Device::schedule(Nanoseconds time, Step step, OperationPtr operation, std::shared_ptr<Wave> wave) {
    events_.push({time, ++sequence_, step, std::move(operation), std::move(wave)});
}

void Device::submit(const OperationPtr& operation, const std::vector<Dependency>& after, Nanoseconds now) {
    operation->device = this;
    operation->sequence = ++sequence_;
    operation->ready_at = now + model::submission;
    for (const Dependency& dependency : after) {
        if (!dependency.operation) continue;
        const Nanoseconds delay = dependency.other_stream ? model::cross_stream : 0;
        if (dependency.operation->done) {
            operation->ready_at = std::max(operation->ready_at, dependency.operation->completed_at + delay);
            continue;
        }
        ++operation->unfinished;
        dependency.operation->dependents.push_back({operation, delay});
    }
    if (operation->unfinished == 0) schedule(operation->ready_at, Step::begin, operation);
}

std::optional<Nanoseconds> Device::next_event_time() const {
    if (fault_ != CUDA_SUCCESS || events_.empty()) return std::nullopt;
    return events_.top().time;
}

void Device::advance_to(Nanoseconds now) {
    while (fault_ == CUDA_SUCCESS && !events_.empty() && events_.top().time <= now) {
        const Nanoseconds time = events_.top().time;
        // All of one instant first, then the blocks: a kernel of higher priority that becomes ready
        // in the instant in which room is freed gets it.
        while (fault_ == CUDA_SUCCESS && !events_.empty() && events_.top().time == time) {
            const Event event = events_.top();
            events_.pop();
            ++events_processed_;
            process(event);
        }
        if (std::exchange(placing_due_, false) && fault_ == CUDA_SUCCESS) place_blocks(time);
    }
    if (fault_ == CUDA_SUCCESS && !waiting_values_.empty()) {
        poll(now);
        // A satisfied wait may have made others ready in the past.
        if (!events_.empty() && events_.top().time <= now) advance_to(now);
    }
}

void Device::process(const Event& event) {
    switch (event.step) {
        case Step::begin:
            begin(event.operation, event.time);
            break;
        case Step::resume:
            resume(event.operation, event.time);
            break;
        case Step::wave_end:
            end_wave(event.operation, event.wave, event.time);
            break;
        case Step::kernel_end:
            complete(event.operation, event.time);
            break;
        case Step::copy_end:
            finish_copy(event.operation, event.time);
            break;
    }
}

void Device::begin(const OperationPtr& operation, Nanoseconds time) {
    if (++operations_ == faults_.lost_after) {
        halt(CUDA_ERROR_DEVICE_UNAVAILABLE);
        return;
    }
    if (auto* launch = std::get_if<Launch>(&operation->work)) {
        if (operation->execution == nullptr) {
            operation->execution =
                std::make_unique<Execution>(*launch->kernel, std::move(launch->parameters), launch->shape,
                                            *launch->variables, timer_base_);
            schedule(time + model::kernel_start, Step::begin, operation);
            --operations_;
            return;
        }
        if (++launches_ == faults_.launch) {
            halt(faults_.launch_result);
            return;
        }
        operation->blocks_pending = launch->shape.blocks();
        kernels_.insert(operation);
        placing_due_ = true;
    } else if (const auto* copy = std::get_if<Copy>(&operation->work)) {
        engines_[static_cast<std::size_t>(copy->engine)].queue.push(operation);
        start_copies(copy->engine, time);
    } else if (std::holds_alternative<Fill>(operation->work)) {
        engines_[static_cast<std::size_t>(CopyEngine::on_device)].queue.push(operation);
        start_copies(CopyEngine::on_device, time);
    } else if (const auto* write = std::get_if<WriteValue>(&operation->work)) {
        if (!perform(*write)) {
            halt(CUDA_ERROR_ILLEGAL_ADDRESS);
            return;
        }
        complete(operation, time);
        if (!waiting_values_.empty()) poll(time);
    } else if (const auto* wait = std::get_if<WaitValue>(&operation->work)) {
        if (satisfied(*wait))
            complete(operation, time);
        else if (fault_ == CUDA_SUCCESS)
            waiting_values_.push_back(operation);
    } else if (std::holds_alternative<HostCall>(operation->work)) {
        host_calls_.push_back(operation);
    } else {
        complete(operation, time);
    }
}

void Device::complete(const OperationPtr& operation, Nanoseconds time) {
    operation->done = true;
    operation->completed_at = time;
    operation->execution.reset();
    operation->work = Marker{};
    news_ = news_ || operation->awaited;
    release(*operation, time);
}

void Device::release(Operation& operation, Nanoseconds time) {
    for (Operation::Dependent& dependent : operation.dependents) {
        Operation& next = *dependent.operation;
        next.ready_at = std::max(next.ready_at, time + dependent.delay);
        if (--next.unfinished > 0) continue;
        Device& device = *next.device;
        if (device.fault_ == CUDA_SUCCESS) device.schedule(next.ready_at, Step::begin, dependent.operation);
    }
    operation.dependents.clear();
    operation.dependents.shrink_to_fit();
}

void Device::place_blocks(Nanoseconds time) {
    SmSet closed;  // SMs for which a kernel further ahead still has blocks
    for (auto next = kernels_.begin(); next != kernels_.end() && !closed.all();) {
        const OperationPtr operation = *next;
        const Launch& launch = std::get<Launch>(operation->work);
        const SmSet allowed = (operation->partition ? *operation->partition : SmSet{}.set()) & ~closed;
        auto wave = std::make_shared<Wave>();
        wave->started_at = time;
        wave->blocks = machine_.place(wave.get(), launch.block, allowed, operation->blocks_pending);
        if (wave->blocks > 0) {
            const bool first = operation->blocks_pending == launch.shape.blocks();
            operation->blocks_pending -= wave->blocks;
            operation->blocks_running += wave->blocks;
            if (operation->block_duration) {
                schedule(time + *operation->block_duration, Step::wave_end, operation, std::move(wave));
            } else {
                operation->waves.push_back(std::move(wave));
                if (first) {
                    operation->started_at = time;
                    schedule(time, Step::resume, operation);
                }
            }
        }
        if (operation->blocks_pending == 0) {
            next = kernels_.erase(next);
        } else {
            closed |= operation->partition ? *operation->partition : SmSet{}.set();
            ++next;
        }
    }
}

void Device::resume(const OperationPtr& operation, Nanoseconds time) {
    const Execution::Progress progress = operation->execution->resume(memory_, time);
    if (!waiting_values_.empty()) poll(time);
    switch (progress.state) {
        case Execution::State::running:
        case Execution::State::waiting:
            schedule(progress.until, Step::resume, operation);
            return;
        case Execution::State::faulted:
            halt(progress.fault);
            return;
        case Execution::State::finished:
            break;
    }
    operation->block_duration = time - operation->started_at + model::block_overhead;
    for (const std::shared_ptr<Wave>& wave : operation->waves) {
        schedule(wave->started_at + *operation->block_duration, Step::wave_end, operation, wave);
    }
    operation->waves.clear();
}

void Device::end_wave(const OperationPtr& operation, const std::shared_ptr<Wave>& wave, Nanoseconds time) {
    machine_.release(wave.get(), std::get<Launch>(operation->work).block);
    operation->blocks_running -= wave->blocks;
    placing_due_ = !kernels_.empty();
    if (operation->blocks_pending == 0 && operation->blocks_running == 0) {
        schedule(time + model::kernel_end, Step::kernel_end, operation);
    }
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
    kernels_.clear();
    for (Engine& engine : engines_) engine = {};
    waiting_values_.clear();
    host_calls_.clear();
}

}  // namespace fikit::sim
