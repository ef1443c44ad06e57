// The limits of a context (cuCtxGetLimit, cuCtxSetLimit) as an H100 and an H200 with driver 580 have them:
// which there are, what they are at first, and what the driver makes of a wish. For whoever answers in the
// driver's place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_interface.hpp"  // of whoever includes this

namespace fikit {

// The attributes of a device that they depend on.
struct LimitedBy {
    std::size_t multiprocessors;
    std::size_t l2_bytes;
    std::size_t most_persisting_l2;  // MAX_PERSISTING_L2_CACHE_SIZE
    std::size_t shared_per_block;    // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN

    std::size_t persisting_l2_step() const { return l2_bytes / 16; }
};

inline constexpr unsigned limit_count = CU_LIMIT_CIG_ENABLED + 1;

// 0: the device has none such.
inline std::size_t initial_limit(CUlimit limit, const LimitedBy& device) {
    switch (limit) {
        case CU_LIMIT_STACK_SIZE:
            return 1024;
        case CU_LIMIT_PRINTF_FIFO_SIZE:
            return 65536 * device.multiprocessors;
        case CU_LIMIT_MALLOC_HEAP_SIZE:
            return 8 << 20;
        case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
            return 2048;
        case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
            return 64;
        case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
            return 3 * device.persisting_l2_step();
        case CU_LIMIT_SHMEM_SIZE:
            return device.shared_per_block;  // told, not set
        default:
            return 0;
    }
}

inline CUresult may_get_limit(CUlimit limit) {
    if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH || limit == CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    return static_cast<unsigned>(limit) < limit_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Turns `value` into what the limit becomes.
inline CUresult may_set_limit(CUlimit limit, const LimitedBy& device, std::size_t& value) {
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
            if (value > device.most_persisting_l2) value = device.most_persisting_l2;
            if (device.l2_bytes >= 16) round_up(device.persisting_l2_step());
            return CUDA_SUCCESS;
        default: {
            const CUresult known = may_get_limit(limit);
            return known == CUDA_SUCCESS ? CUDA_ERROR_NOT_PERMITTED : known;
        }
    }
}

// Those of one context. Several threads may ask and set.
class ContextLimits {
  public:
    std::size_t get(CUlimit limit, const LimitedBy& device) const {
        const bool is_set = (__atomic_load_n(&set_, __ATOMIC_ACQUIRE) & bit(limit)) != 0;
        return is_set ? __atomic_load_n(&values_[limit], __ATOMIC_RELAXED) : initial_limit(limit, device);
    }
    // To what may_set_limit made of the wish.
    void set(CUlimit limit, std::size_t value) {
        __atomic_store_n(&values_[limit], value, __ATOMIC_RELAXED);
        __atomic_or_fetch(&set_, bit(limit), __ATOMIC_RELEASE);
    }
    void forget() { __atomic_store_n(&set_, 0u, __ATOMIC_RELAXED); }

  private:
    static unsigned bit(CUlimit limit) { return 1u << limit; }

    std::size_t values_[limit_count];
    unsigned set_;
};

}  // namespace fikit
