// What stands between two driver calls of a stream of launches: the time from the return of one
// cuLaunchKernel to the entry of the next, in nanoseconds; once from a loop that does nothing else
// ("direct"), once from a dispatch core whose tenant launches without pause ("through"). The driver is the
// null driver, made to take as long as a real one and to leave as much of the caches changed.
//
//   bench_gaps MICROSECONDS KIBIBYTES
//
// For each side a line: its name, median, 90th percentile, mean of the lower 99.5 % (what is above is the
// kernel's scheduler, or a wake-up), launches for each gap above 1 us, and what one launch took in all.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "rig.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

constexpr size_t most = 1u << 20;
constexpr Nanoseconds duration = 1'000'000'000;

class SlowDriver {
  public:
    SlowDriver(Nanoseconds busy, size_t bytes) : busy_(busy), touched_(bytes / sizeof(uint64_t)) {
        gaps_.reserve(most);
    }

    void call() {
        const Nanoseconds entered = host_now();
        if (left_ != 0 && gaps_.size() < most) gaps_.push_back(entered - left_);
        for (size_t at = 0; at < touched_.size(); at += 64 / sizeof(uint64_t)) ++touched_[at];
        while (host_now() - entered < busy_) __builtin_ia32_pause();
        left_ = host_now();
    }

    void report(const char* side, Nanoseconds each) {
        std::sort(gaps_.begin(), gaps_.end());
        CHECK(gaps_.size() > 1000);
        const auto count = static_cast<double>(gaps_.size());
        const auto lower = gaps_.begin() + static_cast<ptrdiff_t>(count * 0.995);
        const double mean = static_cast<double>(std::accumulate(gaps_.begin(), lower, Nanoseconds{0})) /
                            static_cast<double>(lower - gaps_.begin());
        const auto above = gaps_.end() - std::upper_bound(gaps_.begin(), gaps_.end(), Nanoseconds{1000});
        std::printf("%s %ld %ld %.1f %.0f %ld\n", side, gaps_[gaps_.size() / 2],
                    gaps_[static_cast<size_t>(count * 0.9)], mean,
                    count / static_cast<double>(std::max<ptrdiff_t>(above, 1)), each);
        gaps_.clear();
        left_ = 0;
    }

  private:
    Nanoseconds busy_;
    std::vector<uint64_t> touched_;
    std::vector<Nanoseconds> gaps_;
    Nanoseconds left_ = 0;
};

template <class Launch>
Nanoseconds repeat(Launch once) {
    const Nanoseconds start = host_now();
    Nanoseconds launches = 0;
    for (; host_now() - start < duration; launches += 200)
        for (int i = 0; i < 200; ++i) once();
    return (host_now() - start) / launches;
}

}  // namespace

int main(int count, char** arguments) {
    CHECK(count == 3);
    SlowDriver driver(static_cast<Nanoseconds>(std::atof(arguments[1]) * 1000),
                      static_cast<size_t>(std::atoi(arguments[2])) << 10);
    Settings settings;
    Rig rig(settings);
    Tenant tenant = rig.ready("a", 0);
    for (int warm = 0; warm < 3000; ++warm) {  // until the kernel is known and seldom sampled
        launch(tenant);
        if (warm % 10 == 0) CHECK_EQUAL(tenant->synchronize(), 0);
    }
    null_driver::set_on_launch([&] { driver.call(); });
    const CUstream stream = rig.streams().front();
    auto* const kernel = reinterpret_cast<CUfunction>(64);
    driver.report("direct",
                  repeat([&] { cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr); }));
    const Nanoseconds each = repeat([&] { launch(tenant); });
    CHECK_EQUAL(tenant->synchronize(), 0);
    null_driver::set_on_launch(nullptr);
    driver.report("through", each);
}
