// Device time. On a simulated device that runs slower than real time by a factor, the same factor turns the
// host's clock into the device's, so that every bound in microseconds means the same everywhere.
#pragma once

#include <time.h>

#include <cstdint>

namespace fikit {

using Nanoseconds = int64_t;

inline Nanoseconds host_now() {
    timespec at{};
    clock_gettime(CLOCK_MONOTONIC, &at);
    return static_cast<Nanoseconds>(at.tv_sec) * 1'000'000'000 + at.tv_nsec;
}

class Clock {
  public:
    // `scale`: host seconds per device second.
    explicit Clock(double scale) : scale_(scale), inverse_(1.0 / scale), real_(scale == 1.0) {}

    Nanoseconds now() const { return to_device(host_now()); }
    Nanoseconds to_device(Nanoseconds host) const {
        return real_ ? host : static_cast<Nanoseconds>(static_cast<double>(host) * inverse_);
    }
    Nanoseconds to_host(Nanoseconds device) const {
        return real_ ? device : static_cast<Nanoseconds>(static_cast<double>(device) * scale_);
    }

  private:
    double scale_, inverse_;
    bool real_;
};

}  // namespace fikit
