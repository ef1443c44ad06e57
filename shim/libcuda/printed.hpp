// printf of kernels: the executor's driver keeps the text until somebody synchronises, so who does asks for
// it, in a program with a module that prints. (A compressed image does not show that it does; nvcc leaves
// machine code uncompressed unless told otherwise.)
#pragma once

#include "cuda_interface.hpp"
#include "process.hpp"

namespace fikit::shim {

// A kernel was asked for of a module that names printf.
extern bool kernels_print;

bool names_printf(const void* image, uint64_t bytes);
// Writes what kernels have printed to the program's standard output.
void show_printed();

// What a synchronising call returns.
inline CUresult synchronised(Status status) {
    if (status == status::success && load_relaxed(kernels_print)) [[unlikely]]
        show_printed();
    return result_of(status);
}

}  // namespace fikit::shim
