// alloca, stacksave, stackrestore: what a call takes from its threads' stacks while it runs.
//
// Lanes that allocate together get the same place, with room for the greatest of their sizes. As on the H200
// nothing fails yet where the stack (CU_LIMIT_STACK_SIZE) is too small for it, but every access to it will.
#include <algorithm>

#include "ptx/engine.hpp"
#include "ptx/limits.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

constexpr u64 rounded_up(u64 bytes, u64 alignment) { return (bytes + alignment - 1) / alignment * alignment; }

// op.a: sizes; op.extra: the alignment.
template <typename Word>
void allocate(Context& context, const Op& op, Mask mask) {
    Frame& frame = *context.frame;
    const Word* sizes = context.at<Word>(op.a);
    Word largest = 0;
    each_lane(mask, [&](unsigned lane) { largest = std::max(largest, sizes[lane]); });
    const u64 place = rounded_up(frame.stack_end(), op.extra);
    const u64 size = std::min<u64>(largest, limits::local_bytes);
    const u64 room = context.block->launch.stack;
    const u64 beyond = std::max<u64>(2 * limits::local_bytes, frame.stack_end());
    const u64 end = std::min(rounded_up(place + size, 16), beyond);
    frame.allocated += static_cast<std::uint32_t>(end - frame.stack_end());
    const u64 given = place + size <= room ? place : std::max(place, room);
    Word* d = context.at<Word>(op.d);
    each_lane(mask, [&](unsigned lane) { d[lane] = static_cast<Word>(given); });
}

template <typename Word>
void save(Context& context, const Op& op, Mask mask) {
    Word* d = context.at<Word>(op.d);
    each_lane(mask, [&](unsigned lane) { d[lane] = context.frame->allocated; });
}

// Lanes that go on apart keep what they have until the call ends.
template <typename Word>
void restore(Context& context, const Op& op, Mask mask) {
    if (mask != context.frame->live) return;
    const u64 saved = context.at<Word>(op.a)[std::countr_zero(mask)];
    context.frame->allocated = static_cast<std::uint32_t>(std::min<u64>(saved, context.frame->allocated));
}

Type address_type(Lowering& lowering) {
    const Type type = lowering.type();
    if (type != Type::u32 && type != Type::u64) lowering.refuse();
    return type;
}

void lower_alloca(Lowering& lowering) {
    const Type type = address_type(lowering);
    lowering.expect_operands(2, 3);
    const std::uint32_t alignment = lowering.count() == 3 ? lowering.literal(2) : 8;
    if (!std::has_single_bit(alignment) || alignment > 1024) lowering.refuse("an alignment that is none");
    const Place a = lowering.source(1, type);
    const Place d = lowering.target(0, type);
    Op& op = lowering.emit(type == Type::u32 ? &allocate<u32> : &allocate<u64>);
    op.extra = alignment;
    op.a = a;
    op.d = d;
}

void lower_save(Lowering& lowering) {
    const Type type = address_type(lowering);
    lowering.expect_operands(1);
    const Place d = lowering.target(0, type);
    lowering.emit(type == Type::u32 ? &save<u32> : &save<u64>).d = d;
}

void lower_restore(Lowering& lowering) {
    const Type type = address_type(lowering);
    lowering.expect_operands(1);
    const Place a = lowering.source(0, type);
    lowering.emit(type == Type::u32 ? &restore<u32> : &restore<u64>).a = a;
}

}  // namespace

void add_stack(Families& families) {
    families["alloca"] = &lower_alloca;
    families["stacksave"] = &lower_save;
    families["stackrestore"] = &lower_restore;
}

}  // namespace fikit::sim::ptx
