// What launching costs the host thread that does it, as measured on the H200 (simcuda/model.hpp) but for one.
#pragma once

#include <cmath>

#include "replay.hpp"

namespace fikit::replay::host {

inline constexpr Nanoseconds launch = sim::model::call::launch;
// On a partition, or one that hops from one partition to another.
inline constexpr Nanoseconds green_launch = launch + sim::model::call::launch_partition;
inline constexpr Nanoseconds write_value = sim::model::call::stream_memory;  // a mark for who waits
inline constexpr Nanoseconds record_event = 250;                             // any other (H100)

// A call takes longer than that now and then: an exponential tail.
inline Nanoseconds delay(Random& random) {
    return static_cast<Nanoseconds>(-250.0 * std::log(1 - random.uniform()));
}

// Between two kernels of a stream that is behind a stream write takes about 2 us, an event without a time
// nothing.
inline constexpr Shape written{Shape::Unit::mark, 0, 1, {}, 2000};
inline constexpr Shape recorded{Shape::Unit::mark, 0, 1, {}, 1};

}  // namespace fikit::replay::host
