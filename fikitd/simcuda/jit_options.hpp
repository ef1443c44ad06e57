// The options of a just-in-time compilation that the simulator heeds: where its messages go, and
// how many registers a kernel may have.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "cuda_interface.hpp"

namespace fikit::sim {

class JitOptions {
  public:
    JitOptions() = default;
    JitOptions(unsigned count, CUjit_option* options, void** values) {
        for (unsigned index = 0; options != nullptr && values != nullptr && index < count; ++index) {
            if (options[index] == CU_JIT_ERROR_LOG_BUFFER) buffer_ = static_cast<char*>(values[index]);
            if (options[index] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
                size_ = &values[index];
                room_ = reinterpret_cast<std::uintptr_t>(values[index]);
            }
            if (options[index] == CU_JIT_MAX_REGISTERS)
                max_registers_ = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[index]));
            // What goes to the other log is nothing.
            if (options[index] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) info_size_ = &values[index];
            if (options[index] == CU_JIT_INFO_LOG_BUFFER) info_ = static_cast<char*>(values[index]);
        }
        if (info_ != nullptr && info_size_ != nullptr && *info_size_ != nullptr) *info_ = '\0';
        if (info_size_ != nullptr) *info_size_ = nullptr;
        if (buffer_ != nullptr && room_ != 0) *buffer_ = '\0';
        if (size_ != nullptr) *size_ = nullptr;
    }

    // Writes the message and, as the driver does, how long it is. False where there is no buffer.
    bool report(const std::string& message) const {
        if (buffer_ == nullptr || room_ == 0) return false;
        std::snprintf(buffer_, room_, "%s", message.c_str());
        *size_ = reinterpret_cast<void*>(std::min<std::uintptr_t>(message.size(), room_ - 1));
        return true;
    }

    // How many registers a kernel may have; 0 where nothing says so.
    unsigned max_registers() const { return max_registers_; }

  private:
    unsigned max_registers_ = 0;
    char* buffer_ = nullptr;
    char* info_ = nullptr;
    void** size_ = nullptr;
    std::uintptr_t room_ = 0;  // in the buffer
    void** info_size_ = nullptr;
};

}  // namespace fikit::sim
