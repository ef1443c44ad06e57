// printf and assert of kernels. Printf: the executor's driver keeps the text until somebody synchronises, so
// who does asks for it, in a program with a module that prints. (Packed machine code of large libraries is
// not looked into; nvcc leaves machine code as it is unless told otherwise, and packs PTX.)
#pragma once

#include "cuda_interface.hpp"
#include "graph_memory.hpp"
#include "images.hpp"
#include "process.hpp"
#include "sharing.hpp"

namespace fikit::shim {

// A kernel was asked for of a module that names printf.
extern bool kernels_print;

bool names_printf(const Image& image, const fatbin::Wanted& wanted);
// That is so: called before the first of the module's kernels is.
void kernels_may_print(Device& device);
// Writes what kernels on the device have printed to the program's standard output.
void show_printed(Device& device);
// Writes which assertions of kernels failed to the program's standard error, as the driver does.
void show_failed_assertions(Status error, const char* text);

// What has come up to be done once the host has waited; mostly nothing.
[[gnu::noinline]] inline void settle(Device& device) {
    if (load_relaxed(kernels_print)) show_printed(device);
    if (load_relaxed(graph_memory_was_freed)) settle_graph_memory(device);
    if (load_relaxed(memory_is_closing)) settle_closed_memory();
}

// What a call returns that waited for the device for reasons of its own: what went wrong before, the program
// is told when it waits.
[[gnu::always_inline]] inline CUresult settled(Device& device, Status status) {
    if (status != status::success) return result_of(status);
    const unsigned prints = load_relaxed(kernels_print), freed = load_relaxed(graph_memory_was_freed),
                   closing = load_relaxed(memory_is_closing);
    if ((prints | freed | closing) != 0) [[unlikely]]
        settle(device);
    return CUDA_SUCCESS;
}

// What went wrong behind the program's back, once.
[[gnu::noinline]] inline CUresult take_failure(Device& device) {
    return static_cast<CUresult>(__atomic_exchange_n(&device.failure, 0, __ATOMIC_RELAXED));
}

// What a call returns that would say that work is over.
[[gnu::always_inline]] inline CUresult told(Device& device, CUresult result) {
    if (result == CUDA_SUCCESS && load_relaxed(device.failure) != 0) [[unlikely]]
        return take_failure(device);
    return result;
}

// What a call that synchronises with the device returns.
[[gnu::always_inline]] inline CUresult synchronised(Device& device, Status status) {
    return told(device, settled(device, status));
}

}  // namespace fikit::shim
