// The dispatch core: one thread that takes operations from the sessions' rings, asks the policy, and issues
// them to the GPU. It never blocks in CUDA, takes no Python lock, and on the path of a launch allocates
// nothing, locks nothing and logs nothing. DESIGN.md beside this file explains marks, lanes and the gate.
//
//   dispatch.cpp   the loop: reading rings, the gate, parking
//   issue.cpp      one operation to the GPU; steps.cpp: the calls of all but launches
//   graphs.cpp     graphs: made by a call, launched as one operation
//   arrays.cpp     arrays, textures and surfaces, and copies of rows, of which arrays may be an end
//   place.cpp      the lane that it goes to
//   backlog.cpp    streams that wait for their tenant, and what is behind them
//   manage.cpp     records that only change the session's tables
//   complete.cpp   marks, completions, measured durations, frees
//   start.cpp      the core's beginning and end
//   sessions.cpp   sessions attached, changed, ended from other threads; observe.cpp: what those may see
//   admit.cpp      calls handed to a worker, and what they have to wait for first
//   calls.cpp      answers to calls, on the workers; program_calls.cpp, links.cpp: to those that only
//                  unmodified programs make
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "beside.hpp"
#include "board.hpp"
#include "clock.hpp"
#include "driver.hpp"
#include "idle_jobs.hpp"
#include "kept_memory.hpp"
#include "kernel_names.hpp"
#include "lanes.hpp"
#include "launch_traits.hpp"
#include "ledger.hpp"
#include "printed.hpp"
#include "profile.hpp"
#include "scheduling/policy.hpp"
#include "session.hpp"
#include "trace.hpp"
#include "workers.hpp"

namespace fikit {

constexpr unsigned worker_threads = 2;  // that answer calls, and as many that compile

struct Settings {
    std::string driver_path;
    std::string policy = "strict";
    scheduling::Bounds bounds;
    double time_scale = 1.0;
    int64_t spin_host_ns = 200'000;  // looks for work so long before it sleeps
    int64_t poll_host_ns = 50'000;   // how often it looks for completions while it sleeps
    uint64_t ring_bytes = 1u << 20;
    uint64_t staging_bytes = 32u << 20;
    uint64_t host_limit_bytes = 16ull << 30;    // pinned memory of one session
    uint64_t host_tenant_bytes = 0;             // and images of code, of all the tenant's; 0: no limit
    uint32_t in_flight_limit = most_in_flight;  // steps of one session
    // A session's entries in the executor's tables, which no quota counts.
    size_t most_buffers = 1u << 20;     // allocations, mappings and the like
    size_t most_reserved = 1u << 16;    // ranges of addresses
    uint64_t graph_bytes = 2u << 30;    // of the host's memory, that its graphs take
    size_t remembered_sessions = 4096;  // that are over, whose names a trace can still tell
    uint64_t keep_bytes = 64u << 20;    // of freed memory, mapped in all arenas together
    Nanoseconds keep_ns = 100'000'000;  // at most so long
    uint32_t spare_channels = 2;        // kept ready, since registering one holds launches up
    std::string board_path;             // of the GPU's board; empty: this executor is alone
    std::string ledger_path;            // of the tenant's memory on this GPU; empty: likewise
    std::string host_ledger_path;       // of what the tenant takes of the machine's; empty: likewise
    unsigned gpu = 0;                   // whose addresses these are
    int printed = -1;                   // the file that standard output is, for printf of kernels
    bool own_thread = true;             // false: tests turn the loop by hand
};

struct AttachRequest {
    std::string id;
    int level = scheduling::lowest_level;
    double weight = 1.0;
    uint64_t memory_limit = 0;        // for it and the other sessions of its job together
    uint64_t tenant_limit = 0;        // for all sessions of the tenant on this GPU together; 0: none
    bool unmodified = false;          // its program makes CUDA's own calls: natively a launch takes its time
    int lifeline = -1, process = -1;  // descriptors; the core owns them from here on
    std::string job = {};             // empty: it is of none
};

// What is to become of a session; nothing: as it is.
struct SessionChange {
    std::optional<int> level = {};
    std::optional<double> weight = {};
    std::optional<bool> paused = {};
    std::optional<bool> measured = {};  // every launch, not a sample of them
};

struct SessionSnapshot {
    std::string id;
    int level = 0;
    double weight = 1.0;
    bool paused = false;
    uint64_t memory_limit = 0;
    SessionUsage usage;
    uint64_t memory_bytes = 0, memory_peak = 0, queued = 0;
    std::vector<std::pair<std::string, uint64_t>> unsupported;  // calls that its side does not serve
    scheduling::SessionStatistics gate;
    std::string delayed_by;          // who caused the worst delay
    Nanoseconds measuring_time = 0;  // what the timing events of usage.measured launches added
    uint32_t host_functions = 0;     // streams that wait for a host function of the tenant
    Nanoseconds call_ns = 0;         // so long a call of it has waited for the driver, but to compile
    Nanoseconds overdue_ns = 0;      // so long none of its steps in flight has ended, though one should have
};

struct EndedSession {
    std::string id;
    int error = 0;
    std::string reason;
    SessionSnapshot last;
};

struct Snapshot {
    std::vector<SessionSnapshot> sessions;
    int64_t busy_ns = 0;
    uint64_t keeping = 0;  // programs of sessions that are over which have pinned memory of ours yet
    std::string outlived;  // by its work: the session that has ended and whose step is the oldest in flight
};

struct KernelMeasurement {
    KernelName name;
    KernelShape shape;
    uint32_t samples = 0, median = 0, p95 = 0, shortest = 0;
    uint32_t block = 0, wrong = 0;
    uint64_t key = 0;
    std::array<KernelGap, 2> gaps{};
};

struct MemoryLeft {
    CUresult result = CUDA_SUCCESS;
    uint64_t free = 0, total = 0;  // bytes
};

struct NamedTrace {
    TraceRecord record;
    std::string session, name;
};

// Throws std::runtime_error when the driver has refused.
void require(const Driver& driver, CUresult result, const char* what);

class Core {
  public:
    // The driver is loaded and `context` made current here. Throws std::runtime_error with the reason.
    Core(const Settings& settings, CUcontext context);
    ~Core();
    Core(const Core&) = delete;

