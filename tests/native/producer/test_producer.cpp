// The producer against the double: rings that wrap, many threads, waits, copies, calls.
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <random>

#include "double.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

void test_attach_refuses_what_is_no_channel() {
    for (int broken = 0; broken < 5; ++broken) {
        Double executor;
        if (broken == 0) executor.header().magic = 1;
        if (broken == 1) executor.header().version = FIKIT_ABI_VERSION + 1;
        if (broken == 2) executor.header().ring_bytes = (1 << 17) + 64;
        if (broken == 3) executor.header().staging_bytes = uint64_t{1} << 60;
        if (broken == 4) executor.inbox().magic = 1;
        Producer* producer = nullptr;
        CHECK(Producer::attach(executor.outbox_fd, executor.inbox_fd, executor.lifeline_fd, producer) ==
              (broken == 1 ? status::driver_mismatch : status::invalid_value));
        CHECK(producer == nullptr);
    }
}

// Each thread launches on a stream of its own, with parameters that name thread and number; sizes make the
// ring wrap at every kind of place.
void test_threads_and_wraps() {
    constexpr uint32_t threads = 4, launches = 4000;
    uint32_t next[threads] = {};
    bool in_order = true;
    Double executor(1 << 17, [&](const fikit_record& record) {
        if (record.op != FIKIT_OP_LAUNCH) return;
        const auto& launch = reinterpret_cast<const fikit_launch&>(record);
        const auto* words = reinterpret_cast<const uint32_t*>(&launch + 1);
        in_order &= words[0] == record.stream && words[1] == next[record.stream]++;
        in_order &= launch.parameter_bytes == words[2] && launch.block[2] == 6 && launch.function == 7;
        for (uint32_t index = 3; index < launch.parameter_bytes / 4; ++index)
            in_order &= words[index] == words[1] + index;
    });
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    std::vector<std::thread> workers;
    for (uint32_t thread = 0; thread < threads; ++thread)
        workers.emplace_back([&, thread] {
            std::mt19937 random(thread);
            std::vector<uint32_t> words(FIKIT_MAX_PARAMETERS / 4);
            for (uint32_t number = 0; number < launches; ++number) {
                const uint32_t count = number % 97 == 0 ? static_cast<uint32_t>(words.size())
                                                        : static_cast<uint32_t>(3 + random() % 60);
                words[0] = thread;
                words[1] = number;
                words[2] = 4 * count;
                for (uint32_t index = 3; index < count; ++index) words[index] = number + index;
                CHECK(producer->launch(shape(thread, 4 * count), nullptr, words.data()) == status::success);
                if (number % 1000 == 0) CHECK(producer->stream_synchronize(thread) == status::success);
            }
        });
    for (auto& worker : workers) worker.join();
    for (uint32_t thread = 0; thread < threads; ++thread)
        CHECK(producer->stream_synchronize(thread) == status::success);
    executor.stop();
    CHECK(in_order);
    for (const uint32_t count : next) CHECK(count == launches);
}

void test_attributes_and_limits() {
    int seen = 0;
    Double executor(1 << 17, [&](const fikit_record& record) {
        if (record.op != FIKIT_OP_LAUNCH) return;
        const auto& launch = reinterpret_cast<const fikit_launch&>(record);
        const auto* attributes = reinterpret_cast<const fikit_attribute*>(&launch + 1);
        CHECK(launch.attributes == 2 && attributes[0].id == 2 && attributes[1].id == 4);
        CHECK(memcmp(attributes + 2, "parameters", 10) == 0);
        ++seen;
    });
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    fikit_attribute attributes[FIKIT_MAX_ATTRIBUTES + 1] = {};
    attributes[0].id = 2;
    attributes[1].id = 4;
    LaunchShape two = shape(0, 10);
    two.attributes = 2;
    CHECK(producer->launch(two, attributes, "parameters") == status::success);
    CHECK(producer->launch(shape(FIKIT_MAX_STREAMS, 0), nullptr, nullptr) == status::invalid_value);
    CHECK(producer->launch(shape(0, FIKIT_MAX_PARAMETERS + 1), nullptr, nullptr) == status::invalid_value);
    two.attributes = FIKIT_MAX_ATTRIBUTES + 1;
    CHECK(producer->launch(two, attributes, "parameters") == status::invalid_value);
    CHECK(producer->synchronize() == status::success);
    executor.stop();
    CHECK(seen == 1);
}

