// The engine's inside: warps, frames and groups of lanes, and what handlers use of them.
//
// Threads of a warp that are at the same instruction of the same call form a group and run together.
// Where they part, the group splits; the group that is deepest in calls, then furthest back in the
// code, runs until it reaches another, and they become one again. A group that runs for long while
// others are ready gives way to them, so that a thread may wait for another of its own warp.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "ptx/execution.hpp"
#include "ptx/lanes.hpp"
#include "ptx/limits.hpp"

namespace fikit::sim::ptx {

class Lowering;
struct Draft;

// One call of a function by the lanes in `live`.
struct Frame {
    const Function* function = nullptr;
    Frame* caller = nullptr;
    const Call* call = nullptr;
    std::uint32_t return_to = 0;
    std::uint32_t depth = 0;
    std::uint32_t local_base = 0;
    std::uint32_t allocated = 0;  // by alloca, behind the function's own local memory
    Mask live = 0;
    std::byte* registers = nullptr;
    std::byte* parameters = nullptr;
    const std::byte* constants = nullptr;
    std::unique_ptr<std::byte[]> storage;
    std::uint32_t stack_end() const { return local_base + function->local_bytes + allocated; }
};

struct Group {
    enum class State : std::uint8_t { ready, gathering, barrier, cluster, sleeping };
    Mask mask = 0;
    std::uint32_t pc = 0;
    Frame* frame = nullptr;
    State state = State::ready;
    std::uint32_t barrier = 0;
    std::uint32_t turns = 0;  // how often it gave way
    std::uint32_t spent = 0;  // since it last did
    Nanoseconds wake = 0;
};

// Those of the lanes that meet which came to one of the places (meeting.cpp, lower_warp.cpp).
struct Apart {
    Context context;
    const Op* op = nullptr;
    Mask mask = 0;
};
// Whether lanes at these instructions may meet: the same instruction with the same qualifiers.
bool may_meet(const Op& one, const Op& other);
// Does what the instruction of all parts is for all their lanes together.
void run_apart(const std::vector<Apart>& parts);

struct Warp {
    std::uint32_t index = 0;
    Mask exists = 0;
    Mask exited = 0;
    Mask carry = 0;       // the condition code of add.cc and its like
    Mask arrived_in = 0;  // of each lane: the phase of the cluster's barrier in which it arrived last
    std::vector<Group> groups;
    std::vector<std::unique_ptr<Frame>> frames;
    std::size_t frame_bytes = 0;
    std::vector<std::byte> local;    // a row a lane, which grows with the calls
    std::uint32_t local_room = 0;    // bytes of a row that are in use
    std::uint32_t local_stride = 0;  // from one row to the next
    void grow_local(std::uint32_t room);
};

// Part of a state space: for lane l, the byte at address `begin` + x lies at host + l * stride + x, for x
// below `bytes`.
struct View {
    std::uint64_t begin = 0, bytes = 0;
    std::byte* host = nullptr;
    std::size_t stride = 0;
};

// Those that bar names, and one of each warpgroup (lower_wgmma.cpp).
inline constexpr std::uint32_t named_barriers = 16, warpgroups = 8;

struct Barrier {
    std::uint32_t arrived = 0;
    std::uint32_t expected = 0;  // 0: all threads, of the block or warpgroup, that have not exited
    std::uint32_t counted = 0;   // bar.red
    bool all = true, any = false;
};

// The blocks of a cluster, which begin together, and their barrier: its phase ends when all threads that have
// not exited have arrived.
struct Cluster {
    std::vector<BlockRun*> blocks;  // by rank; null: not begun, or ended
    std::uint64_t threads = 0;      // that have not exited
    std::uint64_t arrived = 0;
    bool phase = false;
    void settle() {
        if (arrived < threads) return;
        arrived = 0;
        phase = !phase;
    }
};

// One thread block; see execution.hpp, BlockExecution.
class BlockRun {
  public:
    BlockRun(KernelRun& launch, std::uint64_t block, unsigned sm);
    ~BlockRun();
    BlockRun(const BlockRun&) = delete;
    BlockRun& operator=(const BlockRun&) = delete;
    Progress resume(GlobalMemory& memory, Nanoseconds now, std::uint64_t instructions);

    // --- for handlers
    // The host's view of what each lane of `mask` accesses; false where one faults.
    bool resolve(Context& context, const Op& op, Mask mask, unsigned bytes, AccessKind kind,
                 std::byte** places);
    std::byte* resolve_one(Space space, std::uint64_t address, std::size_t bytes, AccessKind kind,
                           Context& context, unsigned lane);
    // A texture or surface object; null, with a fault, for none.
    const Texture* texture(std::uint64_t handle, Context& context) const;
    Nanoseconds clock() const;
    std::uint64_t clock_cycles() const;
    std::uint64_t retired() const { return retired_; }
    std::uint32_t cluster_rank() const;
    std::uint32_t shared_bytes() const { return static_cast<std::uint32_t>(shared_.size()); }