    // Streams made by the set-up; before start().
    void add_lane(CUstream stream, int cuda_priority, uint32_t multiprocessors) {
        lanes_.add(stream, cuda_priority, multiprocessors);
    }
    void set_monitor(CUstream stream) { monitor_ = stream; }
    void start();
    void stop();

    // From any thread. They run on the dispatch thread; throw std::runtime_error with the reason.
    std::pair<int, int> attach(AttachRequest request);  // outbox, inbox: duplicates for the caller
    bool end(const std::string& id, int error, const std::string& reason);
    bool change(const std::string& id, const SessionChange& wanted);
    Snapshot snapshot();
    // Of what somebody may have, what is left on the GPU as it is now; `returning`: so much is on its way
    // back, and does not count as used. Not on the dispatch thread: it asks the driver.
    MemoryLeft memory_left(uint64_t most, uint64_t used, uint64_t returning = 0) const;
    std::vector<KernelMeasurement> take_profiles();
    void load_profiles(const std::vector<KernelMeasurement>& known);
    void forget_profiles();
    void bound_printed() { printed_.bound(); }
    uint64_t set_trace(bool on);  // the cursor of what is recorded next
    // What was recorded at `cursor` and after, which moves on; `dropped` counts what was overwritten before.
    std::vector<NamedTrace> read_trace(uint64_t& cursor, size_t limit, uint64_t& dropped);

    // What timing events add to a duration: on an idle stream, behind other work.
    std::array<Nanoseconds, 2> timer_overhead() const { return timer_overhead_; }
    Nanoseconds launch_cost() const { return launch_cost_; }

    int notification() const { return notification_.get(); }  // readable when there is an ended session
    std::vector<EndedSession> take_ended();
    int failure() const { return failure_.load(); }  // the sticky CUresult, or 0
    std::string failure_text();

    const Driver& driver() const { return driver_; }

    // The pieces of the loop, for tests and benchmarks that turn it by hand.
    bool turn();

  private:
    friend class CallHandler;
    friend class ProgramCalls;

    // dispatch.cpp
    void run();
    bool serve(Session& session);
    bool serve_ring(Session& session);
    bool serve_and_look(Session& session);
    bool serve_high();
    void note_full(Session& session);
    void note_row(Session& session);
    bool take_head(Session& session);
    bool gate();
    bool in_a_row(const Session& session) const;
    bool may_load(Session& session);
    bool may_bring_more(Session& session);
    bool may_allocate(Session& session);
    void publish_tails();
    bool wake_more();
    void tell_apart();
    void begin_pauses();
    void end_pauses(int64_t host_time);
    int64_t high_expected(int64_t host_time) const;
    void park(int64_t host_timeout);
    void hear(const timespec& timeout);
    void listen(Session& session);
    ssize_t receive(Session& session);
    bool reads_ring(const Session& session) const;
    bool run_posted();
    void kick();
    void on_dispatch(const std::function<void()>& action);
    void piecewise(const std::function<bool()>& piece);
    void post(const std::function<void()>& action);

