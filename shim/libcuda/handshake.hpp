// Opening the session: greeting the daemon, asking for a session, receiving its channel.
#pragma once

#include <cstdint>
#include <string_view>

namespace fikit::shim {

struct Opened {
    int connection = -1;  // kept: the session belongs to it
    int outbox = -1, inbox = -1, lifeline = -1;
    uint64_t memory_limit = 0;  // bytes; 0: none
    bool nvidia_driver = false;
    bool no_such_gpu = false;  // why there is none
};

// `gpu`: an index, the beginning of a UUID, or empty: any. False, with the reason, when there is no session;
// nothing is left open then.
bool open_session(std::string_view gpu, Opened& opened, char (&reason)[256]);

}  // namespace fikit::shim
