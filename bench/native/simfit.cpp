// Measures what the simulated GPU's model claims to reproduce, on the simulated GPU or on a real one.
//
//     bench_simfit LIBCUDA [PART...]
//
// Prints a line of JSON for each part: {"figure": value, ...}. Where the library has a clock of its own
// (fikitSimNow), time is read from it and the host's own work is told to it; so under the virtual clock the
// result is the same on any machine.
#include <cuda.h>
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace {

#define FIKIT_SIMFIT_FUNCTIONS(X)                                                                           \
    X(cuInit)                                                                                               \
    X(cuGetErrorName) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuCtxCreate_v4)  \
        X(cuCtxDestroy) X(cuModuleLoadData) X(cuModuleGetFunction) X(cuFuncSetAttribute) X(cuLaunchKernel)  \
            X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamQuery)        \
                X(cuStreamWaitEvent) X(cuStreamWriteValue32) X(cuLaunchHostFunc) X(cuEventCreate)           \
                    X(cuEventRecord) X(cuEventQuery) X(cuEventElapsedTime) X(cuEventDestroy) X(cuMemAlloc)  \
                        X(cuMemFree) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostRegister)                \
                            X(cuMemHostUnregister) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync)                \
                                X(cuMemcpyDtoDAsync) X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemAddressReserve) \
                                    X(cuMemAddressFree) X(cuMemCreate) X(cuMemRelease) X(cuMemMap)          \
                                        X(cuMemUnmap) X(cuMemSetAccess) X(cuDeviceGetDevResource)           \
                                            X(cuDevSmResourceSplitByCount) X(cuDevResourceGenerateDesc)     \
                                                X(cuGreenCtxCreate) X(cuGreenCtxStreamCreate)               \
                                                    X(cuGreenCtxDestroy) X(cuStreamBeginCapture)            \
                                                        X(cuStreamEndCapture) X(cuGraphInstantiate)         \
                                                            X(cuGraphLaunch)

#define FIKIT_SIMFIT_TEXT_OF(name) #name
#define FIKIT_SIMFIT_TEXT(name) FIKIT_SIMFIT_TEXT_OF(name)

// libcuda by name, so that one program runs on either.
struct Cuda {
#define FIKIT_SIMFIT_MEMBER(name) decltype(&::name) call_##name = nullptr;
    FIKIT_SIMFIT_FUNCTIONS(FIKIT_SIMFIT_MEMBER)
#undef FIKIT_SIMFIT_MEMBER
    std::uint64_t (*simulated_now)() = nullptr;
    void (*simulated_host_time)(std::uint64_t) = nullptr;
} cuda;

[[noreturn]] void give_up(const char* what, const char* why) {
    std::fprintf(stderr, "bench_simfit: %s: %s\n", what, why);
    std::exit(1);
}

void check(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    const char* name = nullptr;
    cuda.call_cuGetErrorName(result, &name);
    give_up(what, name != nullptr ? name : "unknown");
}
#define RUN(name, ...) check(cuda.call_##name(__VA_ARGS__), #name)

double now() {  // microseconds
    if (cuda.simulated_now != nullptr) return static_cast<double>(cuda.simulated_now()) / 1000;
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

// The host has something else to do for so long. It spins: a sleep would end when the machine likes.
void work(double microseconds) {
    if (cuda.simulated_host_time != nullptr) {
        cuda.simulated_host_time(static_cast<std::uint64_t>(microseconds * 1000));
        return;
    }
    for (const double end = now() + microseconds; now() < end;) __builtin_ia32_pause();
}

double percentile(std::vector<double> values, double share) {
    std::sort(values.begin(), values.end());
    return values[std::min(values.size() - 1,
                           static_cast<std::size_t>(static_cast<double>(values.size()) * share))];
}
double median(std::vector<double> values) { return percentile(std::move(values), 0.5); }

constexpr const char* kernels = R"(.version 7.8
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }
.visible .entry spin(.param .u64 a)
{
  .reg .b64 %rd<6>; .reg .pred %p1;
  ld.param.u64 %rd1, [a];
  mov.u64 %rd2, %globaltimer;
L:
  mov.u64 %rd3, %globaltimer;
  sub.s64 %rd4, %rd3, %rd2;
  setp.lt.s64 %p1, %rd4, %rd1;
  @%p1 bra L;
  ret;
}
)";

