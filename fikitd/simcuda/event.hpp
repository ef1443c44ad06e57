// Records of events, of one process or of several.
//
// An event that processes share is a pair of counters in memory which all of them see: how often it was
// recorded, and which of the records is the latest that its stream got to. Who waits for another process'
// record waits for the second counter, as streams wait for values.
#pragma once

#include <atomic>

#include "command.hpp"

namespace fikit::sim {

class SharedEvent {
  public:
    static std::shared_ptr<SharedEvent> create(AddressSpace& space);
    // An event of another process; fails where the handle is no event's, or its process has gone.
    static CUresult open(AddressSpace& space, const CUipcEventHandle& handle,
                         std::shared_ptr<SharedEvent>& event);
    ~SharedEvent();
    SharedEvent(const SharedEvent&) = delete;
    SharedEvent& operator=(const SharedEvent&) = delete;

    CUipcEventHandle handle() const;
    std::uint64_t recorded() const { return counters().recorded.load(); }
    bool reached(std::uint64_t record) const { return counters().reached.load() >= record; }
    std::uint64_t record() { return ++counters().recorded; }
    void reach(std::uint64_t record);
    std::uint64_t address_of_reached() const;

  private:
    struct Counters {
        std::atomic<std::uint64_t> recorded, reached;
    };
    SharedEvent(AddressSpace& space, std::unique_ptr<SharedMemory> memory, std::uint64_t address);
    static std::shared_ptr<SharedEvent> map(AddressSpace& space, std::unique_ptr<SharedMemory> memory);
    Counters& counters() const { return *reinterpret_cast<Counters*>(memory_->data()); }

    AddressSpace& space_;
    std::unique_ptr<SharedMemory> memory_;
    std::uint64_t address_;
};

// What an operation does that records the event, from now on.
DeviceWork record_work(Event& event);
// Such an operation, which is the event's record.
OperationPtr new_record(Event& event);
// The operation that the event's latest record is, or null for none that is pending.
OperationPtr record_of(Driver& driver, Event& event);

}  // namespace fikit::sim
