// The machine's figures and its order of work, in virtual time, against what was measured on an
// H200.
#include "device.hpp"

#include <algorithm>
#include <cstring>

#include "check.hpp"

using namespace fikit::sim;

namespace {

constexpr const char* kernels = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry spin(.param .u64 a)
{
  .reg .b64 %rd<6>; .reg .pred %p1;
  ld.param.u64 %rd1, [a];
  mov.u64 %rd2, %clock64;
L:
  mov.u64 %rd3, %clock64;
  sub.s64 %rd4, %rd3, %rd2;
  setp.lt.s64 %p1, %rd4, %rd1;
  @%p1 bra L;
  ret;
}
.visible .entry store(.param .u64 place, .param .u64 value)
{
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [place];
  ld.param.u64 %rd2, [value];
  st.global.u64 [%rd1], %rd2;
  ret;
}
)";

// Addresses 4096 to 4096 + its size are memory.
struct PlainMemory final : GlobalMemory {
    alignas(8) std::byte bytes[1 << 16] = {};
    std::byte* at(std::uint64_t address, std::size_t size, bool) override {
        if (address < 4096 || address - 4096 + size > sizeof bytes) return nullptr;
        return bytes + (address - 4096);
    }
    std::uint64_t word(std::uint64_t address) {
        std::uint64_t value = 0;
        std::memcpy(&value, at(address, 8, false), 8);
        return value;
    }
};

struct Bench {
    PlainMemory memory;
    Device device;
    ptx::Module module;
    std::vector<std::uint64_t> variables;
    Nanoseconds now = 0;

    explicit Bench(const DeviceOptions& options = {}) : device(memory, options) {
        std::string log;
        CHECK(ptx::parse(kernels, module, log) == ptx::Verdict::accepted);
    }
    OperationPtr submit(decltype(Operation::work) work, std::vector<Dependency> after = {}, int priority = 0,
                        std::shared_ptr<const SmSet> partition = nullptr, unsigned context = 0) {
        auto operation = std::make_shared<Operation>();
        operation->work = std::move(work);
        operation->priority = priority;
        operation->partition = std::move(partition);
        operation->context = context;
        device.submit(operation, after, now);
        return operation;
    }
    Launch kernel(std::size_t index, std::vector<std::uint64_t> arguments, std::uint32_t grid,
                  std::uint32_t block) {
        Launch launch;
        launch.kernel = &module.kernels[index];
        launch.variables = &variables;
        launch.parameters.resize(arguments.size() * 8);
        if (!arguments.empty()) std::memcpy(launch.parameters.data(), arguments.data(), arguments.size() * 8);
        launch.shape = {{grid, 1, 1}, {block, 1, 1}};
        launch.block = block_shape(block, 16, 0);
        return launch;
    }
    Launch spin(double microseconds, std::uint32_t grid, std::uint32_t block = 1024) {
        return kernel(1, {static_cast<std::uint64_t>(microseconds * 1980)}, grid, block);
    }
    void run() {
        while (const auto next = device.next_event_time()) now = std::max(now, *next), device.advance_to(now);
    }
};

Copy transfer(CopyEngine engine, std::size_t bytes) {
    // Only its time counts here: no row, no byte.
    Copy copy;
    copy.engine = engine;
    copy.width = bytes;
    copy.destination.address = copy.source.address = 4096;
    return copy;
}

double gigabytes_per_second(CopyEngine engine, std::size_t bytes) {
    Bench bench;
    auto copy = transfer(engine, 1024);
    // Rows on top of each other: real bytes move, inside the little memory there is.
    copy.height = bytes / 1024;
    const auto start = bench.submit(Marker{});
    const auto end = bench.submit(std::move(copy), {{start, false}});
    bench.run();
    return static_cast<double>(bytes) / static_cast<double>(end->completed_at - start->completed_at);
}

}  // namespace

TEST(launch_and_synchronise_takes_seven_microseconds) {
    Bench bench;
    const auto operation = bench.submit(bench.kernel(0, {}, 1, 32));
    bench.run();
    CHECK_BETWEEN(operation->completed_at + model::completion_notice, 4600, 4750);  // and 2.5 us of the call
}

