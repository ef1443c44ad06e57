// Copies by several threads: whose they are, and whose faults theirs are.
#include <signal.h>
#include <sys/mman.h>

#include "double.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

void test_copy_threads() {
    CopyThreads threads;
    threads.start(4);
    std::vector<std::thread> users;  // the second one finds the helpers taken, and copies alone
    for (uint8_t user = 1; user <= 2; ++user)
        users.emplace_back([&threads, user] {
            for (size_t bytes = 1; bytes < 6 << 20; bytes = bytes * 2 + 12345) {
                std::vector<uint8_t> from(bytes, user), to(bytes);
                from[bytes / 2] = 99;
                threads.copy(to.data(), from.data(), bytes);
                CHECK(to == from);
            }
        });
    for (auto& user : users) user.join();
}

// A handler of the program's may open the pages that a copy is about to touch, on whichever thread.
void test_faults_are_the_program_s() {
    constexpr size_t page = 4096, bytes = 16 << 20;
    struct sigaction action = {}, before;
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t* fault, void*) {
        const auto at = reinterpret_cast<uintptr_t>(fault->si_addr) / page * page;
        mprotect(reinterpret_cast<void*>(at), page, PROT_READ | PROT_WRITE);
    };
    sigaction(SIGSEGV, &action, &before);
    CopyThreads threads;
    threads.start(4);
    const std::vector<uint8_t> from(bytes, 7);
    void* const to = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    threads.copy(to, from.data(), bytes);
    CHECK(memcmp(to, from.data(), bytes) == 0);
    munmap(to, bytes);
    sigaction(SIGSEGV, &before, nullptr);
}

}  // namespace

int main() {
    static constexpr Test tests[] = {{"copy threads", test_copy_threads},
                                     {"faults are the program's", test_faults_are_the_program_s}};
    run(tests);
}
