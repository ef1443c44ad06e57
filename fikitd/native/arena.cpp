#include "arena.hpp"

namespace fikit {

bool take_first(std::map<uint64_t, uint64_t>& holes, uint64_t size, uint64_t& at) {
    for (auto hole = holes.begin(); hole != holes.end(); ++hole) {
        if (hole->second < size) continue;
        at = hole->first;
        const uint64_t rest = hole->second - size;
        holes.erase(hole);
        if (rest > 0) holes[at + size] = rest;
        return true;
    }
    return false;
}

void give(std::map<uint64_t, uint64_t>& holes, uint64_t at, uint64_t size) {
    auto next = holes.lower_bound(at);
    if (next != holes.end() && at + size == next->first) {
        size += next->second;
        next = holes.erase(next);
    }
    if (next != holes.begin()) {
        auto before = std::prev(next);
        if (before->first + before->second == at) {
            before->second += size;
            return;
        }
    }
    holes[at] = size;
}

CUresult Arena::map(uint64_t size, uint64_t limit, CUdeviceptr& address) {
    if (limit != 0 && (size > limit || mapped_ > limit - size)) return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t at = 0;
    if (!take_first(holes_, size, at)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device_;
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = driver_.cuMemCreate_(&handle, size, &properties, 0);
    if (result == CUDA_SUCCESS) {
        result = driver_.cuMemMap_(at, size, 0, handle, 0);
        if (result == CUDA_SUCCESS) {
            result = driver_.cuMemSetAccess_(at, size, &access, 1);
            if (result != CUDA_SUCCESS) driver_.cuMemUnmap_(at, size);
        }
        if (result != CUDA_SUCCESS) driver_.cuMemRelease_(handle);
    }
    if (result != CUDA_SUCCESS) {
        give(holes_, at, size);
        return result;
    }
    extents_[at] = Extent{size, handle};
    mapped_ += size;
    address = at;
    return CUDA_SUCCESS;
}

CUresult Arena::unmap(CUdeviceptr address) {
    auto extent = extents_.find(address);
    if (extent == extents_.end()) return CUDA_ERROR_INVALID_VALUE;
    const CUresult unmapped = driver_.cuMemUnmap_(address, extent->second.size);
    const CUresult released = driver_.cuMemRelease_(extent->second.handle);
    mapped_ -= extent->second.size;
    give(holes_, address, extent->second.size);
    extents_.erase(extent);
    return unmapped != CUDA_SUCCESS ? unmapped : released;
}

CUresult Arena::allocate(uint64_t size, uint64_t limit, CUdeviceptr& address, uint64_t& charged) {
    if (size == 0) return CUDA_ERROR_INVALID_VALUE;
    if (size > uint64_t{1} << 47) return CUDA_ERROR_OUT_OF_MEMORY;
    if (size <= small_limit) {
        charged = (size + small_align - 1) / small_align * small_align;
        return allocate_small(charged, limit, address);
    }
    charged = (size + granule - 1) / granule * granule;
    return map(charged, limit, address);
}

CUresult Arena::allocate_small(uint64_t size, uint64_t limit, CUdeviceptr& address) {
    uint64_t offset = 0;
    for (auto& [base, slab] : slabs_) {
        if (!take_first(slab.holes, size, offset)) continue;
        slab.pieces[offset] = size;
        address = base + offset;
        return CUDA_SUCCESS;
    }
    CUdeviceptr base = 0;
    const CUresult result = map(granule, limit, base);
    if (result != CUDA_SUCCESS) return result;
    Slab& slab = slabs_[base];
    slab.holes[0] = granule;
    take_first(slab.holes, size, offset);
    slab.pieces[offset] = size;
    address = base + offset;
    return CUDA_SUCCESS;
}

CUresult Arena::release(CUdeviceptr address) {
    auto slab = slabs_.upper_bound(address);
    if (slab != slabs_.begin()) {
        --slab;
        const uint64_t offset = address - slab->first;
        if (offset < granule) {
            auto piece = slab->second.pieces.find(offset);
            if (piece == slab->second.pieces.end()) return CUDA_ERROR_INVALID_VALUE;
            give(slab->second.holes, offset, piece->second);
            slab->second.pieces.erase(piece);
            if (!slab->second.pieces.empty()) return CUDA_SUCCESS;
            const CUdeviceptr base = slab->first;
            slabs_.erase(slab);
            return unmap(base);
        }
    }
    return unmap(address);
}

CUresult Arena::create(uint64_t size, uint64_t limit, CUmemGenericAllocationHandle& handle) {
    if (limit != 0 && (size > limit || mapped_ > limit - size)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device_;
    const CUresult result = driver_.cuMemCreate_(&handle, size, &properties, 0);
    if (result == CUDA_SUCCESS) mapped_ += size;
    return result;
}

void Arena::destroy(uint64_t size, CUmemGenericAllocationHandle handle) {
    driver_.cuMemRelease_(handle);
    mapped_ -= size;
}

void Arena::clear() {
    slabs_.clear();
    while (!extents_.empty()) unmap(extents_.begin()->first);
}

}  // namespace fikit
