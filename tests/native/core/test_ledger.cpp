// The ledger: a limit that holds for several executors, whatever becomes of them.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "ledger.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

struct Place {
    Place() { CHECK(mkdtemp(directory) != nullptr); }
    ~Place() {
        unlink(path().c_str());
        rmdir(directory);
    }
    std::string path() const { return std::string(directory) + "/memory"; }
    char directory[32] = "/tmp/fikit-ledger-XXXXXX";
};

TEST(alone_it_needs_no_file) {
    Ledger ledger;
    CHECK(ledger.reserve(60, 100, true));
    CHECK(!ledger.reserve(50, 100, true));
    CHECK(ledger.reserve(50, 0, true));
    ledger.give_back(110);
    CHECK_EQUAL(ledger.total(), 0u);
}

TEST(executors_share_a_limit) {
    const Place place;
    Ledger one, other;
    CHECK(one.open(place.path()) && other.open(place.path()));
    CHECK(one.reserve(60, 100, true));
    CHECK(!other.reserve(50, 100, true));
    CHECK(other.reserve(40, 100, true));
    one.change(30);
    one.give_back(60);
    CHECK_EQUAL(other.total(), 70u);
    CHECK(other.reserve(30, 100, true));
    CHECK(!one.reserve(1, 100, true));
}

TEST(one_that_was_killed_counts_for_nothing) {
    const Place place;
    Ledger ledger;
    CHECK(ledger.open(place.path()));
    const pid_t child = fork();
    if (child == 0) {
        Ledger doomed;
        _exit(doomed.open(place.path()) && doomed.reserve(90, 100, true) ? 0 : 1);
    }
    int status = -1;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    CHECK(ledger.reserve(100, 100, true));
    CHECK_EQUAL(ledger.total(), 100u);
}

// Whoever comes first, the sum never passes the limit and all of it is used.
TEST(nobody_overtakes_the_limit) {
    const Place place;
    constexpr uint64_t limit = 5000;
    std::atomic<uint64_t> granted{0};
    Ledger ledgers[4];
    std::vector<std::thread> executors;
    for (Ledger& ledger : ledgers) {
        CHECK(ledger.open(place.path()));
        executors.emplace_back([&] {
            for (int attempt = 0; attempt < 2000; ++attempt)
                if (ledger.reserve(1, limit, true)) granted.fetch_add(1);
        });
    }
    for (std::thread& executor : executors) executor.join();
    CHECK_EQUAL(granted.load(), limit);
}

}  // namespace
