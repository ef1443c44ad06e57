// What is asked of the daemon: which GPUs there are for the program, and a session on one of them.
#pragma once

#include <cstdint>

namespace fikit::shim {

inline constexpr unsigned most_gpus = 16;

// A GPU that the program may use, or its job.
struct Gpu {
    uint64_t index;  // as the daemon counts
    char name[96];
    char uuid[48];
    char pci[32];
    uint64_t capability;    // of computing: ten times the major number, and the minor one
    uint64_t memory_bytes;  // that may be had
    bool nvidia_driver;     // knows it too
};

// In the order in which the program is to see them. False, with the reason, when the daemon does not say.
bool list_gpus(Gpu (&gpus)[most_gpus], unsigned& count, char (&reason)[256]);

struct NewSession {
    int connection = -1;  // kept: the session belongs to it
    int outbox = -1, inbox = -1, lifeline = -1;
    uint64_t memory_limit = 0;  // bytes; 0: none
};

// On the GPU of that index. False, with the reason, when there is no session; nothing is left open then.
bool open_session(uint64_t gpu, NewSession& opened, char (&reason)[256]);

}  // namespace fikit::shim
