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
                             "red.global.add.u64 [0], 1;",
                             "div.s32",
                             ".shared .b8 s[49152];",
                             "trap;",
                             ".entry k(",
                             ".v2",
                             "setp.lt.s64 %p1, 1, 2;"};

const std::string seed = R"(.version 8.0
.target sm_90
.address_size 64
.global .align 8 .u64 counter = 7;
.visible .entry k(.param .u64 a, .param .align 8 .b8 b[16]) .maxntid 32, 1, 1
{
 .reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %rd<9>;
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
