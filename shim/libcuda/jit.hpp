// What a program that loads code tells the JIT, and wants to read about it. The driver in the executor gets
// the options whose value is a number, and the rest stays here: the buffers for its words.
#pragma once

#include <algorithm>
#include <string_view>

#include "../producer.hpp"
#include "cuda_interface.hpp"

namespace fikit::shim {

struct JitNumbers {
    fikit_jit_option option[FIKIT_MAX_JIT_OPTIONS];
    unsigned count = 0;
};

// An answer with the JIT's words behind it: errors, then notes.
template <class Head>
struct JitAnswer {
    Head head = {};
    char words[2 * FIKIT_JIT_LOG];

    std::string_view errors() const { return {words, std::min<size_t>(head.log_bytes, FIKIT_JIT_LOG)}; }
    std::string_view notes() const {
        return {words + errors().size(), std::min<size_t>(head.note_bytes, FIKIT_JIT_LOG)};
    }
};

class JitWish {
  public:
    JitWish() = default;
    explicit JitWish(const JitNumbers& numbers) : numbers_(numbers) {}
    JitWish(unsigned count, const CUjit_option* options, void** values) {
        for (unsigned i = 0; options != nullptr && values != nullptr && i < count; ++i) {
            switch (options[i]) {
                case CU_JIT_ERROR_LOG_BUFFER:
                    errors_.text = static_cast<char*>(values[i]);
                    break;
                case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
                    errors_.resize(values[i]);
                    break;
                case CU_JIT_INFO_LOG_BUFFER:
                    notes_.text = static_cast<char*>(values[i]);
                    break;
                case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
                    notes_.resize(values[i]);
                    break;
                default:  // which of them are numbers, the executor knows
                    if (numbers_.count < FIKIT_MAX_JIT_OPTIONS)
                        numbers_.option[numbers_.count++] = {
                            options[i],
                            static_cast<uint32_t>(reinterpret_cast<uintptr_t>(values[i]) & UINT32_MAX)};
            }
        }
    }

    JitOptions options() const { return {numbers_.option, numbers_.count}; }
    const JitNumbers& numbers() const { return numbers_; }
    template <class Head>
    void hear(const JitAnswer<Head>& answer) const {
        errors_.put(answer.errors());
        notes_.put(answer.notes());
    }
    // Of the next of several calls with the same buffers: what was said stays where this says nothing.
    template <class Head>
    void hear_more(const JitAnswer<Head>& answer) const {
        if (!answer.errors().empty()) errors_.put(answer.errors());
        if (!answer.notes().empty()) notes_.put(answer.notes());
    }
    void hear_nothing() const {
        errors_.put({});
        notes_.put({});
    }

  private:
    struct Log {
        char* text = nullptr;
        size_t bytes = 0;
        void** filled = nullptr;  // takes how much was written

        void resize(void*& size) {
            bytes = reinterpret_cast<uintptr_t>(size) & UINT32_MAX;
            filled = &size;
        }
        void put(std::string_view words) const {
            size_t kept = 0;
            if (text != nullptr && bytes != 0) {
                kept = std::min(words.size(), bytes - 1);
                std::copy_n(words.data(), kept, text);
                text[kept] = '\0';
            }
            if (filled != nullptr) *filled = reinterpret_cast<void*>(kept);
        }
    };

    JitNumbers numbers_;
    Log errors_, notes_;
};

}  // namespace fikit::shim
