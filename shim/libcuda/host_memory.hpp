// Memory of the host's that has one address in this process, in the executor and for the GPU: pinned memory,
// and what programs take for managed memory.
#pragma once

#include "cuda_interface.hpp"
#include "process.hpp"
#include "ranges.hpp"

namespace fikit::shim {

// The caller says the range's kind and whose it is; the rest is filled in. Managed
// memory must have one address everywhere; of pinned memory the GPU may have another one.
CUresult allocate_host(Device& device, uint64_t bytes, Range& range);
// Of a range that `ranges` has forgotten, once nothing uses it any more.
CUresult free_host(const Range& range);
// Of registered memory that `ranges` has forgotten.
CUresult unregister(const Range& range);
// The same as allocate_host of managed memory, of a pool, a context or a module. `preferred`: where it would
// rather be.
CUresult allocate_managed(Device& device, uint64_t bytes, const CUmemLocation& preferred, Range& range);
// Registered memory that kernels do not reach at the host's address lies within these; nowhere, while `end`
// is 0.
extern uint64_t unreached_begin, unreached_end;
// Whether a kernel is not to be given that address, lest it end other programs by its fault; unless it can be
// made one that kernels reach.
bool is_unreached(uint64_t address);
bool is_unreached(uint64_t address, unsigned device);  // by that one's kernels
bool make_reachable(uint64_t address, Device& device);
// What was said of managed memory that is no more.
void forget(ManagedAdvice* advice);

}  // namespace fikit::shim