void test_full_ring_and_deadlines() {
    Double executor;  // not started: nobody consumes
    std::unique_ptr<Producer> producer(executor.attach());
    int launched = 0;
    while (producer->launch(shape(0, 0), nullptr, nullptr, 0) == status::success) ++launched;
    CHECK(launched == (1 << 17) / 64);
    CHECK(producer->launch(shape(0, 0), nullptr, nullptr, now_ns() + 1'000'000) == status::not_ready);
    executor.start();
    CHECK(producer->launch(shape(0, 0), nullptr, nullptr) == status::success);
    executor.hold_marks = true;
    CHECK(producer->launch(shape(0, 0), nullptr, nullptr) == status::success);
    CHECK(producer->stream_synchronize(0, now_ns() + 2'000'000) == status::not_ready);
    CHECK(producer->stream_query(0) == status::not_ready);
    executor.hold_marks = false;
    CHECK(producer->stream_synchronize(0) == status::success);
    CHECK(producer->stream_query(0) == status::success);
    CHECK(executor.header().waiters == 0);
}

// Who asks of finished work for the first time need not ask again, where the executor answers soon.
void test_the_first_query() {
    Double executor;
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    bool found = false;
    for (int turn = 0; turn < 10'000 && !found; ++turn) {
        CHECK(producer->launch(shape(0, 0), nullptr, nullptr) == status::success);
        found = producer->stream_query(0) == status::success;
    }
    CHECK(found);
}

// The end of one tells of what it waited for: no mark of the other's is needed, and with marks held none
// comes.
void test_the_default_stream_and_blocking_ones() {
    Double executor;
    executor.asked_only = true;
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    uint32_t blocking, other, event;
    CHECK(producer->stream_create(0, 0, blocking) == status::success);
    CHECK(producer->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, other) == status::success);
    CHECK(producer->event_create(event) == status::success);
    const auto work = [&](uint32_t stream) {
        CHECK(producer->launch(shape(stream, 0), nullptr, nullptr) == status::success);
    };
    const auto asked = [&](uint32_t first, uint32_t last, bool work_behind = true) {
        work(first);
        if (work_behind) work(last);
        CHECK(producer->stream_synchronize(last) == status::success);
        executor.hold_marks = true;
        const Status found = producer->stream_query(first);
        executor.hold_marks = false;
        CHECK(producer->synchronize() == status::success);
        return found;
    };
    CHECK(asked(0, blocking) == status::success);
    CHECK(asked(blocking, 0) == status::success);
    CHECK(asked(0, other) == status::not_ready);
    CHECK(asked(other, 0) == status::not_ready);
    CHECK(asked(0, blocking, false) == status::not_ready);
    // What the default stream does not wait for says nothing of it, and its mark covers what it does.
    work(blocking);
    CHECK(producer->stream_synchronize(0) == status::success);
    executor.hold_marks = true;
    CHECK(producer->stream_query(0) == status::success);
    executor.hold_marks = false;
    work(blocking);
    work(0);
    CHECK(producer->stream_synchronize(0) == status::success);
    executor.hold_marks = true;
    work(other);
    CHECK(producer->stream_query(0) == status::success);
    executor.hold_marks = false;
    CHECK(producer->synchronize() == status::success);
    // Nor is what waits for others done with what is behind it.
    executor.hold_marks = true;
    work(other);
    CHECK(producer->event_record(event, other, false) == status::success);
    CHECK(producer->event_wait(event, 0) == status::success);
    work(blocking);
    executor.hold_marks = false;
    CHECK(producer->stream_synchronize(blocking) == status::success);
    executor.hold_marks = true;
    CHECK(producer->stream_query(0) == status::not_ready);
    executor.hold_marks = false;
}

