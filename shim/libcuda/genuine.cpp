#include "genuine.hpp"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "channel.hpp"
#include "handshake.hpp"
#include "log.hpp"
#include "search.hpp"

namespace fikit::shim {

constinit Genuine genuine;

namespace {

constexpr unsigned char runtime_table[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                             0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
constexpr unsigned char storage_table[16] = {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11,
                                             0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93};

template <class Function>
Function function_as(void* address) {
    return reinterpret_cast<Function>(address);
}

}  // namespace

void Genuine::inherit() {
    mutex_ = PTHREAD_MUTEX_INITIALIZER;
    if (entered_) inherited_ = true;
}

bool Genuine::load() {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, [] { pthread_atfork(nullptr, nullptr, [] { genuine.inherit(); }); });
    const Locked lock(mutex_);
    if (inherited_) return false;
    if (!looked_) {
        entered_ = true;
        library_ = find_library("libcuda.so.1", "fikit_shim");
        entered_ = false;
        looked_ = true;
        call_log.say("NVIDIA driver in this process: %s", library_ != nullptr ? "found" : "none");
    }
    return library_ != nullptr;
}

void* Genuine::function(const char* name) { return load() ? dlsym(library_, name) : nullptr; }

int Genuine::driver_version() {
    int version = 0;
    auto* ask = function_as<CUresult (*)(int*)>(function("cuDriverGetVersion"));
    return ask != nullptr && ask(&version) == CUDA_SUCCESS ? version : 0;
}

CUresult Genuine::table(const void** table, const CUuuid* identifier) {
    if (memcmp(identifier->bytes, storage_table, sizeof storage_table) == 0) {
        *table = context_storage_table();
        return CUDA_SUCCESS;
    }
    auto* ask = function_as<CUresult (*)(const void**, const CUuuid*)>(function("cuGetExportTable"));
    const CUresult result = ask != nullptr ? ask(table, identifier) : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) *table = with_our_slots(*identifier, *table);
    const auto* byte = reinterpret_cast<const unsigned char*>(identifier->bytes);
    call_log.say("table %02x%02x%02x%02x-%02x%02x: %d", byte[0], byte[1], byte[2], byte[3], byte[4], byte[5],
                 static_cast<int>(result));
    return result;
}

CUresult Genuine::initialise(const char* const* uuids, unsigned count, CUcontext* primaries) {
    if (!load()) return inherited_ ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_NO_DEVICE;
    entered_ = true;  // and is for good: its cuInit tells a child so
    char text[1024];
    size_t length = 0;
    for (unsigned i = 0; i < count && length < sizeof text; ++i)
        length += static_cast<size_t>(
            snprintf(text + length, sizeof text - length, "%s%s", i == 0 ? "" : ",", uuids[i]));
    // The program's devices are to be the driver's, by the same numbers, whatever the tables pass.
    const char* before = getenv("CUDA_VISIBLE_DEVICES");
    char* const saved = before != nullptr ? strdup(before) : nullptr;
    setenv("CUDA_VISIBLE_DEVICES", text, 1);
    auto* initialise = function_as<CUresult (*)(unsigned)>(dlsym(library_, "cuInit"));
    CUresult result = initialise != nullptr ? initialise(0) : CUDA_ERROR_NOT_FOUND;
    if (saved != nullptr)
        setenv("CUDA_VISIBLE_DEVICES", saved, 1);
    else
        unsetenv("CUDA_VISIBLE_DEVICES");
    free(saved);
    if (result != CUDA_SUCCESS) {
        call_log.say("cuInit of the NVIDIA driver in this process: %d", static_cast<int>(result));
        return result;
    }
    CUuuid identifier;
    memcpy(identifier.bytes, runtime_table, sizeof runtime_table);
    const void* entries = nullptr;
    result = table(&entries, &identifier);
    if (result != CUDA_SUCCESS) return result;
    // It names the context without creating it (seen with driver 580).
    using PrimaryContext = CUresult (*)(CUcontext*, CUdevice);
    auto* ask = function_as<PrimaryContext>(static_cast<void* const*>(entries)[2]);
    CUcontext handles[most_gpus];
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i)
        result = ask(&handles[i], static_cast<CUdevice>(i));
    if (result == CUDA_SUCCESS) memcpy(primaries, handles, count * sizeof *handles);
    return result;
}

}  // namespace fikit::shim
