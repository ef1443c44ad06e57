// Private memory that becomes a file's and the program's own again, while others write to it and fork.
#include <abi.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "../core/check.hpp"
#include "adopted_pages.hpp"
#include "user_faults.hpp"

using namespace fikit::shim;

namespace {

constexpr uint64_t page = FIKIT_PAGE;

uint64_t address_of(const void* at) { return reinterpret_cast<uintptr_t>(at); }

class Mapped {
  public:
    explicit Mapped(uint64_t bytes, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int file = -1)
        : at_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0)), bytes_(bytes) {
        CHECK(at_ != MAP_FAILED);
    }
    ~Mapped() { munmap(at_, bytes_); }
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    uint64_t first() const { return address_of(at_); }
    uint64_t bytes() const { return bytes_; }
    volatile uint64_t& word(uint64_t number) const { return static_cast<volatile uint64_t*>(at_)[number]; }
    std::atomic<uint64_t>& counter(uint64_t number) const {
        return static_cast<std::atomic<uint64_t>*>(at_)[number];
    }

  private:
    void* at_;
    uint64_t bytes_;
};

bool are_adopted(uint64_t first, uint64_t bytes) {
    AdoptedPages pages;
    return find_adopted(first, bytes, pages);
}

bool adopts(uint64_t first, uint64_t bytes) {
    const int file = adopt_pages(first, bytes);
    if (file >= 0) close(file);
    return file >= 0;
}

// Whether a program of several threads can have its writers wait on this machine.
bool can_wait() {
    const int faults = open_user_faults();
    if (faults >= 0) close(faults);
    return faults >= 0;
}

// There is another one as long as it lives.
class OtherThread {
  public:
    ~OtherThread() {
        over_ = true;
        thread_.join();
    }

  private:
    std::atomic<bool> over_ = false;
    std::thread thread_{[this] {
        while (!over_) std::this_thread::yield();
    }};
};

TEST(the_file_and_the_pages_are_one) {
    constexpr uint64_t bytes = 70 << 20;  // several times what is moved at once
    const Mapped memory(bytes);
    for (uint64_t at = 0; at < bytes / 8; at += 512) memory.word(at) = at;
    const int file = adopt_pages(memory.first(), bytes);
    CHECK(file >= 0);
    {
        const Mapped seen(bytes, MAP_SHARED, file);
        for (uint64_t at = 0; at < bytes / 8; at += 512) CHECK(memory.word(at) == at && seen.word(at) == at);
        seen.word(7) = 70;
        memory.word(bytes / 8 - 1) = 71;
        CHECK(memory.word(7) == 70 && seen.word(bytes / 8 - 1) == 71);
        CHECK(are_adopted(memory.first() + bytes - page, 2 * page) &&
              !are_adopted(memory.first() - page, page));
        give_back_pages(memory.first());
        CHECK(!are_adopted(memory.first(), bytes));
        seen.word(8) = 72;
        CHECK(memory.word(7) == 70 && memory.word(8) == 0 && memory.word(bytes / 8 - 1) == 71);
    }
    close(file);
    CHECK(adopts(memory.first(), page) && adopts(memory.first() + page, page));
    note_reached(memory.first() + page, 7, 1);
    AdoptedPages pages;
    CHECK(find_adopted(memory.first(), bytes, pages) && pages.first == memory.first());
    CHECK(find_adopted(pages.end(), bytes - page, pages) && pages.end() == memory.first() + 2 * page &&
          pages.handle == 7 && pages.gpu == 1);
    CHECK(!find_adopted(pages.end(), bytes - 2 * page, pages));
    give_back_pages(memory.first());
    give_back_pages(memory.first() + page);
}

TEST(what_is_no_private_memory_is_left_alone) {
    const Mapped shared(page, MAP_SHARED | MAP_ANONYMOUS);
    CHECK(!adopts(shared.first(), page));
    const int file = memfd_create("a file's", MFD_CLOEXEC);
    CHECK(ftruncate(file, page) == 0);
    const Mapped copied(page, MAP_PRIVATE, file);
    CHECK(!adopts(copied.first(), page));
    close(file);
    const Mapped memory(3 * page);
    mprotect(reinterpret_cast<void*>(memory.first() + page), page, PROT_READ);
    CHECK(!adopts(memory.first(), 2 * page));
    munmap(reinterpret_cast<void*>(memory.first() + page), page);
    CHECK(!adopts(memory.first(), 3 * page) && adopts(memory.first(), page));
    CHECK(!adopts(memory.first(), page));  // it is
    give_back_pages(memory.first());
    int on_stack = 0;
    CHECK(!adopts(address_of(&on_stack) / page * page, page));
    std::thread([] {
        int on_own_stack = 0;
        CHECK(!adopts(address_of(&on_own_stack) / page * page, page));
    }).join();
}

