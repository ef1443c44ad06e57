// Which bytes of global memory a launch reads and writes: the oracle for access sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fikit::sim {

enum class AccessKind : std::uint8_t { read, write, atomic };
inline constexpr std::size_t access_kinds = 3;

struct AccessRange {
    std::uint64_t begin, end;  // addresses, end excluded
    AccessKind kind;
};
static_assert(sizeof(AccessRange) == 24);  // fikitd/simcuda/accesses.py reads them

// Collects ranges; adjacent and overlapping ones of a kind become one.
class AccessRecorder {
  public:
    void note(AccessKind kind, std::uint64_t address, std::size_t bytes) {
        Kind& known = kinds_[static_cast<std::size_t>(kind)];
        if (!known.ranges.empty()) {
            Range& last = known.ranges.back();
            if (address <= last.end && address + bytes >= last.begin) {
                if (address < last.begin) last.begin = address;
                if (address + bytes > last.end) last.end = address + bytes;
                return;
            }
        }
        // What a loop comes back to.
        Range& recent = known.recent[address * 0x9e3779b97f4a7c15 >> 58];
        if (recent.begin == address && recent.end == address + bytes) return;
        recent = {address, address + bytes};
        known.ranges.push_back(recent);
        if (known.ranges.size() >= known.merge_at) merge(known);
    }
    // Sorted by kind, then by address, and disjoint within a kind.
    std::vector<AccessRange> ranges();

  private:
    struct Range {
        std::uint64_t begin, end;
    };
    struct Kind {
        std::vector<Range> ranges;
        Range recent[64] = {};
        std::size_t merged = 0;  // of them, from the first on: in order and apart
        std::size_t merge_at = 4096;
    };
    static void merge(Kind& kind);
    Kind kinds_[access_kinds];
};

// The recorded launches of the process, in the order in which they began to run.
class AccessLog {
  public:
    static AccessLog& instance();

    void enable(bool on);
    // A recorder for a launch that begins; null while recording is off.
    std::shared_ptr<AccessRecorder> begin(const std::string& kernel);
    std::size_t launches();
    std::string kernel(std::size_t launch);
    std::vector<AccessRange> ranges(std::size_t launch);

  private:
    struct Launch {
        std::string kernel;
        std::shared_ptr<AccessRecorder> recorder;
    };
    std::mutex mutex_;
    bool on_ = false;
    std::vector<Launch> launches_;
};

}  // namespace fikit::sim

extern "C" {
// Exported from the library. Turns the log on, empty, for launches that begin from now on; or off.
void fikitSimRecordAccesses(int on);
// The ranges of a launch, counted from 0 in the order in which they began: writes its kernel's name and up to
// `capacity` ranges where there is room for them; returns how many ranges there are, -1 for no such launch.
// Call it once the launch has ended.
long fikitSimAccesses(unsigned long launch, char* kernel, unsigned long kernel_bytes,
                      fikit::sim::AccessRange* ranges, unsigned long capacity);
}
