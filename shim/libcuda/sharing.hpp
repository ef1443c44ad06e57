// What other processes get to open: between sessions of one executor, so of one trust domain.
#pragma once

#include <cstdint>

#include "../calls.h"
#include "cuda_interface.hpp"
#include "objects.hpp"

namespace fikit::shim {

inline constexpr uint32_t shared_memory_magic = 0x464d454d, shared_pool_magic = 0x46504f53;

// What a handle of memory holds: CUDA's own have 64 bytes.
struct SharedMemory {
    uint32_t magic;
    uint32_t session, number;
    uint32_t pool;  // that it came from, as the exporting process counts; 0: none
    uint8_t executor[FIKIT_IDENTITY];
    uint64_t size, offset;  // of the extent, and where the address is in it
};
static_assert(sizeof(SharedMemory) <= sizeof(CUipcMemHandle));

// Who the session on the device is to others.
CUresult identity(const Device& device, fikit_reply_session_identity& answer);

// Of an allocation's address, or of memory that the program has created (api_virtual_memory.cpp).
CUresult export_memory(uint64_t address, uint32_t handle, SharedMemory& shared);
// Memory like that of cuMemCreate.
CUresult import_memory(const SharedMemory& shared, Device& device, CUmemGenericAllocationHandle& handle);

// Memory of another session where it can be used, so many bytes of it from the offset on. An extent is mapped
// once, however often it is opened, and until it has been closed as often. `whole`: to this program the
// extent is one allocation; otherwise who opens it says what there is at which address.
CUresult open_memory(const SharedMemory& shared, uint64_t bytes, Device& device, bool whole,
                     uint64_t& address);
// Nothing uses it any more. INVALID_VALUE: none such is open at the address.
CUresult close_memory(uint64_t address, bool whole);
// Only what was issued to the stream so far does. It is closed when the program next synchronises or opens
// memory, after that: no call of the executor's may be made from within a stream.
CUresult close_memory_behind(uint32_t stream, uint64_t address, bool whole);
extern bool memory_is_closing;
void settle_closed_memory();

// A descriptor of a file that says what it is: whoever opens that needs a session beside this one.
CUresult publish(const void* content, size_t bytes, int& descriptor);
// UNKNOWN for other files, NOT_SUPPORTED for such a file about something else, as an H200's driver has it.
CUresult read_published(int descriptor, uint32_t magic, void* content, size_t bytes);

// Of this process or another one: the stream waits for its latest record.
CUresult wait_for_other_event(uint32_t stream, const Event& event);
inline CUresult wait_for_event(uint32_t stream, const Event& event) {
    if (event.session != 0 || event.device->ordinal != static_cast<int>(stream >> stream_bits)) [[unlikely]]
        return wait_for_other_event(stream, event);
    return result_of(producer_of(stream).event_wait(event.number, stream_number(stream)));
}
// Also of an event that another process made.
CUresult record_event(uint32_t stream, Event& event);
// Of an event that processes share.
CUresult query_shared(Event& event);
CUresult synchronize_shared(const Event& event);
// After a record: other processes may wait for it from now on.
CUresult finish_record(const Event& event);

}  // namespace fikit::shim
