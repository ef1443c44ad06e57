// What the program's handles point to. A handle is the address of one of these; the first word tells whether
// it is what it is said to be, and is wiped when it ends.
#pragma once

#include <pthread.h>
#include <stdlib.h>

#include "../producer.hpp"
#include "../stateful_launch.hpp"
#include "cuda_interface.hpp"
#include "holdings.hpp"
#include "jit.hpp"
#include "process.hpp"
#include "thread.hpp"

namespace fikit::shim {

inline constexpr uint32_t stream_magic = 0x46535452, event_magic = 0x46455645, module_magic = 0x464d4f44,
                          function_magic = 0x46554e43, link_magic = 0x464c4e4b;

struct Stream {
    uint32_t magic = stream_magic;
    uint32_t name = 0;
    unsigned flags = 0;
    int priority = 0;
    Context* context = nullptr;
    StreamHints hints;
    Held held = {};
};

struct Edge;
struct Node;

struct Event {
    uint32_t magic = event_magic;
    uint32_t number = 0;
    unsigned flags = 0;
    Device* device = nullptr;
    const Context* context = nullptr;
    // One that processes share, so that others may record it: whose it is, and a stream of ours that waits
    // for it when it is asked for.
    uint32_t session = 0, asking = 0;
    bool opened = false;  // it is another process's
    bool asked = false;
    uint32_t recorded = 0;     // ever, on the GPU
    uint64_t capture = 0;      // in which it was recorded last, instead of on the GPU; 0: none
    Edge* captured = nullptr;  // what it stands for there
    size_t captured_count = 0;
    Held held = {};

    ~Event() { free(captured); }
    bool timed() const { return (flags & CU_EVENT_DISABLE_TIMING) == 0; }
};

struct Module;

// CUfunction and CUkernel alike: the runtime passes the one for the other. Nothing here is looked up when it
// is launched.
struct Function {
    uint32_t magic = function_magic;
    uint32_t number = 0;
    uint32_t device = 0;  // ordinal of its module's
    uint32_t parameter_bytes = 0;
    uint32_t parameters = 0;
    const Context* context = nullptr;         // its module's; nullptr: of a library
    const fikit_parameter* layout = nullptr;  // behind this, then how they are copied, then the name
    // The parameters again, those of 8 bytes first, then those of 4: each kind is a short loop of a launch.
    struct Place {
        uint16_t offset, index;
    };
    const Place* places = nullptr;
    uint32_t eights = 0, fours = 0;
    const char* name = nullptr;
    Module* module = nullptr;
    Function* next = nullptr;
    int32_t attribute[FIKIT_FUNCTION_ATTRIBUTES] = {};

    // The latest answers about occupancy; under the module's mutex.
    struct Occupancy {
        uint32_t threads;
        uint32_t flags;
        uint64_t shared;
        int32_t blocks;
    };
    static constexpr unsigned remembered = 8;
    Occupancy occupancy[remembered] = {};
    unsigned occupancies = 0;
    StatefulLaunch* next_launch = nullptr;  // under the same
};

static_assert(FIKIT_MAX_PARAMETERS <= UINT16_MAX);

// A kernel of a library on another device; nullptr: it is none, or could not be loaded there.
Function* twin_of(const Function& function, Device& device);
// A library on a device.
CUresult twin_of(Module& module, Device& device, Module*& twin);

// A variable of a module that was asked for.
struct Variable {
    uint64_t address;
    Variable* next;
};

struct PlacedVariables;  // variables.hpp

// CUmodule and CUlibrary alike. A library is one module for each device where it is used, made from its image
// when it first is; the program knows it by the first of them.
struct Module {
    uint32_t magic = module_magic;
    uint32_t number = 0;
    CUresult wrong = CUDA_SUCCESS;  // with a library's code: what its use is answered with
    Device* device = nullptr;
    Module* library = nullptr;      // the first; nullptr: not of a library
    Module* twins[most_gpus] = {};  // of the first, by device
    const void* image = nullptr;    // likewise
    uint64_t image_bytes = 0;
    bool owns_image = false;
    bool keeps_image = false;          // it is there as long as this
    Module* next_library = nullptr;    // of all that keep theirs (renewal.hpp)
    JitNumbers options = {};           // likewise
    const Context* context = nullptr;  // that it was loaded in; nullptr: a library, which is there in all
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    Function* functions = nullptr;
    Variable* variables = nullptr;
    PlacedVariables* managed = nullptr;  // of the first, or of a module
    bool prints = false;                 // its image names printf
    Held held = {};

