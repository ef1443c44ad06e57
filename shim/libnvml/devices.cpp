#include "devices.hpp"

#include "conversation.hpp"

namespace fikit::nvml {
namespace {

using shim::copy_text;
using shim::MessageReader;

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
    return shim::ask_gpus(
        "libnvidia-ml", most_devices, devices.count, reason,
        [&](const MessageReader& gpu, unsigned number) { read(gpu, devices.device[number]); });
}

}  // namespace fikit::nvml
