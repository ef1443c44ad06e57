// Answers to the calls that only unmodified CUDA programs make (shim/calls.h, FIKIT_PROGRAM_CALLS). As in
// calls.cpp: on a worker, while the session issues nothing.
#pragma once

#include <calls.h>

#include "driver.hpp"
#include "session.hpp"

namespace fikit {

class Core;

class ProgramCalls {
  public:
    // `extra`: what follows the request. `reply`: where the answer goes, with room behind it; `bytes` counts
    // what it takes.
    ProgramCalls(Core& core, Session& session, const std::span<const uint8_t>& extra, uint8_t* reply,
                 uint32_t& bytes);

#define FIKIT_DECLARE(number, name) \
    CUresult name(const fikit_request_##name& request, fikit_reply_##name& reply);
    FIKIT_PROGRAM_CALLS(FIKIT_DECLARE)
#undef FIKIT_DECLARE

    // A module's kernels are no more, and so are the graphs that launch them.
    void forget_graphs_of(uint16_t module);

  private:
    CUfunction function_of(uint32_t handle) const {
        return handle < session_.functions.size() ? session_.functions[handle].function : nullptr;
    }

    CUresult grow(CUlimit limit, uint64_t wanted, uint64_t each, uint64_t& bytes);
    void destroy_unused(std::unordered_map<uint32_t, OwnMemory>::iterator memory);

    Core& core_;
    const Driver& driver_;
    Session& session_;
    const std::span<const uint8_t>& extra_;
    uint8_t* reply_;
    uint32_t& bytes_;
};

// The memory no longer counts, and goes unless others share it.
void forget_memory(Session& session, const OwnMemory& memory);
// Frees what a session that is over has mapped and created itself.
void release_mappings(const Driver& driver, Session& session);

}  // namespace fikit