class Results {
  public:
    void add(const std::string& name, double value) { values_.emplace_back(name, value); }
    void print() {
        std::printf("{");
        for (std::size_t index = 0; index < values_.size(); ++index) {
            std::printf("%s\"%s\": %.6g", index > 0 ? ", " : "", values_[index].first.c_str(),
                        values_[index].second);
        }
        std::printf("}\n");
        std::fflush(stdout);
        values_.clear();
    }

  private:
    std::vector<std::pair<std::string, double>> values_;
};

// One context with two streams, and the kernels.
struct Bench {
    Results results;
    CUcontext context = nullptr;
    CUfunction nothing = nullptr, spin = nullptr;
    CUstream high = nullptr, low = nullptr;

    Bench() {
        RUN(cuInit, 0);
        RUN(cuDevicePrimaryCtxRetain, &context, 0);
        RUN(cuCtxSetCurrent, context);
        load(nothing, spin);
        RUN(cuStreamCreateWithPriority, &high, CU_STREAM_NON_BLOCKING, -5);
        RUN(cuStreamCreateWithPriority, &low, CU_STREAM_NON_BLOCKING, 0);
        for (int index = 0; index < 1000; ++index) launch(nothing, high, 1, 32, 0);
        RUN(cuStreamSynchronize, high);
    }
    static void load(CUfunction& first, CUfunction& second) {
        CUmodule module = nullptr;
        RUN(cuModuleLoadData, &module, kernels);
        RUN(cuModuleGetFunction, &first, module, "nothing");
        RUN(cuModuleGetFunction, &second, module, "spin");
    }
    static void launch(CUfunction function, CUstream stream, unsigned grid, unsigned block,
                       double microseconds) {
        auto nanoseconds = static_cast<std::uint64_t>(microseconds * 1000);
        void* parameters[] = {&nanoseconds};
        RUN(cuLaunchKernel, function, grid, 1, 1, block, 1, 1, 0, stream, parameters, nullptr);
    }
    double round_trip(unsigned grid, unsigned block) {
        const double start = now();
        launch(nothing, high, grid, block, 0);
        RUN(cuStreamSynchronize, high);
        return now() - start;
    }
    // Microseconds of each of `count` calls.
    template <typename Body>
    double each(int count, Body body) {
        const double start = now();
        for (int index = 0; index < count; ++index) body(index);
        return (now() - start) / count;
    }
};

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
constexpr double after_sleep_of_1000 = 1065.7, after_sleep_of_500 = 565;

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

void copies(Bench& bench) {
    const std::size_t bytes = std::size_t{256} << 20;
    void* host = nullptr;
    CUdeviceptr device = 0, other = 0;
    double start = now();
    RUN(cuMemHostAlloc, &host, bytes, CU_MEMHOSTALLOC_PORTABLE);
    bench.results.add("host_allocate", (now() - start) / 1000 * 4);
    RUN(cuMemAlloc, &device, bytes);
    RUN(cuMemAlloc, &other, bytes);
    const auto speed = [&](const char* name, double moved, auto body) {
        body();
        RUN(cuCtxSynchronize);
        const double began = now();
        body();
        RUN(cuCtxSynchronize);
        bench.results.add(name, moved / (now() - began) / 1000);
    };
    const auto whole = static_cast<double>(bytes);
    speed("to_device", whole, [&] { RUN(cuMemcpyHtoDAsync, device, host, bytes, bench.high); });
    speed("to_host", whole, [&] { RUN(cuMemcpyDtoHAsync, host, device, bytes, bench.high); });
    speed("both_ways", whole, [&] {
        RUN(cuMemcpyHtoDAsync, device, host, bytes / 2, bench.high);
        RUN(cuMemcpyDtoHAsync, static_cast<char*>(host) + bytes / 2, other, bytes / 2, bench.low);
    });
    speed("on_device", 2 * whole, [&] { RUN(cuMemcpyDtoDAsync, device, other, bytes, bench.high); });
    for (const std::size_t size : {std::size_t{4} << 10, std::size_t{64} << 10, std::size_t{1} << 20,
                                   std::size_t{2} << 20, std::size_t{16} << 20}) {
        const int count = 100;
        start = now();
        for (int index = 0; index < count; ++index) RUN(cuMemcpyDtoHAsync, host, device, size, bench.high);
        RUN(cuStreamSynchronize, bench.high);
        bench.results.add("to_host_" + std::to_string(size >> 10) + "k",
                          count * static_cast<double>(size) / (now() - start) / 1000);
    }
    std::vector<char> pageable(bytes, 1);
    start = now();
    RUN(cuMemcpyHtoD, device, pageable.data(), bytes);
    bench.results.add("pageable_to_device", whole / (now() - start) / 1000);
    start = now();
    RUN(cuMemcpyDtoH, pageable.data(), device, bytes);
    bench.results.add("pageable_to_host", whole / (now() - start) / 1000);
    start = now();
    RUN(cuMemHostRegister, pageable.data(), bytes, CU_MEMHOSTREGISTER_PORTABLE);
    bench.results.add("host_register", (now() - start) / 1000 * 4);
    start = now();
    RUN(cuMemHostUnregister, pageable.data());
    bench.results.add("host_unregister", (now() - start) / 1000 * 4);
    RUN(cuMemFreeHost, host);
    RUN(cuMemFree, device);
    RUN(cuMemFree, other);
}

