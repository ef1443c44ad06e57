// The core's beginning and end.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "core.hpp"
#include "scheduling/policies.hpp"

namespace fikit {
namespace {

constexpr unsigned timers = 512;
constexpr unsigned marks = 512;  // events, of all streams

}  // namespace

void require(const Driver& driver, CUresult result, const char* what) {
    if (result != CUDA_SUCCESS) throw std::runtime_error(std::string(what) + ": " + driver.describe(result));
}

Core::Core(const Settings& settings, CUcontext context)
    : settings_(settings),
      context_(context),
      clock_(settings.time_scale),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      kick_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      notification_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (const std::string wrong = driver_.load(settings.driver_path.c_str()); !wrong.empty())
        throw std::runtime_error(wrong);
    if (getrandom(identity_.data(), identity_.size(), 0) != static_cast<ssize_t>(identity_.size()))
        throw std::runtime_error("no random numbers");
    require(driver_, driver_.cuCtxSetCurrent_(context), "cuCtxSetCurrent");
    require(driver_, driver_.cuCtxGetDevice_(&device_), "cuCtxGetDevice");
    int count = 0;
    require(driver_, driver_.cuDeviceGetAttribute_(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_),
            "cuDeviceGetAttribute");
    multiprocessors_ = static_cast<uint32_t>(count);
    beside_ = Beside(multiprocessors_);
    CUdeviceptr arenas = 0;
    require(driver_,
            driver_.cuMemAddressReserve_(&arenas, arena_bytes * scheduling::max_sessions, Arena::granule,
                                         first_arena(settings_.gpu), 0),
            "reserving addresses for the sessions' arenas");
    arenas_ = arenas;
    if (!host_gates_.create("fikit-gates", gate_bytes * scheduling::max_sessions, true))
        throw std::runtime_error("no memory for what the GPU tells of blocked streams");
    require(driver_,
            driver_.cuMemHostRegister_(host_gates_.data(), host_gates_.size(),
                                       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
            "cuMemHostRegister");
    require(driver_, driver_.cuMemHostGetDevicePointer_(&host_gates_device_, host_gates_.data(), 0),
            "cuMemHostGetDevicePointer");
    timers_.resize(timers);
    for (int32_t i = 0; i < static_cast<int32_t>(timers); ++i) {
        Timer& timer = timers_[static_cast<size_t>(i)];
        require(driver_, driver_.cuEventCreate_(&timer.before, CU_EVENT_DEFAULT), "cuEventCreate");
        require(driver_, driver_.cuEventCreate_(&timer.after, CU_EVENT_DEFAULT), "cuEventCreate");
        free_timers_.push_back(i);
    }
    free_marks_.resize(marks);
    for (CUevent& event : free_marks_)
        require(driver_, driver_.cuEventCreate_(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    for (CUevent& event : trace_base_)
        require(driver_, driver_.cuEventCreate_(&event, CU_EVENT_DEFAULT), "cuEventCreate");
    sessions_.reserve(scheduling::max_sessions);
    epoll_event event{EPOLLIN, {.u64 = 0}};
    if (!epoll_ || !kick_ || !notification_ ||
        epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, kick_.get(), &event) != 0)
        throw std::runtime_error("no descriptors for the dispatch loop");
}

void Core::start() {
    if (monitor_ == nullptr) throw std::runtime_error("no stream to ask after others was added");
    if (settings_.in_flight_limit == 0 || settings_.in_flight_limit > InFlightQueue::capacity)
        throw std::runtime_error("a session can have 1 to " + std::to_string(InFlightQueue::capacity) +
                                 " operations in flight");
    const std::vector<uint32_t> partitions = lanes_.partitions();
    if (partitions.size() > scheduling::max_partitions)
        throw std::runtime_error("there can be " + std::to_string(scheduling::max_partitions) +
                                 " partitions");
    settings_.bounds.partitions = {};
    for (size_t i = 0; i < partitions.size(); ++i)
        settings_.bounds.partitions[i] = static_cast<uint16_t>(partitions[i]);
    settings_.bounds.multiprocessors = static_cast<uint16_t>(multiprocessors_);
    greatest_priority_ = lanes_.greatest_priority();
    policy_ = scheduling::make_policy(settings_.policy, settings_.bounds);
    if (policy_ == nullptr) throw std::runtime_error("unknown policy " + settings_.policy);
    if (!settings_.board_path.empty() && !board_.open(settings_.board_path))
        throw std::runtime_error("the GPU's board " + settings_.board_path + ": " +
                                 (errno != 0 ? std::strerror(errno) : "no slot is free"));
    for (const auto& [ledger, path] :
         {std::pair{&ledger_, &settings_.ledger_path}, std::pair{&host_ledger_, &settings_.host_ledger_path}})
        if (!path->empty() && !ledger->open(*path))
            throw std::runtime_error("the tenant's ledger " + *path + ": " +
                                     (errno != 0 ? std::strerror(errno) : "no slot is free"));
    calibrate();
    workers_.start(worker_threads, [this] { driver_.cuCtxSetCurrent_(context_); });
    compilers_.start(worker_threads, [this] { driver_.cuCtxSetCurrent_(context_); });
    releases_.start(1, [this] { driver_.cuCtxSetCurrent_(context_); });
    for (unsigned spare = 0; spare < settings_.spare_channels; ++spare)
        spare_channels_.push_back(make_channel());
    if (settings_.own_thread) thread_ = std::thread([this] { run(); });
}

// What two timing events around a kernel read beyond its own duration: measured with a kernel that does
// nothing, whose own duration is taken as `empty_kernel` (CUPTI reads 1.0 to 1.3 us for one on the H200, the
// events 7). On a stream that has nothing else to do, part of it is the host's: the first event happens at
// once, the kernel when its launch arrives. Behind other work that part is not there.
//
// The lane is the one that the default stream of a first session of high priority will have: the stream that
// a process used first is its quickest, as long as it is the only one (bench/DESIGN.md).
void Core::calibrate() {
    Lane* lane = lanes_.choose(std::min(greatest_priority_ + 1, 0), 0, 0);
    if (lane == nullptr) throw std::runtime_error("no streams of the whole GPU were added");
    static constexpr char nothing[] =
        ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry nothing() { ret; }\n";
    constexpr Nanoseconds empty_kernel = 1200;
    constexpr size_t rounds = 31;
    SessionModule loaded;
    CUfunction function = nullptr;
    const auto done = [this](CUresult result) { require(driver_, result, "the empty kernel"); };
    done(driver_.cuLibraryLoadData_(&loaded.library, nothing, nullptr, nullptr, 0, nullptr, nullptr, 0));
    done(driver_.cuLibraryGetModule_(&loaded.module, loaded.library));
    done(driver_.cuModuleGetFunction_(&function, loaded.module, "nothing"));
    for (const bool behind : {false, true}) {
        std::array<Nanoseconds, rounds> readings{};
        for (Nanoseconds& reading : readings) reading = read_empty(function, lane->stream, behind);
        std::sort(readings.begin(), readings.end());
        timer_overhead_[behind] = std::max<Nanoseconds>(0, readings[rounds / 2] - empty_kernel);
    }
    for (size_t round = 0; round < 5; ++round) {
        const Nanoseconds each = time_launches(function, lane->stream);
        launch_cost_ = round == 0 ? each : std::min(launch_cost_, each);
    }
    done(driver_.cuLibraryUnload_(loaded.library));
}

// What a launch takes its caller, in a row of them: so much a program is spared whose launches we make.
Nanoseconds Core::time_launches(CUfunction function, CUstream stream) {
    constexpr int launches = 64;
    const Nanoseconds begin = clock_.now();
    for (int launch = 0; launch < launches; ++launch)
        require(driver_, driver_.cuLaunchKernel_(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr),
                "calibrating");
    const Nanoseconds each = (clock_.now() - begin) / launches;
    require(driver_, driver_.cuStreamSynchronize_(stream), "calibrating");
    return each;
}

// What a pair of timing events reads around the function, on a stream that is idle or `behind` other work.
Nanoseconds Core::read_empty(CUfunction function, CUstream stream, bool behind) {
    const Timer& timer = timers_.front();
    auto* word = reinterpret_cast<uint64_t*>(host_gates_.data());  // no session has it yet
    __atomic_store_n(word, uint64_t{0}, __ATOMIC_RELEASE);
    if (behind)
        require(driver_,
                driver_.cuStreamWaitValue64_(stream, host_gates_device_, 1, CU_STREAM_WAIT_VALUE_GEQ),
                "calibrating");
    require(driver_, driver_.cuEventRecord_(timer.before, stream), "calibrating");
    require(driver_, driver_.cuLaunchKernel_(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr),
            "calibrating");
    require(driver_, driver_.cuEventRecord_(timer.after, stream), "calibrating");
    __atomic_store_n(word, uint64_t{1}, __ATOMIC_RELEASE);
    while (driver_.cuEventQuery_(timer.after) == CUDA_ERROR_NOT_READY) __builtin_ia32_pause();
    float milliseconds = 0;
    require(driver_, driver_.cuEventElapsedTime_(&milliseconds, timer.before, timer.after), "calibrating");
    return static_cast<Nanoseconds>(static_cast<double>(milliseconds) * 1e6);
}

void Core::stop() {
    {
        const std::lock_guard lock(posted_mutex_);
        stopping_.store(true);
    }
    kick();
    if (thread_.joinable()) thread_.join();
    workers_.stop();
    compilers_.stop();
    releases_.stop();
}

Core::~Core() { stop(); }

}  // namespace fikit
