// What a program that loads code wants to read about it.
#pragma once

#include <string.h>

#include "cuda_interface.hpp"

namespace fikit::shim {

// The buffers for the JIT's words among its options.
struct JitLog {
    char* text = nullptr;
    size_t bytes = 0;
    void** filled = nullptr;  // takes how much was written

    void put(const char* words, uint32_t length) {
        size_t kept = 0;
        if (text != nullptr && bytes != 0) {
            kept = length < bytes ? length : bytes - 1;
            memcpy(text, words, kept);
            text[kept] = '\0';
        }
        if (filled != nullptr) *filled = reinterpret_cast<void*>(kept);
    }
};

// Of the options only the logs matter: the executor's driver chooses the rest.
inline void find_logs(unsigned count, const CUjit_option* options, void** values, JitLog& errors,
                      JitLog& notes) {
    if (options == nullptr || values == nullptr) return;
    for (unsigned i = 0; i < count; ++i) {
        switch (options[i]) {
            case CU_JIT_ERROR_LOG_BUFFER:
                errors.text = static_cast<char*>(values[i]);
                break;
            case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
                errors.bytes = reinterpret_cast<uintptr_t>(values[i]) & UINT32_MAX;
                errors.filled = &values[i];
                break;
            case CU_JIT_INFO_LOG_BUFFER:
                notes.text = static_cast<char*>(values[i]);
                break;
            case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
                notes.bytes = reinterpret_cast<uintptr_t>(values[i]) & UINT32_MAX;
                notes.filled = &values[i];
                break;
            default:
                break;
        }
    }
}

}  // namespace fikit::shim
