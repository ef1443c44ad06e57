// The replay's model of a GPU against the simulated GPU's own: the same launches take the same times.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "check.hpp"
#include "device.hpp"
#include "replay_gpu.hpp"

using namespace fikit;
using replay::Gpu;
using replay::Random;
using sim::Nanoseconds;

namespace {

constexpr std::array<uint16_t, 3> sizes{120, 96, 32};

struct Kernel {
    unsigned stream = 0;
    uint16_t multiprocessors = sim::model::sm_count;
    Nanoseconds submitted = 0, block = 0;
    uint32_t blocks = 0;
    sim::BlockShape shape;
};

// Two streams of high and two of low priority, in turn busy and idle.
constexpr unsigned streams = 4;
int priority_of(unsigned stream) {
    return stream < 2 ? sim::model::priority_highest : sim::model::priority_lowest;
}

// `one`: a block of each takes a whole SM, so that it does not matter which SMs those are.
std::vector<Kernel> launches(uint64_t seed, bool one, bool partitions) {
    Random random(seed);
    const auto below = [&](uint64_t limit) { return (random.next() >> 32) % limit; };
    std::vector<Kernel> all;
    Nanoseconds now = 1000;
    for (unsigned number = 0; number < 400; ++number) {
        Kernel kernel;
        now += static_cast<Nanoseconds>(below(below(4) == 0 ? 200'000 : 10'000));
        kernel.submitted = now;
        kernel.stream = static_cast<unsigned>(below(streams));
        const bool low = kernel.stream >= 2;
        kernel.blocks = static_cast<uint32_t>(1 + below(low ? 2000 : 300));
        kernel.block = static_cast<Nanoseconds>(1000 + below(low ? 60'000 : 6'000));
        const auto threads = static_cast<unsigned>(32 << below(6));
        const auto registers = static_cast<unsigned>(16 + 8 * below(6));
        const uint64_t uses_shared = below(2);
        const auto shared = static_cast<unsigned>(uses_shared * below(100'000));
        kernel.shape = one ? sim::block_shape(1024, 64, 0) : sim::block_shape(threads, registers, shared);
        if (partitions && low && below(2) == 0) kernel.multiprocessors = sizes[below(sizes.size())];
        all.push_back(kernel);
    }
    return all;
}

std::vector<Nanoseconds> on_replay(const std::vector<Kernel>& kernels) {
    Gpu gpu({sizes.begin(), sizes.end()}, 1, {0.0, 0, sim::model::block_launch});
    std::vector<uint16_t> numbers;
    for (unsigned stream = 0; stream < streams; ++stream)
        numbers.push_back(gpu.add_stream(priority_of(stream), stream < 2));
    std::vector<replay::Shape> shapes;
    for (const Kernel& kernel : kernels)
        shapes.push_back({replay::Shape::Unit::multiprocessors, kernel.blocks,
                          static_cast<uint16_t>(sim::blocks_per_sm(kernel.shape)),
                          replay::Resources(kernel.shape), kernel.block + sim::model::block_overhead});
    std::vector<Nanoseconds> ended(kernels.size());
    std::vector<replay::Completion> completions;
    for (uint32_t next = 0; next < kernels.size() || gpu.next() != Gpu::never;) {
        if (next < kernels.size() && kernels[next].submitted <= gpu.next()) {
            gpu.submit(numbers[kernels[next].stream], {&shapes[next], next, kernels[next].multiprocessors,
                                                       kernels[next].submitted + sim::model::submission});
            ++next;
            continue;
        }
        completions.clear();
        gpu.advance(gpu.next(), completions);
        for (const replay::Completion& completion : completions) ended[completion.tag] = completion.at;
    }
    return ended;
}

struct NoMemory final : sim::GlobalMemory {
    std::byte* at(std::uint64_t, std::size_t, bool) override { return nullptr; }
};

std::vector<Nanoseconds> on_simulated(const std::vector<Kernel>& kernels) {
    NoMemory memory;
    sim::Device device(memory);
    std::array<std::shared_ptr<const sim::SmSet>, sim::model::sm_count + 1> partitions;
    for (const uint16_t size : sizes) {
        sim::SmSet set;
        for (unsigned sm = 0; sm < size; ++sm) set.set(sm);
        device.add_partition(set);
        partitions[size] = std::make_shared<const sim::SmSet>(set);
    }
    std::array<sim::OperationPtr, streams> last;
    std::array<uint16_t, streams> place;
    place.fill(sim::model::sm_count);
    std::vector<sim::OperationPtr> operations;
    const auto advance = [&](Nanoseconds until) {
        for (auto next = device.next_event_time(); next && *next <= until; next = device.next_event_time())
            device.advance_to(*next);
    };
    for (const Kernel& kernel : kernels) {
        advance(kernel.submitted);
        auto operation = std::make_shared<sim::Operation>();
        sim::Launch launch;
        launch.shape = {{kernel.blocks, 1, 1}, {kernel.shape.threads, 1, 1}};
        launch.block = kernel.shape;
        launch.cost.latency = kernel.block;
        operation->work = std::move(launch);
        operation->priority = priority_of(kernel.stream);
        operation->partition = partitions[kernel.multiprocessors];
        // A stream that goes to another partition is another stream.
        const bool other = kernel.multiprocessors != place[kernel.stream];
        device.submit(operation, {{last[kernel.stream], other}}, kernel.submitted);
        last[kernel.stream] = operation;
        place[kernel.stream] = kernel.multiprocessors;
        operations.push_back(operation);
    }
    advance(Gpu::never);
    std::vector<Nanoseconds> ended;
    for (const sim::OperationPtr& operation : operations) ended.push_back(operation->completed_at);
    return ended;
}

// Mean time from submission to end, of either side.
struct Compared {
    double ours = 0, theirs = 0;
    size_t equal = 0, kernels = 0;
};

Compared compare(bool one, bool partitions) {
    Compared compared;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        const auto kernels = launches(seed, one, partitions);
        const auto ours = on_replay(kernels), theirs = on_simulated(kernels);
        for (size_t at = 0; at < kernels.size(); ++at) {
            compared.equal += ours[at] == theirs[at];
            compared.ours += static_cast<double>(ours[at] - kernels[at].submitted);
            compared.theirs += static_cast<double>(theirs[at] - kernels[at].submitted);
        }
        compared.kernels += kernels.size();
    }
    return compared;
}

TEST(kernels_whose_blocks_take_an_sm_each_end_to_the_nanosecond) {
    const Compared compared = compare(true, false);
    CHECK_EQUAL(compared.equal, compared.kernels);
}

// Which of several SMs get a block more than others is nobody's rule, and later kernels find them as they
// are.
void close_to(const Compared& compared) {
    CHECK(std::abs(compared.ours / compared.theirs - 1) < 0.02);
    CHECK(compared.equal * 10 > compared.kernels);
}
TEST(kernels_of_all_shapes_take_as_long_on_average) { close_to(compare(false, false)); }
TEST(confined_ones_too) {
    close_to(compare(true, true));
    close_to(compare(false, true));
}

}  // namespace
