// What of a session is put off or waits for its tenant, as far as what comes behind has to wait for it, too
// (backlog.cpp): asked of each record in their order, so that going through a backlog takes one look at each.
#pragma once

#include <abi.h>

#include <bitset>

namespace fikit {

struct PutOff {
    bool any = false;
    uint32_t blocking = 0;                      // so much is of streams that are ordered with the legacy one
    std::bitset<FIKIT_MAX_STREAMS> streams;     // that have something put off, or are blocked
    std::bitset<FIKIT_MAX_EVENTS> to_record;    // the session's own events,
    std::bitset<FIKIT_MAX_EVENTS> to_wait_for;  // likewise
    std::bitset<FIKIT_MAX_MODULES> modules;     // whose kernels are to be launched

    void add_stream(uint32_t stream, bool is_blocking) {
        any = true;
        streams.set(stream);
        blocking += is_blocking ? 1 : 0;
    }
    // Of which there is nothing else.
    void take_stream(uint32_t stream, bool is_blocking) {
        streams.reset(stream);
        blocking -= is_blocking ? 1 : 0;
        any = streams.any();
    }
    // Has the stream to wait for any of them?
    bool holds(uint32_t stream, bool is_blocking) const {
        return streams[stream] || (stream == 0 ? blocking > 0 : is_blocking && streams[0]);
    }
};

}  // namespace fikit
