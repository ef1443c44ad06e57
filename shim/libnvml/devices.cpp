#include "devices.hpp"

#include <stdio.h>
#include <string.h>

#include "conversation.hpp"

namespace fikit::nvml {
namespace {

using shim::Conversation;
using shim::MessageReader;
using shim::MessageWriter;

template <size_t size>
void copy_text(const MessageReader& from, char (&to)[size]) {
    const std::string_view text = from.text();
    snprintf(to, size, "%.*s", static_cast<int>(text.size()), text.data());
}

uint64_t number_of(const MessageReader& from) {
    uint64_t value = 0;
    from.number(value);
    return value;
}

void read(const MessageReader& from, Device& device) {
    device = {};
    copy_text(from.at("uuid"), device.uuid);
    copy_text(from.at("name"), device.name);
    copy_text(from.at("pci"), device.pci);
    copy_text(from.at("driver_version"), device.driver);
    device.capability = static_cast<unsigned>(number_of(from.at("compute_capability")));
    device.memory_bytes = number_of(from.at("memory_bytes"));
    device.used_bytes = number_of(from.at("memory_used_bytes"));
    const MessageReader processes = from.at("processes");
    for (unsigned i = 0; i < most_processes; ++i) {
        const MessageReader process = processes.item(i);
        if (!process.exists()) break;
        device.processes[i] = {static_cast<unsigned>(number_of(process.at("pid"))),
                               number_of(process.at("memory_bytes"))};
        device.process_count = i + 1;
    }
}

}  // namespace

bool ask_daemon(Devices& devices) {
    char reason[256];
    devices.count = 0;
    MessageWriter request;
    begin_request(request, 2, 1, "list_visible_gpus");
    shim::write_job(request);
    return shim::converse(reason, [&](Conversation& conversation) {
        MessageReader reply(nullptr, 0);
        if (!conversation.begin("libnvidia-ml") || !conversation.exchange(request, "visible_gpus", reply))
            return false;
        const MessageReader gpus = reply.at("gpus");
        for (devices.count = 0; devices.count < most_devices; ++devices.count) {
            const MessageReader gpu = gpus.item(devices.count);
            if (!gpu.exists()) break;
            read(gpu, devices.device[devices.count]);
        }
        return true;
    });
}

}  // namespace fikit::nvml
