// What the driver's JIT is told and says. Of the tenant's options those whose value is a number are passed
// on: a pointer of the tenant's means nothing here.
#pragma once

#include <calls.h>
#include <cuda.h>

#include <array>
#include <cstring>
#include <span>

namespace fikit {

class Jit {
  public:
    // `wished`: fikit_jit_option, one behind the other.
    explicit Jit(std::span<const uint8_t> wished = {}) {
        add(CU_JIT_ERROR_LOG_BUFFER, errors_.data());
        add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, number(errors_.size()));
        add(CU_JIT_INFO_LOG_BUFFER, notes_.data());
        add(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, number(notes_.size()));
        for (; wished.size() >= sizeof(fikit_jit_option) && count_ < options_.size();
             wished = wished.subspan(sizeof(fikit_jit_option))) {
            fikit_jit_option wish;
            std::memcpy(&wish, wished.data(), sizeof wish);
            if (is_number(wish.option)) add(static_cast<CUjit_option>(wish.option), number(wish.value));
        }
    }
    Jit(const Jit&) = delete;

    unsigned count() const { return count_; }
    CUjit_option* options() { return options_.data(); }
    void** values() { return values_.data(); }
    // The options alone, for what has logs already.
    unsigned wishes() const { return count_ - logs; }
    CUjit_option* wished() { return options_.data() + logs; }
    void** wished_values() { return values_.data() + logs; }

    // Writes what was said to `to`, room for two logs. Returns the bytes written.
    template <class Reply>
    uint32_t say(uint8_t* to, Reply& reply) const {
        reply.log_bytes = static_cast<uint32_t>(strnlen(errors_.data(), errors_.size()));
        reply.note_bytes = static_cast<uint32_t>(strnlen(notes_.data(), notes_.size()));
        std::memcpy(to, errors_.data(), reply.log_bytes);
        std::memcpy(to + reply.log_bytes, notes_.data(), reply.note_bytes);
        return reply.log_bytes + reply.note_bytes;
    }
    // In place of the JIT.
    void complain(const char* what) { strncpy(errors_.data(), what, errors_.size() - 1); }

  private:
    static constexpr unsigned logs = 4;

    static void* number(uint64_t value) { return reinterpret_cast<void*>(static_cast<uintptr_t>(value)); }
    void add(CUjit_option option, void* value) {
        options_[count_] = option;
        values_[count_++] = value;
    }
    static bool is_number(int32_t option) {
        switch (static_cast<CUjit_option>(option)) {
            case CU_JIT_MAX_REGISTERS:
            case CU_JIT_THREADS_PER_BLOCK:
            case CU_JIT_OPTIMIZATION_LEVEL:
            case CU_JIT_TARGET_FROM_CUCONTEXT:
            case CU_JIT_TARGET:
            case CU_JIT_FALLBACK_STRATEGY:
            case CU_JIT_GENERATE_DEBUG_INFO:
            case CU_JIT_LOG_VERBOSE:
            case CU_JIT_GENERATE_LINE_INFO:
            case CU_JIT_CACHE_MODE:
            case CU_JIT_POSITION_INDEPENDENT_CODE:
            case CU_JIT_MIN_CTA_PER_SM:
            case CU_JIT_MAX_THREADS_PER_BLOCK:
            case CU_JIT_OVERRIDE_DIRECTIVE_VALUES:
                return true;
            default:
                return false;
        }
    }

    std::array<CUjit_option, logs + FIKIT_MAX_JIT_OPTIONS> options_;
    std::array<void*, logs + FIKIT_MAX_JIT_OPTIONS> values_;
    unsigned count_ = 0;
    std::array<char, FIKIT_JIT_LOG> errors_{}, notes_{};
};

}  // namespace fikit
