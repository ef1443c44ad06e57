#include "shared_memory.hpp"

#include <abi.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace fikit {
namespace {

// Where tenants' files are mapped. Read by a signal handler, so it is a table and takes no lock.
struct Guarded {
    std::atomic<bool> taken{false};
    std::atomic<uintptr_t> begin{0}, end{0};
};
Guarded guarded[16384];
struct sigaction earlier;

void on_bus_error(int, siginfo_t* information, void*) {
    const int error = errno;
    const uintptr_t page = reinterpret_cast<uintptr_t>(information->si_addr) / FIKIT_PAGE * FIKIT_PAGE;
    for (const Guarded& range : guarded) {
        const uintptr_t begin = range.begin.load(std::memory_order_acquire);
        const uintptr_t end = range.end.load(std::memory_order_relaxed);
        if (begin == 0 || page < begin || page >= end) continue;
        // With the pages behind it, which are gone, too: a process has few mappings, and one for each page
        // could use them up.
        for (const uintptr_t upto : {end, page + FIKIT_PAGE}) {
            void* const zeros = mmap(reinterpret_cast<void*>(page), upto - page, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
            errno = error;
            if (zeros != MAP_FAILED) return;
        }
    }
    sigaction(SIGBUS, &earlier, nullptr);  // it is nobody's file: the same again, as if we were not here
}

bool guard(void* address, size_t size) {
    static std::once_flag once;
    std::call_once(once, [] {
        struct sigaction action{};
        action.sa_sigaction = on_bus_error;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
        sigaction(SIGBUS, &action, &earlier);
    });
    for (Guarded& range : guarded) {
        if (range.taken.exchange(true)) continue;
        const auto begin = reinterpret_cast<uintptr_t>(address);
        range.end.store(begin + size, std::memory_order_relaxed);
        range.begin.store(begin, std::memory_order_release);
        return true;
    }
    return false;
}

void unguard(void* address) {
    for (Guarded& range : guarded) {
        if (range.begin.load() != reinterpret_cast<uintptr_t>(address)) continue;
        range.begin.store(0);
        range.taken.store(false);
        return;
    }
}

void* map_shared(int descriptor, uint64_t offset, size_t size, uint64_t wished) {
    const auto from = static_cast<off_t>(offset);
    if (wished != 0) {
        void* const address = mmap(reinterpret_cast<void*>(wished), size, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_FIXED_NOREPLACE, descriptor, from);
        if (address != MAP_FAILED) return address;
    }
    return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, from);
}

// What is none may be of a filesystem of the tenant's, which answers when it likes, or never.
bool is_memory(int descriptor) { return fcntl(descriptor, F_GET_SEALS) >= 0; }

// Whether a file is such memory, and has so many bytes there, up to its last page's end.
bool has_memory(int file, uint64_t offset, uint64_t size) {
    struct stat information{};
    struct statfs place{};
    if (!is_memory(file) || fstat(file, &information) != 0 || fstatfs(file, &place) != 0) return false;
    const auto bytes = static_cast<uint64_t>(information.st_size);
    const uint64_t whole = (bytes + FIKIT_PAGE - 1) / FIKIT_PAGE * FIKIT_PAGE;
    if (S_ISREG(information.st_mode) && place.f_type == TMPFS_MAGIC && information.st_size >= 0 &&
        offset % FIKIT_PAGE == 0 && offset <= whole && size <= whole - offset)
        return true;
    errno = EINVAL;
    return false;
}

// What is to be closed apart, and the threads that do. A descriptor's number is free as soon as its close
// begins, so these would be as many as a tenant likes, and the machine's threads are everybody's.
constexpr unsigned most_closing = 16;
struct Closing {
    std::mutex mutex;
    std::deque<int> left;
    unsigned threads = 0;
};
Closing& closing = *new Closing;  // for good: at the process's end a thread may still be in its close

void close_left() {
    std::unique_lock lock(closing.mutex);
    while (!closing.left.empty()) {
        const int descriptor = closing.left.front();
        closing.left.pop_front();
        lock.unlock();
        close(descriptor);
        lock.lock();
    }
    --closing.threads;
}

}  // namespace

void close_apart(std::span<const int> descriptors) {
    std::unique_lock lock(closing.mutex, std::defer_lock);
    for (const int descriptor : descriptors) {
        if (is_memory(descriptor)) {
            close(descriptor);
            continue;
        }
        if (!lock.owns_lock()) lock.lock();
        closing.left.push_back(descriptor);
    }
    if (!lock.owns_lock() || closing.threads == most_closing) return;
    ++closing.threads;
    try {
        std::thread(close_left).detach();
    } catch (const std::system_error&) {  // no thread is to be had: rather open than that all wait
        --closing.threads;
    }
}

bool read_memory(int file, uint64_t offset, std::span<uint8_t> into) {
    if (!has_memory(file, offset, into.size())) return false;
    while (!into.empty()) {
        const ssize_t got = pread(file, into.data(), into.size(), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            std::ranges::fill(into, uint8_t{0});
            return got == 0;
        }
        into = into.subspan(static_cast<size_t>(got));
        offset += static_cast<uint64_t>(got);
    }
    return true;
}

SharedMemory::~SharedMemory() {
    if (address_ == nullptr) return;
    if (guarded_)
        unguard(address_);
    else if (!left_)
        madvise(address_, size_, MADV_REMOVE);  // of what nobody else may write to the kernel removes nothing
    munmap(address_, size_);
}

bool SharedMemory::open(int file, uint64_t offset, size_t size, uint64_t wished) {
    if (!has_memory(file, offset, size)) return false;
    void* const address = map_shared(file, offset, size, wished);
    if (address == MAP_FAILED) return false;
    if (!guard(address, size)) {
        munmap(address, size);
        return false;
    }
    SharedMemory made;
    made.address_ = address;
    made.size_ = size;
    made.guarded_ = true;
    *this = std::move(made);
    return true;
}

bool SharedMemory::create(const char* name, size_t size, bool read_only_outside, uint64_t wished) {
    Descriptor descriptor(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!descriptor || ftruncate(descriptor.get(), static_cast<off_t>(size)) != 0) return false;
    void* const address = map_shared(descriptor.get(), 0, size, wished);
    if (address == MAP_FAILED) return false;
    SharedMemory made;
    made.descriptor_ = std::move(descriptor);
    made.address_ = address;
    made.size_ = size;
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | (read_only_outside ? F_SEAL_FUTURE_WRITE : 0) | F_SEAL_SEAL;
    if (fcntl(made.descriptor_.get(), F_ADD_SEALS, seals) != 0) return false;
    *this = std::move(made);
    return true;
}

}  // namespace fikit
