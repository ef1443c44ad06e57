// Under the virtual clock the same program sees the same times, to the nanosecond.
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" std::uint64_t fikitSimNow();
extern "C" void fikitSimHostTime(std::uint64_t nanoseconds);

namespace {

constexpr const char* text = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry spin(.param .u64 duration, .param .u64 place)
{
  .reg .b64 %rd<6>; .reg .pred %p1;
  ld.param.u64 %rd1, [duration];
  ld.param.u64 %rd4, [place];
  mov.u64 %rd2, %globaltimer;
L:
  mov.u64 %rd3, %globaltimer;
  sub.s64 %rd5, %rd3, %rd2;
  setp.lt.s64 %p1, %rd5, %rd1;
  @%p1 bra L;
  st.global.u64 [%rd4], %rd3;
  ret;
}
)";

void require(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    std::fprintf(stderr, "%s: %d\n", what, static_cast<int>(result));
    std::exit(1);
}
#define RUN(call) require(call, #call)

std::uint64_t called_at = 0;

// Prints every time that the program can see.
void program() {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction spin = nullptr;
    RUN(cuInit(0));
    RUN(cuDevicePrimaryCtxRetain(&context, 0));
    RUN(cuCtxSetCurrent(context));
    RUN(cuModuleLoadData(&module, text));
    RUN(cuModuleGetFunction(&spin, module, "spin"));
    std::uint64_t* words = nullptr;
    void* pinned = nullptr;
    CUdeviceptr device = 0;
    RUN(cuMemHostAlloc(&pinned, 1 << 20, 0));
    RUN(cuMemAlloc(&device, 1 << 20));
    words = static_cast<std::uint64_t*>(pinned);
    std::vector<CUstream> streams(4);
    std::vector<CUevent> events(4);
    for (int index = 0; index < 4; ++index) {
        RUN(cuStreamCreateWithPriority(&streams[index], CU_STREAM_NON_BLOCKING, -index));
        RUN(cuEventCreate(&events[index], CU_EVENT_DEFAULT));
    }
    for (std::uint64_t round = 0; round < 30; ++round) {
        for (std::uint64_t index = 0; index < 4; ++index) {
            std::uint64_t duration = 1000 + 7919 * (round * 4 + index) % 40000;
            CUdeviceptr place = reinterpret_cast<CUdeviceptr>(words + index);
            void* parameters[] = {&duration, &place};
            const auto grid = static_cast<unsigned>(100 + 997 * (round + index) % 5000);
            RUN(cuLaunchKernel(spin, grid, 1, 1, 256, 1, 1, 0, streams[index], parameters, nullptr));
            RUN(cuMemcpyDtoHAsync(words + 1024, device, 4096 << index, streams[index]));
            RUN(cuEventRecord(events[index], streams[index]));
            RUN(cuStreamWaitEvent(streams[(index + 1) % 4], events[index], 0));
        }
        RUN(cuLaunchHostFunc(streams[round % 4], [](void*) { called_at = fikitSimNow(); }, nullptr));
        if (round % 3 == 0) fikitSimHostTime(12345);
        if (round % 5 == 0) RUN(cuStreamSynchronize(streams[2]));
        std::printf("%lu ", fikitSimNow());
    }
    RUN(cuCtxSynchronize());
    float elapsed = 0;
    RUN(cuEventElapsedTime(&elapsed, events[0], events[3]));
    std::printf("%lu %a %lu", fikitSimNow(), static_cast<double>(elapsed), called_at);
    for (int index = 0; index < 4; ++index) std::printf(" %lu", words[index]);
    std::fflush(stdout);
}

std::string trace_of_a_run() {
    int ends[2];
    if (pipe(ends) != 0) std::exit(2);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        setenv("FIKIT_SIM_CLOCK", "virtual", 1);
        program();
        _exit(0);
    }
    close(ends[1]);
    std::string trace;
    char buffer[4096];
    for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
        trace.append(buffer, static_cast<std::size_t>(got));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) std::exit(3);
    return trace;
}

}  // namespace

int main() {
    const std::string first = trace_of_a_run();
    const std::string second = trace_of_a_run();
    std::printf("%s\n", first.c_str());
    if (first == second && first.size() > 300) return 0;
    std::printf("differs from\n%s\n", second.c_str());
    return 1;
}
