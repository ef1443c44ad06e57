// Words that two processes, or threads without a common lock, read and write. The compiler's builtins and
// not std::atomic_ref: these also load from memory that is mapped read-only.
#pragma once

#include <cstdint>

namespace fikit {

template <class T>
T load_relaxed(const T& word) {
    return __atomic_load_n(&word, __ATOMIC_RELAXED);
}
template <class T>
T load_acquire(const T& word) {
    return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}
template <class T>
T load_ordered(const T& word) {
    return __atomic_load_n(&word, __ATOMIC_SEQ_CST);
}
template <class T>
void store_relaxed(T& word, T value) {
    __atomic_store_n(&word, value, __ATOMIC_RELAXED);
}
template <class T>
void store_release(T& word, T value) {
    __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}
template <class T>
void store_ordered(T& word, T value) {
    __atomic_store_n(&word, value, __ATOMIC_SEQ_CST);
}

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace fikit
