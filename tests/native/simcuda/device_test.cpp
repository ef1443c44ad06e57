// The machine's figures and its order of work, in virtual time, against what was measured on an
// H200.
#include "device.hpp"

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

    explicit Bench(const FaultPlan& faults = {}) : device(memory, faults, 0) {
        std::string log;
        CHECK(ptx::parse(kernels, module, log) == ptx::Verdict::accepted);
    }
    OperationPtr submit(decltype(Operation::work) work, std::vector<Dependency> after = {}, int priority = 0,
                        std::shared_ptr<const SmSet> partition = nullptr) {
        auto operation = std::make_shared<Operation>();
        operation->work = std::move(work);
        operation->priority = priority;
        operation->partition = std::move(partition);
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
    CHECK_BETWEEN(operation->completed_at + model::completion_notice, 6500, 7500);
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
    CHECK_BETWEEN((last->completed_at - first->completed_at) / 100, 700, 1200);
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
    CHECK(bench.device.machine().group_count() == 1);
    CHECK(bench.device.events_processed() < 20);
}

TEST(a_high_priority_kernel_waits_for_one_block_of_a_flood) {
    for (const double block : {10.0, 50.0, 200.0, 1000.0}) {
        Bench bench;
        OperationPtr flood;
        for (int index = 0; index < 4; ++index)
            flood = bench.submit(bench.spin(block, 132 * 2 * 8), {{flood, false}});
        bench.now = static_cast<Nanoseconds>(block * 2500);
        bench.device.advance_to(bench.now);
        const Nanoseconds start = bench.now;
        const auto high = bench.submit(bench.kernel(0, {}, 132, 128), {}, -5);
        bench.run();
        CHECK_BETWEEN(high->completed_at - start, 5000, block * 1000 + 8000);
        CHECK(flood->done);
    }
}

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
    bench.device.machine().add_partition(set);
    const auto partition = std::make_shared<const SmSet>(set);
    bench.submit(bench.spin(1000, 2000), {}, 0, partition);
    bench.now = 500000;
    bench.device.advance_to(bench.now);
    const auto high = bench.submit(bench.kernel(0, {}, 132, 128), {}, -5);
    bench.run();
    CHECK_BETWEEN(high->completed_at - 500000 + model::completion_notice, 6500, 8500);
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
    const auto later = bench.submit(bench.spin(100, 1));
    bench.run();
    CHECK(bench.device.fault() == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(!later->done);
    CHECK(!bench.device.next_event_time());
}

TEST(faults_come_when_ordered) {
    FaultPlan plan;
    plan.launch = 3;
    plan.launch_result = CUDA_ERROR_LAUNCH_FAILED;
    Bench bench(plan);
    for (int index = 0; index < 2; ++index) bench.submit(bench.kernel(0, {}, 1, 1));
    bench.run();
    CHECK(bench.device.fault() == CUDA_SUCCESS);
    bench.submit(bench.kernel(0, {}, 1, 1));
    bench.run();
    CHECK(bench.device.fault() == CUDA_ERROR_LAUNCH_FAILED);
}
