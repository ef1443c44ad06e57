/* In the NVIDIA driver's place: its undocumented tables alone, whose functions all fail. */
#include <cuda.h>

#define SLOTS 64

static CUresult untouched(void) { return CUDA_ERROR_UNKNOWN; }

CUresult cuGetExportTable(const void** table, const CUuuid* identifier) {
    static const void* entries[2][SLOTS];
    const void** chosen = entries[identifier->bytes[0] == 0x21];
    for (int i = 1; i < SLOTS; ++i) chosen[i] = (const void*)untouched;
    chosen[0] = (const void*)sizeof entries[0];
    *table = chosen;
    return CUDA_SUCCESS;
}
