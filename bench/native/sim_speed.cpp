// How many instructions of single threads the simulated GPU runs in a second, on one core.
//
//     bench_sim_speed [SECONDS]
//
// Prints a line for each kind of loop body: 256 threads of one block run it, all together or (divergent) half
// at a time. `recorded`: while it is noted which bytes are read and written. The goal of the interpreter is
// 100 million simple instructions in a second.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ptx/execution.hpp"

using namespace fikit::sim;

namespace {

struct Flat final : GlobalMemory {
    std::vector<std::byte> bytes = std::vector<std::byte>(1 << 20);
    std::byte* at(std::uint64_t address, std::size_t size, bool) override {
        return address + size <= bytes.size() ? bytes.data() + address : nullptr;
    }
    Stretch stretch(std::uint64_t) override { return {0, bytes.size(), bytes.data(), true}; }
};

struct Body {
    const char* name;
    const char* code;
    bool recorded = false;
};

constexpr Body bodies[] = {
    {"integer",
     "add.u32 %r2, %r2, %r3; xor.b32 %r3, %r3, %r2; shl.b32 %r4, %r2, 3; mad.lo.u32 %r2, %r4, 5, %r3;"},
    {"f32",
     "fma.rn.f32 %f1, %f1, 0f3F7FF000, %f2; add.f32 %f2, %f2, %f1; mul.f32 %f1, %f1, 0f3F000000; max.f32 "
     "%f2, %f2, %f1;"},
    {"f64",
     "fma.rn.f64 %d1, %d1, 0d3FEFF00000000000, %d2; add.f64 %d2, %d2, %d1; mul.f64 %d1, %d1, "
     "0d3FE0000000000000;"},
    {"f16 pairs", "fma.rn.f16x2 %r2, %r2, %r3, %r4; add.f16x2 %r4, %r2, %r3;"},
    {"f16 sums", "add.f16 %h1, %h1, %h2; mul.f16 %h2, %h2, %h1; sub.f16 %h1, %h1, %h2;"},
    {"bf16 pairs", "fma.rn.bf16x2 %r2, %r2, %r3, %r4; fma.rn.bf16x2 %r4, %r2, %r3, %r4;"},
    {"shared memory", "ld.shared.u32 %r2, [%r5]; add.u32 %r2, %r2, 1; st.shared.u32 [%r5], %r2;"},
    {"global memory", "ld.global.u32 %r2, [%rd1]; add.u32 %r2, %r2, 1; st.global.u32 [%rd1], %r2;"},
    {"global, recorded", "ld.global.u32 %r2, [%rd1]; add.u32 %r2, %r2, 1; st.global.u32 [%rd1], %r2;", true},
    {"strided", "ld.global.u32 %r2, [%rd2]; add.u32 %r2, %r2, 1; st.global.u32 [%rd2], %r2;"},
    {"strided, recorded", "ld.global.u32 %r2, [%rd2]; add.u32 %r2, %r2, 1; st.global.u32 [%rd2], %r2;", true},
    {"local memory", "ld.local.u32 %r2, [l]; add.u32 %r2, %r2, 1; st.local.u32 [l], %r2;"},
    {"vectors of four",
     "ld.global.v4.u32 {%r2, %r3, %r4, %r6}, [%rd2]; add.u32 %r2, %r2, 1; "
     "st.global.v4.u32 [%rd2], {%r2, %r3, %r4, %r6};"},
    {"shared atomics", "atom.shared.add.u32 %r2, [%r5], 1;"},
    {"shuffles", "shfl.sync.bfly.b32 %r2, %r3, 1, 31, -1; add.u32 %r3, %r3, %r2;"},
    {"divergent",
     "setp.eq.u32 %p2, %r6, 0; @%p2 bra ODD; add.u32 %r2, %r2, 3; xor.b32 %r3, %r3, %r2; bra.uni BOTH;"
     "ODD: sub.u32 %r2, %r2, 1; xor.b32 %r3, %r3, 7; BOTH:"},
};

double millions_per_second(const Body& body, double seconds) {
    constexpr int turns = 2000;
    const std::string text =
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {\n"
        ".reg .b32 %r<9>; .reg .f32 %f<3>; .reg .f64 %d<3>; .reg .b64 %rd<3>; .reg .pred %p<3>; .shared .b8 "
        "s[1024]; .local .b32 l; .reg .b16 %h<3>;\n"
        "mov.b16 %h1, 0x3c00; mov.b16 %h2, 0x3800; mov.u32 %r1, %tid.x; mov.u32 %r2, %r1; mov.u32 %r3, 9; "
        "mov.u32 %r4, 1; and.b32 %r6, %r1, 1;\n"
        "mov.u32 %r5, s; shl.b32 %r7, %r1, 2; add.u32 %r5, %r5, %r7; cvt.u64.u32 %rd1, %r7; mov.u32 %r8, 0;\n"
        "mul.lo.u64 %rd2, %rd1, 16;\n"
        "cvt.rn.f32.u32 %f1, %r1; mov.f32 %f2, 0f3F800000; cvt.rn.f64.u32 %d1, %r1; mov.f64 %d2, "
        "0d3FF0000000000000;\n"
        "AGAIN: " +
        std::string(body.code) + " add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, " + std::to_string(turns) +
        "; @%p1 bra AGAIN; ret; }\n";
    ptx::Module module;
    std::string log;
    if (ptx::parse(text, module, log) != ptx::Verdict::accepted) {
        std::fputs(log.c_str(), stderr);
        std::exit(1);
    }
    Flat memory;
    LaunchShape shape;
    shape.block = {256, 1, 1};
    const std::vector<std::uint64_t> variables;
    std::uint64_t done = 0;
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    std::chrono::duration<double> passed{};
    do {
        KernelRun run(module.kernels[0], {}, shape, variables, 0);
        if (body.recorded) run.accesses = std::make_shared<AccessRecorder>();
        BlockExecution block(run, 0, 0);
        while (block.resume(memory, 0, 1U << 20).state == Progress::State::running) {
        }
        for (const std::uint64_t count : block.work().instructions) done += count;
        passed = Clock::now() - start;
    } while (passed.count() < seconds);
    return static_cast<double>(done) / passed.count() / 1e6;
}

}  // namespace

int main(int count, char** arguments) {
    const double seconds = count > 1 ? std::atof(arguments[1]) : 0.5;
    for (const Body& body : bodies) {
        std::printf("%-18s %8.0f million thread instructions per second\n", body.name,
                    millions_per_second(body, seconds));
        std::fflush(stdout);
    }
    return 0;
}
