// Where there is no fuzzing engine: feeds the target kept inputs (files) and --mutations=N of a seed, the
// same ones each time.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

const char* const words[] = {".reg .b64 %rd<9>;",
                             "bra L;",
                             "L:",
                             "%globaltimer",
                             "%tid.x",
                             "ld.param.u64 %rd1, [a];",
                             "-",
                             "0x",
                             "99999999999999999999",
                             "[",
                             "]",
                             "{",
                             "}",
                             ";",
                             ",",
                             "\"",
                             "/*",
                             "//",
                             "@%p1",
                             ".global .u8 g[4294967296];",
                             "st.global.u64 [%rd1], %rd2;",
                             "red.global.add.u64 [%rd1], 1;",
                             "div.s32",
                             ".shared .b8 s[49152];",
                             "trap;",
                             ".entry k(",
                             ".v2",
                             "setp.lt.s64 %p1, 1, 2;",
                             "bar.sync 0;",
                             "bar.sync 1, 64;",
                             "vote.sync.ballot.b32 %r1, %p1, -1;",
                             "shfl.sync.idx.b32 %r1, %r2, 3, 31, -1;",
                             "call (o), f, (i);",
                             "call f, (p);",
                             "{ .param .b64 i; .param .b64 o; st.param.b64 [i], %rd1;",
                             "ld.param.b64 %rd2, [o];",
                             "ld.shared.v4.u32 {%r1, %r2, %r3, %r1}, [s];",
                             "st.local.u8 [%rd1+16], %rs1;",
                             "mov.b64 {%r1, %r2}, %rd1;",
                             "mov.b64 %rd1, {%r1, %r2};",
                             "cvt.rni.sat.s8.f32 %rs1, %r1;",
                             "fma.rn.f32 %r1, %r2, %r3, 0f3F800000;",
                             "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
                             "atom.global.cas.b64 %rd1, [%rd2], %rd3, %rd4;",
                             "cp.async.ca.shared.global [s], [%rd1], 16;",
                             "mbarrier.init.shared.b64 [s], 1;",
                             "brx.idx %r1, T;",
                             "T: .branchtargets L, L;",
                             "%laneid",
                             "@!%p2",
                             "nanosleep.u32 1000;",
                             "ret;"};

const std::string seed = R"(.version 8.0
.target sm_90
.address_size 64
.global .align 8 .u64 counter = 7;
.global .u64 table[2] = {generic(counter)+8, f};
.const .f32 one = 0f3F800000;
.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.func (.param .b64 r) f(.param .b64 a)
{
 .reg .b64 %x<3>; .reg .pred %q<2>; .local .align 8 .b8 d[32];
 ld.param.b64 %x1, [a]; st.local.u64 [d+8], %x1; setp.eq.u64 %q1, %x1, 0; @%q1 bra E;
 { .param .b64 i; .param .b64 o; sub.u64 %x1, %x1, 1; st.param.b64 [i], %x1; call (o), f, (i); ld.param.b64 %x1, [o]; }
E: st.param.b64 [r], %x1; ret;
}
.visible .entry k(.param .u64 a, .param .align 8 .b8 b[16]) .maxntid 32, 1, 1
{
 .reg .pred %p<3>; .reg .b16 %rs<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .shared .align 16 .b8 s[256];
 mov.u32 %r4, %tid.x; mul.wide.u32 %rd6, %r4, 8; mov.u64 %rd7, s; add.u64 %rd7, %rd7, %rd6; and.b64 %rd7, %rd7, 1151;
 st.shared.u32 [%rd7], %r4; bar.sync 0; shfl.sync.bfly.b32 %r5|%p2, %r4, 1, 31, -1; @%p2 add.u32 %r5, %r5, %r4;
 { .param .b64 i; .param .b64 o; st.param.b64 [i], 3; call (o), f, (i); ld.param.b64 %rd8, [o]; }
 ld.param.u64 %rd1, [a]; mov.u64 %rd2, %clock64;
L: mov.u64 %rd3, %clock64; sub.s64 %rd4, %rd3, %rd2;
 setp.lt.s64 %p1, %rd4, %rd1; @%p1 bra L;
 mov.u64 %rd5, counter; red.global.add.u64 [%rd5+8], 1; st.global.u64 [%rd5], %rd1; ret;
}
)";

}  // namespace

int main(int count, char** arguments) {
    long rounds = 0;
    for (int number = 1; number < count; ++number) {
        if (std::sscanf(arguments[number], "--mutations=%ld", &rounds) == 1) continue;
        std::ifstream file(arguments[number], std::ios::binary);
        const std::string kept{std::istreambuf_iterator<char>(file), {}};
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(kept.data()), kept.size());
    }
    std::uint64_t state = 7;
    const auto random = [&](std::size_t limit) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        return static_cast<std::size_t>(state >> 33) % limit;
    };
    for (long round = 0; round < rounds; ++round) {
        std::string text = seed;
        for (std::size_t change = 1 + random(4); change > 0 && !text.empty(); --change) {
            const std::size_t place = random(text.size());
            switch (random(5)) {
                case 0:
                    text[place] = static_cast<char>(random(256));
                    break;
                case 1:
                    text.erase(place, random(20));
                    break;
                case 2:
                    text.insert(place, words[random(sizeof words / sizeof *words)]);
                    break;
                case 3:
                    text.insert(random(text.size()), text.substr(place, random(60)));
                    break;
                default:
                    text.resize(place + 1);
            }
        }
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    }
    std::printf("%ld rounds\n", rounds);
    return 0;
}
