// Loading code: what the driver compiles holds nobody up; what then reaches the GPU waits for it to be idle.
#include <algorithm>

#include "rig.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

Status load(Tenant& tenant, std::string_view ptx, uint32_t& module) {
    Reply log;
    return tenant->module_load(ptx.data(), ptx.size(), module, log);
}
Status load(Tenant& tenant) {
    uint32_t module = 0;
    return load(tenant, ".version 7.0\n", module);
}

// Compilers of the driver's that are not done before they are let go.
class Compiling {
  public:
    Compiling() {
        null_driver::set_on_compile([this] {
            const uint64_t one = uint64_t{1} << begun_++;
            while ((let_go_.load() & one) == 0) std::this_thread::yield();
            ++ended_;
        });
    }
    ~Compiling() {
        let_go();
        for (std::thread& thread : threads_) thread.join();
        while (ended_ != begun_) std::this_thread::yield();  // nobody may wait for them any more
        null_driver::set_on_compile(nullptr);
    }
    void load(Tenant& tenant) {
        threads_.emplace_back([&tenant, this] {
            CHECK_EQUAL(::load(tenant), 0);
            ++loaded_;
        });
    }
    unsigned begun() const { return begun_; }
    unsigned loaded() const { return loaded_; }
    void let_go() { let_go_ = ~uint64_t{0}; }
    void let_go(unsigned number) { let_go_ |= uint64_t{1} << number; }  // as they have begun

  private:
    std::atomic<unsigned> begun_{0}, ended_{0}, loaded_{0};
    std::atomic<uint64_t> let_go_{0};
    std::vector<std::thread> threads_;
};

uint64_t brought() { return null_driver::count(Function::cuLibraryGetModule_); }

TEST(compiling_keeps_nobody_from_anything) {
    Rig rig;
    Tenant busy = rig.ready("busy");
    std::vector<Tenant> starting;
    for (const char* id : {"a", "b", "c"}) starting.push_back(rig.attach(id));
    Compiling compiling;
    for (Tenant& tenant : starting) compiling.load(tenant);
    rig.turn_until([&] { return compiling.begun() == worker_threads; });
    const uint64_t before = launches();
    for (int i = 0; i < 10; ++i) launch(busy);
    rig.turn_until([&] { return launches() == before + 10; });
    uint64_t address = 0, charged = 0;
    rig.while_turning([&] { CHECK_EQUAL(busy->memory_allocate(1 << 20, address, charged), 0); });
    CHECK_EQUAL(compiling.loaded(), 0u);
    compiling.let_go();
    rig.turn_until([&] { return compiling.loaded() == starting.size(); });
}

// Every other session may have code to compile, which may take seconds each.
TEST(the_most_urgent_sessions_code_is_next) {
    Rig rig;
    std::vector<Tenant> others;
    for (const char* id : {"a", "b", "c", "d"}) others.push_back(rig.attach(id));
    Tenant high = rig.attach("high", 0);
    Compiling compiling;
    for (Tenant& tenant : others) compiling.load(tenant);
    const auto is_read = [](const Tenant& tenant) {
        return __atomic_load_n(&tenant.inbox->tail, __ATOMIC_ACQUIRE) != 0;
    };
    rig.turn_until([&] { return std::all_of(others.begin(), others.end(), is_read); });
    rig.turn_until([&] { return compiling.begun() == worker_threads; });
    compiling.load(high);
    rig.turn_until([&] { return is_read(high); });
    compiling.let_go(0);
    rig.turn_until([&] { return compiling.loaded() == 1 && compiling.begun() == worker_threads + 1; });
    compiling.let_go(worker_threads);
    rig.turn_until([&] { return compiling.loaded() == 2; });
    CHECK_EQUAL(high.inbox->call_done, 1u);
    compiling.let_go();
    rig.turn_until([&] { return compiling.loaded() == others.size() + 1; });
}

