#include "printed.hpp"

#include <stdio.h>
#include <string.h>

#include "../producer.hpp"

namespace fikit::shim {

bool kernels_print = false;

bool names_printf(const void* image, uint64_t bytes) {
    constexpr char name[] = "vprintf";  // what it becomes in PTX and in machine code
    return memmem(image, bytes, name, sizeof name - 1) != nullptr;
}

void show_printed(Device& device) {
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
    const char* const lines = strchr(text, '\n');  // after what every session is told
    if (static_cast<CUresult>(error) == CUDA_ERROR_ASSERT && lines != nullptr) fputs(lines + 1, stderr);
}

}  // namespace fikit::shim
