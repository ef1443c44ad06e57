// See accesses.hpp.
#include "ptx/accesses.hpp"

#include <algorithm>

namespace fikit::sim {

namespace {

// Scattered accesses cost memory; beyond so many ranges of a kind, gaps below a line are closed.
constexpr std::size_t exact_ranges = std::size_t{1} << 22;
constexpr std::uint64_t line = 128;

}  // namespace

void AccessRecorder::merge(Kind& kind) {
    std::vector<Range>& ranges = kind.ranges;
    const auto before = [](const Range& left, const Range& right) { return left.begin < right.begin; };
    const auto added = ranges.begin() + static_cast<std::ptrdiff_t>(kind.merged);
    if (!std::is_sorted(added, ranges.end(), before)) std::sort(added, ranges.end(), before);
    std::inplace_merge(ranges.begin(), added, ranges.end(), before);
    const auto join = [&](std::uint64_t gap) {
        std::size_t kept = 0;
        for (std::size_t index = 1; index < ranges.size(); ++index) {
            if (ranges[index].begin <= ranges[kept].end + gap)
                ranges[kept].end = std::max(ranges[kept].end, ranges[index].end);
            else
                ranges[++kept] = ranges[index];
        }
        if (!ranges.empty()) ranges.resize(kept + 1);
    };
    join(0);
    for (std::uint64_t gap = line; ranges.size() > exact_ranges; gap *= 2) join(gap);
    kind.merged = ranges.empty() ? 0 : ranges.size() - 1;  // note() may widen the last one
    kind.merge_at = std::max<std::size_t>(4096, ranges.size() * 2);
}

std::vector<AccessRange> AccessRecorder::ranges() {
    std::vector<AccessRange> result;
    for (std::size_t kind = 0; kind < access_kinds; ++kind) {
        merge(kinds_[kind]);
        for (const Range& range : kinds_[kind].ranges) {
            result.push_back({range.begin, range.end, static_cast<AccessKind>(kind)});
        }
    }
    return result;
}

AccessLog& AccessLog::instance() {
    static AccessLog& log = *new AccessLog;  // outlives every user
    return log;
}

void AccessLog::enable(bool on) {
    const std::lock_guard lock(mutex_);
    on_ = on;
    if (on) launches_.clear();
}

std::shared_ptr<AccessRecorder> AccessLog::begin(const std::string& kernel) {
    const std::lock_guard lock(mutex_);
    if (!on_) return nullptr;
    launches_.push_back({kernel, std::make_shared<AccessRecorder>()});
    return launches_.back().recorder;
}

std::size_t AccessLog::launches() {
    const std::lock_guard lock(mutex_);
    return launches_.size();
}

std::string AccessLog::kernel(std::size_t launch) {
    const std::lock_guard lock(mutex_);
    return launch < launches_.size() ? launches_[launch].kernel : std::string();
}

std::vector<AccessRange> AccessLog::ranges(std::size_t launch) {
    const std::lock_guard lock(mutex_);
    return launch < launches_.size() ? launches_[launch].recorder->ranges() : std::vector<AccessRange>();
}

}  // namespace fikit::sim

// --- for programs that hold the library (fikitd.simcuda.accesses); see accesses.hpp
extern "C" {

[[gnu::visibility("default")]] void fikitSimRecordAccesses(int on) {
    fikit::sim::AccessLog::instance().enable(on != 0);
}

[[gnu::visibility("default")]] long fikitSimAccesses(unsigned long launch, char* kernel,
                                                     unsigned long kernel_bytes,
                                                     fikit::sim::AccessRange* ranges,
                                                     unsigned long capacity) {
    using fikit::sim::AccessLog;
    if (launch >= AccessLog::instance().launches()) return -1;
    const std::vector<fikit::sim::AccessRange> found = AccessLog::instance().ranges(launch);
    if (kernel != nullptr && kernel_bytes > 0) {
        const std::string name = AccessLog::instance().kernel(launch);
        const std::size_t length = std::min<std::size_t>(name.size(), kernel_bytes - 1);
        std::copy_n(name.data(), length, kernel);
        kernel[length] = '\0';
    }
    if (ranges != nullptr) std::copy_n(found.begin(), std::min<std::size_t>(found.size(), capacity), ranges);
    return static_cast<long>(found.size());
}

}  // extern "C"