void test_streams_and_events() {
    std::vector<uint16_t> operations;
    Double executor(1 << 17, [&](const fikit_record& record) { operations.push_back(record.op); });
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    uint32_t first, second, event;
    CHECK(producer->stream_create(FIKIT_STREAM_NON_BLOCKING, -1, first) == status::success);
    CHECK(producer->stream_create(0, 0, second) == status::success);
    CHECK(first != 0 && second != 0 && first != second);
    CHECK(producer->event_create(event) == status::success);
    CHECK(producer->event_query(event) == status::success);  // never recorded
    executor.hold_marks = true;
    CHECK(producer->launch(shape(first, 0), nullptr, nullptr) == status::success);
    CHECK(producer->event_record(event, first, false) == status::success);
    CHECK(producer->event_query(event) == status::not_ready);
    CHECK(producer->event_wait(event, second) == status::success);
    CHECK(producer->event_synchronize(event, now_ns() + 1'000'000) == status::not_ready);
    executor.hold_marks = false;
    CHECK(producer->event_synchronize(event) == status::success);
    CHECK(producer->event_wait(event, second) == status::success);  // already completed: no record
    CHECK(producer->synchronize() == status::success);
    CHECK(producer->event_destroy(event) == status::success);
    CHECK(producer->stream_destroy(second) == status::success);
    CHECK(producer->stream_destroy(0) == status::invalid_handle);
    CHECK(producer->stream_create(0, 0, second) == status::success);
    CHECK(producer->launch(shape(second, 0), nullptr, nullptr) == status::success);
    CHECK(producer->synchronize() == status::success);
    executor.stop();
    int waits = 0;
    for (const uint16_t operation : operations) waits += operation == FIKIT_OP_EVENT_WAIT;
    CHECK(waits == 1);
}

void test_copies() {
    Double executor;
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    std::mt19937 random(1);
    for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{5000}, size_t{65536}, size_t{100'000},
                               size_t{3 << 20}, size_t{20 << 20}}) {
        std::vector<uint8_t> source(bytes), result(bytes);
        for (auto& byte : source) byte = static_cast<uint8_t>(random());
        bool pinned = true;
        CHECK(producer->copy_to_device(0, executor.device_address(), source.data(), bytes, &pinned) ==
              status::success);
        CHECK(!pinned);
        const auto kept = source;
        memset(source.data(), 0, bytes);  // the caller may
        CHECK(producer->copy_on_device(0, executor.device_address() + (30 << 20), executor.device_address(),
                                       bytes) == status::success);
        CHECK(producer->copy_to_host(0, result.data(), executor.device_address() + (30 << 20), bytes) ==
              status::success);
        CHECK(result == kept);
    }
    // Many small copies that nobody waits for: the small pieces are used again and again.
    for (uint32_t number = 0; number < 5000; ++number)
        CHECK(producer->copy_to_device(number % 3, executor.device_address() + 4 * number, &number, 4) ==
              status::success);
    CHECK(producer->synchronize() == status::success);
    executor.stop();
    for (uint32_t number = 0; number < 5000; ++number)
        CHECK(reinterpret_cast<uint32_t*>(executor.device())[number] == number);
}

void test_copies_from_many_threads() {
    Double executor;
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    std::vector<std::thread> workers;
    for (uint32_t thread = 0; thread < 3; ++thread)
        workers.emplace_back([&, thread] {
            const size_t bytes = 9 << 20;
            std::vector<uint8_t> source(bytes, static_cast<uint8_t>(thread + 1)), result(bytes);
            const uint64_t at = executor.device_address() + thread * bytes;
            for (int turn = 0; turn < 3; ++turn) {
                CHECK(producer->copy_to_device(thread, at, source.data(), bytes) == status::success);
                CHECK(producer->copy_to_host(thread, result.data(), at, bytes) == status::success);
                CHECK(result == source);
            }
        });
    for (auto& worker : workers) worker.join();
}

