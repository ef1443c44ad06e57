// PTX: what is accepted, what is refused and how, what it computes.
#include <cstring>

#include "check.hpp"
#include "ptx/execution.hpp"

using namespace fikit::sim;

namespace {

struct Words final : GlobalMemory {
    alignas(8) std::byte bytes[4096] = {};
    std::byte* at(std::uint64_t address, std::size_t size, bool) override {
        return address + size <= sizeof bytes ? bytes + address : nullptr;
    }
};

ptx::Verdict load(const std::string& body, ptx::Module& module, std::string& log) {
    return ptx::parse(".version 8.0\n.target sm_90\n.address_size 64\n" + body, module, log);
}

std::string refusal(const std::string& body) {
    ptx::Module module;
    std::string log;
    return load(body, module, log) == ptx::Verdict::accepted ? "accepted" : log;
}

std::string kernel(const std::string& code) {
    return ".visible .entry k(.param .u64 a) { .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 "
           "%rd<9>;\n"
           ".reg .b64 %base; mov.u64 %base, 0; ld.param.u64 %rd8, [a];\n" +
           code + "}\n";
}

// What the kernel stores at address 0.
std::uint64_t computed(const std::string& code, std::uint64_t argument = 0, LaunchShape shape = {}) {
    ptx::Module module;
    std::string log;
    if (load(kernel(code), module, log) != ptx::Verdict::accepted) {
        check::fail(__FILE__, __LINE__, log);
        return 0;
    }
    std::vector<std::byte> parameters(8);
    std::memcpy(parameters.data(), &argument, 8);
    const std::vector<std::uint64_t> variables;
    Execution execution(module.kernels[0], parameters, shape, variables, 0);
    Words memory;
    Nanoseconds now = 1000;
    for (auto progress = execution.resume(memory, now); progress.state != Execution::State::finished;) {
        if (progress.state == Execution::State::faulted) return 0xfa000000U + progress.fault;
        now = progress.until;
        progress = execution.resume(memory, now);
    }
    std::uint64_t value = 0;
    std::memcpy(&value, memory.bytes, 8);
    return value;
}

const std::string store = "st.global.u64 [%base], %rd1; ret;";

}  // namespace

TEST(arithmetic) {
    CHECK(computed("add.u64 %rd1, %rd8, 5;" + store, 37) == 42);
    CHECK(computed("sub.s64 %rd1, 3, %rd8;" + store, 5) == static_cast<std::uint64_t>(-2));
    CHECK(computed("mul.lo.u32 %r1, 0x10000, 0x10000; cvt.u64.u32 %rd1, %r1;" + store) == 0);
    CHECK(computed("mul.wide.u32 %rd1, 0xffffffff, 2;" + store) == 0x1fffffffeULL);
    CHECK(computed("mul.wide.s32 %rd1, -3, 5;" + store) == static_cast<std::uint64_t>(-15));
    CHECK(computed("shr.s32 %r1, -8, 1; cvt.s64.s32 %rd1, %r1;" + store) == static_cast<std::uint64_t>(-4));
    CHECK(computed("shr.u32 %r1, -8, 1; cvt.u64.u32 %rd1, %r1;" + store) == 0x7ffffffcU);
    CHECK(computed("shl.b64 %rd1, 1, 64;" + store) == 0);
    CHECK(computed("setp.lt.s32 %p1, -1, 1; selp.u64 %rd1, 10, 20, %p1;" + store) == 10);
    CHECK(computed("setp.lt.u32 %p1, -1, 1; selp.u64 %rd1, 10, 20, %p1;" + store) == 20);
    CHECK(computed("div.s64 %rd1, -7, 2;" + store) == static_cast<std::uint64_t>(-3));
    CHECK(computed("mov.u64 %rd1, 0; @!%p1 mov.u64 %rd1, 4;" + store) == 4);
}

TEST(loops_that_count_are_run) {
    CHECK(computed("mov.u64 %rd1, 0; L: add.u64 %rd1, %rd1, 3; setp.lt.u64 %p1, %rd1, 300; @%p1 bra L;" +
                   store) == 300);
}

