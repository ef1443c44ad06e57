#include "adopted_pages.hpp"

#include <abi.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../older_libc.hpp"
#include "channel.hpp"
#include "mappings.hpp"
#include "user_faults.hpp"

namespace fikit::shim {
namespace {

struct Adopted : AdoptedPages {
    Adopted* next = nullptr;
    dev_t device = 0;  // of the file
    ino_t inode = 0;
};

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Adopted* all = nullptr;
int parent_waits[2] = {-1, -1};  // while it forks: a pipe

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

void close_both(int (&ends)[2]) {
    for (int& end : ends) {
        if (end >= 0) close(end);
        end = -1;
    }
}

bool is_only_thread() {
    DIR* const tasks = opendir("/proc/self/task");
    if (tasks == nullptr) return false;
    unsigned threads = 0;
    while (const dirent* const entry = readdir(tasks)) threads += entry->d_name[0] != '.';
    closedir(tasks);
    return threads == 1;
}

// While it lives no other thread writes to these pages. The calling one must not either.
class Standstill {
  public:
    Standstill(uint64_t first, uint64_t bytes) {
        uffdio_register pages = {{first, bytes}, UFFDIO_REGISTER_MODE_WP, 0};
        if (faults_ < 0 || ioctl(faults_, UFFDIO_REGISTER, &pages) != 0) return;
        // Only a page that is there can be protected.
        for (uint64_t at = first; at < first + bytes; at += FIKIT_PAGE)
            (void)*static_cast<const volatile uint8_t*>(pointer(at));
        uffdio_writeprotect protect = {{first, bytes}, UFFDIO_WRITEPROTECT_MODE_WP};
        holds_ = ioctl(faults_, UFFDIO_WRITEPROTECT, &protect) == 0;
    }
    // Those that wait write to what is there now.
    ~Standstill() {
        if (faults_ >= 0) close(faults_);
    }
    Standstill(const Standstill&) = delete;
    Standstill& operator=(const Standstill&) = delete;
    explicit operator bool() const { return holds_; }

  private:
    const int faults_ = open_user_faults();
    bool holds_ = false;
};

// A handler would run on this thread, and could wait for what only this thread lets go on.
class NoSignals {
  public:
    NoSignals() {
        sigset_t every;
        sigfillset(&every);
        pthread_sigmask(SIG_SETMASK, &every, &before_);
    }
    ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    NoSignals(const NoSignals&) = delete;
    NoSignals& operator=(const NoSignals&) = delete;

