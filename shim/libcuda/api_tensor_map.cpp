// Tensor maps. How they are written is the driver's own, and it wants a context for that, so the executor
// makes them; Triton makes one for each launch, so the latest are remembered.
#include <string.h>

#include "entry.hpp"
#include "objects.hpp"
#include "served.hpp"

namespace fikit::shim {
namespace {

using Request = fikit_request_tensor_map;

struct Known {
    Request request;
    uint64_t map[CU_TENSOR_MAP_NUM_QWORDS];
    bool used;
};
constexpr unsigned remembered = 32;
Known known[remembered];
unsigned next = 0;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

CUresult make(CUtensorMap* map, const Request& request) {
    {
        const Locked lock(mutex);
        for (const Known& each : known)
            if (each.used && memcmp(&each.request, &request, sizeof request) == 0) {
                memcpy(static_cast<void*>(map), each.map, sizeof each.map);
                return CUDA_SUCCESS;
            }
    }
    fikit_reply_tensor_map answer{};
    Reply reply = {&answer, sizeof answer, 0};
    const Status status = current_producer().call(fikit_call_tensor_map, {&request, sizeof request}, reply);
    if (status != status::success) return result_of(status);
    memcpy(static_cast<void*>(map), answer.map, sizeof answer.map);
    const Locked lock(mutex);
    Known& entry = known[next++ % remembered];
    entry.request = request;
    memcpy(entry.map, answer.map, sizeof entry.map);
    entry.used = true;
    return CUDA_SUCCESS;
}

// What both kinds have in common. False: impossible.
bool describe(Request& request, const CUtensorMap* map, unsigned kind, CUtensorMapDataType type,
              cuuint32_t rank, const void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
              const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
              CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    memset(&request, 0, sizeof request);  // it is compared whole
    if (map == nullptr || rank == 0 || rank > FIKIT_TENSOR_RANK || sizes == nullptr || steps == nullptr ||
        (rank > 1 && strides == nullptr))
        return false;
    request.kind = kind;
    request.type = static_cast<uint32_t>(type);
    request.rank = rank;
    request.interleave = static_cast<uint32_t>(interleave);
    request.swizzle = static_cast<uint32_t>(swizzle);
    request.promotion = static_cast<uint32_t>(promotion);
    request.fill = static_cast<uint32_t>(fill);
    request.address = reinterpret_cast<uintptr_t>(address);
    memcpy(request.sizes, sizes, rank * sizeof *sizes);
    if (rank > 1) memcpy(request.strides, strides, (rank - 1) * sizeof *strides);
    memcpy(request.steps, steps, rank * sizeof *steps);
    return true;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
    Request request;
    if (!describe(request, map, FIKIT_TENSOR_TILED, type, rank, address, sizes, strides, steps, interleave,
                  swizzle, promotion, fill) ||
        box == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(request.box, box, rank * sizeof *box);
    return make(map, request);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                 const cuuint64_t* sizes, const cuuint64_t* strides, const int* lower,
                                 const int* upper, cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                 CUtensorMapFloatOOBfill fill) {
    Request request;
    if (!describe(request, map, FIKIT_TENSOR_IM2COL, type, rank, address, sizes, strides, steps, interleave,
                  swizzle, promotion, fill) ||
        rank < 3 || lower == nullptr || upper == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(request.lower, lower, (rank - 2) * sizeof *lower);
    memcpy(request.upper, upper, (rank - 2) * sizeof *upper);
    request.channels = channels;
    request.pixels = pixels;
    return make(map, request);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
    if (map == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Request request;
    memset(&request, 0, sizeof request);
    request.kind = FIKIT_TENSOR_REPLACE;
    request.address = reinterpret_cast<uintptr_t>(address);
    memcpy(request.map, map->opaque, sizeof request.map);
    return make(map, request);
}

}  // namespace fikit::shim
