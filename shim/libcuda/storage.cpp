// Context-local storage. Every call of the runtime API looks something up here, so reading takes no lock: a
// fixed table of open addressing whose keys, once written, stay; only values come and go.
#include <pthread.h>

#include "channel.hpp"
#include "genuine.hpp"
#include "process.hpp"
#include "thread.hpp"

namespace fikit::shim {
namespace {

using Destructor = void (*)(CUcontext, void* key, void* value);

struct Slot {
    CUcontext context;
    void* key;  // written last; nullptr: free
    void* value;
    Destructor destructor;
    bool present;
};

constexpr size_t slots = 4096;  // a power of two
Slot table[slots];
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

CUcontext resolved(CUcontext context) {
    if (context != nullptr && context != reinterpret_cast<CUcontext>(UINTPTR_MAX)) return context;
    const Context* current = thread.current();
    return current != nullptr ? current->handle : nullptr;
}

// The slot of the pair, or the free one where it would be put, or nullptr.
Slot* find(CUcontext context, void* key) {
    const uint64_t mixed =
        (reinterpret_cast<uintptr_t>(key) ^ reinterpret_cast<uintptr_t>(context)) * 0x9e3779b97f4a7c15u;
    for (size_t turn = 0; turn < slots; ++turn) {
        Slot& slot = table[((mixed >> 40) + turn) % slots];
        void* const there = load_acquire(slot.key);
        if (there == nullptr || (there == key && slot.context == context)) return &slot;
    }
    return nullptr;
}

CUresult put(CUcontext context, void* key, void* value, Destructor destructor) {
    context = resolved(context);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (key == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Locked lock(mutex);
    Slot* const slot = find(context, key);
    if (slot == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    slot->context = context;
    slot->destructor = destructor;
    store_release(slot->value, value);
    store_release(slot->present, true);
    store_release(slot->key, key);
    return CUDA_SUCCESS;
}

CUresult remove(CUcontext context, void* key) {
    context = resolved(context);
    const Locked lock(mutex);
    Slot* const slot = find(context, key);
    if (slot == nullptr || slot->key == nullptr || !slot->present) return CUDA_ERROR_INVALID_HANDLE;
    store_release(slot->present, false);
    return CUDA_SUCCESS;
}

CUresult get(void** value, CUcontext context, void* key) {
    context = resolved(context);
    const Slot* const slot = find(context, key);
    if (slot == nullptr || load_acquire(slot->key) == nullptr || !load_acquire(slot->present))
        return CUDA_ERROR_INVALID_HANDLE;
    *value = load_acquire(slot->value);
    return CUDA_SUCCESS;
}

const void* const entries[] = {reinterpret_cast<const void*>(&put), reinterpret_cast<const void*>(&remove),
                               reinterpret_cast<const void*>(&get), nullptr};

}  // namespace

const void* context_storage_table() { return entries; }

void discard_storage(CUcontext context) {
    for (Slot& slot : table) {
        void* value = nullptr;
        Destructor destructor = nullptr;
        {
            const Locked lock(mutex);
            if (slot.key == nullptr || slot.context != context || !slot.present) continue;
            store_release(slot.present, false);
            value = slot.value;
            destructor = slot.destructor;
        }
        if (destructor != nullptr) destructor(context, slot.key, value);
    }
}

}  // namespace fikit::shim