// A count of each thread's on each page, some of which nobody had touched before.
TEST(nothing_written_meanwhile_is_lost) {
    constexpr uint64_t pages = 96, threads = 3;
    const Mapped memory(pages * page);
    std::atomic<bool> over = false;
    std::vector<std::vector<uint64_t>> counts(threads, std::vector<uint64_t>(pages));
    std::vector<std::thread> writers;
    for (uint64_t number = 0; number < threads; ++number)
        writers.emplace_back([&, number] {
            for (uint64_t turn = 0; !over; ++turn) {
                const uint64_t on = turn * 7 % pages;
                if (on >= pages / 2 && turn < 20000) continue;
                ++memory.counter(on * page / 8 + number);
                ++counts[number][on];
            }
        });
    for (int turn = 0; turn < 300; ++turn) {
        const bool adopted = adopts(memory.first(), memory.bytes());
        CHECK_EQUAL(adopted, can_wait());
        if (adopted) give_back_pages(memory.first());
    }
    over = true;
    for (std::thread& writer : writers) writer.join();
    for (uint64_t number = 0; number < threads; ++number)
        for (uint64_t on = 0; on < pages; ++on)
            CHECK_EQUAL(memory.counter(on * page / 8 + number).load(), counts[number][on]);
}

void child_and_parent_have_their_own(const Mapped& memory) {
    memory.word(0) = 1;
    memory.word(page / 8) = 2;
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        char byte = 0;
        const bool told = read(ends[0], &byte, 1) == 1;  // its parent has written
        const bool kept = memory.word(0) == 1 && memory.word(page / 8) == 2;
        memory.word(page / 8) = 3;
        _exit(told && kept && !are_adopted(memory.first(), page) ? 0 : 1);
    }
    memory.word(0) = 4;
    CHECK(write(ends[1], "", 1) == 1);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    CHECK(memory.word(0) == 4 && memory.word(page / 8) == 2);
    close(ends[0]);
    close(ends[1]);
}

TEST(a_forked_child_has_its_own) {
    const Mapped memory(2 * page), other(page);
    CHECK(adopts(memory.first(), 2 * page) && adopts(other.first(), page));
    child_and_parent_have_their_own(memory);
    {
        const OtherThread beside;
        child_and_parent_have_their_own(memory);
        if (can_wait()) give_back_pages(memory.first());
    }
    give_back_pages(memory.first());
    child_and_parent_have_their_own(memory);
    give_back_pages(other.first());
}

// Its allocator may have put something else there.
TEST(what_the_program_has_unmapped_is_not_touched) {
    Mapped memory(3 * page);
    memory.word(0) = 5;
    CHECK(adopts(memory.first(), 3 * page));
    void* const middle = reinterpret_cast<void*>(memory.first() + page);
    CHECK(mmap(middle, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == middle);
    munmap(reinterpret_cast<void*>(memory.first() + 2 * page), page);
    give_back_pages(memory.first());
    CHECK(!are_adopted(memory.first(), 3 * page) && memory.word(0) == 5);
    CHECK(memory.word(page / 8) == 0 && mprotect(middle, page, PROT_READ) == 0);
}

// Without descriptors there is no file, and nobody can be made to wait.
TEST(without_descriptors_it_stays_as_it_is) {
    const Mapped memory(page);
    memory.word(0) = 6;
    const int next = dup(STDIN_FILENO);
    close(next);
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none = {static_cast<rlim_t>(next), before.rlim_max};
    const auto refused_below = [&](rlim_t limit) {
        const rlimit few = {limit, before.rlim_max};
        setrlimit(RLIMIT_NOFILE, &few);
        const bool adopted = adopts(memory.first(), page);
        setrlimit(RLIMIT_NOFILE, &before);
        if (adopted) give_back_pages(memory.first());
        return !adopted;
    };
    const OtherThread beside;
    CHECK(refused_below(none.rlim_cur) && refused_below(none.rlim_cur + 1));
    CHECK_EQUAL(!refused_below(before.rlim_cur), can_wait());
    CHECK_EQUAL(memory.word(0), 6);
}

}  // namespace
