// Several processes on one simulated device: turns, memory, and any of them killed at any time.
//
// Time is dilated, so that what the machine does to the processes is small beside what they measure.
#include <cuda.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

extern "C" std::uint64_t fikitSimNow();
extern "C" void fikitSimHostTime(std::uint64_t nanoseconds);

namespace {

constexpr const char* text = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry spin(.param .u64 duration)
{
  .reg .b64 %rd<6>; .reg .pred %p1;
  ld.param.u64 %rd1, [duration];
  mov.u64 %rd2, %globaltimer;
L:
  mov.u64 %rd3, %globaltimer;
  sub.s64 %rd5, %rd3, %rd2;
  setp.lt.s64 %p1, %rd5, %rd1;
  @%p1 bra L;
  ret;
}
)";

void require(bool fine, const std::string& what) {
    if (fine) return;
    std::fprintf(stderr, "failed in %d: %s\n", static_cast<int>(getpid()), what.c_str());
    std::_Exit(1);
}
#define RUN(call) require((call) == CUDA_SUCCESS, #call)

struct Program {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction spin = nullptr;
    CUstream stream = nullptr;
    Program() {
        RUN(cuInit(0));
        RUN(cuDevicePrimaryCtxRetain(&context, 0));
        RUN(cuCtxSetCurrent(context));
        RUN(cuModuleLoadData(&module, text));
        RUN(cuModuleGetFunction(&spin, module, "spin"));
        RUN(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    void launch(std::uint64_t nanoseconds, unsigned grid = 1) {
        void* parameters[] = {&nanoseconds};
        RUN(cuLaunchKernel(spin, grid, 1, 1, 128, 1, 1, 0, stream, parameters, nullptr));
    }
    double round_trip() {  // microseconds
        const std::uint64_t start = fikitSimNow();
        launch(0);
        RUN(cuStreamSynchronize(stream));
        return static_cast<double>(fikitSimNow() - start) / 1000;
    }
    double median_round_trip(int times, std::uint64_t pause = 0) {
        std::vector<double> all;
        for (int index = 0; index < times; ++index) {
            all.push_back(round_trip());
            if (pause > 0) fikitSimHostTime(pause);
        }
        std::sort(all.begin(), all.end());
        return all[all.size() / 2];
    }
    [[noreturn]] void flood() {
        for (;;) {
            for (int index = 0; index < 8; ++index) launch(1000000, 132);
            RUN(cuStreamSynchronize(stream));
        }
    }
};

// A process that runs `body` once it is let go, and says when it is ready.
class Child {
  public:
    explicit Child(const std::function<void(Program&)>& body) {
        int ready[2], go[2];
        require(pipe(ready) == 0 && pipe(go) == 0, "pipe");
        pid_ = fork();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            Program program;
            char byte = 1;
            require(write(ready[1], &byte, 1) == 1, "ready");
            require(read(go[0], &byte, 1) == 1, "go");
            body(program);
            std::_Exit(0);
        }
        char byte = 0;
        require(read(ready[0], &byte, 1) == 1, "a child's start");
        go_ = go[1];
        for (const int end : {ready[0], ready[1], go[0]}) close(end);
    }
    void go() {
        const char byte = 1;
        require(write(go_, &byte, 1) == 1, "letting go");
    }
    void kill() {
        ::kill(pid_, SIGKILL);
        int status = 0;
        waitpid(pid_, &status, 0);
        close(go_);
    }
    void wait() {
        int status = 0;
        waitpid(pid_, &status, 0);
        require(status == 0, "a child ended with " + std::to_string(status));
        close(go_);
    }

  private:
    pid_t pid_ = -1;
    int go_ = -1;
};

// Time is real here, so other work on the machine adds to a figure: it has to be right once in a while.
void between(const std::function<double()>& measure, double low, double high, const char* what) {
    double value = 0;
    for (int attempt = 0; attempt < 40; ++attempt) {
        value = measure();
        std::printf("%s: %.1f\n", what, value);
        std::fflush(stdout);
        if (value >= low && value <= high) return;
    }
    require(false, std::string(what) + " is " + std::to_string(value));
}

void two_take_turns() {
    Child partner([](Program& program) {
        for (;;) program.round_trip();
    });
    Child measured([](Program& program) {
        while (program.round_trip() < 100) {  // until the partner is at work
        }
        between([&] { return program.median_round_trip(40); }, 270 * 0.8, 286 * 1.25,
                "a round trip of one of two");
    });
    partner.go();
    measured.go();
    measured.wait();
    partner.kill();
}

void a_busy_one_keeps_its_slice() {
    Child flood([](Program& program) { program.flood(); });
    Child other([](Program& program) {
        between([&] { return program.median_round_trip(15, 565000); }, 1846 * 0.85, 1846 * 1.15,
                "beside a busy process");
    });
    flood.go();
    other.go();
    other.wait();
    flood.kill();
}

void whoever_is_killed_stops_nobody() {
    Child witness([](Program& program) {
        for (int index = 0; index < 200; ++index) {
            const double took = program.round_trip();
            require(took < 200000, "a round trip took " + std::to_string(took));
            fikitSimHostTime(200000);
        }
    });
    witness.go();
    for (int index = 0; index < 25; ++index) {
        Child victim([](Program& program) {
            CUdeviceptr memory = 0;
            RUN(cuMemAlloc(&memory, std::size_t{60} << 20));
            for (;;) {
                program.launch(50000, 132);
                CUdeviceptr more = 0;
                RUN(cuMemAlloc(&more, 4 << 20));
                RUN(cuMemFree(more));
            }
        });
        victim.go();
        usleep(static_cast<useconds_t>(997 * (index * 7 % 25)));
        victim.kill();
    }
    witness.wait();
    Child last([](Program& program) {
        between([&] { return program.median_round_trip(20); }, 6, 120, "alone again");
    });
    last.go();
    last.wait();
}

void memory_is_one() {
    CUdeviceptr memory = 0;
    Child holder([&](Program&) {
        RUN(cuMemAlloc(&memory, std::size_t{70} << 20));
        std::size_t free = 0, total = 0;
        RUN(cuMemGetInfo(&free, &total));
        require(total == std::size_t{128} << 20 && free <= total - (std::size_t{70} << 20), "own memory");
        pause();
    });
    holder.go();
    Child other([&](Program&) {
        std::size_t free = 0, total = 0;
        do RUN(cuMemGetInfo(&free, &total));
        while (free > std::size_t{58} << 20);
        require(cuMemAlloc(&memory, std::size_t{70} << 20) == CUDA_ERROR_OUT_OF_MEMORY, "the other's memory");
    });
    other.go();
    other.wait();
    holder.kill();
    Child next([&](Program&) { RUN(cuMemAlloc(&memory, std::size_t{120} << 20)); });
    next.go();
    next.wait();
}

}  // namespace

int main() {
    char folder[] = "/tmp/fikit-shared-XXXXXX";
    require(mkdtemp(folder) != nullptr, "mkdtemp");
    const std::string machine = std::string(folder) + "/machine";
    setenv("FIKIT_SIM_MACHINE", machine.c_str(), 1);
    setenv("FIKIT_SIM_SCALE", "20", 1);
    setenv("FIKIT_SIM_MEMORY", "134217728", 1);
    alarm(120);
    two_take_turns();
    a_busy_one_keeps_its_slice();
    whoever_is_killed_stops_nobody();
    memory_is_one();
    unlink((machine + ".0").c_str());
    rmdir(folder);
    return 0;
}
