// How much memory the graphs of a device use and keep (cuDeviceGetGraphMemAttribute): in the blocks that an
// H200 with driver 580 takes it in, and kept until it is trimmed. For whoever answers in the driver's place,
// and has a lock for it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda_interface.hpp"  // of whoever includes this

namespace fikit {

class GraphMemoryUse {
  public:
    void allocate(std::uint64_t bytes) {
        bytes_ += bytes;
        kept_ = std::max(kept_, used());
        most_used_ = std::max(most_used_, used());
        most_kept_ = std::max(most_kept_, kept_);
    }
    void free(std::uint64_t bytes) { bytes_ -= bytes; }
    void trim() { kept_ = used(); }

    CUresult get(CUgraphMem_attribute attribute, void* value) const {
        if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const std::uint64_t values[] = {used(), most_used_, kept_, most_kept_};
        if (static_cast<unsigned>(attribute) >= std::size(values)) return CUDA_ERROR_INVALID_VALUE;
        *static_cast<cuuint64_t*>(value) = values[attribute];
        return CUDA_SUCCESS;
    }
    // The most that there was can only be forgotten.
    CUresult set(CUgraphMem_attribute attribute, const void* value) {
        if (value == nullptr || *static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
        if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
            most_used_ = used();
        else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
            most_kept_ = kept_;
        else
            return CUDA_ERROR_INVALID_VALUE;
        return CUDA_SUCCESS;
    }

  private:
    static constexpr std::uint64_t block = 32 << 20;
    std::uint64_t used() const { return (bytes_ + block - 1) / block * block; }

    std::uint64_t bytes_ = 0;
    std::uint64_t kept_ = 0, most_used_ = 0, most_kept_ = 0;  // in blocks, as used()
};

}  // namespace fikit
