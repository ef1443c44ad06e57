// How many there are of each number.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace fikit {

class Counts {
  public:
    bool has(uint32_t key) const { return counts_.contains(key); }
    void add(uint32_t key) { ++counts_[key]; }
    void take(uint32_t key) {
        if (const auto count = counts_.find(key); count != counts_.end() && --count->second == 0)
            counts_.erase(count);
    }
    void clear() { counts_.clear(); }

  private:
    std::unordered_map<uint32_t, uint32_t> counts_;
};

}  // namespace fikit
