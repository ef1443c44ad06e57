// What the tests of the policies have in common.
#pragma once

#include "check.hpp"
#include "scheduling/policies.hpp"

namespace fikit::test {

using Verdict = scheduling::Verdict;
constexpr Nanoseconds us = 1000, ms = 1'000'000;

inline scheduling::Bounds with_partitions() {
    scheduling::Bounds bounds;
    bounds.partitions = {120, 104, 88, 64, 32};
    return bounds;
}

// A known kernel of a high session, which leaves room on all SMs, and a gated one that fills them.
inline scheduling::Work small(Nanoseconds length) {
    scheduling::Work work;
    work.known = true;
    work.blocks = 16;
    work.per_sm = 8;
    work.expected = work.shortest = work.longest = work.block = length;
    return work;
}
inline scheduling::Work large() {
    scheduling::Work work = small(5 * us);
    work.key = 1000;
    work.blocks = 4000;
    work.waves = 4;
    return work;
}

}  // namespace fikit::test