TEST(kernel_to_kernel_takes_a_microsecond) {
    Bench bench;
    OperationPtr last;
    OperationPtr first;
    for (int index = 0; index < 101; ++index) {
        last = bench.submit(bench.kernel(0, {}, 1, 32), {{last, false}});
        if (index == 0) first = last;
    }
    bench.run();
    CHECK_BETWEEN((last->completed_at - first->completed_at) / 100, 1100, 1300);
}

TEST(a_chain_that_hops_between_streams_costs_three_microseconds) {
    Bench bench;
    OperationPtr last;
    for (int index = 0; index < 100; ++index)
        last = bench.submit(bench.kernel(0, {}, 1, 32), {{last, index > 0}});
    bench.run();
    CHECK_BETWEEN(last->completed_at / 100, 2700, 3300);
}

TEST(waves_run_one_after_the_other) {
    Bench bench;
    const auto operation = bench.submit(bench.spin(50, 132 * 2 * 8));
    bench.run();
    CHECK_BETWEEN(operation->completed_at, 8 * 50000, 8 * 50400 + 6000);
    CHECK(bench.device.events_processed() < 20);
}

// What was measured: beside kernels of eight full waves of equal blocks, a host launches, synchronises and
// comes back 1065.7 us later. The waves end together, so the launch waits for the end of the wave that it
// met, always at nearly the same point of it.
double delay_in_flood(double block, bool probe_is_urgent) {
    Bench bench;
    Launch flood;
    flood.shape = {{132 * 16 * 8, 1, 1}, {128, 1, 1}};
    flood.block = block_shape(128, 16, 0);
    flood.cost.latency = static_cast<Nanoseconds>(block * 1000);
    Launch probe = flood;
    probe.shape.grid[0] = 132;
    probe.cost = {};
    OperationPtr last;
    for (int index = 0; index < 60000 / block; ++index) last = bench.submit(flood, {{last, false}});
    bench.now = 2000000;
    std::vector<double> delays;
    for (int index = 0; index < 20; ++index) {
        const Nanoseconds call = 2500;
        const Nanoseconds start = bench.now;
        bench.now += call;
        bench.device.advance_to(bench.now);
        const auto high = bench.submit(probe, {}, probe_is_urgent ? -5 : 0);
        while (!high->done) bench.device.advance_to(*bench.device.next_event_time());
        bench.now = high->completed_at + model::completion_notice;
        delays.push_back(static_cast<double>(bench.now - start) / 1000);
        bench.now += 1065700;
        bench.device.advance_to(bench.now);
    }
    CHECK(!last->done);
    std::sort(delays.begin(), delays.end());
    return delays[10];
}

TEST(a_high_priority_kernel_waits_for_the_wave_it_met_as_measured) {
    CHECK_BETWEEN(delay_in_flood(10, true), 15.3 * 0.85, 15.3 * 1.15);
    CHECK_BETWEEN(delay_in_flood(50, true), 53.4 * 0.85, 53.4 * 1.15);
    CHECK_BETWEEN(delay_in_flood(200, true), 136 * 0.85, 136 * 1.15);
    CHECK_BETWEEN(delay_in_flood(1000, true), 936 * 0.85, 936 * 1.15);
}

TEST(without_priority_it_waits_for_the_kernel) { CHECK_BETWEEN(delay_in_flood(50, false), 100, 8 * 51 + 10); }

TEST(equal_priority_waits_for_the_whole_flood) {
    Bench bench;
    const auto flood = bench.submit(bench.spin(50, 132 * 2 * 8));
    const auto other = bench.submit(bench.kernel(0, {}, 132, 1024));
    bench.run();
    CHECK(other->completed_at > 7 * 50000);
    CHECK(flood->done);
}

TEST(a_flood_on_a_partition_delays_nobody) {
    Bench bench;
    SmSet set;
    for (std::size_t sm = 0; sm < 16; ++sm) set.set(sm);
    bench.device.add_partition(set);
    const auto partition = std::make_shared<const SmSet>(set);
    bench.submit(bench.spin(1000, 2000), {}, 0, partition);
    bench.now = 500000;
    bench.device.advance_to(bench.now);
    const auto high = bench.submit(bench.kernel(0, {}, 132, 128), {}, -5);
    bench.run();
    CHECK_BETWEEN(high->completed_at - 500000 + model::completion_notice, 4600, 4750);
}

