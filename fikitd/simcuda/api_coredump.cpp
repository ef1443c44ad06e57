// Settings of core dumps. They are kept for who asks; a fault of the simulated device writes none.
#include <cstring>

#include "driver.hpp"

using namespace fikit::sim;

namespace {

struct Coredump {
    bool on_exception = false, trigger = false, lightweight = false, user_trigger = false;
    std::string file, pipe;
    unsigned generation = 0;
};
Coredump& process_settings() {
    static auto* settings = new Coredump;
    return *settings;
}

bool* switch_of(Coredump& dump, CUcoredumpSettings setting) {
    switch (setting) {
        case CU_COREDUMP_ENABLE_ON_EXCEPTION:
            return &dump.on_exception;
        case CU_COREDUMP_TRIGGER_HOST:
            return &dump.trigger;
        case CU_COREDUMP_LIGHTWEIGHT:
            return &dump.lightweight;
        case CU_COREDUMP_ENABLE_USER_TRIGGER:
            return &dump.user_trigger;
        default:
            return nullptr;
    }
}

std::string* name_of(Coredump& dump, CUcoredumpSettings setting) {
    if (setting == CU_COREDUMP_FILE) return &dump.file;
    return setting == CU_COREDUMP_PIPE ? &dump.pipe : nullptr;
}

template <typename T>
CUresult give(const T& from, void* value, size_t* size) {
    if (*size < sizeof from) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(value, &from, sizeof from);
    *size = sizeof from;
    return CUDA_SUCCESS;
}

CUresult get(Coredump& dump, CUcoredumpSettings setting, void* value, size_t* size) {
    if (value == nullptr || size == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const bool* chosen = switch_of(dump, setting)) return give(*chosen, value, size);
    if (setting == CU_COREDUMP_GENERATION_FLAGS) return give(dump.generation, value, size);
    const std::string* name = name_of(dump, setting);
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (*size == 0) return CUDA_ERROR_INVALID_VALUE;
    const std::size_t bytes = std::min(name->size(), *size - 1);
    std::memcpy(value, name->data(), bytes);
    static_cast<char*>(value)[bytes] = '\0';
    *size = bytes;
    return CUDA_SUCCESS;
}

CUresult set(Coredump& dump, CUcoredumpSettings setting, const void* value, const size_t* size) {
    if (value == nullptr || size == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (bool* chosen = switch_of(dump, setting)) {
        if (*size < sizeof *chosen) return CUDA_ERROR_INVALID_VALUE;
        *chosen = *static_cast<const bool*>(value);
        return CUDA_SUCCESS;
    }
    if (setting == CU_COREDUMP_GENERATION_FLAGS) {
        if (*size < sizeof dump.generation) return CUDA_ERROR_INVALID_VALUE;
        std::memcpy(&dump.generation, value, sizeof dump.generation);
        return CUDA_SUCCESS;
    }
    constexpr std::size_t longest = 1023;
    std::string* name = name_of(dump, setting);
    if (name == nullptr || *size > longest) return CUDA_ERROR_INVALID_VALUE;
    const auto* text = static_cast<const char*>(value);
    name->assign(text, strnlen(text, *size));
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuCoredumpGetAttribute(CUcoredumpSettings setting, void* value, size_t* size) {
    return with_context([&](auto&&...) { return get(process_settings(), setting, value, size); });
}
CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings setting, void* value, size_t* size) {
    return with_driver([&](auto&&...) { return get(process_settings(), setting, value, size); });
}
CUresult cuCoredumpSetAttribute(CUcoredumpSettings setting, void* value, size_t* size) {
    return with_context([&](auto&&...) { return set(process_settings(), setting, value, size); });
}
CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings setting, void* value, size_t* size) {
    return with_driver([&](auto&&...) { return set(process_settings(), setting, value, size); });
}

}  // extern "C"