void test_calls_and_pinned_memory() {
    Double executor;
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    std::vector<std::thread> workers;
    for (uint32_t thread = 0; thread < 3; ++thread)
        workers.emplace_back([&, thread] {
            for (uint32_t number = 0; number < 500; ++number) {
                const uint32_t request[2] = {thread, number};
                uint32_t answer[2] = {};
                Reply reply = {answer, sizeof answer, 0};
                CHECK(producer->call(fikit_call_module_unload, {request, sizeof request}, reply) ==
                      status::success);
                CHECK(reply.size == sizeof answer && answer[0] == thread && answer[1] == number);
            }
        });
    for (auto& worker : workers) worker.join();

    uint32_t handle;
    HostBuffer buffer;
    CHECK(producer->host_allocate(1 << 20, handle, buffer) == status::success);
    memset(buffer.address, 5, 1 << 20);
    bool pinned = false;
    CHECK(producer->copy_to_device(0, executor.device_address(), buffer.address + 64, 1000, &pinned) ==
          status::success);
    CHECK(pinned);
    CHECK(producer->copy_to_host(0, buffer.address, executor.device_address(), 100, &pinned) ==
          status::success);
    CHECK(pinned && producer->synchronize() == status::success && buffer.address[99] == 5);
    uint64_t offset;
    CHECK(producer->find_host_buffer(buffer.address + (1 << 20), 1, offset) == 0);
    CHECK(producer->find_host_buffer(buffer.address + 8, 1 << 20, offset) == 0);
    CHECK(producer->host_free(handle) == status::success);
    CHECK(producer->host_free(handle) == status::invalid_handle);

    std::vector<char> image(300 << 10, 'x');
    uint32_t module;
    Reply log;
    CHECK(producer->module_load(image.data(), image.size(), module, log) == status::success);
    std::vector<char> larger(8 << 20, 'y');  // than the staging area: in a file
    CHECK(producer->module_load(larger.data(), larger.size(), module, log) == status::success);
}

void test_host_functions() {
    Double executor;
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    static std::vector<int> order;
    static std::mutex mutex;
    struct Argument {
        int number;
    };
    static Argument arguments[20];
    for (int number = 0; number < 20; ++number) {
        arguments[number].number = number;
        CHECK(producer->launch(shape(1, 0), nullptr, nullptr) == status::success);
        CHECK(producer->host_function(
                  1,
                  [](void* argument) {
                      const std::lock_guard lock(mutex);
                      order.push_back(static_cast<Argument*>(argument)->number);
                  },
                  &arguments[number]) == status::success);
    }
    CHECK(producer->stream_synchronize(1) == status::success);  // the last operation is a host function
    const std::lock_guard lock(mutex);
    CHECK(order.size() == 20);
    for (int number = 0; number < 20; ++number) CHECK(order[static_cast<size_t>(number)] == number);
}

