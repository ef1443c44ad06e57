// A context that ends takes the variables of libraries along: in the next they are as new. Here the context
// is the executor's and stays, so a library is loaded once more where its image is still there.
#pragma once

#include "objects.hpp"

namespace fikit::shim {

// A library just loaded, before anybody knows of it; `kept`: the program keeps the image as long as the
// library.
void remember_library(Module& library, bool kept);
void forget_library(Module& library);

// For a primary context that ended, and one that begins.
void outdate_libraries(Device& device);
CUresult renew_libraries(Device& device);

}  // namespace fikit::shim
