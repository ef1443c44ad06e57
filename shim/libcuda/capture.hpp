// Stream capture. What a program does on a capturing stream is written down here, in the order of the calls,
// and given to the executor when the graph is launched. So a capture is the program's own affair: nothing of
// it reaches the context that others share, and its mode forbids nobody anything.
//
// The order of the calls is one that the graph's dependencies allow, and a launch runs it on one stream:
// branches that the program captured side by side run one after the other.
#pragma once

#include <cstdint>

#include "objects.hpp"

namespace fikit::shim {

inline constexpr uint32_t graph_magic = 0x46475250, executable_magic = 0x46475845;

// One captured call; its bytes (attributes, then parameters) lie behind it.
struct Captured {
    enum class Kind : uint8_t { launch, copy, fill, function };
    Kind kind;
    uint32_t width;     // fill: of an element
    LaunchShape shape;  // launch
    uint64_t to, from;  // copy, fill; function: its address and argument
    uint64_t count;     // copy: bytes; fill: elements
    uint32_t value;     // fill
    Captured* next;

    uint8_t* bytes() { return reinterpret_cast<uint8_t*>(this + 1); }
};

// The calls of one graph; shared by the graph and what was instantiated from it.
struct Recording {
    uint32_t references = 1;
    uint32_t count = 0;
    Captured* first = nullptr;
    Captured** last = &first;
};

struct Graph {
    uint32_t magic = graph_magic;
    Recording* recording = nullptr;
};

struct Executable {
    uint32_t magic = executable_magic;
    Recording* recording = nullptr;
};

class Captures {
  public:
    // No capture is under way anywhere in the process: what most calls find, at the price of one load.
    bool none() const { return load_relaxed(active_) == 0; }
    bool capturing(uint32_t stream) const { return !none() && load_acquire(of_[stream]) != nullptr; }

    CUresult begin(uint32_t stream, CUstreamCaptureMode mode);
    CUresult end(uint32_t stream, Graph*& graph);
    CUresult information(uint32_t stream, CUstreamCaptureStatus& status, cuuint64_t& id, Graph*& graph);

    // The stream is capturing: writes the call down.
    CUresult add(uint32_t stream, const Captured& call, const void* attributes, size_t attribute_bytes,
                 Captured*& added, size_t more_bytes);
    // An event recorded on a capturing stream stands for the capture; a stream that waits for it joins.
    uint64_t capture_of(uint32_t stream) const;  // its number; 0: none
    CUresult join(uint32_t stream, uint64_t capture);
    // A call that no capture allows; the capture is spoilt.
    CUresult forbid(uint32_t stream);

  private:
    struct Capture {
        Graph* graph;
        uint64_t id;
        uint32_t origin;
        bool spoilt;
    };

    mutable pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    uint32_t active_ = 0;
    uint64_t ids_ = 0;
    Capture* of_[FIKIT_MAX_STREAMS] = {};
};

extern Captures captures;

void let_go(Recording* recording);

}  // namespace fikit::shim
