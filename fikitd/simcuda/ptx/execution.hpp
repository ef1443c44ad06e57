// Runs kernels: a launch, its thread blocks, and what each cost.
//
// KernelRun is what the blocks of one launch share. BlockRun executes one thread block and is
// resumable: it runs until it ends, until every thread waits for a time (nanosleep, a loop that
// waits for a clock), or until it has run as many warp instructions as it was given, so that blocks
// that wait for others' writes can take turns. Execution runs all of a launch's blocks; a kernel that
// was proven uniform (Kernel::uniform) by one execution of one thread that stands for all.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cost.hpp"
#include "model.hpp"
#include "ptx/accesses.hpp"
#include "ptx/module.hpp"
#include "ptx/program.hpp"
#include "ptx/texture.hpp"

namespace fikit::sim {

// A mapped stretch of memory.
struct Stretch {
    std::uint64_t begin = 0, end = 0;
    std::byte* host = nullptr;  // of `begin`
    bool writable = false;
};

// What a kernel sees of memory.
class GlobalMemory {
  public:
    virtual ~GlobalMemory() = default;
    // The host's view of [address, address + bytes), or null where that is not all mapped for this
    // access.
    virtual std::byte* at(std::uint64_t address, std::size_t bytes, bool write) = 0;
    // What is mapped around `address`; an empty one sends every access to at().
    virtual Stretch stretch(std::uint64_t) { return {}; }
    // What a texture or surface object stands for; null for none.
    virtual const Texture* texture(std::uint64_t) { return nullptr; }
    // Lets others change what is mapped, if they wait to; true: then nothing known of it holds any more.
    virtual bool give_way() { return false; }
};

struct LaunchShape {
    std::array<std::uint32_t, 3> grid{1, 1, 1};
    std::array<std::uint32_t, 3> block{1, 1, 1};
    std::uint32_t dynamic_shared = 0;
    bool cooperative = false;
    std::size_t stack =
        model::stack_bytes;  // of each thread, for what only the run tells (alloca, recursion)
    std::array<std::uint32_t, 3> cluster{1, 1, 1};
    std::uint64_t blocks() const { return std::uint64_t{grid[0]} * grid[1] * grid[2]; }
    std::uint32_t threads() const { return block[0] * block[1] * block[2]; }
};

struct Progress {
    // running: it used up its instructions and goes on at once; waiting: nothing to do before `until`;
    // for_peers: nor before another block of its cluster got further (blocks only).
    enum class State { running, waiting, for_peers, finished, faulted };
    State state;
    Nanoseconds until = 0;          // waiting, for_peers: when to resume; running, finished: its own time
    CUresult fault = CUDA_SUCCESS;  // faulted
};

namespace ptx {
class BlockRun;
struct Cluster;
}  // namespace ptx

class KernelRun {
  public:
    // `variables` are the device addresses of the module's variables; `timer_base` is what
    // %globaltimer reads at simulated time 0. The kernel must outlive this.
    KernelRun(const ptx::Kernel& kernel, std::vector<std::byte> parameters, const LaunchShape& shape,
              const std::vector<std::uint64_t>& variables, Nanoseconds timer_base);

    const ptx::Kernel& kernel;
    const LaunchShape shape;
    const Nanoseconds timer_base;
    std::vector<std::byte> parameters;
    std::vector<std::byte> workspace;  // of a cooperative launch, for the barrier of its grid
    std::shared_ptr<AccessRecorder> accesses;
    const std::uint64_t grid_id;
    const std::uint32_t stack;  // bytes of local memory that each thread has

    // A function's constants, with the addresses of variables.
    const std::byte* constants(const ptx::Function& function);
    unsigned cluster_blocks() const { return shape.cluster[0] * shape.cluster[1] * shape.cluster[2]; }
    // The block that begins so many after the first: those of a cluster follow each other.
    std::uint64_t in_order(std::uint64_t index) const;
    // The cluster of the block there.
    std::shared_ptr<ptx::Cluster> cluster_of(const std::array<std::uint32_t, 3>& position);
    // What printf wrote; goes to standard output with flush().
    std::string output;
    void flush();

  private:
    std::vector<std::uint64_t> variables_;
    std::vector<std::pair<const ptx::Function*, std::vector<std::byte>>> bound_;
    std::map<std::uint64_t, std::weak_ptr<ptx::Cluster>> clusters_;  // whose blocks have begun
};

// One thread block.
class BlockExecution {
  public:
    // `sm` is what %smid reads.
    BlockExecution(KernelRun& run, std::uint64_t block, unsigned sm);
    ~BlockExecution();
    BlockExecution(BlockExecution&&) noexcept;
    BlockExecution& operator=(BlockExecution&&) noexcept;

    // Runs about so many warp instructions, from the time `now` on.
    Progress resume(GlobalMemory& memory, Nanoseconds now, std::uint64_t instructions);
    std::uint64_t retired() const;  // warp instructions so far
    Nanoseconds clock() const;
    // Of the block so far; `waited` is the time in which no thread could run.
    const BlockWork& work() const;

  private:
    std::unique_ptr<ptx::BlockRun> run_;
};

// All blocks of a launch.
class Execution {
  public:
    using State = sim::Progress::State;
    using Progress = sim::Progress;

    Execution(const ptx::Kernel& kernel, std::vector<std::byte> parameters, const LaunchShape& shape,
              const std::vector<std::uint64_t>& variables, Nanoseconds timer_base);
    ~Execution();

    // Runs about so many warp instructions, or without a bound; then never returns running.
    Progress resume(GlobalMemory& memory, Nanoseconds now, std::uint64_t instructions = unbounded);
    static constexpr std::uint64_t unbounded = ~std::uint64_t{0};
    std::uint64_t retired() const { return retired_; }  // warp instructions so far
    // What one block did, the mean of all; once finished.
    BlockWork work() const;

  private:
    bool run_block(std::size_t index, GlobalMemory& memory, Nanoseconds now, std::uint64_t instructions,
                   Progress& progress);

    struct Live {
        BlockExecution block;
        Nanoseconds until;
        bool for_peers = false;
        Nanoseconds due = 0;  // waiting: `passed_` when it has slept enough
    };
    KernelRun run_;
    BlockWork sum_;  // of the blocks that have ended
    std::vector<Live> live_;
    std::size_t at_ = 0;      // whose turn it is among them
    bool ran_ = false;        // whether one of them could run in this round
    bool sleeps_ = false;     // whether one of them waited in the last round
    Nanoseconds lasted_ = 0;  // this round: the longest turn of those that did not end it waiting
    Nanoseconds passed_ = 0;  // all rounds
    std::uint64_t next_block_ = 0;
    std::uint64_t retired_ = 0;
};

}  // namespace fikit::sim
