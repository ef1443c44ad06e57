// A dispatch core over the null driver, with real producers on the other side of real channels, all in one
// process.
//
// With own_thread = false nothing happens unless the test turns the loop, so what it sees is deterministic;
// a call, which blocks its caller, runs on a thread of its own meanwhile (`while_turning`).
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core.hpp"
#include "null_driver.hpp"
#include "producer.hpp"

namespace fikit::test {

using null_driver::Function;

struct Tenant {
    std::unique_ptr<Producer> producer;
    std::shared_ptr<const fikit_inbox> inbox;  // mappings of the test's own
    std::shared_ptr<const fikit_outbox> outbox;
    uint32_t function = 0;  // of a module, once load() was called
    Producer* operator->() const { return producer.get(); }
};

inline Settings hand_turned() {
    Settings settings;
    settings.own_thread = false;
    settings.ring_bytes = 1u << 17;
    settings.staging_bytes = 4u << 20;
    settings.spare_channels = 0;  // so that registrations can be counted
    return settings;
}

class Rig {
  public:
    // `lanes`: of each of six priorities; `partition`: streams of the partition; `on_launch`: also as the
    // core starts, which finds out what launches take.
    explicit Rig(const Settings& wanted = hand_turned(), int lanes = 4, int partition = 2,
                 std::function<void()> on_launch = {})
        : settings_(wanted) {
        null_driver::reset();
        if (on_launch) null_driver::set_on_launch(std::move(on_launch));
        settings_.driver_path = FIKIT_NULL_DRIVER;
        core_ = std::make_unique<Core>(settings_, reinterpret_cast<CUcontext>(64));
        for (int priority = -5; priority <= 0; ++priority)
            for (int number = 0; number < lanes; ++number) core_->add_lane(stream(priority), priority, 0);
        for (int number = 0; number < partition; ++number) core_->add_lane(stream(0), 0, 96);
        core_->set_monitor(stream(-5));
        null_driver::record(true);
        core_->start();
        null_driver::record(false);
        calls_at_start_ = null_driver::take_calls();
    }
    ~Rig() {
        core_.reset();
        for (const CUstream each : streams_) cuStreamDestroy(each);
    }

    bool unmodified = false;  // are the programs of sessions that are attached from now on

    Core& core() { return *core_; }
    const std::vector<CUstream>& streams() const { return streams_; }
    const std::vector<null_driver::Call>& calls_at_start() const { return calls_at_start_; }

    void turn(int times = 1) {
        for (int turn = 0; turn < times; ++turn) core_->turn();
    }
    // Turns (or waits, if the core turns itself) until the condition holds; gives up after ten seconds.
    template <class Condition>
    void turn_until(Condition condition) {
        const Nanoseconds limit = host_now() + 10'000'000'000;
        while (!condition()) {
            CHECK(host_now() < limit);
            if (!settings_.own_thread) core_->turn();
            std::this_thread::yield();
        }
    }
    // Runs something that waits for the core, while this thread turns it (or waits, if it turns itself).
    template <class Action>
    void while_turning(Action action) {
        if (settings_.own_thread) return action();
        std::atomic<bool> over{false};
        std::thread thread([&] {
            action();
            over.store(true, std::memory_order_release);
        });
        while (!over.load(std::memory_order_acquire)) {
            core_->turn();
            std::this_thread::yield();
        }
        thread.join();
    }

