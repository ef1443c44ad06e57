// Private memory of the program's that becomes a file's, in place, so that another process can map it too.
//
// Nothing a thread writes meanwhile is lost: where there are several, writers wait in a page fault
// (userfaultfd(2), of Linux 5.19) until the file's pages have taken the place of the others, and likewise on
// the way back. A write by the kernel (read(2)) fails with EFAULT in these moments unless the program may
// have its faults wait, too, as root may; one that holds the pages themselves (io_uring, O_DIRECT) goes to
// those that were there.
//
// To the program the pages stay its own: a child that it forks has what was in them then, and neither sees
// what the other writes. So the child copies them before it goes on, and its parent waits.
#pragma once

#include <cstdint>

namespace fikit::shim {

// Whole pages. A descriptor of the file, the caller's to close; -1: they are not all private memory for
// reading and writing, or nothing here can make others wait, which may write to them.
int adopt_pages(uint64_t first, uint64_t bytes);

// Pages that were adopted together, and what their GPU's session has them by.
struct AdoptedPages {
    uint64_t first = 0, bytes = 0;
    uint32_t handle = 0;
    unsigned gpu = 0;
    uint64_t end() const { return first + bytes; }
};
void note_reached(uint64_t first, uint32_t handle, unsigned gpu);
// The first ones that have some of these; false: none of them are adopted.
bool find_adopted(uint64_t first, uint64_t bytes, AdoptedPages& pages);
// All that was adopted together with the page there, as far as the program still has it.
void give_back_pages(uint64_t address);

}  // namespace fikit::shim
