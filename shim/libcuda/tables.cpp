// Undocumented functions of the driver's that libraries pass our handles to. Found by watching cuFFT, which
// tells contexts apart by the first and launches the kernel that the last shows it; cuBLAS passes streams to
// the others, of which only the types are known. One more asks a device what it can do, as cuSPARSELt does.
#include <stdlib.h>
#include <string.h>

#include "channel.hpp"
#include "genuine.hpp"
#include "log.hpp"
#include "objects.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

void tell(const char* what, const void* handle) {
    if (call_log.every()) call_log.say("table: %s %p", what, handle);
}

using Visitor = void (*)(void* argument, CUfunction function, CUmodule module);

// Calls the visitor with each kernel of a module, and returns their number.
unsigned visit_functions(CUcontext, CUmodule module, Visitor visitor, void* argument) {
    tell("functions of module", module);
    unsigned count = 0;
    if (fikit::shim::cuModuleGetFunctionCount(&count, module) != CUDA_SUCCESS || count == 0) return 0;
    auto* const functions = static_cast<CUfunction*>(calloc(count, sizeof(CUfunction)));
    if (functions == nullptr) return 0;
    if (fikit::shim::cuModuleEnumerateFunctions(functions, count, module) != CUDA_SUCCESS) count = 0;
    for (unsigned i = 0; i < count && visitor != nullptr; ++i) visitor(argument, functions[i], module);
    free(functions);
    return count;
}

CUresult context_number(CUcontext context, unsigned long long* number) {
    tell("number of context", context);
    return fikit::shim::cuCtxGetId(context, number);
}

// Default streams are no objects of ours; the driver has one of its own for each.
Stream legacy_streams[most_gpus];
thread_local Stream own_streams[most_gpus];

CUresult object_of_stream(CUcontext, CUstream handle, CUstream* stream) {
    tell("stream", handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (reinterpret_cast<uintptr_t>(handle) == UINTPTR_MAX) return CUDA_ERROR_INVALID_HANDLE;
    uint32_t name = 0;
    if (const CUresult result = find_stream(handle, name); result != CUDA_SUCCESS) return result;
    *stream = handle;
    if (is_default(handle)) {
        Stream* const streams = stream_number(name) == 0 ? legacy_streams : own_streams;
        Stream& object = streams[device_of(name).ordinal];
        object.name = name;
        *stream = reinterpret_cast<CUstream>(&object);
    }
    return CUDA_SUCCESS;
}

CUresult stream_number(CUcontext, CUstream handle, unsigned long long* number) {
    tell("number of stream", handle);
    if (reinterpret_cast<uintptr_t>(handle) == UINTPTR_MAX) return CUDA_ERROR_INVALID_HANDLE;
    return fikit::shim::cuStreamGetId(handle, number);
}

// Whether a device has a feature, by number. To tell, the driver looks into the context that it has on that
// device, whether there is one or not. Drivers without this table have no such feature.
int has_feature(CUdevice device, unsigned feature, void*) {
    if (call_log.every()) call_log.say("table: feature %u of device %d", feature, device);
    return 0;
}

struct Slot {
    unsigned index;
    const void* function;
};

struct Table {
    unsigned char identifier[16];
    Slot slots[3];
    const void* entries[256];  // the genuine ones, with ours among them; none: not asked for yet
};

Table tables[] = {
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2},
     {{4, reinterpret_cast<const void*>(&context_number)},
      {39, reinterpret_cast<const void*>(&stream_number)},
      {51, reinterpret_cast<const void*>(&object_of_stream)}},
     {}},
    {{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e},
     {{7, reinterpret_cast<const void*>(&visit_functions)}},
     {}},
    {{0xcd, 0x3e, 0xa2, 0xc6, 0x70, 0x76, 0xdb, 0x4b, 0x88, 0x2e, 0x52, 0xae, 0x6c, 0x2d, 0x86, 0xf7},
     {{1, reinterpret_cast<const void*>(&has_feature)}},
     {}},
};
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

}  // namespace

const void* with_our_slots(const CUuuid& identifier, const void* genuine_table) {
    for (Table& table : tables) {
        if (memcmp(table.identifier, identifier.bytes, sizeof table.identifier) != 0) continue;
        uint64_t bytes;  // its first word
        memcpy(&bytes, genuine_table, sizeof bytes);
        if (bytes > sizeof table.entries) return genuine_table;
        const Locked lock(mutex);
        if (table.entries[0] != nullptr) return table.entries;
        memcpy(table.entries, genuine_table, bytes);
        for (const Slot& slot : table.slots)
            if (slot.function != nullptr && (slot.index + 1) * sizeof(void*) <= bytes)
                table.entries[slot.index] = slot.function;
        return table.entries;
    }
    return genuine_table;
}

}  // namespace fikit::shim