    // Empty, or the reason why it was refused.
    std::string attach(const std::string& id, int level, Tenant& tenant, double weight = 1.0,
                       uint64_t memory_limit = 0, uint64_t tenant_limit = 0) {
        int ends[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        std::pair<int, int> memories{-1, -1};
        std::string refused;
        while_turning([&] {
            try {
                memories =
                    core_->attach({id, level, weight, memory_limit, tenant_limit, unmodified, ends[0], -1});
            } catch (const std::runtime_error& error) {
                refused = error.what();
            }
        });
        if (!refused.empty()) {
            close(ends[1]);
            return refused;
        }
        tenant.inbox = mapping<fikit_inbox>(memories.second, FIKIT_INBOX_BYTES);
        tenant.outbox = mapping<fikit_outbox>(memories.first, sizeof(fikit_outbox));
        Producer* producer = nullptr;
        CHECK(Producer::attach(memories.first, memories.second, ends[1], producer) == status::success);
        tenant.producer.reset(producer);
        return {};
    }
    Tenant attach(const std::string& id, int level = 5) {
        Tenant tenant;
        CHECK_EQUAL(attach(id, level, tenant), "");
        return tenant;
    }
    // A session with a kernel to launch.
    Tenant ready(const std::string& id, int level = 5) {
        Tenant tenant = attach(id, level);
        load(tenant);
        return tenant;
    }
    void load(Tenant& tenant, const char* name = "kernel") {
        static constexpr char ptx[] = ".version 7.0\n";
        while_turning([&] {
            uint32_t module = 0;
            Reply log;
            CHECK_EQUAL(tenant->module_load(ptx, sizeof ptx, module, log), 0);
            Reply reply;
            CHECK_EQUAL(tenant->function_get(module, name, static_cast<uint32_t>(strlen(name)),
                                             tenant.function, reply),
                        0);
        });
        // A worker may still be about to hand the session back after its answer: until a record was read.
        const uint64_t tail = __atomic_load_n(&tenant.inbox->tail, __ATOMIC_ACQUIRE);
        uint32_t event = 0;
        CHECK_EQUAL(tenant->event_create(event), 0);
        CHECK_EQUAL(tenant->event_destroy(event), 0);
        turn_until([&] { return __atomic_load_n(&tenant.inbox->tail, __ATOMIC_ACQUIRE) != tail; });
    }
    // Turns until all that the tenant has enqueued was read. A worker that has answered a call hands the
    // session back when it comes to that, and until then nothing is.
    void take(const Tenant& tenant) {
        turn_until([&] {
            return __atomic_load_n(&tenant.inbox->tail, __ATOMIC_ACQUIRE) ==
                   __atomic_load_n(&tenant.outbox->head, __ATOMIC_ACQUIRE);
        });
    }
    // Turns until nothing is left to do: no progress for longer than the core delays a mark.
    void settle() {
        Nanoseconds last = host_now();
        const Nanoseconds limit = last + 10'000'000'000;
        // Turns count too, since this thread may not have run meanwhile. What is written behind a call may be
        // read later than this: `take` first.
        for (int idle = 0; idle < 100 || host_now() - last < 1'000'000; ++idle) {
            CHECK(host_now() < limit);
            if (!core_->turn()) continue;
            last = host_now();
            idle = 0;
        }
    }
    EndedSession wait_ended() {
        std::vector<EndedSession> ended;
        turn_until([&] { return !(ended = core_->take_ended()).empty(); });
        CHECK_EQUAL(ended.size(), 1u);
        return ended.front();
    }

  private:
    template <class Header>
    static std::shared_ptr<const Header> mapping(int descriptor, size_t bytes) {
        void* address = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
        CHECK(address != MAP_FAILED);
        return {static_cast<const Header*>(address),
                [bytes](const Header* mapped) { munmap(const_cast<Header*>(mapped), bytes); }};
    }
    CUstream stream(int priority) {
        CUstream made = nullptr;
        CHECK(cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, priority) == CUDA_SUCCESS);
        streams_.push_back(made);
        return made;
    }

    Settings settings_;
    std::vector<CUstream> streams_;
    std::vector<null_driver::Call> calls_at_start_;
    std::unique_ptr<Core> core_;
};

inline LaunchShape shape_of(uint32_t function, uint32_t stream = 0, uint32_t grid = 132) {
    return {.function = function,
            .stream = stream,
            .grid = {grid, 1, 1},
            .block = {128, 1, 1},
            .shared_bytes = 0,
            .parameter_bytes = null_driver::parameter_bytes,
            .attributes = 0};
}

inline void launch(Tenant& tenant, uint32_t stream = 0, uint32_t grid = 132) {
    static constexpr uint64_t parameters[2] = {1, 2};
    CHECK_EQUAL(tenant->launch(shape_of(tenant.function, stream, grid), nullptr, parameters), 0);
}

// Turns until the session has an asynchronous error; its text.
inline std::string deferred(Rig& rig, Tenant& tenant, Status expected) {
    Status status = 0;
    rig.turn_until([&] { return (status = tenant->channel().take_deferred()) != 0; });
    CHECK_EQUAL(status, expected);
    return tenant.inbox->deferred_text;
}

// What the GPU has been given does not end.
inline void hold_all(Rig& rig) {
    for (const CUstream stream : rig.streams()) null_driver::hold(stream);
}
inline void release_all(Rig& rig) {
    for (const CUstream stream : rig.streams()) null_driver::release(stream);
}

inline size_t number_of(const std::vector<null_driver::Call>& calls, Function function) {
    return static_cast<size_t>(std::count_if(calls.begin(), calls.end(),
                                             [&](const auto& call) { return call.function == function; }));
}

inline std::vector<CUstream> launch_streams(const std::vector<null_driver::Call>& calls) {
    std::vector<CUstream> streams;
    for (const auto& call : calls)
        if (call.function == Function::cuLaunchKernel_) streams.push_back(call.stream);
    return streams;
}

inline uint64_t launches() { return null_driver::count(Function::cuLaunchKernel_); }

// What a session is charged for.
inline uint64_t memory_of(Rig& rig, const std::string& id) {
    uint64_t bytes = 0;
    rig.while_turning([&] {
        for (const SessionSnapshot& session : rig.core().snapshot().sessions)
            if (session.id == id) bytes = session.memory_bytes;
    });
    return bytes;
}

}  // namespace fikit::test
