// See compute.hpp. Times in here are local: without what was spent suspended.
#include "compute.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fikit::sim {

namespace {

// Warp instructions of a kernel that run at once, before it goes into the background. All that it ran
// count: one that looks for something and sleeps, over and over, would leave nobody the driver's mutex.
constexpr std::uint64_t foreground = 8192;
// There it sleeps so long without coming back: each time costs as much as hundreds of instructions.
constexpr Nanoseconds short_sleeps = 10'000;

}  // namespace

struct Compute::Kernel {
    OperationPtr operation;  // null: spare
    int priority = 0;
    std::uint64_t arrival = 0;
    std::uint64_t pending = 0, running = 0;  // blocks
    BlockShape block;
    std::optional<BlockCost> cost;  // of a block; known once the first has run
    std::unique_ptr<Execution> execution;
    Execution::Progress progress{};  // as of its last run
    bool in_background = false;
    Nanoseconds ran_at = 0;  // in the background: when its last run was due
    Nanoseconds ready_at = 0, started_at = 0;
    std::vector<Wave*> waves;  // placed before the cost was known
    unsigned moving = 0;       // waves that move data

    const Launch& launch() const { return std::get<Launch>(operation->work); }
};

struct Wave {
    Compute::Kernel* kernel = nullptr;
    std::uint64_t blocks = 0;
    unsigned deepest = 0;  // on the fullest of its SMs
    unsigned parts = 0;    // computing, moving data: what has not ended
    double threads = 0;    // that move data
    Nanoseconds started_at = 0;
};

Compute::Compute(GlobalMemory& memory, Nanoseconds timer_base, double interference,
                 const Background* background)
    : memory_(memory), timer_base_(timer_base), interference_(interference), background_(background) {}

Compute::~Compute() = default;

void Compute::schedule(Nanoseconds time, Step step, Kernel* kernel, Wave* wave) {
    events_.push({time, ++sequence_, step, kernel, wave});
}

Compute::Kernel& Compute::make_kernel(OperationPtr operation) {
    if (spare_kernels_.empty()) {
        kernels_.push_back(std::make_unique<Kernel>());
        spare_kernels_.push_back(kernels_.back().get());
    }
    Kernel& kernel = *spare_kernels_.back();
    spare_kernels_.pop_back();
    kernel.operation = std::move(operation);
    ++live_;
    return kernel;
}

Wave& Compute::make_wave(Kernel& kernel, Nanoseconds time) {
    if (spare_waves_.empty()) {
        waves_.push_back(std::make_unique<Wave>());
        spare_waves_.push_back(waves_.back().get());
    }
    Wave& wave = *spare_waves_.back();
    spare_waves_.pop_back();
    wave = {};
    wave.kernel = &kernel;
    wave.started_at = time;
    return wave;
}

void Compute::launch(OperationPtr operation, Nanoseconds now) {
    Kernel& kernel = make_kernel(std::move(operation));
    const Launch& launch = kernel.launch();
    schedule(local(now) + (launch.graph_node ? model::graph_kernel_start : model::kernel_start), Step::start,
             &kernel);
}

void Compute::move(OperationPtr operation, double bytes, Nanoseconds now) {
    Kernel& kernel = make_kernel(std::move(operation));
    Wave& wave = make_wave(kernel, local(now));
    wave.threads = model::saturating_threads;
    wave.parts = 1;
    start_moving(wave, bytes, local(now));
}

std::optional<Nanoseconds> Compute::next_event_time() const {
    if (suspended_at_ || fault_ != CUDA_SUCCESS) return std::nullopt;
    if (events_.empty() && movers_.empty()) return std::nullopt;
    Nanoseconds next = events_.empty() ? moved_at() : events_.top().time;
    if (!movers_.empty()) next = std::min(next, moved_at());
    return next + lag_;
}

void Compute::advance_to(Nanoseconds now) {
    const Nanoseconds time = local(now);
    while (fault_ == CUDA_SUCCESS && !events_.empty() && events_.top().time <= time) {
        const Event event = events_.top();
        events_.pop();
        ++events_processed_;
        process(event);
    }
    if (movers_.empty()) return;
    settle(time);
    // The last byte may be a rounding error short at the nanosecond that moved_at() named.
    const double served = served_ + rate() / 2;
    while (fault_ == CUDA_SUCCESS && !movers_.empty() && movers_.top().target <= served) {
        Wave& wave = *movers_.top().wave;
        movers_.pop();
        drawing_ -= wave.threads;
        if (--wave.kernel->moving == 0) --moving_kernels_;
        if (--wave.parts == 0) end_wave(wave, time);
    }
    if (movers_.empty()) served_ = drawing_ = 0;
}

