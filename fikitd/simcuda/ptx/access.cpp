// Addresses of every state space to the host's view of them, with all checks and all accounting.
#include "ptx/engine.hpp"
#include "ptx/limits.hpp"
#include "ptx/system.hpp"

namespace fikit::sim::ptx {

namespace {

std::byte* inside(std::vector<std::byte>& memory, std::uint64_t offset, std::size_t bytes) {
    return offset <= memory.size() && bytes <= memory.size() - offset ? memory.data() + offset : nullptr;
}

}  // namespace

std::byte* BlockRun::resolve_one(Space space, std::uint64_t address, std::size_t bytes, AccessKind kind,
                                 Context& context, unsigned lane) {
    std::uint64_t high = 0;
    if (space == Space::generic || space == Space::global || space == Space::constant) {
        high = address & ~window::mask;
    } else if (space == Space::shared) {
        high = window::shared;
        if ((address & ~window::mask) == window::shared) address &= window::mask;
    } else if (space == Space::local) {
        high = window::local;
    } else {
        high = window::parameter;
    }
    std::byte* place = nullptr;
    if (high == 0) {
        Stretch& known = stretches_[(address >> 21) & (stretches_.size() - 1)];
        const bool write = kind != AccessKind::read;
        if (address < known.begin || address >= known.end) known = memory_->stretch(address);
        if (address >= known.begin && address < known.end && bytes <= known.end - address) {
            if (!write || known.writable) place = known.host + (address - known.begin);
        } else {
            place = memory_->at(address, bytes, write);
        }
        if (place != nullptr) {
            (kind == AccessKind::read ? work.loaded : work.stored) += bytes;
            if (kind == AccessKind::atomic) work.loaded += bytes;
            if (launch.accesses != nullptr) launch.accesses->note(kind, address, bytes);
        }
    } else if (high == window::shared) {
        const std::uint64_t rank = (address & window::mask) >> window::rank_shift;
        const std::uint64_t offset = address & ((std::uint64_t{1} << window::rank_shift) - 1);
        std::vector<std::byte>* memory = rank == 0 ? &shared_ : shared_of(rank - 1);
        if (memory != nullptr && offset >= shared_start) place = inside(*memory, offset, bytes);
    } else if (high == window::local) {
        const std::uint64_t offset = address & window::mask;
        std::vector<std::byte>& local = context.warp->local[lane];
        const std::uint64_t room =
            std::uint64_t{context.frame->local_base} + context.frame->function->local_bytes;
        if (offset < room && local.size() < room) local.resize(room);
        place = inside(local, offset, bytes);
    } else if (high == window::parameter) {
        if (kind == AccessKind::read) place = inside(launch.parameters, address & window::mask, bytes);
    } else if (high == window::workspace) {
        place = inside(launch.workspace, address & window::mask, bytes);
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
    const bool wide = (op.flags & flag::wide) != 0;
    const u64* base64 = context.at<u64>(op.a);
    const u32* base32 = context.at<u32>(op.a);
    const auto offset = static_cast<u64>(op.offset);
    const std::uint64_t misaligned = bytes - 1;  // a power of two
    for (Mask left = mask; left != 0; left &= left - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(left));
        const u64 address = (wide ? base64[lane] : base32[lane]) + offset;
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