TEST(loops_that_wait_for_a_clock_are_solved_in_every_form) {
    const std::string end = "mov.u64 %rd5, %globaltimer; sub.u64 %rd1, %rd5, %rd2;" + store;
    const std::string start = "mov.u64 %rd2, %globaltimer;";
    CHECK(computed(start +
                       "L: mov.u64 %rd3, %globaltimer; sub.u64 %rd4, %rd3, %rd2; setp.lt.u64 %p1, "
                       "%rd4, %rd8;"
                       "@%p1 bra L;" +
                       end,
                   5000000000) == 5000000000);
    CHECK(computed(start +
                       "L: mov.u64 %rd3, %globaltimer; sub.u64 %rd4, %rd3, %rd2; setp.ge.u64 %p1, "
                       "%rd4, %rd8;"
                       "@%p1 bra E; bra L; E:" +
                       end,
                   777) == 777);
    CHECK(computed(start + "nanosleep.u32 250;" + end) == 250);
}

TEST(endless_loops_meet_the_watchdog) {
    CHECK(computed("L: bra L;") == 0xfa000000U + CUDA_ERROR_LAUNCH_TIMEOUT);
    CHECK(computed("L: mov.u64 %rd1, %clock64; setp.ne.u64 %p1, 1, 2; @%p1 bra L; ret;") ==
          0xfa000000U + CUDA_ERROR_LAUNCH_TIMEOUT);
}

TEST(a_lock_is_passed_on_where_all_wait_by_the_clock) {
    const std::string code = R"(
AGAIN:
    atom.global.exch.b32 %r1, [%base+8], 1;
    ld.volatile.global.u64 %rd1, [%base];
    mov.u64 %rd2, %clock64;
WAIT:
    mov.u64 %rd3, %clock64; sub.s64 %rd3, %rd3, %rd2; setp.lt.s64 %p1, %rd3, 20;
    @%p1 bra WAIT;
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra AGAIN;
    add.u64 %rd1, %rd1, 1;
    st.volatile.global.u64 [%base], %rd1;
    membar.gl;
    atom.global.exch.b32 %r2, [%base+8], 0;
    ret;)";
    CHECK(computed(code, 0, {{4, 1, 1}, {64, 1, 1}}) == 256);
}

TEST(reductions_count_every_thread) {
    const LaunchShape shape{{5, 2, 1}, {64, 1, 1}};
    CHECK(computed("red.global.add.u64 [%base], 2; ret;", 0, shape) == 1280);
    CHECK(computed("atom.global.max.u64 %rd1, [%base], 9; ret;", 0, shape) == 9);
    CHECK(computed("mov.u32 %r1, %ntid.x; cvt.u64.u32 %rd1, %r1;" + store, 0, shape) == 64);
}

