// Addresses in the shared memory of a cluster's other blocks: mapa, getctarank.
#include "ptx/engine.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

constexpr u64 rank_mask = u64{0xff} << window::rank_shift;

// The address a in the block of rank b; in one's own block it is as any other.
template <typename T>
void map_address(Context& context, const Op& op, Mask mask) {
    T* d = context.at<T>(op.d);
    const T* a = context.at<T>(op.a);
    const u32* b = context.at<u32>(op.b);
    const u32 own = context.block->cluster_rank();
    each_lane(mask, [&](unsigned lane) {
        const u64 rank = b[lane] == own ? 0 : std::min(b[lane], u32{254}) + u64{1};
        d[lane] = static_cast<T>((a[lane] & ~rank_mask) | rank << window::rank_shift);
    });
}

template <typename T>
void rank_of_address(Context& context, const Op& op, Mask mask) {
    u32* d = context.at<u32>(op.d);
    const T* a = context.at<T>(op.a);
    const u32 own = context.block->cluster_rank();
    each_lane(mask, [&](unsigned lane) {
        const auto rank = static_cast<u32>((a[lane] & rank_mask) >> window::rank_shift);
        d[lane] = rank == 0 ? own : rank - 1;
    });
}

// A shared variable or a register, in the shared window or in the generic one.
Place address_operand(Lowering& lowering, bool generic, Type type) {
    const Operand& from = lowering.operand(1);
    if (from.kind != OperandKind::variable) return lowering.source(from, type);
    if (from.space != Space::shared) lowering.refuse("an address outside of shared memory");
    return lowering.address_of(from, bytes_of(type), generic);
}

void lower_mapa(Lowering& lowering) {
    const bool generic = !lowering.accept(".shared::cluster");
    const Type type = lowering.type();
    if (type != Type::u32 && type != Type::u64) lowering.refuse();
    lowering.expect_operands(3);
    const Place a = address_operand(lowering, generic, type);
    const Place b = lowering.source(2, Type::u32);
    const Place d = lowering.target(0, type);
    Op& op = lowering.emit(type == Type::u32 ? &map_address<u32> : &map_address<u64>);
    op.d = d;
    op.a = a;
    op.b = b;
}

void lower_rank(Lowering& lowering) {
    const bool generic = !lowering.accept(".shared::cluster");
    const Type type = lowering.type();
    if (type != Type::u32 && type != Type::u64) lowering.refuse();
    lowering.expect_operands(2);
    const Place a = address_operand(lowering, generic, type);
    const Place d = lowering.target(0, Type::u32);
    Op& op = lowering.emit(type == Type::u32 ? &rank_of_address<u32> : &rank_of_address<u64>);
    op.d = d;
    op.a = a;
}

}  // namespace

void add_cluster(Families& families) {
    families["mapa"] = &lower_mapa;
    families["getctarank"] = &lower_rank;
}

}  // namespace fikit::sim::ptx
