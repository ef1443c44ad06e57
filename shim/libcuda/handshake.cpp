#include "handshake.hpp"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <optional>
#include <string_view>

#include "conversation.hpp"
#include "log.hpp"

namespace fikit::shim {
namespace {

// high, normal, low or a digit; outside a job it is ours to say, or else the daemon's.
std::optional<uint64_t> priority_level() {
    const char* const set = getenv("FIKIT_PRIORITY");
    const std::string_view text = set == nullptr ? "" : set;
    if (text == "normal") return 5;
    if (text == "high") return 0;
    if (text == "low") return 9;
    if (text.size() == 1 && text[0] >= '0' && text[0] <= '9') return static_cast<uint64_t>(text[0] - '0');
    if (!text.empty())
        call_log.say("FIKIT_PRIORITY is '%s', not high, normal, low, 0 to 9: as if unset", set);
    return std::nullopt;
}

// How many bytes the UTF-8 character there has; 0: there is none.
size_t character_bytes(const char* text) {
    const auto byte = [text](size_t at) { return static_cast<uint32_t>(static_cast<uint8_t>(text[at])); };
    if (byte(0) < 0x80) return 1;
    if (byte(0) < 0xc0 || byte(0) >= 0xf8) return 0;
    const size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
    uint32_t code = byte(0) & (0x7fu >> length);
    for (size_t at = 1; at < length; ++at) {
        if ((byte(at) & 0xc0) != 0x80) return 0;
        code = code << 6 | (byte(at) & 0x3f);
    }
    const uint32_t least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    return code >= least && code < 0x110000 && !surrogate ? length : 0;
}

// A program's name as a session's may be: 1 to 200 bytes of UTF-8, with question marks for what is none.
std::string_view session_name(const char* program, char (&name)[200]) {
    size_t length = 0;
    while (*program != '\0') {
        const size_t bytes = character_bytes(program), step = bytes == 0 ? 1 : bytes;
        if (length + step > sizeof name) break;
        if (bytes == 0)
            name[length] = '?';
        else
            memcpy(name + length, program, bytes);
        length += step;
        program += step;
    }
    if (length == 0) name[length++] = '?';
    return {name, length};
}

}  // namespace

bool list_gpus(Gpu (&gpus)[most_gpus], unsigned& count, char (&reason)[256]) {
    return ask_gpus("libcuda", most_gpus, count, reason, [&](const MessageReader& from, unsigned number) {
        Gpu& gpu = gpus[number];
        gpu = {};
        from.at("index").number(gpu.index);
        copy_text(from.at("name"), gpu.name);
        copy_text(from.at("uuid"), gpu.uuid);
        copy_text(from.at("pci"), gpu.pci);
        from.at("compute_capability").number(gpu.capability);
        from.at("memory_bytes").number(gpu.memory_bytes);
        gpu.nvidia_driver = from.at("nvidia_driver").boolean();
    });
}

bool open_session(uint64_t gpu, NewSession& opened, char (&reason)[256]) {
    char name[200];
    MessageWriter open;
    const std::optional<uint64_t> priority = priority_level();
    begin_request(open, 2, priority ? 5 : 4, "open_session");
    open.text("name");
    open.text(session_name(program_invocation_short_name, name));
    if (priority) {
        open.text("priority");
        open.number(*priority);
    }
    open.text("gpu");
    open.number(gpu);
    open.text("unmodified");
    open.boolean(true);
    write_job(open);
    return converse(reason, [&](Conversation& conversation) {
        MessageReader reply(nullptr, 0);
        if (!conversation.begin("libcuda") || !conversation.exchange(open, "session_opened", reply, true))
            return false;
        reply.at("memory_limit_bytes").number(opened.memory_limit);
        int descriptors[3];
        if (!conversation.take(descriptors, opened.connection)) return false;
        opened.outbox = descriptors[0];
        opened.inbox = descriptors[1];
        opened.lifeline = descriptors[2];
        return true;
    });
}

}  // namespace fikit::shim
