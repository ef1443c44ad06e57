#include "handshake.hpp"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <charconv>

#include "conversation.hpp"

namespace fikit::shim {
namespace {

// high, normal, low or a digit; outside a job it is ours to say.
uint64_t priority_level() {
    const char* text = getenv("FIKIT_PRIORITY");
    if (text == nullptr || strcmp(text, "normal") == 0) return 5;
    if (strcmp(text, "high") == 0) return 0;
    if (strcmp(text, "low") == 0) return 9;
    return text[0] >= '0' && text[0] <= '9' && text[1] == '\0' ? static_cast<uint64_t>(text[0] - '0') : 5;
}

}  // namespace

bool open_session(std::string_view gpu, Opened& opened, char (&reason)[256]) {
    Conversation conversation(reason);
    if (!conversation.begin("libcuda")) return false;
    MessageReader reply(nullptr, 0);

    const char* job = getenv("FIKIT_JOB");
    const char* name = program_invocation_short_name;
    MessageWriter open;
    begin_request(open, 2, 4, "open_session");
    open.text("name");
    open.text(std::string_view(name, strnlen(name, 200)));
    open.text("priority");
    open.number(priority_level());
    open.text("gpu");
    uint64_t index = 0;
    if (gpu.empty())
        open.nothing();
    else if (std::from_chars(gpu.data(), gpu.data() + gpu.size(), index).ec == std::errc())
        open.number(index);
    else
        open.text(gpu);
    open.text("job");
    if (job == nullptr || *job == '\0')
        open.nothing();
    else
        open.text(job);
    if (!conversation.exchange(open, "session_opened", reply)) {
        opened.no_such_gpu = !gpu.empty() && reply.at("code").text() == "not_found";
        return false;
    }
    reply.at("memory_limit_bytes").number(opened.memory_limit);
    opened.nvidia_driver = reply.at("nvidia_driver").boolean();
    int descriptors[3];
    if (!conversation.take(descriptors, opened.connection)) return false;
    opened.outbox = descriptors[0];
    opened.inbox = descriptors[1];
    opened.lifeline = descriptors[2];
    return true;
}

}  // namespace fikit::shim
