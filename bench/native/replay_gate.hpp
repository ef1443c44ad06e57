// Tenants of one executor: a model of the dispatch core (native/core.hpp) around the very policy and profile.
//
// One thread serves all: operations of level 0 at once, the others as the policy says, and the marks by which
// it learns of completions. What each of these costs it is measured on the H200; it does one thing at a time.
#pragma once

#include <algorithm>
#include <memory>
#include <queue>
#include <unordered_map>

#include "beside.hpp"
#include "pace.hpp"
#include "profile.hpp"
#include "replay_host.hpp"
#include "scheduling/policies.hpp"

namespace fikit::replay {

class Gate {
  public:
    Gate(const std::vector<Program>& high, const std::vector<Program>& low, const Settings& settings);
    void run(Result& result);

  private:
    struct Step {  // issued, not yet known to have completed
        scheduling::Work work;
        KernelEntry* kernel = nullptr;
        uint16_t multiprocessors = 0;  // of the partition; 0: the whole GPU
        bool sampled = false;
        Beside::Entry beside;
        Nanoseconds started = 0, at = 0;
    };
    struct Stream {
        uint16_t on_gpu = 0;
        Ring<Step> steps;
        size_t over = 0;                                  // so many of the first steps have run
        uint32_t unmarked = 0;                            // so many of the last have no mark behind them
        Ring<uint32_t> marks;                             // how many steps each covers
        uint16_t multiprocessors = sim::model::sm_count;  // where its last step went
        Predecessors before;
    };
    struct alignas(512) Session {  // what is found by its number is found by a shift
        const Program* program = nullptr;
        unsigned index = 0;
        bool high = false, waits = false, awaited = false;
        bool refused = false;               // its head was
        bool held = false;                  // what is unmarked waits for the marks under way
        std::vector<KernelEntry*> kernels;  // by operation
        std::vector<Stream> streams;
        Nanoseconds begun = 0, enqueued_at = 0, last_issue = 0;
        Nanoseconds row_at = 0;   // since then it has had something ready all the time
        uint32_t row = 0;         // so many operations since then
        Nanoseconds head_at = 0;  // when the tenant's next record is in its ring
        UsualKernel usual;
        Nanoseconds held_from = Gpu::never;  // since then as much as may be is in flight
        bool held_up = false;                // what had to wait for that may still be there
        size_t next = 0, in_flight = 0;
        size_t iteration = 0;              // of the program's
        uint64_t steps = 0;                // begun
        uint64_t launched = 0, over = 0;   // operations, those of a graph as one
        uint32_t unmarked = 0, marks = 0;  // marks: on their way
        Nanoseconds unmarked_work = 0;
        TenantResult result;
        double work = 0;
    };
    struct Notice {  // a mark that the dispatch thread will see
        Nanoseconds at;
        uint32_t session, stream;
        bool operator>(const Notice& other) const { return at > other.at; }
    };

    void begin(Session& session, Nanoseconds at);
    bool high_is_ready(Nanoseconds now) const;
    void next_turn() {
        turn_ = turn_ + 1 < sessions_.size() ? turn_ + 1 : 0;
        taken_ = 0;
    }
    static bool all_launched(const Session& session) {
        return session.next == session.program->iterations[session.iteration].end;
    }
    bool polls(const Session& session) const { return settings_.polled && session.high; }
    static bool has_mark(const Session& session);
    void tell_waited(const Session& session, Nanoseconds now);
    Nanoseconds mark_due(const Session& session) const;
    void look_ahead(Session& session) const;
    Nanoseconds due() const;
    bool others_in_flight(const Session& session) const;
    // Something that the dispatch thread will take note of.
    void sooner(Nanoseconds at) { due_ = std::min(due_, std::max(at, free_at_)); }
    Nanoseconds serve(Nanoseconds now);
    Nanoseconds gate(Nanoseconds now);
    Nanoseconds issue(Session& session, Nanoseconds now, unsigned partition);
    Nanoseconds mark(Session& session, bool force);
    Nanoseconds synchronise(Session& session);
    Nanoseconds guess(const Session& session) const;
    KernelEntry* describe(const Session& session, scheduling::Work& work);
    void observe(const Notice& notice);
    void complete(const Completion& completion);
    double begun_work(const Session& session, Nanoseconds now) const;
    void finish(Session& session, Nanoseconds seen);

    const Settings& settings_;
    Gpu gpu_;
    std::unordered_map<uint64_t, KernelEntry> kernels_;  // as many as Profile has, which is long in making
    std::unique_ptr<scheduling::Policy> policy_;
    std::vector<Session> sessions_;  // the high ones first
    size_t highs_ = 0;
    std::vector<std::pair<uint32_t, uint32_t>> owner_;  // session and stream, by the GPU's stream
    std::priority_queue<Notice, std::vector<Notice>, std::greater<>> notices_;
    Random random_;
    Beside beside_{sim::model::sm_count};
    size_t turn_ = 0;       // whose turn it is, of the sessions,
    uint32_t taken_ = 0;    // and so many records of it were taken in that
    unsigned waiting_ = 0;  // sessions
    bool asked_ = true;     // nothing has happened since the policy said wait
    Nanoseconds again_at_ = Gpu::never, free_at_ = 0, end_ = 0;
    Nanoseconds due_ = 0;  // when the dispatch thread does something next
};

}  // namespace fikit::replay
