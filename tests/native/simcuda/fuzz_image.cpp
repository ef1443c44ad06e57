// The fuzz target of what takes images apart: cubins, fat binaries, and the PTX inside.
#include "image.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fikit::sim::LoadedImage loaded;
    std::string log;
    fikit::sim::load_image({reinterpret_cast<const std::byte*>(data), size}, loaded, log);
    return 0;
}
