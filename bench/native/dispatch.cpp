// One measured process: opens its target, then measures what it is told, line by line.
//
//   bench_dispatch direct LIBRARY ORDINAL     a context of its own on libcuda
//   bench_dispatch through OUTBOX INBOX LIFELINE     a session, by inherited descriptors
//
// On standard input a line "METRIC MILLISECONDS BYTES"; on standard output a line of numbers for each:
// launch: microseconds a launch costs its caller, median of batches that are drained in between;
// stream: microseconds for each launch of a long stream of them, drained at the end;
// stream_of_10_us, stream_of_20000_cycles: likewise, of kernels that last so long;
// round_trip: median and 99th percentile of launch and synchronise, microseconds;
// pinned_to_device, pinned_to_host, pageable_to_device, pageable_to_host: GB/s;
// allocate, allocate_large: microseconds to allocate and free 2 MiB, 256 MiB.
// Each takes about the time given. Whoever starts several of these lets them measure at the same time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>

#include "target.hpp"

using namespace fikit::bench;

namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double quantile(std::vector<double>& sorted, double share) {
    std::sort(sorted.begin(), sorted.end());
    return sorted[std::min(sorted.size() - 1,
                           static_cast<size_t>(static_cast<double>(sorted.size()) * share))];
}

struct Task {
    Target& target;
    double limit_us;
    uint64_t bytes;
};

// Repeats until the time is over, at least five times.
std::vector<double> repeat(double limit_us, const std::function<double()>& once) {
    std::vector<double> readings;
    const auto start = Clock::now();
    while (readings.size() < 5 || us_since(start) < limit_us) readings.push_back(once());
    return readings;
}

std::vector<double> launch(const Task& task) {
    constexpr int batch = 100;  // fits the bound of operations in flight, so nobody waits
    auto readings = repeat(task.limit_us, [&] {
        const auto start = Clock::now();
        for (int i = 0; i < batch; ++i) task.target.launch();
        const double cost = us_since(start) / batch;
        task.target.synchronize();
        return cost;
    });
    return {quantile(readings, 0.5)};
}

std::vector<double> stream(const Task& task, Kernel kernel = empty, uint64_t length = 1) {
    const auto start = Clock::now();
    double launches = 0;
    for (; launches == 0 || us_since(start) < task.limit_us; launches += 200)
        for (int i = 0; i < 200; ++i) task.target.launch(kernel, length);
    task.target.synchronize();
    return {us_since(start) / launches};
}

std::vector<double> round_trip(const Task& task) {
    auto readings = repeat(task.limit_us, [&] {
        const auto start = Clock::now();
        task.target.launch();
        task.target.synchronize();
        return us_since(start);
    });
    const double median = quantile(readings, 0.5);
    return {median, quantile(readings, 0.99)};
}

void* touched(Target& target, uint64_t bytes, bool pinned) {
    static std::map<std::pair<uint64_t, bool>, void*> made;
    void*& memory = made[{bytes, pinned}];
    if (memory == nullptr) {
        memory = pinned ? target.allocate_pinned(bytes) : std::malloc(bytes);
        std::memset(memory, 1, bytes);
    }
    return memory;
}

std::vector<double> bandwidth(const Task& task, bool to_device, bool pinned) {
    void* host = touched(task.target, task.bytes, pinned);
    const uint64_t device = task.target.allocate(task.bytes);
    const auto once = [&] {
        const auto start = Clock::now();
        if (to_device)
            task.target.copy_to_device(device, host, task.bytes, pinned);
        else
            task.target.copy_to_host(host, device, task.bytes, pinned);
        task.target.synchronize();
        return static_cast<double>(task.bytes) / us_since(start) / 1000;
    };
    once();
    auto readings = repeat(task.limit_us, once);
    task.target.free(device);
    return {quantile(readings, 0.5)};
}

std::vector<double> allocate(const Task& task, uint64_t bytes) {
    auto readings = repeat(task.limit_us, [&] {
        const auto start = Clock::now();
        task.target.free(task.target.allocate(bytes));
        return us_since(start);
    });
    return {quantile(readings, 0.5)};
}

std::vector<double> measure(const std::string& metric, const Task& task) {
    if (metric == "launch") return launch(task);
    if (metric == "stream") return stream(task);
    if (metric == "stream_of_10_us") return stream(task, nanoseconds, 10'000);
    if (metric == "stream_of_20000_cycles") return stream(task, cycles, 20'000);
    if (metric == "round_trip") return round_trip(task);
    if (metric == "allocate") return allocate(task, 2u << 20);
    if (metric == "allocate_large") return allocate(task, 256u << 20);
    const bool to_device = metric.ends_with("_to_device"), pinned = metric.starts_with("pinned_");
    if (to_device || metric.ends_with("_to_host")) return bandwidth(task, to_device, pinned);
    give_up("metric " + metric, -1);
}

}  // namespace

int main(int count, char** arguments) {
    std::unique_ptr<Target> target;
    if (count == 4 && std::strcmp(arguments[1], "direct") == 0)
        target = direct(arguments[2], std::atoi(arguments[3]));
    else if (count == 5 && std::strcmp(arguments[1], "through") == 0)
        target = through(std::atoi(arguments[2]), std::atoi(arguments[3]), std::atoi(arguments[4]));
    else
        give_up("the command line", -1);
    for (int warm = 0; warm < 100; ++warm) target->launch();
    target->synchronize();
    std::cout << "ready" << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string metric;
        double milliseconds = 0;
        uint64_t bytes = 0;
        words >> metric >> milliseconds >> bytes;
        for (const double value : measure(metric, {*target, milliseconds * 1000, bytes}))
            std::cout << value << ' ';
        std::cout << std::endl;
    }
}