void memory(Bench& bench) {
    std::vector<CUdeviceptr> blocks(100);
    bench.results.add("allocate_2m", bench.each(100, [&](int index) {
        RUN(cuMemAlloc, &blocks[static_cast<std::size_t>(index)], 2 << 20);
    }));
    bench.results.add("free_2m", bench.each(100, [&](int index) {
        RUN(cuMemFree, blocks[static_cast<std::size_t>(index)]);
    }));
    RUN(cuMemAlloc, blocks.data(), 2 << 20);
    Bench::launch(bench.spin, bench.low, 1, 32, 100000);
    work(1000);
    double start = now();
    RUN(cuMemFree, blocks[0]);
    bench.results.add("free_behind_kernel", (now() - start) / 1000);

    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (const std::size_t mebibytes : {2U, 64U, 1024U, 8192U}) {
        const std::size_t bytes = mebibytes << 20;
        const int count = mebibytes >= 1024 ? 5 : 50;
        double took[5] = {};
        for (int index = 0; index < count; ++index) {
            CUdeviceptr address = 0;
            CUmemGenericAllocationHandle handle = 0;
            RUN(cuMemAddressReserve, &address, bytes, 0, 0, 0);
            double last = now();
            const auto lap = [&](int which) {
                took[which] += now() - last;
                last = now();
            };
            RUN(cuMemCreate, &handle, bytes, &properties, 0);
            lap(0);
            RUN(cuMemMap, address, bytes, 0, handle, 0);
            lap(1);
            RUN(cuMemSetAccess, address, bytes, &access, 1);
            lap(2);
            RUN(cuMemUnmap, address, bytes);
            lap(3);
            RUN(cuMemRelease, handle);
            lap(4);
            RUN(cuMemAddressFree, address, bytes);
        }
        const char* names[] = {"create", "map", "set_access", "unmap", "release"};
        for (int which = 0; which < 5; ++which) {
            bench.results.add(std::string("vmm_") + names[which] + "_" + std::to_string(mebibytes) + "m",
                              took[which] / count);
        }
    }
    properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    CUmemGenericAllocationHandle handle = 0;
    start = now();
    RUN(cuMemCreate, &handle, std::size_t{256} << 20, &properties, 0);
    bench.results.add("vmm_create_host_256m", (now() - start) / 1000);
    RUN(cuMemRelease, handle);
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
    std::vector<double> pairs;
    for (int index = 0; index < 200; ++index) {
        RUN(cuCtxSetCurrent, bench.context);
        start = now();
        bench.round_trip(1, 32);
        RUN(cuCtxSetCurrent, second);
        Bench::launch(nothing, stream, 1, 32, 0);
        RUN(cuStreamSynchronize, stream);
        pairs.push_back(now() - start);
    }
    bench.results.add("contexts_in_turn", median(pairs));
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
        {"calls", calls},   {"graphs", graphs}, {"priorities", priorities}, {"partitions", partitions},
        {"copies", copies}, {"memory", memory}, {"contexts", contexts}};
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
