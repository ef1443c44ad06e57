// The NVIDIA driver in this process: loaded by path beside ourselves, for its undocumented tables, which are
// handed out untouched, and for pure host code. It creates no context here, so the process holds no memory on
// the GPU. The exceptions are context-local storage, which we answer, as the genuine one knows no current
// context, and single slots that are passed handles of ours.
#pragma once

#include <pthread.h>

#include "cuda_interface.hpp"

namespace fikit::shim {

class Genuine {
  public:
    // Its exported function, or nullptr where there is no driver.
    void* function(const char* name);
    // cuInit with nothing but these devices visible, in this order, and the handles of their primary
    // contexts. NOT_INITIALIZED: in a child that was forked after it began, which natively has no use of the
    // driver either.
    CUresult initialise(const char* const* uuids, unsigned count, CUcontext* primaries);
    CUresult table(const void** table, const CUuuid* identifier);
    int driver_version();  // 0 where there is none

  private:
    bool load();
    void inherit();

    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    void* library_ = nullptr;
    bool looked_ = false;
    bool entered_ = false;    // for as long as a child that is forked meanwhile has it by halves
    bool inherited_ = false;  // so
};

extern Genuine genuine;

// Context-local storage; context 0 and -1 are the current one.
const void* context_storage_table();
// The genuine table, or a copy of it where some of its slots are ours.
const void* with_our_slots(const CUuuid& identifier, const void* genuine_table);
// The context is destroyed or reset: what was put there is given to its destructors.
void discard_storage(CUcontext context);

}  // namespace fikit::shim