TEST(code_waits_for_an_idle_gpu_and_gated_work_for_code) {
    Rig rig;
    Tenant busy = rig.ready("busy"), starting = rig.attach("starting");
    rig.settle();
    hold_all(rig);
    launch(busy);
    rig.settle();
    const uint64_t before = launches(), there = brought();
    Compiling compiling;
    compiling.let_go();
    compiling.load(starting);
    rig.turn_until([&] { return compiling.begun() == 1; });
    launch(busy);
    rig.turn(20);
    CHECK_EQUAL(compiling.loaded(), 0u);
    CHECK_EQUAL(brought(), there);
    release_all(rig);
    rig.turn_until([&] { return compiling.loaded() == 1; });
    CHECK_EQUAL(brought(), there + 1);
    rig.turn_until([&] { return launches() > before; });
}

// The driver would load nothing before it has ended, and let nobody launch.
TEST(code_waits_outside_of_the_driver_for_what_may_never_end) {
    Settings settings = hand_turned();
    settings.time_scale = 0.001;
    Rig rig(settings);
    Tenant endless = rig.ready("endless"), busy = rig.ready("busy"), starting = rig.attach("starting");
    rig.settle();
    hold_all(rig);
    launch(endless);
    rig.settle();
    const uint64_t there = brought();
    Compiling compiling;
    compiling.let_go();
    compiling.load(starting);
    rig.turn_until([&] { return compiling.begun() == 1; });
    const auto snapshot_of = [&](const char* id) {
        Snapshot taken;
        rig.while_turning([&] { taken = rig.core().snapshot(); });
        for (const SessionSnapshot& each : taken.sessions)
            if (each.id == id) return each;
        return SessionSnapshot{};
    };
    rig.turn_until([&] { return snapshot_of("starting").call_ns > 1'000'000; });
    rig.turn_until([&] { return snapshot_of("endless").overdue_ns > 1'000'000; });
    CHECK_EQUAL(snapshot_of("busy").overdue_ns, 0);
    const uint64_t before = launches();
    launch(busy);  // the gate is open once there is no hope that it ends soon
    rig.turn_until([&] { return launches() > before; });
    CHECK_EQUAL(brought(), there);
    CHECK_EQUAL(snapshot_of("busy").call_ns, 0);
    release_all(rig);
    rig.turn_until([&] { return compiling.loaded() == 1; });
    CHECK_EQUAL(brought(), there + 1);
    CHECK_EQUAL(snapshot_of("starting").call_ns, 0);
    rig.turn_until([&] { return snapshot_of("endless").overdue_ns == 0; });
}

TEST(what_cannot_be_loaded_is_unloaded) {
    Rig rig;
    const auto before = null_driver::live();
    Tenant tenant = rig.attach("a");
    for (const Function function : {Function::cuLibraryLoadData_, Function::cuLibraryGetModule_}) {
        null_driver::fail(function, CUDA_ERROR_INVALID_PTX, 0, 1);
        rig.while_turning([&] { CHECK_EQUAL(load(tenant), CUDA_ERROR_INVALID_PTX); });
    }
    rig.load(tenant);
    rig.turn_until([&] { return null_driver::live().modules == before.modules + 1; });
}

// Its session is over by the time that it is compiled.
TEST(what_nobody_waits_for_is_unloaded) {
    Rig rig;
    const auto before = null_driver::live();
    Tenant tenant = rig.attach("a");
    {
        Compiling compiling;
        std::thread asking([&] { CHECK(load(tenant) != 0); });
        rig.turn_until([&] { return compiling.begun() == 1; });
        rig.while_turning([&] { CHECK(rig.core().end("a", CUDA_ERROR_UNKNOWN, "a test")); });
        asking.join();
    }
    rig.turn_until([&] { return null_driver::live().modules == before.modules; });
    CHECK(null_driver::count(Function::cuLibraryUnload_) > 0);
}

