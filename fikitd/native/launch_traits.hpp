// What the attributes of a launch say of how the kernel runs. Launches that differ in it take different times
// and different room, so in the profile they go by names of their own: "kernel [cluster 2x1x1]".
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "abi.h"

namespace fikit {

struct LaunchTraits {
    bool cooperative = false;
    bool overlapping = false;  // may start before the kernel in front of it has ended
    std::array<uint32_t, 3> cluster{1, 1, 1};

    void take(const fikit_attribute& attribute) {
        int32_t on = 0;
        std::memcpy(&on, attribute.value, sizeof on);
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) cooperative = on != 0;
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) overlapping = on != 0;
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            std::memcpy(cluster.data(), attribute.value, sizeof cluster);
    }

    bool plain() const { return !cooperative && !overlapping && cluster == std::array<uint32_t, 3>{1, 1, 1}; }
    // Different for different traits; clusters have at most 16 blocks (those of more are refused by CUDA).
    uint64_t packed() const {
        return uint64_t{cooperative} | uint64_t{overlapping} << 1 | (cluster[0] & 0xfffffu) << 2 |
               uint64_t{cluster[1] & 0xfffffu} << 22 | uint64_t{cluster[2] & 0xfffffu} << 42;
    }
    std::string text() const {
        std::string all;
        const auto add = [&all](const std::string& what) { all += (all.empty() ? " [" : ", ") + what; };
        if (cooperative) add("cooperative");
        if (overlapping) add("programmatic");
        if (cluster != std::array<uint32_t, 3>{1, 1, 1})
            add("cluster " + std::to_string(cluster[0]) + "x" + std::to_string(cluster[1]) + "x" +
                std::to_string(cluster[2]));
        return all.empty() ? all : all + "]";
    }
};

}  // namespace fikit
