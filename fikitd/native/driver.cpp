#include "driver.hpp"

#include <dlfcn.h>

namespace fikit {

#define FIKIT_SYMBOL_TEXT(name) #name
#define FIKIT_SYMBOL(name) FIKIT_SYMBOL_TEXT(name)  // expands cuda.h's renaming first

std::string Driver::load(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
        const char* reason = dlerror();
        return std::string("cannot load the CUDA driver: ") + (reason != nullptr ? reason : path);
    }
#define FIKIT_DRIVER_FIND(name)                                                      \
    name##_ = reinterpret_cast<decltype(&name)>(dlsym(library, FIKIT_SYMBOL(name))); \
    if (name##_ == nullptr) return std::string("the CUDA driver lacks ") + FIKIT_SYMBOL(name);
    FIKIT_DRIVER_FUNCTIONS(FIKIT_DRIVER_FIND)
#undef FIKIT_DRIVER_FIND
    return {};
}

std::string Driver::describe(CUresult result) const {
    const char* name = nullptr;
    if (cuGetErrorName_ == nullptr || cuGetErrorName_(result, &name) != CUDA_SUCCESS || name == nullptr)
        name = "CUDA error";
    return std::string(name) + " (" + std::to_string(static_cast<int>(result)) + ")";
}

}  // namespace fikit
