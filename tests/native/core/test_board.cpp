// The board: what executors of one GPU say of their high-priority work, and who is still believed.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "board.hpp"
#include "check.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

constexpr int64_t said_at = 5'000'000'000;

struct Place {
    Place() { CHECK(mkdtemp(directory) != nullptr); }
    ~Place() {
        unlink(path().c_str());
        rmdir(directory);
    }
    std::string path() const { return std::string(directory) + "/board"; }
    char directory[32] = "/tmp/fikit-board-XXXXXX";
};

TEST(others_are_told_and_oneself_is_not) {
    const Place place;
    Board one, other;
    CHECK(one.open(place.path()) && other.open(place.path()));
    CHECK(!other.others_busy(said_at));
    one.say(true, said_at);
    CHECK(other.others_busy(said_at));
    CHECK(!one.others_busy(said_at));
    one.say(false, said_at + 1);
    CHECK(!other.others_busy(said_at + 1));
}

TEST(one_that_leaves_says_nothing) {
    const Place place;
    Board stays;
    CHECK(stays.open(place.path()));
    {
        Board leaves;
        CHECK(leaves.open(place.path()));
        leaves.say(true, said_at);
    }
    CHECK(!stays.others_busy(said_at));
}

struct Silent {  // a child that says it is busy at `said_at`, and nothing more
    explicit Silent(const Place& place) {
        int told[2];
        CHECK_EQUAL(pipe(told), 0);
        child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);  // where a check fails
            Board silent;
            const bool open = silent.open(place.path());
            silent.say(true, said_at);
            if (write(told[1], &open, 1) != 1) _exit(1);
            pause();
        }
        bool open = false;
        CHECK_EQUAL(read(told[0], &open, 1), 1);
        CHECK(open);
        close(told[0]);
        close(told[1]);
    }
    void end() const {
        CHECK_EQUAL(kill(child, SIGKILL), 0);
        CHECK_EQUAL(waitpid(child, nullptr, 0), child);
    }
    pid_t child;
};

// Its dispatch thread may have to wait for a processor for longer than a refresh takes.
TEST(one_that_is_silent_is_believed_until_it_hangs_or_dies) {
    const Place place;
    Board watching;
    CHECK(watching.open(place.path()));
    const Silent silent(place);
    CHECK(watching.others_busy(said_at + Board::doubted_after - 1));
    CHECK(watching.others_busy(said_at + Board::doubted_after));
    CHECK(watching.others_busy(said_at + Board::hung_after - 1));
    CHECK(!watching.others_busy(said_at + Board::hung_after));
    silent.end();
    CHECK(!watching.others_busy(said_at + Board::doubted_after));
}

// Who finds that the machine was paused gives it as long to speak as it would have had.
TEST(one_that_was_paused_with_who_watches_is_believed) {
    const Place place;
    Board watching;
    CHECK(watching.open(place.path()));
    const Silent silent(place);
    CHECK(watching.others_busy(said_at + 1));
    const int64_t goes_on = said_at + 10 * Board::hung_after;
    CHECK(watching.others_busy(goes_on));
    CHECK(watching.others_busy(goes_on + Board::hung_after - 1));
    CHECK(!watching.others_busy(goes_on + Board::hung_after));
    silent.end();
}

// The file may outlive a boot, where nothing empties its directory. The clock begins anew.
TEST(what_was_said_before_a_boot_counts_for_nothing) {
    const Place place;
    Board watching;
    CHECK(watching.open(place.path()));
    const pid_t child = fork();
    if (child == 0) {
        Board killed;
        if (!killed.open(place.path())) _exit(1);
        killed.say(true, 1000 * said_at);
        _exit(0);
    }
    int status = 1;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    CHECK(!watching.others_busy(said_at));
}

}  // namespace
