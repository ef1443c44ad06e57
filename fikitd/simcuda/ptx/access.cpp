// Addresses of every state space to the host's view of them, with all checks and all accounting.
#include <algorithm>
#include <utility>

#include "ptx/engine.hpp"
#include "ptx/limits.hpp"
#include "ptx/system.hpp"

namespace fikit::sim::ptx {

namespace {

// The window of the generic address space that an access is to; 0: global memory.
std::uint64_t window_of(Space space, std::uint64_t address) {
    const std::uint64_t own = window_of(space);
    return own != 0 ? own : address & ~window::mask;
}

// All of it, whether the address names the window or is an offset in it.
View whole(std::vector<std::byte>& memory, std::uint64_t address) {
    return {address & ~window::mask, memory.size(), memory.data(), 0};
}

}  // namespace

// Makes room for a stack of so many bytes a lane.
void Warp::grow_local(std::uint32_t room) {
    if (room > local_stride) {
        const std::uint32_t stride =
            std::max(room, std::min<std::uint32_t>(2 * local_stride, limits::local_bytes));
        const auto rows = static_cast<unsigned>(std::bit_width(exists));
        std::vector<std::byte> wider(std::size_t{stride} * rows);
        for (std::size_t row = 0; local_room > 0 && row < rows; ++row)
            std::copy_n(local.data() + row * local_stride, local_room, wider.data() + row * stride);
        local = std::move(wider);
        local_stride = stride;
    }
    local_room = room;
}

View BlockRun::view(Space space, std::uint64_t address, AccessKind kind, Context& context) {
    const std::uint64_t high = window_of(space, address);
    if (high == 0) {
        Stretch& known = stretches_[(address >> 21) & (stretches_.size() - 1)];
        if (address < known.begin || address >= known.end) known = memory_->stretch(address);
        if (address < known.begin || address >= known.end) return {};
        if (kind != AccessKind::read && !known.writable) return {};
        return {known.begin, known.end - known.begin, known.host, 0};
    }
    if (high == window::shared) {
        constexpr std::uint64_t offsets = (std::uint64_t{1} << window::rank_shift) - 1;
        const std::uint64_t rank = (address & window::mask) >> window::rank_shift;
        std::vector<std::byte>* memory = rank == 0 ? &shared_ : shared_of(rank - 1);
        if (memory == nullptr || memory->size() < shared_start) return {};
        return {address & ~offsets, memory->size(), memory->data(), 0};
    }
    if (high == window::local) {
        Warp& warp = *context.warp;
        const std::uint32_t room = std::min(context.frame->stack_end(), launch.stack);
        if (warp.local_room < room) warp.grow_local(room);
        return {address & ~window::mask, warp.local_room, warp.local.data(), warp.local_stride};
    }
    if (high == window::parameter && kind == AccessKind::read) return whole(launch.parameters, address);
    if (high == window::workspace) return whole(launch.workspace, address);
    return {};
}

void BlockRun::account(AccessKind kind, std::uint64_t bytes) {
    if (kind != AccessKind::write) work.loaded += bytes;
    if (kind != AccessKind::read) work.stored += bytes;
}

std::byte* BlockRun::resolve_one(Space space, std::uint64_t address, std::size_t bytes, AccessKind kind,
                                 Context& context, unsigned lane) {
    const View seen = view(space, address, kind, context);
    const std::uint64_t at = address - seen.begin;
    std::byte* place = nullptr;
    if (at < seen.bytes && bytes <= seen.bytes - at) place = seen.host + seen.stride * lane + at;
    const std::uint64_t high = window_of(space, address);
    if (high == 0) {
        // What lies in several mappings.
        if (place == nullptr) place = memory_->at(address, bytes, kind != AccessKind::read);
        if (place != nullptr) {
            account(kind, bytes);
            if (launch.accesses != nullptr) launch.accesses->note(kind, address, bytes);
        }
    } else if (high == window::heap) {
        place = device_heap_at(address & window::mask, bytes);
    }
    if (place == nullptr) context.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    return place;
}

const Texture* BlockRun::texture(std::uint64_t handle, Context& context) const {
    const Texture* found = memory_->texture(handle);
    if (found == nullptr) context.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    return found;
}

bool BlockRun::resolve(Context& context, const Op& op, Mask mask, unsigned bytes, AccessKind kind,
                       std::byte** places) {
    const auto space = static_cast<Space>(op.extra & 0xff);
    if (space == Space::frame_parameter) {
        const Function& function = *context.frame->function;
        const auto offset = static_cast<std::uint64_t>(op.offset);
        if (offset > function.parameter_bytes || bytes > function.parameter_bytes - offset) {
            context.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
            return false;
        }
        std::byte* base = context.frame->parameters + offset;
        each_lane(mask,
                  [&](unsigned lane) { places[lane] = base + lane * std::size_t{function.parameter_bytes}; });
        return true;
    }
    const auto offset = static_cast<u64>(op.offset);
    if ((op.flags & flag::wide) != 0) {
        const u64* base = context.at<u64>(op.a);
        return resolve_lanes(context, space, mask, bytes, kind, places,
                             [&](unsigned lane) { return base[lane] + offset; });
    }
    const u32* base = context.at<u32>(op.a);
    return resolve_lanes(context, space, mask, bytes, kind, places,
                         [&](unsigned lane) { return base[lane] + offset; });
}

// What the first lane's address lies in is what the others' lie in, too, but for few accesses: then one look
// serves for all, and a plain loop finds the places. What that loop cannot vouch for goes lane by lane.
template <typename AddressOf>
bool BlockRun::resolve_lanes(Context& context, Space space, Mask mask, unsigned bytes, AccessKind kind,
                             std::byte** places, AddressOf address_of) {
    const std::uint64_t misaligned = bytes - 1;  // a power of two
    const std::uint64_t first = address_of(static_cast<unsigned>(std::countr_zero(mask)));
    const View seen = view(space, first, kind, context);
    if (seen.bytes >= bytes) {
        const std::uint64_t limit = seen.bytes - bytes;
        const auto host = reinterpret_cast<std::uintptr_t>(seen.host);
        u64 low = 0;
        u64 outside = 0;  // its highest bit
        const auto locate = [&](unsigned lane, std::uintptr_t row) {
            const u64 address = address_of(lane);
            const u64 at = address - seen.begin;
            low |= address;
            outside |= at | (limit - at);
            places[lane] = reinterpret_cast<std::byte*>(row + at);
        };
        if (mask == all_lanes) {
            std::uintptr_t row = host;
            FIKIT_EACH_LANE
            for (unsigned lane = 0; lane < lanes; ++lane) {
                locate(lane, row);
                row += seen.stride;
            }
        } else {
            each_lane(mask, [&](unsigned lane) { locate(lane, host + lane * seen.stride); });
        }
        if ((low & misaligned) == 0 && outside >> 63 == 0) {
            if (window_of(space, first) != 0) return true;
            account(kind, std::uint64_t{bytes} * static_cast<unsigned>(std::popcount(mask)));
            if (launch.accesses != nullptr)
                every_lane(mask,
                           [&](unsigned lane) { launch.accesses->note(kind, address_of(lane), bytes); });
            return true;
        }
    }
    for (Mask left = mask; left != 0; left &= left - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(left));
        const u64 address = address_of(lane);
        if ((address & misaligned) != 0) {
            context.fault = CUDA_ERROR_MISALIGNED_ADDRESS;
            return false;
        }
        places[lane] = resolve_one(space, address, bytes, kind, context, lane);
        if (places[lane] == nullptr) return false;
    }
    return true;
}

}  // namespace fikit::sim::ptx
