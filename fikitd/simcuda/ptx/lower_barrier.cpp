// bar, barrier and their reductions; see BlockRun::arrive.
#include "ptx/engine.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

// BlockRun::complete() hands over what was counted in op.offset and op.width.
void give_count(Context& context, const Op& op, Mask mask) {
    u32* d = context.at<u32>(op.d);
    each_lane(mask, [&](unsigned lane) { d[lane] = static_cast<u32>(op.offset); });
}

template <unsigned bit>
void give_predicate(Context& context, const Op& op, Mask mask) {
    Mask& d = context.predicate(op.d);
    d = (d & ~mask) | ((op.width & bit) != 0 ? mask : 0);
}

// Whole warps of at most 16 barriers take part.
void check_numbers(const Lowering& lowering, std::size_t at) {
    const Operand& number = lowering.operand(at);
    if (number.kind == OperandKind::integer && number.value > 15) lowering.refuse("a barrier beyond 15");
    if (at + 1 == lowering.count()) return;
    const Operand& threads = lowering.operand(at + 1);
    if (threads.kind == OperandKind::integer && threads.value % lanes != 0)
        lowering.refuse("threads that are no whole warps");
}

void lower_barrier(Lowering& lowering) {
    if (lowering.accept(".warp")) return lower_warp_barrier(lowering);
    lowering.accept_any({".cta", ".aligned"});
    if (lowering.accept(".cluster")) {
        const bool arrive = lowering.accept(".arrive");
        if (!arrive && !lowering.accept(".wait")) lowering.refuse();
        lowering.accept_any({".release", ".relaxed", ".acquire"});
        lowering.expect_operands(0);
        lowering.emit(nullptr, Work::barrier).kind = arrive ? Kind::cluster_arrive : Kind::cluster_wait;
        return;
    }
    const bool arrive = lowering.accept(".arrive");
    const bool reduce = lowering.accept(".red");
    lowering.accept(".sync");
    if (reduce) {
        const bool count = lowering.accept(".popc");
        const bool all = lowering.accept(".and");
        if (!count && !all && !lowering.accept(".or")) lowering.refuse();
        const Type type = lowering.type();
        lowering.expect_operands(3, 4);
        check_numbers(lowering, 1);
        const bool numbered = lowering.count() == 4;
        const Place a = lowering.source(1, Type::u32);
        const Place b = numbered ? lowering.source(2, Type::u32) : no_place;
        const Place c = lowering.predicate(lowering.operand(numbered ? 3 : 2));
        const Place d = lowering.target(0, count ? Type::u32 : Type::pred);
        if (count != (type != Type::pred)) lowering.refuse();
        Op& op = lowering.emit(count ? &give_count
                               : all ? &give_predicate<1>
                                     : &give_predicate<2>,
                               Work::barrier);
        op.kind = Kind::barrier;
        op.a = a;
        op.b = b;
        op.c = c;
        op.d = d;
        return;
    }
    lowering.expect_operands(1, 2);
    check_numbers(lowering, 0);
    const Place a = lowering.source(0, Type::u32);
    const Place b = lowering.count() == 2 ? lowering.source(1, Type::u32) : no_place;
    if (arrive && b == no_place) lowering.refuse();
    Op& op = lowering.emit(nullptr, Work::barrier);
    op.kind = Kind::barrier;
    op.flags = arrive ? flag::negate : 0;
    op.a = a;
    op.b = b;
}

}  // namespace

void add_barrier(Families& families) {
    families["bar"] = &lower_barrier;
    families["barrier"] = &lower_barrier;
}

}  // namespace fikit::sim::ptx
