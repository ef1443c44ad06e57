// What a launch costs its caller: instructions under callgrind, time without.
//
//   valgrind --tool=callgrind --toggle-collect='fikit_test_launches*' ./launch_cost 10000
//   ./launch_cost 1000000
//
// The consumer is a thread that takes everything at once and never looks at it.
#include "double.hpp"

using namespace fikit;
using namespace fikit::test;

extern "C" [[gnu::noinline]] void fikit_test_launches(Producer& producer, uint32_t count) {
    const LaunchShape shape = {.function = 7,
                               .stream = 1,
                               .grid = {132, 1, 1},
                               .block = {256, 1, 1},
                               .shared_bytes = 0,
                               .parameter_bytes = 64,
                               .attributes = 0};
    uint64_t parameters[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (uint32_t number = 0; number < count; ++number) {
        parameters[0] = number;
        CHECK(producer.launch(shape, nullptr, parameters) == status::success);
    }
}

int main(int count, char** arguments) {
    const auto launches = static_cast<uint32_t>(count > 1 ? atoi(arguments[1]) : 1'000'000);
    Double executor(uint64_t{1} << 24);  // holds 131072 launches
    Producer* const producer = executor.attach();
    std::atomic<bool> stop{false};
    std::thread consumer([&] {
        while (!stop) {
            store_release(executor.inbox().tail, load_acquire(executor.header().head));
            for (int turn = 0; turn < 50; ++turn) relax();
        }
    });
    fikit_test_launches(*producer, 1000);
    const int64_t begin = now_ns();
    fikit_test_launches(*producer, launches);
    printf("%.1f ns per launch\n", static_cast<double>(now_ns() - begin) / launches);
    stop = true;
    consumer.join();
    delete producer;
}