Launch memory_bound(double microseconds_alone) {
    Launch launch;
    launch.shape = {{132 * 4, 1, 1}, {256, 1, 1}};
    launch.block = block_shape(256, 32, 0);
    launch.cost.bytes = microseconds_alone * 1000 * model::device_memory / (132 * 4);
    return launch;
}

TEST(kernels_bound_by_memory_share_its_bandwidth) {
    const auto elapsed = [](int count, double interference) {
        DeviceOptions options;
        options.interference = interference;
        Bench bench(options);
        std::vector<OperationPtr> all;
        for (int index = 0; index < count; ++index) all.push_back(bench.submit(memory_bound(500)));
        bench.run();
        return static_cast<double>(all[0]->completed_at - model::submission) / 1000;
    };
    CHECK_BETWEEN(elapsed(1, 0), 500, 503);
    CHECK_BETWEEN(elapsed(2, 0), 1000, 1003);
    CHECK_BETWEEN(elapsed(2, 0.2), 1249, 1253);
}

TEST(a_kernel_that_needs_no_bandwidth_is_not_slowed) {
    Bench bench;
    bench.submit(memory_bound(500));
    const auto other = bench.submit(bench.spin(100, 132, 128));
    bench.run();
    CHECK_BETWEEN(other->completed_at, 100000, 104000);
}

TEST(a_few_threads_cannot_draw_all_the_bandwidth) {
    Bench bench;
    Launch launch = memory_bound(10);
    launch.shape.grid[0] = 66;  // an eighth of the blocks with an eighth of the bytes: 16896 threads
    const auto kernel = bench.submit(launch);
    bench.run();
    CHECK_BETWEEN(kernel->completed_at, 10000, 14000);
}

TEST(two_contexts_that_take_turns_pay_for_each_change) {
    Bench bench;
    OperationPtr last;
    for (unsigned index = 0; index < 20; ++index) {
        last = bench.submit(bench.kernel(0, {}, 1, 32), {}, 0, nullptr, index % 2);
        bench.run();
        bench.now = last->completed_at + model::completion_notice + 2500;
    }
    CHECK_BETWEEN(bench.now / 10000, 286 * 0.85, 286 * 1.15);
}

TEST(a_context_waits_for_the_slice_of_a_busy_one) {
    for (const double block : {10.0, 1000.0}) {
        Bench bench;
        OperationPtr flood;
        for (int index = 0; index < 60000 / block; ++index)
            flood = bench.submit(bench.spin(block, 132 * 2), {{flood, false}}, 0, nullptr, 1);
        bench.now = 5000000;
        bench.device.advance_to(bench.now);
        for (int index = 0; index < 5; ++index) {
            const Nanoseconds start = bench.now;
            const auto high = bench.submit(bench.kernel(0, {}, 1, 32), {}, -5);
            while (!high->done) bench.device.advance_to(*bench.device.next_event_time());
            bench.now = high->completed_at + model::completion_notice;
            if (index > 0) CHECK_BETWEEN((bench.now - start + 2500) / 1000, 1846 * 0.95, 1846 * 1.05);
            bench.now += 565000;
            bench.device.advance_to(bench.now);
        }
        bench.run();
        CHECK(flood->done);
    }
}

TEST(somebody_else_s_turn_stops_kernels_but_no_copies) {
    Bench bench;
    const auto kernel = bench.submit(bench.spin(100, 132));
    Copy copy = transfer(CopyEngine::to_host, 1024);
    copy.height = 1024;
    const auto copied = bench.submit(std::move(copy));
    bench.device.advance_to(10000);
    bench.device.suspend(10000);
    CHECK(bench.device.computing());
    bench.device.advance_to(1000000);
    CHECK(copied->done && !kernel->done);
    bench.device.resume(1000000);
    bench.now = 1000000;
    bench.run();
    // A kernel that watches the clock sees that time has passed.
    CHECK_BETWEEN(kernel->completed_at, 1000000, 1002000);
    CHECK(!bench.device.computing());
}

