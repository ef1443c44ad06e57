// The fuzz target of the MessagePack reader: any bytes, looked through as a reply of the daemon's is.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "messages.hpp"

using fikit::shim::MessageReader;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // A copy of its own size, so that the address sanitizer sees a read beyond it.
    const std::vector<std::uint8_t> bytes(data, data + size);
    const MessageReader reader(bytes.data(), bytes.size());
    std::size_t length = 0;
    const bool whole = reader.whole(length) == MessageReader::State::complete;
    if (whole && length > size) std::abort();
    const MessageReader body = reader.at("body");
    std::uint64_t number = 0;
    for (const char* key : {"type", "message", "memory_limit_bytes", "nvidia_driver"}) {
        const MessageReader value = body.at(key);
        if (value.text().size() > size) std::abort();
        (void)value.number(number);
        (void)value.boolean();
    }
    for (std::uint64_t index = 0; index < 4; ++index) {
        const MessageReader item = body.at("gpus").item(index);
        if (item.at("uuid").text().size() > size || item.at("processes").item(0).text().size() > size)
            std::abort();
    }
    return 0;
}

#ifndef FIKIT_FUZZ_ENGINE
int main(int count, char** paths) {
    constexpr std::uint8_t bent[] = {0x00, 0x81, 0xc1, 0xc6, 0xd9, 0xdb, 0xdd, 0xdf, 0xff};
    for (int i = 1; i < count; ++i) {
        std::ifstream file(paths[i], std::ios::binary);
        std::vector<std::uint8_t> bytes(std::istreambuf_iterator<char>(file), {});
        for (std::size_t size = 0; size <= bytes.size(); ++size) LLVMFuzzerTestOneInput(bytes.data(), size);
        for (std::size_t at = 0; at < bytes.size(); ++at)
            for (const std::uint8_t other : bent) {
                const std::uint8_t before = bytes[at];
                bytes[at] = other;
                LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
                bytes[at] = before;
            }
    }
    std::printf("%d inputs\n", count - 1);
}
#endif