void Compute::process(const Event& event) {
    Kernel& kernel = *event.kernel;
    switch (event.step) {
        case Step::start: {
            const Launch& launch = kernel.launch();
            kernel.priority = kernel.operation->priority;
            kernel.arrival = ++sequence_;
            kernel.ready_at = event.time;
            kernel.pending = launch.shape.blocks();
            kernel.block = launch.block;
            if (launch.kernel == nullptr) {
                kernel.cost = launch.cost;
            } else {
                kernel.execution = std::make_unique<Execution>(
                    *launch.kernel, std::move(std::get<Launch>(kernel.operation->work).parameters),
                    launch.shape, *launch.variables, timer_base_);
            }
            const auto behind = std::upper_bound(
                waiting_.begin(), waiting_.end(), &kernel,
                [](const Kernel* left, const Kernel* right) { return left->priority < right->priority; });
            waiting_.insert(behind, &kernel);
            placing_due_ = true;
            break;
        }
        case Step::run:
            run(kernel, event.time);
            break;
        case Step::ran:
            ran(kernel, event.time);
            break;
        case Step::fault:
            fault_ = kernel.progress.fault;
            break;
        case Step::wave_end:
            if (--event.wave->parts == 0) end_wave(*event.wave, event.time);
            break;
        case Step::end:
            finish(kernel);
            break;
    }
}

void Compute::place(Nanoseconds now) {
    if (!std::exchange(placing_due_, false) || fault_ != CUDA_SUCCESS) return;
    const Nanoseconds time = local(now);
    static const SmSet whole = SmSet{}.set();
    SmSet closed;  // SMs for which a kernel further ahead still has blocks
    for (std::size_t index = 0; index < waiting_.size() && !closed.all();) {
        Kernel& kernel = *waiting_[index];
        const SmSet& own = kernel.operation->partition ? *kernel.operation->partition : whole;
        const bool first = kernel.pending == kernel.launch().shape.blocks();
        const Nanoseconds begin = std::max(time, kernel.ready_at);
        Wave& wave = make_wave(kernel, begin);
        wave.blocks = machine_.place(&wave, kernel.block, own & ~closed, kernel.pending,
                                     kernel.launch().cluster, wave.deepest);
        if (wave.blocks == 0) {
            spare_waves_.push_back(&wave);
        } else {
            kernel.pending -= wave.blocks;
            kernel.running += wave.blocks;
            if (first) kernel.started_at = begin;
            if (kernel.cost) {
                set_off(wave);
            } else {
                kernel.waves.push_back(&wave);
                if (first) schedule(begin, Step::run, &kernel);
            }
        }
        if (kernel.pending == 0) {
            waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(index));
        } else {
            closed |= own;
            ++index;
        }
    }
}

// Runs the kernel's code until it waits for a clock or is done; here, if it is short.
void Compute::run(Kernel& kernel, Nanoseconds time) {
    const Nanoseconds now = time + lag_;
    GlobalMemory& memory = kernel.launch().reached != nullptr ? *kernel.launch().reached : memory_;
    const bool offered = background_ != nullptr && *background_;
    const std::uint64_t left = foreground - std::min(foreground, kernel.execution->retired());
    kernel.progress = kernel.execution->resume(memory, now, offered ? left : Execution::unbounded);
    if (kernel.progress.state != Execution::State::running) {
        ran(kernel, time);
        return;
    }
    kernel.in_background = true;
    kernel.ran_at = time;
    (*background_)(
        [&kernel, &memory, now, time] {
            for (Nanoseconds passed = 0; passed < short_sleeps; passed = kernel.progress.until - now) {
                kernel.ran_at = time + passed;
                kernel.progress = kernel.execution->resume(memory, now + passed);
                if (kernel.progress.state != Execution::State::waiting) break;
            }
        },
        [this, &kernel] {
            kernel.in_background = false;
            if (fault_ == CUDA_SUCCESS)
                schedule(kernel.ran_at, Step::ran, &kernel);
            else
                kernel.operation.reset();
        });
}