TEST(copies_reach_the_measured_speeds) {
    const auto down = CopyEngine::to_host;
    CHECK_BETWEEN(gigabytes_per_second(down, 4 << 10), 2.0, 2.4);
    CHECK_BETWEEN(gigabytes_per_second(down, 64 << 10), 20, 24);
    CHECK_BETWEEN(gigabytes_per_second(down, 1 << 20), 48, 53);
    CHECK_BETWEEN(gigabytes_per_second(down, 2 << 20), 51, 55);
    CHECK_BETWEEN(gigabytes_per_second(down, 16 << 20), 54, 56);
    CHECK_BETWEEN(gigabytes_per_second(CopyEngine::to_device, 64 << 20), 55, 55.7);
    CHECK_BETWEEN(2 * gigabytes_per_second(CopyEngine::on_device, 64 << 20), 3500, 4200);
}

TEST(both_directions_run_at_once) {
    Bench bench;
    Copy up = transfer(CopyEngine::to_device, 1024);
    Copy down = transfer(CopyEngine::to_host, 1024);
    up.height = down.height = 16384;
    const auto first = bench.submit(std::move(up));
    const auto second = bench.submit(std::move(down));
    bench.run();
    const Nanoseconds end = std::max(first->completed_at, second->completed_at) - model::submission;
    CHECK_BETWEEN(2.0 * (16 << 20) / static_cast<double>(end), 95, 111);
}

TEST(stores_land_in_order_and_at_their_time) {
    Bench bench;
    const auto spin = bench.submit(bench.spin(100, 1));
    const auto store = bench.submit(bench.kernel(2, {4096, 7}, 1, 1), {{spin, false}});
    const auto write = bench.submit(WriteValue{4104, 9, true}, {{store, false}});
    bench.device.advance_to(100000);
    CHECK(bench.memory.word(4096) == 0);
    bench.now = 100000;
    bench.run();
    CHECK(bench.memory.word(4096) == 7);
    CHECK(bench.memory.word(4104) == 9);
    CHECK(write->completed_at >= store->completed_at);
}

TEST(a_late_host_changes_no_time) {
    Nanoseconds ends[2];
    for (const bool late : {false, true}) {
        Bench bench;
        const auto first = bench.submit(bench.spin(30, 500));
        const auto last = bench.submit(bench.spin(30, 500), {{first, false}});
        if (late)
            bench.device.advance_to(100000000);
        else
            bench.run();
        ends[late ? 1 : 0] = last->completed_at;
    }
    CHECK(ends[0] == ends[1]);
}

TEST(a_stream_wait_lets_go_when_its_value_comes) {
    Bench bench;
    const auto wait = bench.submit(WaitValue{4096, 5, true, CU_STREAM_WAIT_VALUE_GEQ});
    bench.device.advance_to(10000);
    CHECK(!wait->done && bench.device.polls());
    bench.now = 20000;
    bench.submit(WriteValue{4096, 5, true});
    bench.run();
    CHECK(wait->done && !bench.device.polls());
}

TEST(an_illegal_address_halts_everything) {
    Bench bench;
    bench.submit(bench.kernel(2, {16, 1}, 1, 1));
    const auto later = bench.submit(bench.spin(10'000, 1));
    bench.run();
    CHECK(bench.device.fault() == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(!later->done);
    CHECK(!bench.device.next_event_time());
}

TEST(a_fault_is_told_a_while_later) {
    Bench bench;
    bench.submit(bench.kernel(2, {16, 1}, 1, 1));
    bench.device.advance_to(bench.now + 10'000);
    CHECK(bench.device.fault() == CUDA_SUCCESS);
    const auto beside = bench.submit(Marker{});
    bench.device.advance_to(bench.now + 20'000);
    CHECK(bench.device.fault() == CUDA_SUCCESS && beside->done);
    bench.run();
    CHECK(bench.device.fault() == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(faults_come_when_ordered) {
    DeviceOptions options;
    options.faults.launch = 3;
    options.faults.launch_result = CUDA_ERROR_LAUNCH_FAILED;
    Bench bench(options);
    for (int index = 0; index < 2; ++index) bench.submit(bench.kernel(0, {}, 1, 1));
    bench.run();
    CHECK(bench.device.fault() == CUDA_SUCCESS);
    bench.submit(bench.kernel(0, {}, 1, 1));
    bench.run();
    CHECK(bench.device.fault() == CUDA_ERROR_LAUNCH_FAILED);
}