TEST(bad_addresses_and_traps) {
    CHECK(computed("ld.global.u32 %r1, [%base+2]; ret;") == 0xfa000000U + CUDA_ERROR_MISALIGNED_ADDRESS);
    CHECK(computed("ld.global.u32 %r1, [%base+65536]; ret;") == 0xfa000000U + CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(computed("trap;") == 0xfa000000U + CUDA_ERROR_LAUNCH_FAILED);
}

TEST(what_differs_between_threads_is_not_uniform) {
    const auto uniform = [](const std::string& code) {
        ptx::Module module;
        std::string log;
        return load(kernel(code), module, log) == ptx::Verdict::accepted && module.kernels[0].uniform;
    };
    CHECK(uniform("mov.u32 %r1, %ntid.x; red.global.add.u32 [%rd8], %r1; ret;"));
    for (const char* name : {"%tid.x", "%ctaid.x", "%laneid", "%smid", "%warpid"}) {
        CHECK(!uniform(std::string("mov.u32 %r1, ").append(name).append("; ret;")));
    }
    CHECK(!uniform("atom.global.add.u64 %rd1, [%base], 1; st.global.u64 [%base+8], %rd1; ret;"));
    CHECK(!uniform("red.global.add.f32 [%rd8], 0f3F800000; ret;"));
}

TEST(threads_have_their_own_index) {
    const LaunchShape shape{{3, 1, 1}, {40, 2, 1}};
    const std::string index =
        "mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x; mad.lo.u32 %r1, %r2, %r3, %r1;"
        "mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.y; mul.lo.u32 %r3, %r3, %r5;"
        "mad.lo.u32 %r1, %r4, %r3, %r1; cvt.u64.u32 %rd1, %r1;";
    // The sum of 0 .. 239.
    CHECK(computed(index + "red.global.add.u64 [%base], %rd1; ret;", 0, shape) == 240 * 239 / 2);
    CHECK(computed(index + "red.global.max.u64 [%base], %rd1; ret;", 0, shape) == 239);
}

TEST(lanes_that_part_meet_again) {
    const LaunchShape shape{{1, 1, 1}, {32, 1, 1}};
    CHECK(computed("mov.u32 %r1, %laneid; mov.u32 %r2, 0; setp.lt.u32 %p1, %r1, 7; @%p1 bra A;"
                   "L: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, %r1; @%p2 bra L; bra B;"
                   "A: mov.u32 %r2, 100;"
                   "B: activemask.b32 %r3; cvt.u64.u32 %rd1, %r3; red.global.and.b64 [%base+8], 0;"
                   "setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u64 [%base], %rd1; ret;",
                   0, shape) == 0xffffffffU);
}

TEST(a_lane_may_wait_for_another_of_its_warp) {
    const LaunchShape shape{{1, 1, 1}, {32, 1, 1}};
    // Every lane takes the lock at 8 in turn, by a loop that spins.
    CHECK(computed("L: atom.global.cas.b32 %r1, [%base+8], 0, 1; setp.ne.s32 %p1, %r1, 0; @%p1 bra L;"
                   "ld.volatile.global.u64 %rd1, [%base]; add.u64 %rd1, %rd1, 1; st.volatile.global.u64 "
                   "[%base], %rd1;"
                   "atom.global.exch.b32 %r1, [%base+8], 0; ret;",
                   0, shape) == 32);
}

TEST(lanes_meet_at_a_warp_s_barrier_from_two_places) {
    const LaunchShape shape{{1, 1, 1}, {32, 1, 1}};
    CHECK(computed("mov.u32 %r1, %laneid; setp.lt.u32 %p1, %r1, 16; @%p1 bra A;"
                   "bar.warp.sync -1; red.global.add.u64 [%base], 1; ret;"
                   "A: bar.warp.sync -1; red.global.add.u64 [%base], 100; ret;",
                   0, shape) == 1616);
}

TEST(who_waits_for_ever_is_stopped) {
    const LaunchShape shape{{1, 1, 1}, {64, 1, 1}};
    CHECK(computed("bar.sync 1, 96; ret;", 0, shape) == 0xfa000000U + CUDA_ERROR_LAUNCH_TIMEOUT);
}

TEST(unknown_instructions_are_refused_by_name) {
    for (const char* code :
         {"tcgen05.wait::ld.sync.aligned;", "txq.channel_order.b32 %r1, [%rd1];",
          "suq.memory_layout.b32 %r1, [%rd1];", "add.f32.rq %r1, %r2, %r3;", "frobnicate %r1;"}) {
        const std::string name = std::string(code).substr(0, std::string(code).find_first_of(" ;"));
        const std::string log = refusal(kernel(std::string("\n").append(code)));
        CHECK(log.find(name) != std::string::npos);
        CHECK(log.find("line 7") != std::string::npos);
    }
}

// As ptxas refuses them.
TEST(prototypes_that_differ_are_refused) {
    for (const char* text : {".visible .func (.param .u32 r) f(); .visible .func f() { ret; }",
                             ".visible .func f() { ret; } .extern .func (.param .u32 r) f();",
                             ".visible .func f(.param .u32 a); .visible .func f(.param .u64 a) { ret; }",
                             ".visible .func f(.reg .u32 a); .visible .func f(.param .u32 a) { ret; }"})
        CHECK(refusal(text).find("Inconsistent prototypes of 'f'") != std::string::npos);
    CHECK(refusal(".visible .func f(.param .u32 a); .visible .func f(.param .u32 b) { ret; }") == "accepted");
}

TEST(attributes_of_kernels) {
    ptx::Module module;
    std::string log;
    CHECK(load(".visible .entry a() .maxntid 128, 2, 1 .minnctapersm 4 { .pragma \"fikit registers "
               "40\"; ret; }\n"
               ".entry b(.param .u32 x, .param .align 16 .b8 y[48], .param .u8 z) .reqntid 32 "
               ".maxnreg 24 { ret; }",
               module, log) == ptx::Verdict::accepted);
    CHECK(module.kernels.size() == 2);
    CHECK(module.kernels[0].threads_limit == 256);
    CHECK(module.kernels[0].registers_per_thread == 40);
    CHECK(module.kernels[1].required[0] == 32);
    CHECK(module.kernels[1].parameters[1].offset == 16);
    CHECK(module.kernels[1].parameters[2].offset == 64);
    CHECK(module.kernels[1].parameter_bytes == 65);
}

TEST(versions) {
    ptx::Module module;
    std::string log;
    CHECK(ptx::parse(".version 9.1\n.target sm_90\n", module, log) == ptx::Verdict::unsupported_version);
    CHECK(ptx::parse(".version 9.0\n.target sm_90a\n.address_size 64\n", module, log) ==
          ptx::Verdict::accepted);
    CHECK(ptx::parse("", module, log) == ptx::Verdict::invalid);
}