  private:
    sigset_t before_;
};

bool holds(uint64_t first, uint64_t bytes, const void* address) {
    return reinterpret_cast<uintptr_t>(address) - first < bytes;
}

// Memory of no file's, but for stacks: the kernel makes the first one longer, and this thread writes to its
// own.
bool can_be_adopted(uint64_t first, uint64_t bytes) {
    if (holds(first, bytes, __builtin_frame_address(0)) || holds(first, bytes, &errno)) return false;
    uint64_t at = first;
    Mapping mapping;
    for (Mappings maps(at); at < first + bytes && maps.next(mapping);) {
        if (mapping.begin > at || !mapping.writable || mapping.shared || mapping.inode != 0 ||
            strcmp(mapping.path, "[stack]") == 0)
            return false;
        at = mapping.end;
    }
    return at >= first + bytes;
}

// Not memcpy, which a program's sanitizer replaces: what lies in the pages beside what is registered is out
// of bounds to it.
[[gnu::no_sanitize_address]] void copy_pages(void* into, const void* from, uint64_t bytes) {
    struct [[gnu::may_alias]] Line {
        uint64_t words[8];
    };
    for (uint64_t at = 0; at < bytes / sizeof(Line); ++at) {
        static_cast<Line*>(into)[at] = static_cast<const Line*>(from)[at];
        asm volatile("" ::: "memory");  // or the compiler makes it memcpy
    }
}

// What is in the pages, in pages of the file's from `offset` on, or of no file's (-1), in their place. False:
// it is where it was from somewhere on.
bool replace(uint64_t first, uint64_t bytes, int file, uint64_t offset) {
    constexpr uint64_t most = uint64_t{32} << 20;  // at a time: so there are hardly more pages than before
    const NoSignals none;
    const bool alone = is_only_thread();
    const int flags = file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    for (uint64_t done = 0; done < bytes; done += most) {
        const uint64_t at = first + done, some = bytes - done < most ? bytes - done : most;
        void* const into = mmap(nullptr, some, PROT_READ | PROT_WRITE, flags, file,
                                file >= 0 ? static_cast<off_t>(offset + done) : 0);
        if (into == MAP_FAILED) return false;
        bool moved = false;
        const auto move = [&] {
            copy_pages(into, pointer(at), some);
            moved = mremap(into, some, some, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED;
        };
        if (alone)
            move();
        else if (const Standstill still(at, some); still)
            move();
        if (moved) continue;
        munmap(into, some);
        return false;
    }
    return true;
}

bool is_of(const Mapping& mapping, const Adopted& pages) {
    return mapping.shared && mapping.writable && mapping.inode == pages.inode &&
           mapping.device == pages.device;
}

// As a rule: the program seldom moves it.
bool is_in_place(const Adopted& pages) {
    uint64_t at = pages.first;
    const uint64_t end = pages.first + pages.bytes;
    Mapping mapping;
    for (Mappings maps(at); at < end && maps.next(mapping) && mapping.begin <= at && is_of(mapping, pages);)
        at = mapping.end;
    return at == end;
}

// Calls this for each piece of it that is mapped, wherever the program has it by now.
template <class Each>
void for_each_piece(const Adopted& pages, const Each& each) {
    if (is_in_place(pages)) return each(pages.first, pages.bytes);
    Mapping mapping;
    for (Mappings maps; maps.next(mapping);)
        if (is_of(mapping, pages)) each(mapping.begin, mapping.end - mapping.begin);
}

bool give_back(const Adopted& pages) {
    bool all_of_it = true;
    for_each_piece(pages, [&](uint64_t first, uint64_t bytes) { all_of_it &= replace(first, bytes, -1, 0); });
    return all_of_it;
}

// --- fork ---

void before_fork() {
    pthread_mutex_lock(&mutex);
    if (all != nullptr && pipe2(parent_waits, O_CLOEXEC) != 0) parent_waits[0] = parent_waits[1] = -1;
}

void in_parent() {
    constexpr int longest_ms = 60'000;
    if (parent_waits[1] >= 0) close(parent_waits[1]);
    parent_waits[1] = -1;
    pollfd child = {parent_waits[0], POLLIN, 0};
    while (child.fd >= 0 && poll(&child, 1, longest_ms) < 0 && errno == EINTR) continue;
    close_both(parent_waits);
    pthread_mutex_unlock(&mutex);
}

// There is one thread now. What does not fit into memory is not there, rather than the parent's.
void in_child() {
    while (Adopted* const pages = all) {
        for_each_piece(*pages, [](uint64_t first, uint64_t bytes) {
            if (!replace(first, bytes, -1, 0)) mprotect(pointer(first), bytes, PROT_NONE);
        });
        all = pages->next;
        free(pages);
    }
    if (parent_waits[1] >= 0) (void)!write(parent_waits[1], "", 1);
    close_both(parent_waits);
    pthread_mutex_unlock(&mutex);
}

void watch_forks() {
    static bool watched = false;
    if (!watched) pthread_atfork(before_fork, in_parent, in_child);
    watched = true;
}

// An empty file in memory, of so many bytes and more, which cost nothing: where the program makes its memory
// longer (realloc is mremap) there must be pages, too. -1: there cannot be one.
int make_file(uint64_t bytes) {
    constexpr rlim_t enough = rlim_t{1} << 47;
    rlimit longest{};
    if (getrlimit(RLIMIT_FSIZE, &longest) != 0 || longest.rlim_cur < bytes) return -1;
    const int file = memfd_create("fikit-registered", MFD_CLOEXEC);
    const rlim_t length = longest.rlim_cur < enough ? longest.rlim_cur : enough;
    if (file < 0 || ftruncate(file, static_cast<off_t>(length)) == 0) return file;
    close(file);
    return -1;
}

}  // namespace

int adopt_pages(uint64_t first, uint64_t bytes) {
    const Locked lock(mutex);
    auto* const pages = static_cast<Adopted*>(calloc(1, sizeof(Adopted)));
    const int file = pages != nullptr && can_be_adopted(first, bytes) ? make_file(bytes) : -1;
    struct stat information{};
    if (file < 0 || status_of(file, information) != 0) {
        free(pages);
        return -1;
    }
    *pages = {{first, bytes}, all, information.st_dev, information.st_ino};
    watch_forks();
    const bool whole = replace(first, bytes, file, 0);
    if (whole || !give_back(*pages))
        all = pages;
    else
        free(pages);
    if (whole) return file;
    close(file);
    return -1;
}

// What cannot be given back, for want of memory or descriptors, remains the file's.
void give_back_pages(uint64_t address) {
    const Uncancelled whole;
    const Locked lock(mutex);
    Adopted** at = &all;
    while (*at != nullptr && address - (*at)->first >= (*at)->bytes) at = &(*at)->next;
    if (*at == nullptr || !give_back(**at)) return;
    Adopted* const pages = *at;
    *at = pages->next;
    free(pages);
}

void note_reached(uint64_t first, uint32_t handle, unsigned gpu) {
    const Locked lock(mutex);
    Adopted* pages = all;
    while (pages != nullptr && pages->first != first) pages = pages->next;
    if (pages == nullptr) return;
    pages->handle = handle;
    pages->gpu = gpu;
}

bool find_adopted(uint64_t first, uint64_t bytes, AdoptedPages& found) {
    const Locked lock(mutex);
    const Adopted* earliest = nullptr;
    for (const Adopted* pages = all; pages != nullptr; pages = pages->next)
        if (first < pages->end() && pages->first < first + bytes &&
            (earliest == nullptr || pages->first < earliest->first))
            earliest = pages;
    if (earliest != nullptr) found = *earliest;
    return earliest != nullptr;
}

}  // namespace fikit::shim
