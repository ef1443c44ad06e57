// A small file of slots that processes share, one slot each. A record lock on the slot's byte is what holds
// it, so the kernel lets go of it with the process, however that ends, and everybody can tell.
//
// Only executors map such a file (the daemon's user owns it); what a slot says is never used as an address or
// a size.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <string>

#include "shared_memory.hpp"

namespace fikit {

template <class Slot, unsigned count>
class SharedSlots {
  public:
    SharedSlots() = default;
    SharedSlots(const SharedSlots&) = delete;
    ~SharedSlots() {
        if (page_ != nullptr) munmap(page_, sizeof(Page));
    }

    // Opens or makes the file; false with errno.
    bool open(const std::string& path) {
        file_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (!file_ || ftruncate(file_.get(), sizeof(Page)) != 0) return false;
        // On a full file system the first look at a page that has no room there is a bus error.
        if ((errno = posix_fallocate(file_.get(), 0, sizeof(Page))) != 0) return false;
        void* address = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
        if (address == MAP_FAILED) return false;
        page_ = static_cast<Page*>(address);
        return true;
    }

    // Holds a free slot, `first` or behind, until this process ends; false when none is free.
    bool take(unsigned first = 0) {
        for (unsigned slot = first; slot < count; ++slot) {
            if (!lock(slot, F_WRLCK, F_OFD_SETLK)) continue;
            mine_ = &page_->slot[slot];
            return true;
        }
        return false;
    }

    Slot* mine() const { return mine_; }
    std::array<Slot, count>& all() const { return page_->slot; }

    // Whether a process holds the slot, this one included.
    bool held(const Slot& slot) const {
        if (&slot == mine_) return true;
        struct flock question = range(static_cast<unsigned>(&slot - page_->slot.data()), F_WRLCK);
        return fcntl(file_.get(), F_OFD_GETLK, &question) == 0 && question.l_type != F_UNLCK;
    }

    // One process at a time, through a lock behind the slots' own. Threads of one process exclude each other
    // themselves.
    void enter() const {
        while (!lock(count, F_WRLCK, F_OFD_SETLKW)) {
        }
    }
    void leave() const { lock(count, F_UNLCK, F_OFD_SETLK); }

  private:
    struct Page {
        std::array<Slot, count> slot;
    };

    static struct flock range(unsigned byte, short type) {
        struct flock lock{};
        lock.l_type = type;
        lock.l_whence = SEEK_SET;
        lock.l_start = byte;
        lock.l_len = 1;
        return lock;
    }
    bool lock(unsigned byte, short type, int command) const {
        struct flock wanted = range(byte, type);
        return fcntl(file_.get(), command, &wanted) == 0;
    }

    Descriptor file_;
    Page* page_ = nullptr;
    Slot* mine_ = nullptr;
};

}  // namespace fikit
