// libcuda's functions by name, so that one program runs on a real and on the simulated GPU.
//
// FIKIT_LIBCUDA(LIST), in a class, declares a pointer `NAME_` for each function of LIST(X), and
// find_libcuda(PATH), which sets them; what cannot be found ends the program by give_up().
#pragma once

#include <dlfcn.h>

#include <string>

#define FIKIT_LIBCUDA_TEXT_OF(name) #name
#define FIKIT_LIBCUDA_TEXT(name) FIKIT_LIBCUDA_TEXT_OF(name)
#define FIKIT_LIBCUDA_MEMBER(name) decltype(&::name) name##_ = nullptr;
#define FIKIT_LIBCUDA_FIND(name)                                                             \
    name##_ = reinterpret_cast<decltype(&::name)>(dlsym(library, FIKIT_LIBCUDA_TEXT(name))); \
    if (name##_ == nullptr) give_up(FIKIT_LIBCUDA_TEXT(name), -1);
#define FIKIT_LIBCUDA(LIST)                                           \
    LIST(FIKIT_LIBCUDA_MEMBER)                                        \
    void find_libcuda(const std::string& path) {                      \
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL); \
        if (library == nullptr) give_up(dlerror(), -1);               \
        LIST(FIKIT_LIBCUDA_FIND)                                      \
    }
