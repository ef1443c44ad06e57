// The names of kernels, by index: what a launch, a profile entry or a trace record carries instead of a text.
//
// They stay for the executor's life, since entries and records point at them, so there is a bound: a program
// that loads ever new kernels ends up with unnamed ones, which are neither kept as profiles nor told apart.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "profile.hpp"

namespace fikit {

class KernelNames {
  public:
    static constexpr uint32_t unnamed = 0;
    static constexpr size_t most = 1u << 16;
    static constexpr size_t most_bytes = 32u << 20;

    KernelNames() { names_.push_back({0, "?"}); }

    // The index of a name, new or not; `unnamed` when there is no room for another.
    uint32_t index_of(const KernelName& name) {
        const uint64_t key = hash_of(name);
        if (const auto known = by_hash_.find(key); known != by_hash_.end())
            return names_[known->second].function == name.function ? known->second : unnamed;
        if (names_.size() >= most || bytes_ + name.function.size() > most_bytes) return unnamed;
        bytes_ += name.function.size();
        names_.push_back(name);
        return by_hash_[key] = static_cast<uint32_t>(names_.size() - 1);
    }

    const KernelName& operator[](uint32_t index) const { return names_[index]; }
    size_t size() const { return names_.size(); }

    static uint64_t hash_of(const KernelName& name) {
        return mix(name.module_hash, hash_bytes(name.function.data(), name.function.size()));
    }

  private:
    std::vector<KernelName> names_;
    std::unordered_map<uint64_t, uint32_t> by_hash_;
    size_t bytes_ = 0;
};

}  // namespace fikit