    // issue.cpp
    bool prepare_launch(Session& session);
    void tell_apart(Session& session);
    Nanoseconds guess(const Session& session) const;
    struct KernelIdentity {
        uint64_t hash = 0;
        uint32_t name = 0;  // index
    };
    KernelEntry& kernel_of(const SessionFunction& function, const KernelShape& shape,
                           const KernelIdentity& identity);
    KernelIdentity variant_of(const SessionFunction& function, const LaunchTraits& traits);
    void prepare_copy(Session& session);
    bool prepare_graph(Session& session);
    static std::shared_ptr<const SessionGraph> graph_of(const Session& session, const Operation& operation);
    bool take_offered(Session& session);
    bool start_call(Session& session);
    bool resume_call(Session& session);
    bool allocate_at_once(Session& session);
    bool answer_call(Session& session, bool at_once);
    void manage(Session& session);
    void issue(Session& session, uint8_t where);
    void decide_again(Session& session, SessionStream& stream, uint32_t handle, int32_t timer);
    int32_t take_timer(size_t spared);
    bool keep_timer(Session& session);
    int32_t start_timer(Session& session, CUstream stream);
    CUresult issue_launch(Session& session, CUstream stream);
    CUresult launch_with_attributes(const Session& session, const SessionFunction& function, CUstream stream,
                                    void** parameters);
    CUresult issue_other(Session& session, SessionStream& stream, CUstream lane);
    CUresult issue_graph(Session& session, CUstream stream);
    CUresult issue_copy(Session& session, CUstream stream);
    CUresult issue_rows(Session& session, CUstream stream);
    CUresult issue_fill(Session& session, CUstream stream);
    CUresult issue_event(Session& session, SessionStream& stream, CUstream lane);
    CUresult issue_values(Session& session, CUstream stream);
    CUresult issue_host_function(Session& session, SessionStream& stream, uint32_t handle);
    bool stream_exists(Session& session);
    bool examine_launch(Session& session, SessionFunction& function);
    bool examine_attributes(Session& session, const SessionFunction& function);
    bool refuse_function(Session& session, uint32_t function);
    bool refuse_launch(Session& session, CUresult error, const std::string& text);
    void begin_trace(const Session& session, const InFlight& entry, Nanoseconds began, TraceRecord& trace);
    void report(Session& session, CUresult result);
    void count_step(Session& session, SessionStream& stream, uint32_t handle);
    void order_with_legacy(Session& session, SessionStream& stream, uint32_t handle);

    // place.cpp
    Lane* place(Session& session, SessionStream& stream, uint32_t handle, uint8_t where);
    void wait_for(CUstream waiting, SessionStream& earlier);
    int cuda_priority(const Session& session, const SessionStream& stream) const;

    // backlog.cpp
    bool take_deferred(Session& session);
    bool defer(Session& session);
    void put_off(Session& session, const Operation& operation, const SessionGraph* graph);
    CUresult prepare_values(Session& session, std::vector<CUstreamBatchMemOpParams>& writes, uint32_t& upto);
    bool begin_values(Session& session);
    bool begin_event_wait(Session& session);
    void block(Session& session, SessionStream& stream, uint32_t handle, const Block& block, bool behind);
    bool look_at_blocks(Session& session, size_t waiting);
    bool is_over(Session& session, SessionStream& stream, uint32_t handle);
    bool look_at_word(Session& session, SessionStream& stream, uint32_t handle);
    bool is_at_gates(const Session& session) const;
    bool will_record(uint32_t session, uint32_t event) const;
    void count_record(Session& session, const Operation& operation, bool put_off) const;
    void forget_backlog(Session& session);

