// What other processes get to open: between sessions of one executor, so of one trust domain.
#pragma once

#include <cstdint>

#include "../calls.h"
#include "cuda_interface.hpp"
#include "objects.hpp"

namespace fikit::shim {

// What a handle of memory holds: CUDA's own have 64 bytes.
struct SharedMemory {
    uint32_t magic;
    uint32_t session, number;
    uint32_t reserved;
    uint8_t executor[FIKIT_IDENTITY];
    uint64_t size, offset;  // of the extent, and where the address is in it
};
static_assert(sizeof(SharedMemory) <= sizeof(CUipcMemHandle));

// Of an allocation's address, or of memory that the program has created (api_virtual_memory.cpp).
CUresult export_memory(uint64_t address, uint32_t handle, SharedMemory& shared);
// Memory like that of cuMemCreate.
CUresult import_memory(const SharedMemory& shared, CUmemGenericAllocationHandle& handle);

// Of this process or another one: the stream waits for its latest record.
CUresult wait_for_other_event(uint32_t stream, const Event& event);
inline CUresult wait_for_event(uint32_t stream, const Event& event) {
    if (event.session != 0 || event.device->ordinal != static_cast<int>(stream >> stream_bits)) [[unlikely]]
        return wait_for_other_event(stream, event);
    return result_of(producer_of(stream).event_wait(event.number, stream_number(stream)));
}
// Of an event of another session's.
CUresult query_shared(Event& event);
CUresult synchronize_shared(const Event& event);
// After a record: other processes may wait for it from now on.
CUresult finish_record(const Event& event);

}  // namespace fikit::shim
