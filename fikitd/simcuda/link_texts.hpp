// PTX texts joined to one, as a linker of objects does.
#pragma once

#include <string>
#include <vector>

namespace fikit::sim {

std::string joined_texts(const std::vector<std::string>& texts);

}  // namespace fikit::sim