// What follows from the kernel's last run, which was due at `time`.
void Compute::ran(Kernel& kernel, Nanoseconds time) {
    const Execution::Progress& progress = kernel.progress;
    switch (progress.state) {
        case Execution::State::running:
        case Execution::State::waiting:
        case Execution::State::for_peers:
            schedule(std::max(progress.until - lag_, time), Step::run, &kernel);
            return;
        case Execution::State::faulted:
            schedule(time + model::fault_notice, Step::fault, &kernel);
            return;
        case Execution::State::finished:
            break;
    }
    BlockWork work = kernel.execution->work();
    work.waited = std::min(work.waited, time - kernel.started_at);  // the turns of others do not count
    kernel.cost = block_cost(work);
    for (Wave* wave : kernel.waves) set_off(*wave);
    kernel.waves.clear();
}

// Sets the times at which a wave ends: that of its computing, and that of its bytes.
void Compute::set_off(Wave& wave) {
    Kernel& kernel = *wave.kernel;
    const BlockCost& cost = *kernel.cost;
    wave.parts = 1;
    const Nanoseconds turnover = model::block_overhead + wave.deepest * model::block_launch;
    schedule(wave.started_at + turnover + cost.compute(wave.deepest), Step::wave_end, &kernel, &wave);
    if (cost.bytes > 0) {
        ++wave.parts;
        wave.threads = static_cast<double>(wave.blocks) * kernel.block.threads;
        start_moving(wave, cost.bytes * static_cast<double>(wave.blocks),
                     std::max(wave.started_at, served_at_));
    }
}

void Compute::start_moving(Wave& wave, double bytes, Nanoseconds time) {
    settle(time);
    movers_.push({served_ + bytes / wave.threads, ++sequence_, &wave});
    drawing_ += wave.threads;
    if (wave.kernel->moving++ == 0) ++moving_kernels_;
}

double Compute::rate() const {
    const double whole = model::device_memory * (moving_kernels_ > 1 ? 1 - interference_ : 1);
    return std::min(model::device_memory / model::saturating_threads, whole / drawing_);
}

void Compute::settle(Nanoseconds time) {
    if (drawing_ > 0 && time > served_at_) served_ += rate() * static_cast<double>(time - served_at_);
    served_at_ = std::max(served_at_, time);
}

Nanoseconds Compute::moved_at() const {
    const double missing = std::max(movers_.top().target - served_, 0.0);
    return served_at_ + static_cast<Nanoseconds>(std::ceil(missing / rate()));
}

void Compute::end_wave(Wave& wave, Nanoseconds time) {
    Kernel& kernel = *wave.kernel;
    spare_waves_.push_back(&wave);
    if (wave.blocks == 0) {
        finish(kernel);
        return;
    }
    machine_.release(&wave, kernel.block);
    kernel.running -= wave.blocks;
    placing_due_ = placing_due_ || !waiting_.empty();
    if (kernel.pending == 0 && kernel.running == 0) schedule(time + model::kernel_end, Step::end, &kernel);
}

void Compute::finish(Kernel& kernel) {
    ended_.push_back(std::move(kernel.operation));
    kernel.execution.reset();
    kernel.cost.reset();
    spare_kernels_.push_back(&kernel);
    --live_;
}

void Compute::suspend(Nanoseconds now) {
    if (!suspended_at_) suspended_at_ = now;
}

void Compute::resume(Nanoseconds now) {
    if (!suspended_at_) return;
    const Nanoseconds passed = now - *std::exchange(suspended_at_, std::nullopt);
    lag_ += passed;
    // Code that waits for a clock waits for the time of day: that went on.
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
    for (; !events_.empty(); events_.pop()) {
        Event event = events_.top();
        if (event.step == Step::run) event.time = std::max(event.time - passed, now - lag_);
        events.push(event);
    }
    events_ = std::move(events);
}

void Compute::clear() {
    events_ = {};
    movers_ = {};
    waiting_.clear();
    ended_.clear();
    for (const auto& kernel : kernels_) {
        if (!kernel->in_background) kernel->operation.reset();  // its code is the operation's
    }
    live_ = 0;
}

}  // namespace fikit::sim