    // complete.cpp
    bool collect();
    bool high_waits() const;
    bool collect(Session& session, Nanoseconds now);
    void complete(Session& session, SessionStream& stream, InFlight& entry, TraceRecord& trace,
                  Nanoseconds now, Nanoseconds unfinished);
    void write_mark(Session& session, SessionStream& stream, uint32_t handle);
    void write_awaited_mark(Session& session, SessionStream& stream, uint32_t handle);
    bool mark(Session& session, SessionStream& stream, uint32_t handle);
    bool flush_marks(Session& session, Nanoseconds now, bool force);
    uint64_t reached(Session& session, SessionStream& stream, uint32_t handle, Nanoseconds now);
    void retire_stream(Session& session, uint32_t handle);
    bool release_frees(Session& session);
    bool trim(Session& session, Nanoseconds now);
    void advance_ending(Session& session);
    CUresult lost() const;
    void check_health(Nanoseconds now);
    void read_board();
    void calibrate();
    Nanoseconds time_launches(CUfunction function, CUstream stream);
    Nanoseconds read_empty(CUfunction function, CUstream stream, bool behind);
    void refuse(Session& session, CUresult error, const std::string& text);
    void check(Session& session, CUresult result, const char* what);
    void fail(CUresult error, const std::string& what);
    void end_session(Session& session, int error, const std::string& reason);
    void announce(Session& session);
    void account_memory(Session& session);
    uint64_t memory_limit_of(const Session& session) const;
    uint64_t limit_within_job(const Session& session) const;
    // `take(limit)` takes `bytes` more for the session, if that is within what it may have. They are reserved
    // first, so that no other executor of the tenant takes the same room meanwhile. Without room there is
    // still what is used in part. `thorough`: as the ledger has it.
    template <class Take>
    CUresult within_limits(Session& session, uint64_t bytes, bool thorough, const Take& take) {
        const bool room = ledger_.reserve(bytes, session.tenant_limit, thorough);
        const uint64_t limit =
            room ? limit_within_job(session) : std::max<uint64_t>(session.arena->used_bytes(), 1);
        const CUresult result = take(limit);
        session.device_was_full = result == CUDA_ERROR_OUT_OF_MEMORY && session.arena->fits(bytes, limit);
        account_memory(session);
        if (room) ledger_.give_back(bytes);
        return result;
    }
    void when_idle(std::function<void()> run);
    void unregister_when_idle(SharedMemory&& memory, SharedMemory&& with = {});
    void keep_when_idle(SharedMemory&& memory, uint32_t serial,
                        const std::shared_ptr<KeptMemory::Program>& program);
    void unload_when_idle(const SessionModule& module);
    void run_idle_job(Nanoseconds now);
    void forget_descriptors(Session& session);
    struct Timer {
        CUevent before = nullptr, after = nullptr;
    };
    void record_trace(TraceRecord& trace, const Timer& timer, Nanoseconds measured);

    // sessions.cpp
    SessionSnapshot snapshot_of(const Session& session) const;
    struct OldestStep {
        Nanoseconds since = INT64_MAX;
        const Session* session = nullptr;
    };
    OldestStep oldest_in_flight() const;
    void release(Session& session);  // on a worker
    void release_arrays(Session& session);
    Session* find(const std::string& id);
    Session* find(uint32_t serial) const;
    void adopt(std::unique_ptr<Session>& session);
    struct Channel {
        SharedMemory outbox, inbox;
        CUdeviceptr inbox_device = 0;
    };
    Channel make_channel();
    Channel take_channel();
    void make_spare();
    uint32_t name_index(const KernelName& name);
    uint64_t pinned_place(uint64_t size);
    // Whether the session may have such a buffer, under that number.
    CUresult may_pin(const Session& session, uint32_t handle, uint64_t size) const;
    // A copy of the image that a request names, since the tenant may write on.
    template <class Request>
    CUresult copy_image(Session& session, const Request& request, std::vector<uint8_t>& image) const {
        return copy_image(session, request.offered, request.offset, request.size, image);
    }
    CUresult copy_image(Session& session, uint32_t is_offered, uint64_t offset, uint64_t size,
                        std::vector<uint8_t>& image) const;
    CUresult pin(Session& session, uint32_t handle, SharedMemory memory, uint64_t& device_address);
    // Counts memory of the host's as the tenant's for as long as the answer lives; nullptr: it has too much.
    std::shared_ptr<void> count_host(uint64_t bytes);
    // The buffer is the session's no more, and still registered; empty when there is none.
    PinnedBuffer unpin(Session& session, uint32_t handle) const;
    uint64_t own_place(uint64_t size, uint64_t wished);

    Settings settings_;
    Driver driver_;
    CUcontext context_ = nullptr;
    CUdevice device_ = 0;
    Clock clock_;
    uint32_t multiprocessors_ = 0;
    int greatest_priority_ = 0;

