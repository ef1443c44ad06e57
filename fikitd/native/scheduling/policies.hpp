// The policies there are, by the name configuration uses.
#pragma once

#include <memory>
#include <string_view>

#include "fikit.hpp"
#include "policy.hpp"
#include "strict.hpp"

namespace fikit::scheduling {

inline std::unique_ptr<Policy> make_policy(std::string_view name, const Bounds& bounds) {
    if (name == "strict") return std::make_unique<Strict>(bounds);
    if (name == "fikit") return std::make_unique<Fikit>(bounds);
    return nullptr;
}

}  // namespace fikit::scheduling