    void forget_variables();  // the mutex is held, or nobody else knows the module
};

// What an executor tells of a kernel.
struct FunctionAnswer {
    fikit_reply_function_get head;
    fikit_parameter parameter[FIKIT_MAX_PARAMETERS / 4];
};

template <class Object, class Handle>
inline Object* object_of(Handle handle, uint32_t magic) {
    auto* const object = reinterpret_cast<Object*>(handle);
    return object != nullptr && object->magic == magic ? object : nullptr;
}
// Of an object that ends. Volatile: a compiler leaves out what else is stored in memory that is freed next,
// and then the handle of what is gone would be one still, where the memory is not used anew.
inline void wipe(uint32_t& magic) { const_cast<volatile uint32_t&>(magic) = 0; }
inline Event* event_of(CUevent handle) { return object_of<Event>(handle, event_magic); }
template <class Handle>
inline Function* function_of(Handle handle) {
    return object_of<Function>(handle, function_magic);
}
template <class Handle>
inline Module* module_of(Handle handle) {
    return object_of<Module>(handle, module_magic);
}
inline Stream* stream_of(CUstream handle) { return object_of<Stream>(handle, stream_magic); }

// Preferences that there are.
inline bool is_preference(CUfunc_cache config) {
    return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
}
inline bool is_preference(CUsharedconfig config) {
    return config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
           config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
}

// 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are no objects.
inline bool is_default(CUstream handle) { return reinterpret_cast<uintptr_t>(handle) <= 2; }

// Batches of copies are for streams made or a thread's own: not for the legacy one (as driver 580).
inline bool takes_batches(CUstream handle) {
    return !is_default(handle) || calling_thread().means_own(handle);
}

// Whether the legacy default stream waits for it.
inline bool is_blocking(CUstream handle) {
    return is_default(handle) || (stream_of(handle)->flags & CU_STREAM_NON_BLOCKING) == 0;
}

// The stream's name in the process (process.hpp).
inline CUresult find_stream(CUstream handle, uint32_t& name) {
    if (is_default(handle)) [[unlikely]] {
        const Thread& caller = calling_thread();
        const Context* const context = caller.current();
        if (context == nullptr) return no_context();  // a default stream is the context's
        name = context->stream;
        return caller.means_own(handle) ? own_default_stream(*context->device, name) : CUDA_SUCCESS;
    }
    const Stream* const stream = stream_of(handle);
    if (stream == nullptr) [[unlikely]]
        return CUDA_ERROR_INVALID_HANDLE;
    name = stream->name;
    return CUDA_SUCCESS;
}

// Of a stream that there is. nullptr: one of the runtime's objects of default streams.
inline const Context* context_of(CUstream stream) {
    return is_default(stream) ? thread.current() : stream_of(stream)->context;
}
inline bool is_of(const Context* home, CUstream stream) {
    const Context* const context = context_of(stream);
    return context == nullptr || context->home == home;
}

// Whether the kernel may run on the stream, which there is: a library's on any, a module's on its context's.
inline bool is_at_home(const Function& function, CUstream stream) {
    return function.context == nullptr || is_of(function.context, stream);
}

// As the program creates one in the context, which has a session.
CUresult create_stream(Context& context, CUstream* handle, unsigned flags, int priority);
// As the program destroys it.
CUresult end_event(Event& event);

// A call that needs a current context has one, and that an open session.
inline Device& current_device() { return *thread.current()->device; }
inline Producer& current_producer() { return *current_device().producer; }

}  // namespace fikit::shim
