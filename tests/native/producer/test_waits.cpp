// What the executor hears of the program's waits: with the step that follows.
#include <memory>

#include "double.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

constexpr uint32_t waited = FIKIT_WAITED, found = FIKIT_WAITED | FIKIT_FOUND;

// A program with a stream and an event, and what the executor saw of it.
struct Told {
    std::atomic<uint32_t> launches{0}, flags{0};  // flags: of the latest launch
    Double executor;
    std::unique_ptr<Producer> producer;
    uint32_t event = 0, launched = 0;

    Told()
        : executor(1 << 17, [this](const fikit_record& record) {
              if (record.op != FIKIT_OP_LAUNCH) return;
              flags = record.flags & found;
              ++launches;
          }) {
        executor.start();
        producer.reset(executor.attach());
        CHECK(producer->event_create(event) == status::success);
    }
    void launch() {
        CHECK(producer->launch(shape(1, 0), nullptr, nullptr) == status::success);
        ++launched;
    }
    // Work that the GPU is not done with, an event, and perhaps more work.
    void keep_busy(bool more = false) {
        executor.hold_marks = true;
        launch();
        CHECK(producer->event_record(event, 1, false) == status::success);
        if (more) launch();
    }
    // The GPU is done with it; the program has not asked.
    void finish() {
        executor.hold_marks = false;
        while (producer->event_status(event) == status::not_ready) continue;
    }
    uint32_t told() {
        launch();
        while (launches < launched) continue;
        return flags;
    }
};

void who_waits_tells_of_it() {
    Told told;
    told.executor.hold_marks = true;
    told.launch();
    std::thread gpu([&] {
        usleep(1000);
        told.executor.hold_marks = false;
    });
    CHECK(told.producer->stream_synchronize(1) == status::success);
    gpu.join();
    CHECK(told.told() == waited);
    CHECK(told.told() == 0);
    told.keep_busy();
    told.finish();
    CHECK(told.producer->stream_synchronize(1) == status::success);
    CHECK(told.told() == found);
}

// A loop of queries is a wait, too. One query is none, nor is what fikitd itself wants to know.
void who_asks_until_it_is_over_has_waited() {
    Told told;
    Producer& producer = *told.producer;
    told.keep_busy();
    CHECK(producer.event_query(told.event) == status::not_ready);
    told.finish();
    CHECK(producer.event_query(told.event) == status::success);
    CHECK(told.told() == waited);

    told.keep_busy();
    CHECK(producer.stream_query(1) == status::not_ready);
    told.finish();
    while (producer.stream_query(1) == status::not_ready) continue;
    CHECK(told.told() == waited);

    told.keep_busy();
    CHECK(producer.event_status(told.event) == status::not_ready);
    told.finish();
    CHECK(producer.event_query(told.event) == status::success);
    CHECK(told.told() == 0);

    told.keep_busy(true);  // the program goes on without it
    CHECK(producer.event_query(told.event) == status::not_ready);
    told.finish();
    CHECK(producer.event_query(told.event) == status::success);
    CHECK(told.told() == 0);
}

}  // namespace

int main() {
    who_waits_tells_of_it();
    who_asks_until_it_is_over_has_waited();
    return 0;
}
