/* In the NVIDIA driver's place: its undocumented tables alone, whose functions all fail, but for the one that
   names primary contexts to the runtime. */
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#define SLOTS 64

static CUresult untouched(void) { return CUDA_ERROR_UNKNOWN; }

static CUresult name_primary(CUcontext* context, CUdevice device) {
    *context = (CUcontext)(uintptr_t)(0x7fff5000 + 64 * device);
    return CUDA_SUCCESS;
}

#ifdef SLOW_MICROSECONDS
__attribute__((constructor)) static void loaded(void) { usleep(SLOW_MICROSECONDS); }
#else
#define SLOW_MICROSECONDS 0
#endif

CUresult cuInit(unsigned flags) {
    static pthread_mutex_t whole = PTHREAD_MUTEX_INITIALIZER;
    static pid_t initialised;
    pthread_mutex_lock(&whole);
    usleep(SLOW_MICROSECONDS);
    if (initialised == 0) initialised = getpid();
    const int inherited = initialised != getpid();
    pthread_mutex_unlock(&whole);
    return inherited ? CUDA_ERROR_NOT_INITIALIZED : flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetExportTable(const void** table, const CUuuid* identifier) {
    static const void* entries[3][SLOTS];
    const int of_runtime = identifier->bytes[0] == 0x6b;
    const void** chosen = entries[of_runtime ? 2 : identifier->bytes[0] == 0x21];
    for (int i = 1; i < SLOTS; ++i) chosen[i] = (const void*)untouched;
    chosen[0] = (const void*)sizeof entries[0];
    if (of_runtime) chosen[2] = (const void*)name_primary;
    *table = chosen;
    return CUDA_SUCCESS;
}
