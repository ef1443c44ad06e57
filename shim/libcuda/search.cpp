#include "search.hpp"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../older_libc.hpp"

namespace fikit::shim {
namespace {

// Where distributions, containers and WSL put it.
constexpr const char* places[] = {
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",       "/usr/lib",
    "/usr/local/nvidia/lib64",   "/usr/local/nvidia/lib",      "/usr/lib/wsl/lib", "/run/opengl-driver/lib"};

bool is_ourselves(const char* path) {
    Dl_info information{};
    struct stat theirs{}, ours{};
    if (dladdr(reinterpret_cast<const void*>(&is_ourselves), &information) == 0) return false;
    return status_of(path, theirs) == 0 && status_of(information.dli_fname, ours) == 0 &&
           theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

// A stand-in's copy in another folder is none either: the genuine one exports what no stand-in of ours does.
void* open_library(const char* path, const char* mark) {
    struct stat there{};
    if (status_of(path, there) != 0 || is_ourselves(path)) return nullptr;
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr && dlsym(library, mark) != nullptr) {
        dlclose(library);
        library = nullptr;
    }
    return library;
}

void* open_in(const char* folder, size_t length, const char* name, const char* mark) {
    char path[4096];
    if (length == 0 || length > sizeof path - 64) return nullptr;
    snprintf(path, sizeof path, "%.*s/%s", static_cast<int>(length), folder, name);
    return open_library(path, mark);
}

}  // namespace

// FIKIT_NVIDIA_DRIVER names the driver's libcuda.so.1; its other libraries lie beside it.
void* find_library(const char* name, const char* mark) {
    if (const char* named = getenv("FIKIT_NVIDIA_DRIVER"); named != nullptr) {
        const char* const slash = strrchr(named, '/');
        const char* const file = slash != nullptr ? slash + 1 : named;
        if (strncmp(name, "libcuda", 7) == 0) return open_library(named, mark);
        return slash != nullptr ? open_in(named, static_cast<size_t>(file - 1 - named), name, mark) : nullptr;
    }
    for (const char* folder = getenv("LD_LIBRARY_PATH"); folder != nullptr && *folder != '\0';) {
        const size_t length = strcspn(folder, ":;");
        if (void* library = open_in(folder, length, name, mark); library != nullptr) return library;
        folder += length;
        folder += *folder != '\0' ? 1 : 0;
    }
    for (const char* folder : places)
        if (void* library = open_in(folder, strlen(folder), name, mark); library != nullptr) return library;
    return nullptr;
}

}  // namespace fikit::shim
