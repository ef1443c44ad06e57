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

}  // namespace fikit::test
