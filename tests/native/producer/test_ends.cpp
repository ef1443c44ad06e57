// The producer when something goes wrong: errors, an executor that is gone, a fork, an interrupted call.
#include <sys/wait.h>

#include <memory>

#include "double.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

void test_errors() {
    Double executor;
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    executor.defer(status::invalid_value, "a bad launch");
    CHECK(producer->launch(shape(0, 0), nullptr, nullptr) == status::success);
    CHECK(producer->stream_synchronize(0) == status::invalid_value);
    CHECK(producer->stream_synchronize(0) == status::success);
    executor.end(700, "an illegal address");
    char text[FIKIT_ERROR_TEXT];
    CHECK(producer->launch(shape(0, 0), nullptr, nullptr) == 700);
    CHECK(producer->synchronize() == 700);
    CHECK(producer->channel().failed(&text) == 700 && strcmp(text, "an illegal address") == 0);
}

void test_hang_up_ends_every_wait() {
    Double executor;
    executor.hold_marks = true;
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    CHECK(producer->launch(shape(0, 0), nullptr, nullptr) == status::success);
    CHECK(producer->launch(shape(3, 0), nullptr, nullptr) == status::success);
    std::vector<std::thread> waiters;
    std::atomic<int> ended{0};
    waiters.emplace_back([&] { ended += producer->stream_synchronize(0) == status::launch_failed; });
    waiters.emplace_back([&] { ended += producer->synchronize() == status::launch_failed; });
    CHECK(producer->stream_synchronize(3, now_ns() + 5'000'000) == status::not_ready);
    executor.hang_up();
    for (auto& waiter : waiters) waiter.join();
    CHECK(ended == 2);
    char text[FIKIT_ERROR_TEXT];
    CHECK(producer->channel().failed(&text) == status::launch_failed &&
          strcmp(text, "the executor is gone") == 0);
    uint64_t address, charged;
    CHECK(producer->memory_allocate(1, address, charged) == status::launch_failed);
}

// Of the whole stream and of what was recorded there: who asks again and again never waits.
void test_hang_up_is_told_to_who_asks() {
    for (const bool of_event : {false, true}) {
        Double executor;
        executor.hold_marks = true;
        executor.start();
        std::unique_ptr<Producer> producer(executor.attach());
        uint32_t event = 0;
        CHECK(producer->event_create(event) == status::success);
        CHECK(producer->launch(shape(3, 0), nullptr, nullptr) == status::success);
        CHECK(producer->event_record(event, 3, false) == status::success);
        const auto ask = [&] { return of_event ? producer->event_query(event) : producer->stream_query(3); };
        CHECK(ask() == status::not_ready);
        executor.hang_up();
        const int64_t until = now_ns() + 10'000'000'000;
        Status answer = status::not_ready;
        while (answer == status::not_ready && now_ns() < until) answer = ask();
        CHECK(answer == status::launch_failed);
    }
}

// Also of one that is the first to find it out, and has a descriptor to send.
void test_a_file_for_an_executor_that_is_gone() {
    Double executor;
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    executor.hang_up();
    const std::vector<char> image(Double::staging_bytes + 1);
    uint32_t module = 0;
    Reply log;
    CHECK(producer->module_load(image.data(), image.size(), module, log) == status::launch_failed);
}

// It would be taken for the next call's.
void test_a_call_that_is_interrupted_before_there_is_room_leaves_no_file() {
    Double executor;
    std::unique_ptr<Producer> producer(executor.attach());
    producer->channel().set_interrupted([] { return true; });
    while (producer->launch(shape(0, 0), nullptr, nullptr) == status::success) continue;
    const std::vector<char> image(Double::staging_bytes + 1);
    uint32_t module = 0;
    Reply log;
    CHECK(producer->module_load(image.data(), image.size(), module, log) == status::interrupted);
    CHECK(!executor.was_offered());
}

void test_forked_child_has_no_session() {
    Double executor;
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    CHECK(producer->launch(shape(0, 0), nullptr, nullptr) == status::success);
    CHECK(producer->synchronize() == status::success);
    const pid_t child = fork();
    if (child == 0) {
        const bool refused = producer->launch(shape(0, 0), nullptr, nullptr) == status::not_initialized &&
                             producer->synchronize() == status::not_initialized;
        producer.reset();
        _exit(refused ? 0 : 1);
    }
    int result = 0;
    CHECK(waitpid(child, &result, 0) == child && WIFEXITED(result) && WEXITSTATUS(result) == 0);
    CHECK(producer->launch(shape(0, 0), nullptr, nullptr) == status::success);
    CHECK(producer->synchronize() == status::success);
}

}  // namespace

int main() {
    static constexpr Test tests[] = {
        {"errors", test_errors},
        {"hang-up ends every wait", test_hang_up_ends_every_wait},
        {"hang-up is told to who asks", test_hang_up_is_told_to_who_asks},
        {"a file for an executor that is gone", test_a_file_for_an_executor_that_is_gone},
        {"a call that is interrupted before there is room leaves no file",
         test_a_call_that_is_interrupted_before_there_is_room_leaves_no_file},
        {"forked child has no session", test_forked_child_has_no_session},
    };
    run(tests);
}