TEST(variables_count_and_are_limited) {
    Rig rig;
    Tenant tenant, all, other = rig.attach("b");
    CHECK_EQUAL(rig.attach("a", 5, tenant, 1.0, 1u << 20), "");
    CHECK_EQUAL(rig.attach("c", 5, all, 1.0, uint64_t{64} << 30), "");
    const auto before = null_driver::live();
    const uint64_t there = brought();
    constexpr uint64_t large = 3u << 18;
    const std::string_view code = ".global .b8 x[786432];";
    uint32_t module = 0, none = 0;
    const auto loads = [&](Tenant& who, std::string_view what, uint32_t& as) {
        Status status = 0;
        rig.while_turning([&] { status = load(who, what, as); });
        return status;
    };
    CHECK_EQUAL(loads(tenant, code, module), 0);
    CHECK_EQUAL(memory_of(rig, "a"), large);
    for (const std::string_view more : {code, std::string_view(".global .b8 x[N];")})
        CHECK_EQUAL(loads(tenant, more, none), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(brought(), there + 1);
    CHECK_EQUAL(memory_of(rig, "a"), large);
    rig.while_turning([&] { CHECK_EQUAL(tenant->module_unload(module), 0); });
    CHECK_EQUAL(memory_of(rig, "a"), 0u);
    // What the driver refuses counts as nothing.
    null_driver::fail(Function::cuLibraryGetModule_, CUDA_ERROR_INVALID_PTX, 0, 1);
    CHECK_EQUAL(loads(tenant, code, none), CUDA_ERROR_INVALID_PTX);
    CHECK_EQUAL(memory_of(rig, "a"), 0u);
    CHECK_EQUAL(loads(tenant, code, module), 0);
    CHECK_EQUAL(memory_of(rig, "a"), large);
    // Without a limit, or one to all that the GPU has, the driver says what there is no room for.
    for (Tenant* each : {&other, &all}) CHECK_EQUAL(loads(*each, ".global .b8 x[N];", none), 0);
    CHECK_EQUAL(memory_of(rig, "b") + memory_of(rig, "c"), 0u);
    rig.turn_until([&] { return null_driver::live().modules == before.modules + 3; });
}

// What was unloaded, or left by a session that is over, counts until it is: who loads waits for that.
TEST(variables_on_their_way_back_are_waited_for) {
    Rig rig;
    Tenant busy = rig.ready("busy"), tenant;
    const auto before = null_driver::live();
    const std::string_view code = ".global .b8 x[786432];";
    for (const bool ends : {false, true}) {
        CHECK_EQUAL(rig.attach("a", 5, tenant, 1.0, 0, 1u << 20), "");
        uint32_t module = 0;
        rig.while_turning([&] { CHECK_EQUAL(load(tenant, code, module), 0); });
        hold_all(rig);
        launch(busy);
        rig.settle();
        if (ends) {
            rig.while_turning([&] { CHECK(rig.core().end("a", CUDA_ERROR_UNKNOWN, "a test")); });
            CHECK_EQUAL(rig.attach("b", 5, tenant, 1.0, 0, 1u << 20), "");
        } else {
            rig.while_turning([&] { CHECK_EQUAL(tenant->module_unload(module), 0); });
        }
        std::atomic<bool> loaded{false};
        std::thread loading([&] {
            CHECK_EQUAL(load(tenant, code, module), 0);
            loaded = true;
        });
        // Longer than code waits for an idle GPU.
        const Nanoseconds until = host_now() + 200'000'000;
        rig.turn_until([&] { return host_now() > until; });
        CHECK(!loaded.load());
        release_all(rig);
        rig.turn_until([&] { return loaded.load(); });
        loading.join();
        rig.while_turning([&] { CHECK_EQUAL(tenant->module_unload(module), 0); });
        rig.turn_until([&] { return null_driver::live().modules == before.modules; });
        rig.while_turning([&] { rig.core().end(ends ? "b" : "a", CUDA_ERROR_UNKNOWN, "a test"); });
    }
}

}  // namespace
