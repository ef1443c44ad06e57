// The limits of a context (cuCtxGetLimit, cuCtxSetLimit) as an H200 with driver 580 has them: which there
// are, what they are at first, and what the driver makes of a wish. For whoever answers in the driver's
// place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_interface.hpp"  // of whoever includes this

namespace fikit {

// A sixteenth of the L2 cache.
inline constexpr std::size_t persisting_l2_step = 60 * 1024 * 1024 / 16;

// In the order of CUlimit. 0: the device has none such.
inline constexpr std::size_t initial_limits[] = {
    1024,                      // stack of a thread
    std::size_t{65536} * 132,  // printf: for each multiprocessor
    8 << 20,                   // heap
    0,                         // depth of synchronisation on the device
    2048,                      // pending launches of the device
    64,                        // fetch granularity of L2
    3 * persisting_l2_step,    // persisting L2
    232448,                    // shared memory of a block; told, not set
    0,                         // CIG; likewise
};
inline constexpr unsigned limit_count = sizeof initial_limits / sizeof initial_limits[0];

inline CUresult may_get_limit(CUlimit limit) {
    if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH || limit == CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    return static_cast<unsigned>(limit) < limit_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Turns `value` into what the limit becomes.
inline CUresult may_set_limit(CUlimit limit, std::size_t& value) {
    const auto round_up = [&](std::size_t step) { value = (value + step - 1) / step * step; };
    switch (limit) {
        case CU_LIMIT_STACK_SIZE:
            if (value > 512 * 1024) return CUDA_ERROR_INVALID_VALUE;
            round_up(16);
            return CUDA_SUCCESS;
        case CU_LIMIT_PRINTF_FIFO_SIZE:
            if (value < 512 << 10) value = 512 << 10;
            return CUDA_SUCCESS;
        case CU_LIMIT_MALLOC_HEAP_SIZE:
            if (value < 4 << 20) value = 4 << 20;
            return CUDA_SUCCESS;
        case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
            if (value > 599186) value = 599186;
            return CUDA_SUCCESS;
        case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
            return value > 128 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
        case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
            // CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE
            if (value > 10 * persisting_l2_step) value = 10 * persisting_l2_step;
            round_up(persisting_l2_step);
            return CUDA_SUCCESS;
        default: {
            const CUresult known = may_get_limit(limit);
            return known == CUDA_SUCCESS ? CUDA_ERROR_NOT_PERMITTED : known;
        }
    }
}

}  // namespace fikit
