// The driver's clock: simulated time since cuInit, in one of two ways.
//
// dilated: the machine's monotonic clock, divided by a factor. virtual: time passes only while the host waits
// in the driver, or by what its calls cost; so the same program sees the same times to the nanosecond,
// whatever the machine does. Under the virtual clock the driver moves it, under its mutex.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "model.hpp"

namespace fikit::sim {

class Clock {
  public:
    using Wall = std::chrono::steady_clock;
    void start(double scale, bool is_virtual) {
        scale_ = scale;
        virtual_ = is_virtual;
        origin_ = Wall::now();
        const auto since_boot = std::chrono::nanoseconds(origin_.time_since_epoch()).count();
        machine_origin_ = static_cast<Nanoseconds>(static_cast<double>(since_boot) / scale);
    }
    bool is_virtual() const { return virtual_; }
    Nanoseconds now() const {
        if (virtual_) return now_.load(std::memory_order_relaxed);
        const auto passed =
            std::chrono::duration_cast<std::chrono::nanoseconds>(Wall::now() - origin_).count();
        return static_cast<Nanoseconds>(static_cast<double>(passed) / scale_);
    }
    // Moves the virtual clock; it never goes back.
    void set(Nanoseconds time) {
        if (time > now()) now_.store(time, std::memory_order_relaxed);
    }
    // What every process of this machine and factor calls time 0 of this clock.
    Nanoseconds machine_origin() const { return machine_origin_; }
    Wall::time_point wall(Nanoseconds simulated) const {
        const double limit = 3e18;  // a far deadline must not overflow
        const double passed = std::min(static_cast<double>(simulated) * scale_, limit);
        return origin_ + std::chrono::nanoseconds(static_cast<std::int64_t>(passed));
    }

  private:
    double scale_ = 1;
    bool virtual_ = false;
    Wall::time_point origin_;
    Nanoseconds machine_origin_ = 0;
    std::atomic<Nanoseconds> now_{0};
};

}  // namespace fikit::sim
