// What is loaded in programs of others runs in their containers, whose C library may be older than the one it
// is built with: any since glibc 2.28 will do. Newer headers give some functions names that older ones lack.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fikit {

// sscanf; numbers as C had them before C23.
extern "C" [[gnu::format(scanf, 2, 3)]] int scan(const char* text, const char* format, ...) __asm__("sscanf");

// fstat and stat, which were no functions before glibc 2.33.
inline int status_of(int descriptor, struct stat& found) {
    return static_cast<int>(syscall(SYS_fstat, descriptor, &found));
}
inline int status_of(const char* path, struct stat& found) {
    return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, &found, 0));
}

inline int thread_number() { return static_cast<int>(syscall(SYS_gettid)); }

}  // namespace fikit
