// Tenants that launch for themselves: one host thread each, in one context, without a gate.
#pragma once

#include "replay_host.hpp"

namespace fikit::replay {

class Threads {
  public:
    Threads(const std::vector<Program>& high, const std::vector<Program>& low, const Settings& settings);
    void run(Result& result);

  private:
    struct Thread {
        const Program* program = nullptr;
        bool high = false;
        std::vector<uint16_t> streams;
        Nanoseconds begun = 0, free_at = 0, calls_at = Gpu::never;
        size_t next = 0, completed = 0;
        size_t iteration = 0, end = 0;  // of the program's; its last operation
        Nanoseconds issued = 0, done = 0, since_mark = 0, retired = 0;
        std::vector<uint8_t> marked;  // by operation of the iteration: a mark follows it
        TenantResult result;
        double work = 0;
    };
    void begin(unsigned number, Nanoseconds at);
    void launch(unsigned number, Nanoseconds now);
    void complete(const Completion& completion);
    double begun_work(const Thread& thread, Nanoseconds now) const;

    const Settings& settings_;
    Gpu gpu_;
    std::vector<Thread> threads_;
    std::vector<uint32_t> owner_;  // by stream
    Random random_;
    Nanoseconds end_ = 0;
};

}  // namespace fikit::replay
