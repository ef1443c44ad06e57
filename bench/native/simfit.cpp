// Measures what the simulated GPU's model claims to reproduce, on the simulated GPU or on a real one.
//
//     bench_simfit LIBCUDA [PART...]
//
// Prints a line of JSON for each part: {"figure": value, ...}. Where the library has a clock of its own
// (fikitSimNow), time is read from it and the host's own work is told to it; so under the virtual clock the
// result is the same on any machine.
#include "simfit.hpp"

#include <dlfcn.h>

#include <cstring>

using namespace fikit::bench;

namespace {

void calls(Bench& bench) {
    // Batches below the depth of the queue: the cost of handing over, not of waiting.
    std::vector<double> host;
    for (int round = 0; round < 20; ++round) {
        host.push_back(bench.each(500, [&](int) { Bench::launch(bench.nothing, bench.high, 1, 32, 0); }));
        RUN(cuStreamSynchronize, bench.high);
    }
    bench.results.add("launch", median(host));
    std::vector<double> trips;
    for (int index = 0; index < 2000; ++index) trips.push_back(bench.round_trip(1, 32));
    bench.results.add("launch_synchronise", median(trips));

    void* pinned = nullptr;
    RUN(cuMemHostAlloc, &pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
    auto* flag = static_cast<volatile std::uint32_t*>(pinned);
    const auto address = reinterpret_cast<CUdeviceptr>(pinned);
    trips.clear();
    for (std::uint32_t index = 1; index <= 2000; ++index) {
        const double start = now();
        Bench::launch(bench.nothing, bench.high, 1, 32, 0);
        RUN(cuStreamWriteValue32, bench.high, address, index, 0);
        while (*flag != index) work(0.01);
        trips.push_back(now() - start);
    }
    bench.results.add("launch_write_poll", median(trips));
    CUevent plain = nullptr, timed = nullptr, second = nullptr;
    RUN(cuEventCreate, &plain, CU_EVENT_DISABLE_TIMING);
    RUN(cuEventCreate, &timed, CU_EVENT_DEFAULT);
    RUN(cuEventCreate, &second, CU_EVENT_DEFAULT);
    const auto drained = [&](const char* name, auto body) {
        const double value = bench.each(500, body);
        RUN(cuStreamSynchronize, bench.high);
        bench.results.add(name, value);
    };
    drained("event_record", [&](int) { RUN(cuEventRecord, plain, bench.high); });
    drained("event_record_timed", [&](int) { RUN(cuEventRecord, timed, bench.high); });
    drained("event_query", [&](int) { cuda.call_cuEventQuery(plain); });
    drained("stream_query", [&](int) { cuda.call_cuStreamQuery(bench.high); });
    drained("stream_write", [&](int index) {
        RUN(cuStreamWriteValue32, bench.high, address, static_cast<std::uint32_t>(index), 0);
    });
    drained("host_function", [&](int) { RUN(cuLaunchHostFunc, bench.high, [](void*) {}, nullptr); });
    std::vector<double> between;
    for (int index = 0; index < 200; ++index) {
        RUN(cuEventRecord, timed, bench.high);
        Bench::launch(bench.nothing, bench.high, 1, 32, 0);
        RUN(cuEventRecord, second, bench.high);
        RUN(cuStreamSynchronize, bench.high);
        float elapsed = 0;
        RUN(cuEventElapsedTime, &elapsed, timed, second);
        between.push_back(static_cast<double>(elapsed) * 1000);
    }
    bench.results.add("events_around_kernel", median(between));
    const double start = now();
    for (int index = 0; index < 300; ++index) {
        RUN(cuEventRecord, timed, bench.high);
        Bench::launch(bench.nothing, bench.high, 1, 32, 0);
        RUN(cuEventRecord, second, bench.high);
    }
    RUN(cuStreamSynchronize, bench.high);
    bench.results.add("kernel_with_events", (now() - start) / 300);
    std::vector<CUstream> streams(16);
    for (CUstream& stream : streams) RUN(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, 0);
    for (CUstream stream : streams) Bench::launch(bench.nothing, stream, 1, 32, 0);
    bench.results.add("launch_16_streams", bench.each(1600, [&](int index) {
        Bench::launch(bench.nothing, streams[static_cast<std::size_t>(index) % 16], 1, 32, 0);
    }));
    RUN(cuCtxSynchronize);
    for (CUstream stream : streams) RUN(cuStreamDestroy, stream);
    for (CUevent event : {plain, timed, second}) RUN(cuEventDestroy, event);
    RUN(cuMemFreeHost, pinned);

    // How many launches a queue holds: behind a long kernel, the first that blocks tells.
    Bench::launch(bench.spin, bench.high, 1, 32, 40000);
    int pending = 0;
    for (double took = 0; took < 1000 && pending < 4000; ++pending) {
        const double began = now();
        Bench::launch(bench.nothing, bench.high, 1, 32, 0);
        took = now() - began;
    }
    RUN(cuStreamSynchronize, bench.high);
    bench.results.add("queue_depth", pending);
}

void graphs(Bench& bench) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    RUN(cuStreamBeginCapture, bench.high, CU_STREAM_CAPTURE_MODE_RELAXED);
    for (int index = 0; index < 100; ++index) Bench::launch(bench.nothing, bench.high, 1, 32, 0);
    RUN(cuStreamEndCapture, bench.high, &graph);
    RUN(cuGraphInstantiate, &executable, graph, 0);
    RUN(cuGraphLaunch, executable, bench.high);
    RUN(cuStreamSynchronize, bench.high);
    const double start = now();
    for (int index = 0; index < 50; ++index) RUN(cuGraphLaunch, executable, bench.high);
    bench.results.add("graph_launch", (now() - start) / 50);
    RUN(cuStreamSynchronize, bench.high);
    bench.results.add("graph_kernel", (now() - start) / 5000);
}

// A host that launches 132 blocks of high priority, synchronises, and comes back `pause` later; `spread` is
// what a random part may add.
double urgent_beside(Bench& bench, int times, double pause, double spread) {
    std::vector<double> delays;
    std::uint64_t state = 1;
    for (int index = 0; index < times; ++index) {
        delays.push_back(bench.round_trip(132, 128));
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        work(pause + spread * static_cast<double>(state >> 40) / static_cast<double>(1 << 24));
    }
    return median(delays);
}

// The host of the measured table slept for 1000 us with usleep, which came back after 1065.7 us: the delay is
// that of a launch which meets the waves of the flood always at the same point.
constexpr double after_sleep_of_1000 = 1065.7, after_sleep_of_500 = 565, after_sleep_of_500_mps = 557;

void priorities(Bench& bench) {
    for (const double block : {10.0, 50.0, 200.0, 1000.0}) {
        for (const bool random : {false, true}) {
            const unsigned grid = 132 * 16 * 8;
            const int kernels_in_flood = static_cast<int>(200000 / (block * 8));
            for (int index = 0; index < std::max(1, kernels_in_flood); ++index)
                Bench::launch(bench.spin, bench.low, grid, 128, block);
            work(2000);
            const int times = block < 1000 ? 20 : 12;
            const double delay = urgent_beside(bench, times, after_sleep_of_1000, random ? block : 0);
            if (cuda.call_cuStreamQuery(bench.low) != CUDA_ERROR_NOT_READY) give_up("flood", "over too soon");
            RUN(cuStreamSynchronize, bench.low);
            const std::string name = "urgent_in_flood_" + std::to_string(static_cast<int>(block));
            bench.results.add(random ? name + "_random" : name, delay);
        }
    }
    void* host = nullptr;
    CUdeviceptr device = 0;
    const std::size_t bytes = std::size_t{256} << 20;
    RUN(cuMemHostAlloc, &host, bytes, 0);
    RUN(cuMemAlloc, &device, bytes);
    for (int index = 0; index < 8; ++index) RUN(cuMemcpyDtoHAsync, host, device, bytes, bench.low);
    bench.results.add("urgent_beside_copies", urgent_beside(bench, 100, 150, 0));
    RUN(cuStreamSynchronize, bench.low);
    RUN(cuMemFree, device);
    RUN(cuMemFreeHost, host);
}

void partitions(Bench& bench) {
    CUdevResource all{}, part{}, rest{};
    unsigned groups = 1;
    RUN(cuDeviceGetDevResource, 0, &all, CU_DEV_RESOURCE_TYPE_SM);
    RUN(cuDevSmResourceSplitByCount, &part, &groups, &all, &rest, 0, 16);
    CUdevResourceDesc description = nullptr;
    RUN(cuDevResourceGenerateDesc, &description, &part, 1);
    CUgreenCtx green = nullptr, other = nullptr;
    double start = now();
    RUN(cuGreenCtxCreate, &green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    bench.results.add("green_context", (now() - start) / 1000);
    CUstream stream = nullptr, hop = nullptr;
    RUN(cuGreenCtxStreamCreate, &stream, green, CU_STREAM_NON_BLOCKING, 0);
    for (int index = 0; index < 100; ++index) Bench::launch(bench.nothing, stream, 1, 32, 0);
    RUN(cuStreamSynchronize, stream);
    bench.results.add("launch_green",
                      bench.each(500, [&](int) { Bench::launch(bench.nothing, stream, 1, 32, 0); }));
    RUN(cuStreamSynchronize, stream);
    for (int index = 0; index < 30; ++index) Bench::launch(bench.spin, stream, 132 * 16 * 4, 128, 50);
    bench.results.add("urgent_beside_green", urgent_beside(bench, 50, 260, 0));
    RUN(cuStreamSynchronize, stream);

    RUN(cuDevResourceGenerateDesc, &description, &rest, 1);
    RUN(cuGreenCtxCreate, &other, description, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    RUN(cuGreenCtxStreamCreate, &hop, other, CU_STREAM_NON_BLOCKING, 0);
    CUevent event = nullptr;
    RUN(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    start = now();
    for (int index = 0; index < 400; ++index) {
        const CUstream from = index % 2 == 0 ? stream : hop;
        const CUstream to = index % 2 == 0 ? hop : stream;
        RUN(cuEventRecord, event, from);
        RUN(cuStreamWaitEvent, to, event, 0);
        Bench::launch(bench.nothing, to, 1, 32, 0);
    }
    RUN(cuCtxSynchronize);
    bench.results.add("kernel_hopping", (now() - start) / 400);
    RUN(cuEventDestroy, event);
    for (CUgreenCtx each : {green, other}) RUN(cuGreenCtxDestroy, each);
}

// A launch and its synchronisation in one context after the other.
double in_turn(Bench& bench, CUcontext second, CUfunction nothing, CUstream stream) {
    std::vector<double> pairs;
    for (int index = 0; index < 200; ++index) {
        RUN(cuCtxSetCurrent, bench.context);
        const double start = now();
        bench.round_trip(1, 32);
        RUN(cuCtxSetCurrent, second);
        Bench::launch(nothing, stream, 1, 32, 0);
        RUN(cuStreamSynchronize, stream);
        pairs.push_back(now() - start);
    }
    return median(pairs);
}

void contexts(Bench& bench) {
    CUcontext second = nullptr;
    CUfunction nothing = nullptr, spin = nullptr;
    CUstream stream = nullptr;
    double start = now();
    RUN(cuCtxCreate_v4, &second, nullptr, 0, 0);
    bench.results.add("context", (now() - start) / 1000);
    RUN(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, 0);
    Bench::load(nothing, spin);
    bench.results.add("contexts_in_turn", in_turn(bench, second, nothing, stream));
    for (int index = 0; index < 150; ++index) Bench::launch(spin, stream, 1, 32, 1000);
    RUN(cuCtxSetCurrent, bench.context);
    std::vector<double> waits;
    for (int index = 0; index < 30; ++index) {
        waits.push_back(bench.round_trip(1, 32));
        work(after_sleep_of_500);
    }
    bench.results.add("beside_busy_context", median(waits));
    RUN(cuCtxSetCurrent, second);
    RUN(cuCtxSynchronize);
    RUN(cuCtxDestroy, second);
    RUN(cuCtxSetCurrent, bench.context);
}

// Under MPS: contexts run side by side, and what an urgent launch waits for is the end of a wave.
void side_by_side(Bench& bench) {
    CUcontext second = nullptr;
    CUfunction nothing = nullptr, spin = nullptr;
    CUstream stream = nullptr;
    RUN(cuCtxCreate_v4, &second, nullptr, 0, 0);
    RUN(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, 0);
    Bench::load(nothing, spin);
    for (const double block : {10.0, 200.0}) {
        RUN(cuCtxSetCurrent, second);
        for (int index = 0; index < static_cast<int>(200000 / (block * 8)); ++index)
            Bench::launch(spin, stream, 132 * 16 * 8, 128, block);
        RUN(cuCtxSetCurrent, bench.context);
        work(2000);
        bench.results.add("urgent_beside_mps_" + std::to_string(static_cast<int>(block)),
                          urgent_beside(bench, 20, after_sleep_of_500_mps, 0));
        RUN(cuCtxSetCurrent, second);
        RUN(cuStreamSynchronize, stream);
    }
    bench.results.add("contexts_in_turn_mps", in_turn(bench, second, nothing, stream));
    RUN(cuCtxDestroy, second);
    RUN(cuCtxSetCurrent, bench.context);
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 2) give_up("usage", "bench_simfit LIBCUDA [PART...]");
    void* library = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) give_up(arguments[1], dlerror());
#define FIKIT_SIMFIT_FIND(name)                                                                \
    cuda.call_##name =                                                                         \
        reinterpret_cast<decltype(cuda.call_##name)>(dlsym(library, FIKIT_SIMFIT_TEXT(name))); \
    if (cuda.call_##name == nullptr) give_up(FIKIT_SIMFIT_TEXT(name), "not there");
    FIKIT_SIMFIT_FUNCTIONS(FIKIT_SIMFIT_FIND)
#undef FIKIT_SIMFIT_FIND
    cuda.simulated_now = reinterpret_cast<decltype(cuda.simulated_now)>(dlsym(library, "fikitSimNow"));
    cuda.simulated_host_time =
        reinterpret_cast<decltype(cuda.simulated_host_time)>(dlsym(library, "fikitSimHostTime"));

    const std::pair<const char*, void (*)(Bench&)> parts[] = {
        {"calls", calls},      {"graphs", graphs}, {"priorities", priorities}, {"partitions", partitions},
        {"mps", side_by_side}, {"copies", copies}, {"memory", memory},         {"contexts", contexts}};
    Bench bench;
    for (const auto& [name, part] : parts) {
        const bool wanted =
            count == 2 || std::any_of(arguments + 2, arguments + count, [&, wished = name](char* one) {
                return std::strcmp(one, wished) == 0;
            });
        if (!wanted) continue;
        part(bench);
        bench.results.print();
    }
    return 0;
}
