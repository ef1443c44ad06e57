// cp.async.bulk and cp.reduce.async.bulk: whole stretches of memory, moved by one thread.
#include <algorithm>
#include <cstring>
#include <limits>

#include "ptx/async.hpp"
#include "ptx/engine.hpp"

namespace fikit::sim::ptx {

namespace {

// From [op.b] to [op.a], op.c bytes, of spaces in op.width. `each` gets the host's views of every 16 bytes:
// stretches of global memory may lie in several pieces.
template <typename Each>
void stretch(Context& context, const Op& op, unsigned lane, u64 to, AccessKind kind, Each each) {
    const u64 from =
        address_in(context, op.b, static_cast<s32>(op.extra), (op.flags & flag::negate) == 0, lane);
    const u32 bytes = context.at<u32>(op.c)[lane];
    if (((to | from | bytes) & 15) != 0) {
        context.fault = CUDA_ERROR_MISALIGNED_ADDRESS;
        return;
    }
    const auto space = [&](unsigned end) {
        return (op.width >> end & 1) != 0 ? Space::shared : Space::global;
    };
    for (u32 done = 0; done < bytes; done += 16) {
        std::byte* target = context.block->resolve_one(space(0), to + done, 16, kind, context, lane);
        if (target == nullptr) return;
        const std::byte* source =
            context.block->resolve_one(space(1), from + done, 16, AccessKind::read, context, lane);
        if (source == nullptr) return;
        each(target, source);
    }
}

u64 target_of(const Context& context, const Op& op, unsigned lane) {
    return address_in(context, op.a, op.offset, (op.flags & flag::wide) != 0, lane);
}

// op.e: which blocks of the cluster get it, or nothing: the one that the address names.
void copy(Context& context, const Op& op, Mask mask) {
    each_lane(mask, [&](unsigned lane) {
        const u64 to = target_of(context, op, lane);
        const auto one = [&](u64 place) {
            stretch(context, op, lane, place, AccessKind::write,
                    [](std::byte* target, const std::byte* source) { std::memcpy(target, source, 16); });
        };
        if (op.e == no_place) {
            if (context.fault == CUDA_SUCCESS) one(to);
            return;
        }
        each_block(context.at<u16>(op.e)[lane], [&](unsigned rank) {
            if (context.fault == CUDA_SUCCESS) one(in_block(to, rank));
        });
    });
}

// op.d: a Reduction, op.e: its bytes, both as constants.
void reduce(Context& context, const Op& op, Mask mask) {
    const auto change = reinterpret_cast<Reduction>(context.at<u64>(op.d)[0]);
    const u64 step = context.at<u64>(op.e)[0];
    each_lane(mask, [&](unsigned lane) {
        if (context.fault != CUDA_SUCCESS) return;
        stretch(context, op, lane, target_of(context, op, lane), AccessKind::atomic,
                [&](std::byte* target, const std::byte* source) {
                    for (u64 at = 0; at < 16; at += step) change(target + at, source + at);
                });
    });
}

struct Ends {
    bool to_shared = false, from_shared = false;
};

// .dst.src, in the order in which they stand.
Ends ends(Lowering& lowering) {
    const std::string_view name = lowering.instruction().name;
    const std::size_t shared = name.find(".shared::c");
    const std::size_t global = name.find(".global");
    Ends found;
    found.to_shared = shared < global;
    found.from_shared = global == std::string_view::npos || shared > global;
    if (!lowering.accept_any({".shared::cluster", ".shared::cta"})) lowering.refuse();
    lowering.accept(".global");
    return found;
}

}  // namespace

void lower_bulk_copy(Lowering& lowering) {
    if (lowering.accept(".commit_group")) return lowering.expect_operands(0);
    if (lowering.accept(".wait_group")) {
        lowering.accept(".read");
        return lowering.expect_operands(1);
    }
    const bool reduces = lowering.accept(".reduce");
    if (lowering.accept(".tensor")) return lower_tensor_copy(lowering, reduces);
    const bool policy = lowering.accept(".L2::cache_hint");
    if (lowering.accept(".prefetch")) {
        if (reduces || !lowering.accept(".L2") || !lowering.accept(".global")) lowering.refuse();
        lowering.expect_operands(policy ? 3 : 2);
        return;
    }
    const bool group = lowering.accept(".bulk_group");
    const bool barrier = lowering.accept(".mbarrier::complete_tx::bytes");
    const bool several = lowering.accept(".multicast::cluster");
    const Ends where = ends(lowering);
    if (where.to_shared != barrier || where.to_shared == group || (several && where.from_shared) ||
        (reduces && !where.from_shared)) {
        lowering.refuse();
    }
    const std::size_t operands = barrier ? 4 : 3;
    lowering.expect_operands(operands + (several ? 1U : 0U) + (policy ? 1U : 0U));
    Place change = no_place;
    Place step = no_place;
    if (reduces) {
        unsigned bytes = 0;
        const Reduction which = reduction(lowering, where.to_shared, bytes);
        change = lowering.constant(reinterpret_cast<std::uintptr_t>(which), 8);
        step = lowering.constant(bytes, 8);
    }
    const Address to = lowering.address(0, where.to_shared ? Space::shared : Space::global);
    const Address from = lowering.address(1, where.from_shared ? Space::shared : Space::global);
    const Place c = lowering.source(2, Type::u32);
    const Place blocks = several ? lowering.source(4, Type::u16) : no_place;
    Op& op = lowering.emit(reduces ? &reduce : &copy, Work::memory);
    put_async_ends(lowering, op, to, from);
    op.c = c;
    op.d = change;
    op.e = reduces ? step : blocks;
    op.width = static_cast<std::uint8_t>((where.to_shared ? 1 : 0) | (where.from_shared ? 2 : 0));
    if (barrier) complete_bytes(lowering, 3, c, blocks);
}

}  // namespace fikit::sim::ptx
