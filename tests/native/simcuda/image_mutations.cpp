// Where there is no fuzzing engine: feeds the target kept inputs (files) and --mutations=N of them, the same
// ones each time.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void feed(const std::string& bytes) {
    // On the heap and no longer than it is, so that a sanitizer sees a read past the end.
    const std::vector<std::uint8_t> copy(bytes.begin(), bytes.end());
    LLVMFuzzerTestOneInput(copy.data(), copy.size());
}

}  // namespace

int main(int count, char** arguments) {
    long rounds = 0;
    std::vector<std::string> seeds;
    for (int number = 1; number < count; ++number) {
        if (std::sscanf(arguments[number], "--mutations=%ld", &rounds) == 1) continue;
        std::ifstream file(arguments[number], std::ios::binary);
        seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
        feed(seeds.back());
    }
    if (seeds.empty()) return 1;
    std::uint64_t state = 11;
    const auto random = [&](std::size_t limit) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        return static_cast<std::size_t>(state >> 33) % limit;
    };
    constexpr std::uint64_t odd_numbers[] = {0,      1,          0x7f,       0xff,
                                             0xffff, 0x7fffffff, 0xffffffff, ~std::uint64_t{0}};
    for (long round = 0; round < rounds; ++round) {
        std::string bytes = seeds[random(seeds.size())];
        for (std::size_t change = 1 + random(4); change > 0 && bytes.size() > 8; --change) {
            const std::size_t place = random(bytes.size() - 8);
            // Sizes and offsets are in the tables at both ends.
            const std::size_t table =
                random(2) == 0 ? random(std::min<std::size_t>(bytes.size() - 8, 256)) : place;
            switch (random(4)) {
                case 0:
                    bytes[place] = static_cast<char>(random(256));
                    break;
                case 1: {
                    const std::uint64_t number = odd_numbers[random(std::size(odd_numbers))];
                    std::memcpy(bytes.data() + table, &number, std::size_t{1} << random(4));
                    break;
                }
                case 2:
                    bytes.erase(place, 1 + random(64));
                    break;
                default:
                    bytes.resize(place + 1);
            }
        }
        feed(bytes);
    }
    std::printf("%ld rounds\n", rounds);
    return 0;
}
