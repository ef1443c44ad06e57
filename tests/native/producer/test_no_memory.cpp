// A session where memory is short: whichever mapping is refused, there is none, and nothing else happens.
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>

#include "double.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

int mappings_left = -1;  // until one is refused; below zero: none is

}  // namespace

extern "C" void* mmap(void* address, size_t bytes, int protection, int flags, int file,
                      off_t offset) noexcept {
    if (mappings_left >= 0 && mappings_left-- == 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}

namespace {

void test_attach_where_memory_is_short() {
    int refused = 0;
    for (;; ++refused) {
        Double executor;
        Producer* producer = nullptr;
        mappings_left = refused;
        const Status attached =
            Producer::attach(executor.outbox_fd, executor.inbox_fd, executor.lifeline_fd, producer);
        mappings_left = -1;
        const std::unique_ptr<Producer> kept(producer);
        if (attached == status::success) break;
        CHECK(attached == status::out_of_memory && producer == nullptr);
    }
    CHECK(refused >= 5);
}

}  // namespace

int main() {
    static constexpr Test tests[] = {{"attach where memory is short", test_attach_where_memory_is_short}};
    run(tests);
}
