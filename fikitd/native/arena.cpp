#include "arena.hpp"

#include <algorithm>

#include "array_shape.hpp"

namespace fikit {
namespace {

constexpr uint64_t largest = uint64_t{1} << 47;  // bytes; beyond any device

}  // namespace

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

CUresult Arena::map(uint64_t size, CUdeviceptr& address) {
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

void Arena::unmap(CUdeviceptr address) {
    const auto extent = extents_.find(address);
    const uint64_t size = extent->second.size;
    driver_.cuMemUnmap_(address, size);
    if (extent->second.shared == nullptr) driver_.cuMemRelease_(extent->second.handle);
    mapped_ -= size;
    give(holes_, address, size);
    extents_.erase(extent);
}

// What is kept must not be why the limit is exceeded.
bool Arena::make_room(uint64_t size, uint64_t limit) {
    if (!fits(size, limit)) return false;
    if (limit != 0 && mapped_ > limit - size) trim();
    return true;
}

// A new one, when none is kept. Nor must what is kept be why the device is full.
CUresult Arena::take_extent(uint64_t size, uint64_t limit, CUdeviceptr& address) {
    if (take_kept(size, limit, address)) return CUDA_SUCCESS;
    if (!make_room(size, limit)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = map(size, address);
    if (result != CUDA_ERROR_OUT_OF_MEMORY || kept_.empty()) return result;
    trim();
    return map(size, address);
}

bool Arena::take_kept(uint64_t size, uint64_t limit, CUdeviceptr& address) {
    // What others may map is no new memory.
    const auto newest = std::find_if(kept_.rbegin(), kept_.rend(), [&](const Kept& kept) {
        return kept.size == size && extents_.find(kept.address)->second.shared == nullptr;
    });
    if (newest == kept_.rend() || !fits(size, limit)) return false;
    address = newest->address;
    extents_[address].kept = false;
    kept_bytes_ -= size;
    kept_.erase(std::next(newest).base());
    return true;
}

bool Arena::take_piece(CUdeviceptr base, uint64_t size, CUdeviceptr& address) {
    const auto slab = slabs_.find(base);
    uint64_t offset = 0;
    if (slab == slabs_.end() || !take_first(slab->second.holes, size, offset)) return false;
    slab->second.pieces[offset] = size;
    address = base + offset;
    recent_ = base;
    return true;
}

bool Arena::take(uint64_t size, uint64_t limit, CUdeviceptr& address, uint64_t& charged) {
    if (size == 0 || size > largest) return false;
    const bool small = size <= small_limit;
    charged = whole(size, small ? small_align : granule);
    if (!small) return take_kept(charged, limit, address);
    if (take_piece(recent_, charged, address)) return true;
    CUdeviceptr base = 0;
    if (!take_kept(granule, limit, base)) return false;
    slabs_[base].holes[0] = granule;
    return take_piece(base, charged, address);
}

CUresult Arena::allocate(uint64_t size, uint64_t limit, CUdeviceptr& address, uint64_t& charged) {
    if (size == 0) return CUDA_ERROR_INVALID_VALUE;
    if (size > largest) return CUDA_ERROR_OUT_OF_MEMORY;
    if (take(size, limit, address, charged)) return CUDA_SUCCESS;
    if (size > small_limit) return take_extent(charged, limit, address);
    for (const auto& [base, slab] : slabs_)
        if (take_piece(base, charged, address)) return CUDA_SUCCESS;
    CUdeviceptr base = 0;
    if (const CUresult result = take_extent(granule, limit, base); result != CUDA_SUCCESS) return result;
    slabs_[base].holes[0] = granule;
    take_piece(base, charged, address);
    return CUDA_SUCCESS;
}

CUresult Arena::release(CUdeviceptr address, Nanoseconds now) {
    auto slab = slabs_.upper_bound(address);
    if (slab != slabs_.begin()) {
        --slab;
        const uint64_t offset = address - slab->first;
        if (offset < granule) {
            auto piece = slab->second.pieces.find(offset);
            if (piece == slab->second.pieces.end()) return CUDA_ERROR_INVALID_VALUE;
            recent_ = slab->first;
            give(slab->second.holes, offset, piece->second);
            slab->second.pieces.erase(piece);
            if (!slab->second.pieces.empty()) return CUDA_SUCCESS;
            const CUdeviceptr base = slab->first;
            slabs_.erase(slab);
            return keep(base, now);
        }
    }
    return keep(address, now);
}

uint64_t Arena::released_by(std::vector<CUdeviceptr> addresses) const {
    std::sort(addresses.begin(), addresses.end());
    uint64_t bytes = 0;
    for (auto each = addresses.begin(); each != addresses.end();) {
        auto slab = slabs_.upper_bound(*each);
        const CUdeviceptr base = slab != slabs_.begin() ? (--slab)->first : 0;
        if (base == 0 || *each - base >= granule) {
            const auto extent = extents_.find(*each++);
            if (extent != extents_.end()) bytes += extent->second.size;
            continue;
        }
        const auto next = std::lower_bound(each, addresses.end(), base + granule);
        if (static_cast<size_t>(next - each) == slab->second.pieces.size()) bytes += granule;
        each = next;
    }
    return bytes;
}

CUresult Arena::keep(CUdeviceptr address, Nanoseconds now) {
    const auto extent = extents_.find(address);
    if (extent == extents_.end() || extent->second.kept) return CUDA_ERROR_INVALID_VALUE;
    extent->second.kept = true;
    kept_.push_back({address, extent->second.size, now});
    kept_bytes_ += extent->second.size;
    return CUDA_SUCCESS;
}

void Arena::trim(Nanoseconds before) {
    auto kept = kept_.begin();
    for (; kept != kept_.end() && kept->since <= before; ++kept) {
        unmap(kept->address);
        kept_bytes_ -= kept->size;
    }
    kept_.erase(kept_.begin(), kept);
}

CUresult Arena::create(uint64_t size, uint64_t limit, CUmemGenericAllocationHandle& handle) {
    if (!make_room(size, limit)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device_;
    CUresult result = driver_.cuMemCreate_(&handle, size, &properties, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && !kept_.empty()) {
        trim();
        result = driver_.cuMemCreate_(&handle, size, &properties, 0);
    }
    if (result == CUDA_SUCCESS) mapped_ += size;
    return result;
}

void Arena::destroy(uint64_t size, CUmemGenericAllocationHandle handle) {
    driver_.cuMemRelease_(handle);
    mapped_ -= size;
}

CUresult Arena::charge(uint64_t size, uint64_t limit) {
    if (!make_room(size, limit)) return CUDA_ERROR_OUT_OF_MEMORY;
    mapped_ += size;
    return CUDA_SUCCESS;
}

std::shared_ptr<SharedExtent> Arena::share(CUdeviceptr address, uint32_t number, uint64_t& offset) {
    auto extent = extents_.upper_bound(address);
    if (extent == extents_.begin()) return nullptr;
    --extent;
    offset = address - extent->first;
    Extent& found = extent->second;
    if (offset >= found.size || found.kept) return nullptr;
    if (found.shared == nullptr)
        found.shared = std::make_shared<SharedExtent>(driver_, found.handle, found.size, number);
    return found.shared;
}

void Arena::clear() {
    slabs_.clear();
    kept_.clear();
    kept_bytes_ = 0;
    while (!extents_.empty()) unmap(extents_.begin()->first);
}

}  // namespace fikit