    Board board_;
    bool high_elsewhere_ = false;
    Lanes lanes_;
    CUstream monitor_ = nullptr;
    std::unique_ptr<scheduling::Policy> policy_;
    Profile profile_;
    std::mutex names_mutex_;  // held for one name at a time: the dispatch thread may want it
    KernelNames names_;
    // By function and attributes; the dispatch thread's.
    std::unordered_map<uint64_t, KernelIdentity> variants_;
    // Of the sessions that a trace may name, by serial number; those of them that are over, as they ended.
    std::map<uint32_t, std::string> ids_;
    std::deque<uint32_t> over_;
    Trace trace_;
    CUevent trace_base_[2] = {nullptr, nullptr};
    Nanoseconds trace_base_at_ = 0;
    bool trace_rebasing_ = false;

    std::vector<Timer> timers_;
    std::vector<int32_t> free_timers_;
    std::vector<CUevent> free_marks_;
    uint32_t watched_ = 0;                         // streams that have events under way
    Nanoseconds launch_cost_ = 0;                  // of a launch, to whoever makes it
    std::array<Nanoseconds, 2> timer_overhead_{};  // on an idle stream; behind other work

    CUdeviceptr arenas_ = 0;
    uint64_t pinned_at_ = 0;   // where the next pinned buffer is mapped, if nothing is there (memory_mutex_)
    uint64_t own_at_ = 0;      // likewise
    std::mutex memory_mutex_;  // one allocation at a time, so that limits hold
    Printed printed_{settings_.printed};
    FailedAssertions failed_assertions_;
    std::array<uint8_t, FIKIT_IDENTITY> identity_{};  // of this executor, for handles between processes
    // What sessions share with each other, by number (memory_mutex_).
    std::map<uint32_t, std::weak_ptr<SharedExtent>> shared_extents_;
    uint32_t shares_ = 0;
    Ledger ledger_;                          // of the tenant's memory, here and in its other executors
    Ledger host_ledger_;                     // of what it takes of the host's: pinned memory, images
    std::mutex host_mutex_;                  // one thread at a time looks for who has ended
    std::atomic<uint64_t> kept_bytes_{0};    // of all sessions
    bool memory_wanted_ = false;             // somebody waits for what others keep
    std::atomic<uint32_t> memory_going_{0};  // idle jobs after which the tenant has more
    SharedMemory host_gates_;
    CUdeviceptr host_gates_device_ = 0;

    std::vector<std::unique_ptr<Session>> sessions_;
    std::array<Session*, scheduling::max_sessions> by_index_{};
    std::array<std::string, scheduling::max_sessions> latest_{};  // by index: who has it, or had it last
    uint32_t serials_ = 0;
    uint32_t in_flight_ = 0;
    Beside beside_{1};        // of what the device has, once that is known
    uint32_t blocked_ = 0;    // streams of all sessions
    bool hold_gate_ = false;  // something waits until nothing is in flight
    std::atomic<uint32_t> loading_{0};
    bool ending_ = false;  // some session is not running
    Nanoseconds ask_again_at_ = 0;
    Nanoseconds now_ = 0;            // when the turn began, or something was issued since
    bool in_a_row_ = false;          // a high session was, when it was last served
    size_t collected_ = 0;           // the latest session that was asked what it has done
    size_t woken_ = 0;               // whose sleeping threads were last
    Nanoseconds whole_turn_at_ = 0;  // the latest turn that was not only for a high session
    Nanoseconds heard_at_ = 0;       // what the descriptors have to say
    Nanoseconds last_completion_ = 0, last_health_ = 0, busy_since_ = 0;
    int64_t busy_ns_ = 0;

    Workers workers_;    // answer calls
    Workers compilers_;  // likewise, those that the driver's compiler may take seconds for
    Workers releases_;   // free: the driver may make them wait for running kernels, which no call should
    std::thread thread_;
    std::atomic<bool> stopping_{false}, posted_{false};
    std::mutex posted_mutex_;
    std::vector<std::function<void()>> posted_actions_;
    Descriptor epoll_, kick_, notification_;
    std::mutex ended_mutex_;
    std::vector<EndedSession> ended_;
    std::atomic<int> failure_{0};
    std::atomic<bool> suspected_{false};  // by a worker: the context is lost

    KeptMemory kept_memory_;
    IdleJobs idle_jobs_;
    std::mutex spare_mutex_;
    std::vector<Channel> spare_channels_;
    bool making_spares_ = false;  // one is asked for
    std::string failure_text_;
};

}  // namespace fikit
