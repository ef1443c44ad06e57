// What compilers call for. The C++ library's own wants a C library as new as the one that it was made for
// (older_libc.hpp), so nothing of it is linked.
#include <stdlib.h>

#include <new>

const std::nothrow_t std::nothrow{};

void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return malloc(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    const auto step = static_cast<size_t>(alignment);
    return aligned_alloc(step, (bytes + step - 1) / step * step);
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { free(memory); }