    KernelRun& launch;
    const std::uint64_t number;
    const unsigned sm;
    std::array<std::uint32_t, 3> position{};  // %ctaid
    // How many threads one lane stands for: more than one in a uniform kernel.
    const std::uint64_t multiplicity;
    BlockWork work;
    // While a loop's end is looked for, the time that clocks read; negative: the real one.
    Nanoseconds supposed = -1;

  private:
    // access.cpp: what is around `address`; nothing where it cannot be accessed so, or must be looked up.
    View view(Space space, std::uint64_t address, AccessKind kind, Context& context);
    void account(AccessKind kind, std::uint64_t bytes);
    template <typename AddressOf>
    bool resolve_lanes(Context& context, Space space, Mask mask, unsigned bytes, AccessKind kind,
                       std::byte** places, AddressOf address_of);
    void start_warps();
    // warp.cpp, meeting.cpp
    void run_warp(Warp& warp);
    Group* pick(Warp& warp);
    bool release_warp_barrier(Warp& warp);
    bool meet_apart(Warp& warp);
    static Mask gathered(const Warp& warp, const Context& context, const Op& op, Mask mask);
    void settle(Warp& warp);
    void run_group(Warp& warp, std::size_t group);
    void regroup(Warp& warp, std::size_t group, const Op& op, Context& context, Mask mask);
    void split(Warp& warp, std::size_t group, Mask taken);
    template <typename Place>
    Place part(Warp& warp, std::size_t group, const Place* places);
    void call(Warp& warp, std::size_t group, const Op& op, Context& context);
    void leave(Warp& warp, std::size_t group);
    void exit_lanes(Warp& warp, std::size_t group);
    Frame* make_frame(Warp& warp, const Function& function);
    void bind(Context& context, const Group& group) const;
    bool wait_for_clock(Warp& warp, std::size_t group, Context& context, std::uint32_t first,
                        std::uint32_t last);
    bool leaves_at(Context& context, std::uint32_t first, std::uint32_t last, Nanoseconds time);
    // cluster.cpp
    std::vector<std::byte>* shared_of(std::uint64_t rank);
    void arrive_in_cluster(Warp& warp, Mask mask);
    void leave_cluster(Mask mask);
    bool waits_for_cluster(const Warp& warp, Mask mask) const;
    // block.cpp
    void arrive(Warp& warp, std::size_t group, const Op& op, Context& context);
    void complete(std::uint32_t barrier);
    void recheck_barriers();
    std::uint32_t live_in_warpgroup(std::uint32_t which) const;

    GlobalMemory* memory_ = nullptr;
    std::vector<std::byte> shared_;
    std::vector<Warp> warps_;
    std::size_t next_warp_ = 0;
    std::array<Barrier, named_barriers + warpgroups> barriers_{};
    std::shared_ptr<Cluster> cluster_;  // null: it is a block by itself
    std::uint32_t live_threads_ = 0;
    std::uint64_t retired_ = 0;  // warp instructions
    std::uint64_t looks_at_ = limits::watchdog_look;
    std::uint64_t spent_ = 0;        // of its turns: instructions, and accesses that others may answer
    std::uint64_t round_began_ = 0;  // what was retired when it was the first warp's turn
    Nanoseconds now_ = 0;
    Nanoseconds computed_before_ = 0;
    bool resting_ = false;  // nobody could run
    CUresult fault_ = CUDA_SUCCESS;
    std::array<Stretch, 16> stretches_{};
};

// Shared memory begins behind what the system keeps for itself, as on hardware.
inline constexpr std::uint32_t shared_start = model::shared_reserved_per_block;
// From here on what the system keeps is for cooperative groups: %reserved_smem_offset_1, 288 bytes at least.
inline constexpr std::uint32_t shared_scratch = 512;

// Where the kernel's own shared variables end and the launch's dynamic ones begin.
std::uint64_t shared_end(const Context& context, std::uint32_t alignment);
// An operation that fills `place` with a special register; refuses an unknown one.
void read_special(Lowering& lowering, std::string_view name, Place place, unsigned bytes);
// Refuses a special register where it cannot stand, or a name that nothing has.
[[noreturn]] void misplaced_special(Lowering& lowering, std::string_view name);
// Finds out whether a kernel is uniform, and which of its loops only wait for a clock.
void analyse(Draft& draft, Module& module);

}  // namespace fikit::sim::ptx
