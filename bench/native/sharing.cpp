// A process of a sharing benchmark: plays one plan, or several in as many threads of one context.
//
//   bench_sharing attributes LIBRARY ORDINAL NUMBER...
//   bench_sharing driver SCALE LIBRARY ORDINAL [+]PLAN...      with +, in a stream of the greatest priority
//   bench_sharing session SCALE OUTBOX INBOX LIFELINE PLAN
//   bench_sharing nowhere SCALE PLAN
//
// The first prints CUdevice_attributes. The others say "ready", and then after each line "start": play until
// a line "stop", and print a line for each plan: when each step began and ended, in nanoseconds on the
// monotonic clock.
#include <cuda.h>
#include <dlfcn.h>
#include <sys/prctl.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <thread>

#include "play.hpp"

using namespace fikit::bench;

namespace {

constexpr int warm_up_steps = 4;

void print_attributes(int count, char** arguments) {
    void* library = dlopen(arguments[2], RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) give_up(dlerror(), -1);
    const auto init = reinterpret_cast<decltype(&cuInit)>(dlsym(library, "cuInit"));
    const auto get =
        reinterpret_cast<decltype(&cuDeviceGetAttribute)>(dlsym(library, "cuDeviceGetAttribute"));
    if (init == nullptr || get == nullptr || init(0) != CUDA_SUCCESS) give_up("cuInit", -1);
    for (int i = 4; i < count; ++i) {
        int value = 0;
        const auto attribute = static_cast<CUdevice_attribute>(std::atoi(arguments[i]));
        if (get(&value, attribute, std::atoi(arguments[3])) != CUDA_SUCCESS)
            give_up("cuDeviceGetAttribute", -1);
        std::cout << value << ' ';
    }
    std::cout << std::endl;
}

std::vector<std::unique_ptr<Player>> players(int count, char** arguments) {
    const std::string kind = arguments[1];
    const double scale = std::atof(arguments[2]);
    std::vector<std::unique_ptr<Player>> made;
    const auto add = [&](const char* plan, std::unique_ptr<Gpu> gpu) {
        made.push_back(std::make_unique<Player>(plan, scale, std::move(gpu)));
    };
    if (kind == "driver" && count > 5) {
        for (int i = 5; i < count; ++i) {
            const bool urgent = arguments[i][0] == '+';
            add(arguments[i] + urgent, on_driver(arguments[3], std::atoi(arguments[4]), urgent));
        }
    } else if (kind == "session" && count == 7) {
        add(arguments[6],
            in_session(std::atoi(arguments[3]), std::atoi(arguments[4]), std::atoi(arguments[5])));
    } else if (kind == "nowhere" && count == 4) {
        add(arguments[3], nowhere());
    } else {
        give_up("the command line", -1);
    }
    return made;
}

}  // namespace

int main(int count, char** arguments) {
    if (count > 4 && std::strcmp(arguments[1], "attributes") == 0) {
        print_attributes(count, arguments);
        return 0;
    }
    if (count < 4) give_up("the command line", -1);
    prctl(PR_SET_TIMERSLACK, 1);  // inherited by the threads
    const auto playing = players(count, arguments);
    for (const auto& player : playing)
        for (int i = 0; i < warm_up_steps; ++i) player->step();
    std::cout << "ready" << std::endl;
    for (std::string line; std::getline(std::cin, line) && line == "start";) {
        std::atomic<bool> stop{false};
        std::vector<std::vector<Step>> steps(playing.size());
        std::vector<std::thread> threads;
        for (size_t i = 0; i < playing.size(); ++i)
            threads.emplace_back([&, i] { steps[i] = playing[i]->play(stop); });
        std::getline(std::cin, line);
        stop.store(true);
        for (std::thread& thread : threads) thread.join();
        for (const auto& each : steps) {
            for (const Step& step : each) std::cout << step.begin_ns << ' ' << step.end_ns << ' ';
            std::cout << '\n';
        }
        std::cout.flush();
    }
}
