// Calls that are not served: counted by name in the channel's notes, which the executor reads also after this
// process was killed. One load and one increment for each; a name is looked up once.
#include <string.h>

#include "entry.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

uint8_t slot_of[name_count];  // by name; 0: none yet, else slot + 1
uint32_t used = 0;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

uint8_t take_slot(fikit_note* notes, unsigned number) {
    const Locked lock(mutex);
    if (slot_of[number] != 0) return slot_of[number];
    call_log.say("not served: %s", names[number]);
    if (notes == nullptr || used == FIKIT_NOTES) return 0;
    fikit_note& note = notes[used];
    strncpy(note.name, names[number], sizeof note.name - 1);
    store_release(slot_of[number], static_cast<uint8_t>(++used));
    return slot_of[number];
}

}  // namespace

CUresult not_served(unsigned number) {
    if (!process.usable()) {
        call_log.say("not served: %s", names[number]);
        return process.unusable();
    }
    const Device* const device = process.first_opened();  // one session counts for the process
    if (device == nullptr) {
        call_log.say("not served: %s", names[number]);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    fikit_note* const notes = device->producer->channel().notes();
    uint8_t slot = load_acquire(slot_of[number]);
    if (slot == 0) slot = take_slot(notes, number);
    if (slot != 0) __atomic_fetch_add(&notes[slot - 1].count, uint64_t{1}, __ATOMIC_RELAXED);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult not_served(const char* name) {
    unsigned number = 0;
    while (number < name_count && strcmp(names[number], name) != 0) ++number;
    return number < name_count ? not_served(number) : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace fikit::shim