void test_gates() {
    Double executor;
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    uint64_t marked = 0, gate = 0, behind = 0;
    CHECK(producer->launch(shape(1, 0), nullptr, nullptr) == status::success);
    CHECK(producer->mark_stream(1, marked) == status::success);
    CHECK(producer->close_gate(1, gate) == status::success && gate == marked + 1);
    CHECK(producer->mark_stream(1, behind) == status::success);
    const auto wait_for = [&](uint64_t step) {
        return producer->channel().wait_until([&] { return producer->reached(1, step); },
                                              now_ns() + 10'000'000'000);
    };
    CHECK(wait_for(gate) == status::success);  // the stream is there
    CHECK(!producer->reached(1, behind) && producer->stream_query(1) == status::not_ready);
    CHECK(producer->channel().look() == status::success);
    producer->open_gate(1, gate);
    CHECK(wait_for(behind) == status::success && producer->stream_synchronize(1) == status::success);

    uint32_t event = 0, stream = 0;
    uint64_t step = 0;
    CHECK(producer->event_create(event) == status::success);
    CHECK(producer->event_record(event, 1, false) == status::success);
    producer->event_step(event, stream, step);
    CHECK(stream == 1 && step == behind + 1 && wait_for(step) == status::success);
}

void test_a_wait_is_spent_like_those_before_it() {
    CHECK(patience_for(0).spin_ns == first_spin_ns && patience_for(0).spin_again_ns == 0);
    // A short one is spun through, with room behind it; of a long one only the end is.
    CHECK(patience_for(200'000).spin_ns == 500'000 && patience_for(200'000).spin_again_ns == 0);
    CHECK(patience_for(1'000'000).spin_ns == 1'300'000 && patience_for(1'000'000).spin_again_ns == 0);
    for (const int64_t usual : {2'500'000, 4'000'000, 40'000'000}) {
        const Patience patience = patience_for(usual);
        const int64_t wakes_up = patience.spin_ns + patience.sleep_ns;
        CHECK(patience.spin_ns == first_spin_ns && wakes_up < usual);
        CHECK(wakes_up + patience.spin_again_ns >= usual + least_margin_ns);
        CHECK(patience.spin_again_ns <= 2 * most_margin_ns && patience.spin_again_ns * 4 <= usual);
    }
    CHECK(patience_for(2'000'000'000).spin_again_ns == 0);
    Usual usual;
    CHECK(usual.ns() == 0);
    usual.note(8'000'000);
    CHECK(usual.ns() == 8'000'000);
    for (int i = 0; i < 20; ++i) usual.note(i % 3 == 0 ? 9'000'000'000 : 4'000'000 + i);
    CHECK(usual.ns() >= 4'000'000 && usual.ns() < 4'100'000);
    for (int i = 0; i < 3; ++i) usual.note(2'000'000);
    CHECK(usual.ns() == 2'000'000);

    Double executor;
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    for (int step = 0; step < 8; ++step) {
        executor.hold_marks = true;
        CHECK(producer->fill(0, 1, 1, 0, 1) == status::success);
        CHECK(producer->stream_synchronize(0, now_ns() + 1000) == status::not_ready);
        std::thread gpu([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(step % 3 + 1));
            executor.hold_marks = false;
        });
        CHECK(producer->stream_synchronize(0) == status::success);
        CHECK(producer->stream_query(0) == status::success);
        gpu.join();
    }
}

// What comes in a chain is one to other threads: their steps of its stream, and of those that it is ordered
// with, come behind it, however they are made. Other streams' go on.
void test_a_chain_is_one_to_other_threads() {
    Double executor(1 << 17);
    executor.start();
    std::unique_ptr<Producer> producer(executor.attach());
    const uint32_t words[16] = {};
    uint32_t blocking = 0, apart = 0, event = 0;
    CHECK(producer->stream_create(0, 0, blocking) == status::success);
    CHECK(producer->stream_create(FIKIT_STREAM_NON_BLOCKING, 0, apart) == status::success);
    CHECK(producer->event_create(event) == status::success);
    const auto launched = [&](uint32_t stream) {
        return producer->launch(shape(stream, sizeof words), nullptr, words, 0) == status::success;
    };
    const auto by_another = [&](uint32_t stream) {
        bool done = false;
        std::thread([&] { done = launched(stream); }).join();
        return done;
    };
    for (const uint32_t chained : {0u, blocking, apart}) {
        {
            const Producer::Chain chain(*producer, chained);
            for (const uint32_t stream : {0u, blocking, apart}) {
                CHECK(launched(stream));
                CHECK(by_another(stream) == ((stream == apart) != (chained == apart)));
            }
        }
        CHECK(by_another(chained));
    }
    // Who has time waits.
    std::thread waiter;
    uint64_t before = 0, steps = 0;
    uint32_t at = 0;
    {
        const Producer::Chain chain(*producer, apart);
        waiter = std::thread([&] { CHECK(producer->event_record(event, apart, false) == status::success); });
        for (int step = 0; step < 1000; ++step)
            CHECK(producer->mark_stream(apart, before) == status::success);
    }
    waiter.join();
    producer->event_step(event, at, steps);
    CHECK(at == apart && steps == before + 1);
    producer->end();
}

}  // namespace

int main() {
    static constexpr Test tests[] = {
        {"attach refuses what is no channel", test_attach_refuses_what_is_no_channel},
        {"threads and wraps", test_threads_and_wraps},
        {"attributes and limits", test_attributes_and_limits},
        {"full ring and deadlines", test_full_ring_and_deadlines},
        {"the first query", test_the_first_query},
        {"the default stream and blocking ones", test_the_default_stream_and_blocking_ones},
        {"streams and events", test_streams_and_events},
        {"a wait is spent like those before it", test_a_wait_is_spent_like_those_before_it},
        {"copies", test_copies},
        {"copies from many threads", test_copies_from_many_threads},
        {"calls and pinned memory", test_calls_and_pinned_memory},
        {"host functions", test_host_functions},
        {"gates", test_gates},
        {"a chain is one to other threads", test_a_chain_is_one_to_other_threads},
    };
    run(tests);
}
