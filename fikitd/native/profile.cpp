#include "profile.hpp"

namespace fikit {

uint64_t hash_bytes(const void* data, size_t size) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    uint64_t hash = mix(0x66696b6974ull, size);
    for (; size >= 8; size -= 8, bytes += 8) {
        uint64_t word = 0;
        std::memcpy(&word, bytes, 8);
        hash = mix(hash, word);
    }
    uint64_t rest = 0;
    std::memcpy(&rest, bytes, size);
    return mix(hash, rest);
}

void KernelEntry::measured(Nanoseconds duration, uint32_t multiprocessors) {
    if (multiprocessors != 0)  // it took more waves than on all of them
        duration = duration * std::max(waves, 1u) / std::max(waves_on(multiprocessors), 1u);
    durations[samples % window] = static_cast<uint32_t>(std::clamp<Nanoseconds>(duration, 1, UINT32_MAX));
    ++samples;
    dirty = true;
    const uint32_t count = std::min(samples, window);
    std::array<uint32_t, window> sorted = durations;
    std::sort(sorted.begin(), sorted.begin() + count);
    const uint32_t before = median;
    median = sorted[(count - 1) / 2];
    p95 = sorted[(count * 95 + 99) / 100 - 1];
    shortest = sorted[(count - 1) / 8];
    tell();
    // Once the median holds still, look less often; when it moves, look again.
    const uint32_t moved = before > median ? before - median : median - before;
    interval = moved > median / 4 ? 1 : std::min(interval * 2, rarest);
    if (!known() || interval == 1) until_sample = 0;
}

void KernelEntry::tell() {
    work.known = known();
    work.expected = median;
    work.longest = p95;
    work.shortest = shortest;
    work.block = p95 / std::max(waves, 1u);
}

void KernelEntry::forget() {
    samples = median = p95 = shortest = until_sample = 0;
    interval = 1;
    dirty = false;
    tell();
}

}  // namespace fikit
