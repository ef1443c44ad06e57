// What a program says of managed memory (cuMemAdvise, cuMemPrefetchAsync) and asks for again
// (cuMemRangeGetAttribute), page by page. For whoever answers in the driver's place: nothing moves.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>

#include "cuda_interface.hpp"  // of whoever includes this

namespace fikit {

// A location that memory can be at, as it is told afterwards. `absent`: of a device that there is not, which
// the calls say each in its own way (seen on an H200).
inline CUresult settle_location(CUmemLocation& location, int devices, CUresult absent) {
    char node[64];
    unsigned current = 0;
    switch (location.type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
            return location.id >= 0 && location.id < devices ? CUDA_SUCCESS : absent;
        case CU_MEM_LOCATION_TYPE_HOST:
            location.id = CU_DEVICE_CPU;
            return CUDA_SUCCESS;
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
            snprintf(node, sizeof node, "/sys/devices/system/node/node%d", location.id);
            return location.id == 0 || access(node, F_OK) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
            if (syscall(SYS_getcpu, nullptr, &current, nullptr) != 0) current = 0;
            location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, {static_cast<int>(current)}};
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

// A location as CUDA 8 names it.
inline CUmemLocation location_of(CUdevice device) {
    return {device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE, {device}};
}

// All that was said of one allocation.
class ManagedAdvice {
  public:
    ManagedAdvice(uint64_t address, uint64_t bytes)
        : first_{address, {}, nullptr}, end_(up(address + bytes)) {}
    ~ManagedAdvice() {
        while (first_.next != nullptr) {
            Piece* const piece = first_.next;
            first_.next = piece->next;
            delete piece;
        }
    }
    ManagedAdvice(const ManagedAdvice&) = delete;
    ManagedAdvice& operator=(const ManagedAdvice&) = delete;

    // Whether all of a range is this allocation's, to the end of its last page.
    bool holds(uint64_t address, uint64_t bytes) const {
        return bytes != 0 && address >= first_.begin && address < end_ && bytes <= end_ - address;
    }

    CUresult advise(uint64_t address, uint64_t bytes, CUmem_advise advice, CUmemLocation location,
                    int devices, CUresult absent) {
        if (!holds(address, bytes) || location.type == CU_MEM_LOCATION_TYPE_INVALID)
            return CUDA_ERROR_INVALID_VALUE;
        const bool prefers = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
        const bool accesses =
            advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
        if (accesses && location.type != CU_MEM_LOCATION_TYPE_DEVICE &&
            location.type != CU_MEM_LOCATION_TYPE_HOST)
            return CUDA_ERROR_INVALID_VALUE;
        if (prefers || accesses)
            if (const CUresult result = settle_location(location, devices, absent); result != CUDA_SUCCESS)
                return result;
        switch (advice) {
            case CU_MEM_ADVISE_SET_READ_MOSTLY:
                return change(address, bytes, [](Said& said) { said.read_mostly = true; });
            case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
                return change(address, bytes, [](Said& said) { said.read_mostly = false; });
            case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
                // An H200's driver takes a node of the host, and remembers what was.
                if (location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) return CUDA_SUCCESS;
                return change(address, bytes, [&](Said& said) { said.preferred = location; });
            case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
                return change(address, bytes, [](Said& said) { said.preferred = nowhere; });
            case CU_MEM_ADVISE_SET_ACCESSED_BY:
                return change(address, bytes, [&](Said& said) { said.accessed_by |= bit_of(location); });
            case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
                return change(address, bytes, [&](Said& said) { said.accessed_by &= ~bit_of(location); });
            default:
                return CUDA_ERROR_INVALID_VALUE;
        }
    }

    CUresult prefetch(uint64_t address, uint64_t bytes, CUmemLocation location, int devices,
                      CUresult absent) {
        if (!holds(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult result = settle_location(location, devices, absent); result != CUDA_SUCCESS)
            return result;
        return change(address, bytes, [&](Said& said) { said.prefetched = location; });
    }

    CUresult attribute(void* data, size_t size, CUmem_range_attribute attribute, uint64_t address,
                       uint64_t bytes) const {
        if (data == nullptr || !holds(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
        const Said said = common(address, bytes);
        auto* const number = static_cast<int32_t*>(data);
        if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
            if (size == 0 || size % sizeof *number != 0) return CUDA_ERROR_INVALID_VALUE;
            size_t count = 0;
            for (int bit = 0; bit <= host_bit && count < size / sizeof *number; ++bit)
                if ((said.accessed_by >> bit & 1) != 0)
                    number[count++] = bit == host_bit ? CU_DEVICE_CPU : bit;
            while (count < size / sizeof *number) number[count++] = CU_DEVICE_INVALID;
            return CUDA_SUCCESS;
        }
        if (size != sizeof *number) return CUDA_ERROR_INVALID_VALUE;
        switch (attribute) {
            case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
                *number = said.read_mostly ? 1 : 0;
                return CUDA_SUCCESS;
            case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
                *number = device_of(said.preferred);
                return CUDA_SUCCESS;
            case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
                *number = device_of(said.prefetched);
                return CUDA_SUCCESS;
            case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
                *number = said.preferred.type;
                return CUDA_SUCCESS;
            case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
                *number = said.preferred.id;
                return CUDA_SUCCESS;
            case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
                *number = said.prefetched.type;
                return CUDA_SUCCESS;
            case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
                *number = said.prefetched.id;
                return CUDA_SUCCESS;
            default:
                return CUDA_ERROR_INVALID_VALUE;
        }
    }

  private:
    static constexpr uint64_t page = 4096;
    static constexpr int host_bit = 63;
    static constexpr CUmemLocation nowhere = {CU_MEM_LOCATION_TYPE_INVALID, {CU_DEVICE_INVALID}};
    struct Said {
        CUmemLocation preferred = nowhere, prefetched = nowhere;
        uint64_t accessed_by = 0;
        bool read_mostly = false;
    };
    struct Piece {  // up to the next one
        uint64_t begin;
        Said said;
        Piece* next;
    };

    static uint64_t bit_of(const CUmemLocation& location) {
        return uint64_t{1} << (location.type == CU_MEM_LOCATION_TYPE_HOST ? host_bit : location.id);
    }
    static int32_t device_of(const CUmemLocation& location) {
        if (location.type == CU_MEM_LOCATION_TYPE_INVALID) return CU_DEVICE_INVALID;
        return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU;
    }
    static bool same(const CUmemLocation& one, const CUmemLocation& other) {
        return one.type == other.type && one.id == other.id;
    }

    static uint64_t down(uint64_t address) { return address / page * page; }
    static uint64_t up(uint64_t address) { return (address + page - 1) / page * page; }

    // Makes a piece begin there. False: no memory for it.
    bool split(uint64_t at) {
        if (at >= end_) return true;
        Piece* piece = &first_;
        while (piece->next != nullptr && piece->next->begin <= at) piece = piece->next;
        if (at <= piece->begin) return true;
        auto* const behind = new (std::nothrow) Piece{at, piece->said, piece->next};
        if (behind == nullptr) return false;
        piece->next = behind;
        return true;
    }
    template <class Change>
    CUresult change(uint64_t address, uint64_t bytes, Change apply) {
        const uint64_t begin = down(address), end = up(address + bytes);
        if (!split(begin) || !split(end)) return CUDA_ERROR_OUT_OF_MEMORY;
        for (Piece* piece = &first_; piece != nullptr; piece = piece->next)
            if (piece->begin < end && (piece->next == nullptr || piece->next->begin > begin))
                apply(piece->said);
        return CUDA_SUCCESS;
    }
    // What holds for every page of a range.
    Said common(uint64_t address, uint64_t bytes) const {
        const uint64_t begin = down(address), end = up(address + bytes);
        Said all;
        bool any = false;
        for (const Piece* piece = &first_; piece != nullptr; piece = piece->next) {
            if (piece->begin >= end || (piece->next != nullptr && piece->next->begin <= begin)) continue;
            const Said& said = piece->said;
            if (!any) all = said;
            any = true;
            if (!same(all.preferred, said.preferred)) all.preferred = nowhere;
            if (!same(all.prefetched, said.prefetched)) all.prefetched = nowhere;
            all.accessed_by &= said.accessed_by;
            all.read_mostly = all.read_mostly && said.read_mostly;
        }
        return all;
    }

    Piece first_;
    uint64_t end_;
};

// Where the ranges of a batch are to go (cuMemPrefetchBatchAsync).
struct PrefetchBatch {
    const CUmemLocation* locations;
    const size_t* first;  // range that a location is for; up to the next one's
    size_t location_count, count;

    bool makes_sense() const {
        if (locations == nullptr || first == nullptr || location_count == 0 || location_count > count ||
            first[0] != 0)
            return false;
        for (size_t i = 1; i < location_count; ++i)
            if (first[i] <= first[i - 1] || first[i] >= count) return false;
        return true;
    }
    CUmemLocation location(size_t range) const {
        size_t at = 0;
        while (at + 1 < location_count && first[at + 1] <= range) ++at;
        return locations[at];
    }
};

}  // namespace fikit
