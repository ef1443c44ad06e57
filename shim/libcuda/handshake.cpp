#include "handshake.hpp"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void write_job(MessageWriter& request) {
    const char* job = getenv("FIKIT_JOB");
    request.text("job");
    if (job == nullptr || *job == '\0')
        request.nothing();
    else
        request.text(job);
}

template <size_t size>
void copy_text(const MessageReader& from, char (&to)[size]) {
    const std::string_view text = from.text();
    snprintf(to, size, "%.*s", static_cast<int>(text.size()), text.data());
}

}  // namespace

bool list_gpus(Gpu (&gpus)[most_gpus], unsigned& count, char (&reason)[256]) {
    Conversation conversation(reason);
    if (!conversation.begin("libcuda")) return false;
    MessageReader reply(nullptr, 0);
    MessageWriter list;
    begin_request(list, 2, 1, "list_visible_gpus");
    write_job(list);
    if (!conversation.exchange(list, "visible_gpus", reply)) return false;
    const MessageReader all = reply.at("gpus");
    for (count = 0; count < most_gpus; ++count) {
        const MessageReader from = all.item(count);
        if (!from.exists()) break;
        Gpu& gpu = gpus[count];
        gpu = {};
        from.at("index").number(gpu.index);
        copy_text(from.at("name"), gpu.name);
        copy_text(from.at("uuid"), gpu.uuid);
        copy_text(from.at("pci"), gpu.pci);
        from.at("compute_capability").number(gpu.capability);
        from.at("memory_bytes").number(gpu.memory_bytes);
        gpu.nvidia_driver = from.at("nvidia_driver").boolean();
    }
    return true;
}

bool open_session(uint64_t gpu, NewSession& opened, char (&reason)[256]) {
    Conversation conversation(reason);
    if (!conversation.begin("libcuda")) return false;
    MessageReader reply(nullptr, 0);

    const char* name = program_invocation_short_name;
    MessageWriter open;
    begin_request(open, 2, 5, "open_session");
    open.text("name");
    open.text(std::string_view(name, strnlen(name, 200)));
    open.text("priority");
    open.number(priority_level());
    open.text("gpu");
    open.number(gpu);
    open.text("unmodified");
    open.boolean(true);
    write_job(open);
    if (!conversation.exchange(open, "session_opened", reply)) return false;
    reply.at("memory_limit_bytes").number(opened.memory_limit);
    int descriptors[3];
    if (!conversation.take(descriptors, opened.connection)) return false;
    opened.outbox = descriptors[0];
    opened.inbox = descriptors[1];
    opened.lifeline = descriptors[2];
    return true;
}

}  // namespace fikit::shim
