// What the daemon says of the GPUs that this program may see. Each question is a conversation of its own, so
// that nothing is held open, and a forked child asks like any other process.
#pragma once

#include <cstdint>

namespace fikit::nvml {

inline constexpr unsigned most_devices = 64, most_processes = 256;

struct Process {
    unsigned pid;
    uint64_t memory_bytes;
};

struct Device {
    char uuid[48];
    char name[96];
    char pci[32];  // domain:bus:device.function
    char driver[80];
    unsigned capability;  // ten times the major number, and the minor one
    uint64_t memory_bytes, used_bytes;
    unsigned process_count;
    Process processes[most_processes];
};

struct Devices {
    unsigned count;
    Device device[most_devices];
};

// False: no daemon answers.
bool ask_daemon(Devices& devices);
}  // namespace fikit::nvml
