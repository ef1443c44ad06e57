#include "printed.hpp"

#include <stdio.h>
#include <string.h>

#include "../producer.hpp"
#include "unpacked.hpp"

namespace fikit::shim {

bool kernels_print = false;

namespace {

// Packed machine code up to so many bytes is looked into, for a millisecond or two; more is that of large
// libraries, of which programs load dozens when they start.
constexpr uint64_t most_unpacked = uint64_t{1} << 20;

bool names_it(const void* text, uint64_t bytes) {
    constexpr char name[] = "vprintf";  // what printf becomes in PTX and in machine code
    return memmem(text, bytes, name, sizeof name - 1) != nullptr;
}

}  // namespace

bool names_printf(const Image& image, const fatbin::Wanted& wanted) {
    if (names_it(image.data, image.bytes)) return true;
    if (!fatbin::is_fatbin(image.data, image.bytes)) return false;
    bool found = false, any_code = false;
    const auto look = [&](uint16_t kind, uint64_t most) {
        each_useful(image, wanted, [&](const fatbin::Entry& entry, const uint8_t*, const uint8_t* content) {
            if (entry.kind != kind) return true;
            any_code = any_code || kind == fatbin::kind_machine_code;
            if (!entry.packed() || entry.expanded_bytes > most) return true;
            Unpacked unpacked;
            found = unpacked.open(entry, content) && names_it(unpacked.data(), unpacked.bytes());
            return !found;
        });
    };
    look(fatbin::kind_machine_code, most_unpacked);
    // PTX is what the driver takes where it has no machine code; it compiles for longer than this takes.
    if (!any_code) look(fatbin::kind_ptx, fatbin::expanded_most);
    return found;
}

// Asked for no text, the executor learns who may get some, and that what is there is of others.
void kernels_may_print(Device& device) {
    const fikit_request_printed request = {0, 0};
    fikit_reply_printed answer;
    Reply reply = {&answer, sizeof answer, 0};
    device.producer->call(fikit_call_printed, {&request, sizeof request}, reply);
    store_relaxed(kernels_print, true);
}

void show_printed(Device& device) {
    const Uncancelled whole;
    struct {
        fikit_reply_printed head;
        char text[4096 - sizeof(fikit_reply_printed)];
    } answer;
    const fikit_request_printed request = {sizeof answer.text, 0};
    do {
        Reply reply = {&answer, sizeof answer, 0};
        if (device.producer->call(fikit_call_printed, {&request, sizeof request}, reply) != status::success)
            return;
        if (answer.head.bytes > sizeof answer.text) return;
        fwrite(answer.text, 1, answer.head.bytes, stdout);
        fflush(stdout);
    } while (answer.head.bytes != 0);
}

void show_failed_assertions(Status error, const char* text) {
    const Uncancelled whole;
    const char* const lines = strchr(text, '\n');  // after what every session is told
    if (static_cast<CUresult>(error) == CUDA_ERROR_ASSERT && lines != nullptr) fputs(lines + 1, stderr);
}

}  // namespace fikit::shim
