// Copies that run beside the threads, and the barriers in shared memory that they report to: cp.async,
// mbarrier. A copy here is done when it is issued, which the rules of waiting allow.
#include <algorithm>
#include <cstring>

#include "ptx/async.hpp"
#include "ptx/engine.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

// cp.async: op.width bytes from global [b + op.extra] to shared [a + op.offset]; of them c are read, and none
// where the predicate e holds; the rest is zero. flag::negate: b has 32 bits.
void copy_some(Context& context, const Op& op, Mask mask) {
    each_lane(mask, [&](unsigned lane) {
        if (context.fault != CUDA_SUCCESS) return;
        const unsigned bytes = op.width;
        const u64 to = address_in(context, op.a, op.offset, (op.flags & flag::wide) != 0, lane);
        const u64 from =
            address_in(context, op.b, static_cast<s32>(op.extra), (op.flags & flag::negate) == 0, lane);
        const bool ignored = op.e != no_place && (context.predicate(op.e) >> lane & 1) != 0;
        const u32 read = ignored ? 0 : std::min(context.at<u32>(op.c)[lane], bytes);
        if (to % bytes != 0 || from % bytes != 0) {
            context.fault = CUDA_ERROR_MISALIGNED_ADDRESS;
            return;
        }
        std::byte* target =
            context.block->resolve_one(Space::shared, to, bytes, AccessKind::write, context, lane);
        if (target == nullptr) return;
        std::memset(target, 0, bytes);
        if (read == 0) return;
        const std::byte* source =
            context.block->resolve_one(Space::global, from, read, AccessKind::read, context, lane);
        if (source != nullptr) std::memcpy(target, source, read);
    });
}

// --- mbarrier: one word in shared memory
//
// Bits 0 to 20: how many arrivals a phase expects; 21 to 41: how many are pending; 42 to 62: bytes still to
// come, around `no_bytes`; 63: the phase.
constexpr unsigned field = 21;
constexpr u64 field_mask = (u64{1} << field) - 1;
constexpr u64 no_bytes = u64{1} << 20;

struct State {
    u64 expected, pending, bytes, phase;
    explicit State(u64 word)
        : expected(word & field_mask),
          pending(word >> field & field_mask),
          bytes(word >> (2 * field) & field_mask),
          phase(word >> 63) {}
    u64 word() const {
        return expected | pending << field | (bytes & field_mask) << (2 * field) | phase << 63;
    }
    void settle() {
        if (pending != 0 || bytes != no_bytes) return;
        phase ^= 1;
        pending = expected;
    }
};

enum class Action : std::uint32_t { initialise, arrive, expect, complete, test, parity, invalidate, drop };

// op.extra: the action in its lowest byte, then bit 8: also expects c bytes. op.b: a count, bytes, a state or
// a parity.
void barrier_word(Context& context, const Op& op, unsigned lane, u64 address) {
    const auto action = static_cast<Action>(op.extra & 0xff);
    if (context.fault != CUDA_SUCCESS) return;
    if (address % 8 != 0) {
        context.fault = CUDA_ERROR_MISALIGNED_ADDRESS;
        return;
    }
    std::byte* place =
        context.block->resolve_one(op.rounding == Rounding::up ? Space::generic : Space::shared, address, 8,
                                   AccessKind::atomic, context, lane);
    if (place == nullptr) return;
    u64 word = 0;
    std::memcpy(&word, place, 8);
    State state(word);
    const u32 value = op.b == no_place ? 1 : context.at<u32>(op.b)[lane];
    const Mask bit = Mask{1} << lane;
    switch (action) {
        case Action::initialise:
            state = State(0);
            state.expected = state.pending = value & field_mask;
            state.bytes = no_bytes;
            break;
        case Action::arrive:
        case Action::drop:
            if (op.d != no_place) context.at<u64>(op.d)[lane] = state.word();
            if ((op.extra & 0x100) != 0) {
                state.bytes += value;
                state.pending -= 1;
            } else {
                state.pending -= value;
            }
            if (action == Action::drop) state.expected -= 1;
            state.pending &= field_mask;
            state.settle();
            break;
        case Action::expect:
            state.bytes += value;
            break;
        case Action::complete:
            state.bytes -= value;
            state.settle();
            break;
        case Action::test: {
            Mask& p = context.predicate(op.d);
            const bool done = State(context.at<u64>(op.c)[lane]).phase != state.phase;
            p = done ? p | bit : p & ~bit;
            return;
        }
        case Action::parity: {
            Mask& p = context.predicate(op.d);
            const bool done = (value & 1) != state.phase;
            p = done ? p | bit : p & ~bit;
            return;
        }
        case Action::invalidate:
            state = State(0);
            break;
    }
    word = state.word();
    std::memcpy(place, &word, 8);
}

// op.e: in which blocks of the cluster, or nothing: the one that the address names.
void barrier_words(Context& context, const Op& op, Mask mask) {
    const auto action = static_cast<Action>(op.extra & 0xff);
    each_lane(mask, [&](unsigned lane) {
        const u64 address = address_in(context, op.a, op.offset, (op.flags & flag::wide) != 0, lane);
        if (op.e == no_place) return barrier_word(context, op, lane, address);
        each_block(context.at<u16>(op.e)[lane],
                   [&](unsigned rank) { barrier_word(context, op, lane, in_block(address, rank)); });
    });
    // Who waits lets others arrive.
    if (action == Action::test || action == Action::parity) context.patience = 0;
}

Op& emit_barrier(Lowering& lowering, const Address& address, Action action) {
    Op& op = lowering.emit(&barrier_words, Work::memory);
    op.kind = Kind::checked;
    op.extra = static_cast<std::uint32_t>(action);
    address.put(op);
    if (address.space == Space::generic) op.rounding = Rounding::up;
    return op;
}

// Of a state: how many arrivals its phase still waits for.
void pending_count(Context& context, const Op& op, Mask mask) {
    u32* d = context.at<u32>(op.d);
    const u64* a = context.at<u64>(op.a);
    each_lane(mask, [&](unsigned lane) { d[lane] = static_cast<u32>(State(a[lane]).pending); });
}

void lower_mbarrier(Lowering& lowering) {
    if (lowering.accept(".pending_count")) {
        if (lowering.type() != Type::b64) lowering.refuse();
        lowering.expect_operands(2);
        const Place a = lowering.source(1, Type::b64);
        const Place d = lowering.target(0, Type::u32);
        Op& op = lowering.emit(&pending_count);
        op.a = a;
        op.d = d;
        return;
    }
    lowering.accept_any({".release", ".acquire", ".relaxed", ".cta", ".cluster"});
    const bool shared = lowering.accept_any({".shared", ".shared::cta", ".shared::cluster"});
    const Space space = shared ? Space::shared : Space::generic;
    if (lowering.accept(".init") || lowering.accept(".inval")) {
        const bool initialise = lowering.instruction().name.find(".init") != std::string_view::npos;
        if (lowering.type() != Type::b64) lowering.refuse();
        lowering.expect_operands(initialise ? 2 : 1);
        const Place b = initialise ? lowering.source(1, Type::u32) : no_place;
        const Address address = lowering.address(0, space);
        emit_barrier(lowering, address, initialise ? Action::initialise : Action::invalidate).b = b;
        return;
    }
    if (lowering.accept(".arrive") || lowering.accept(".arrive_drop")) {
        const bool drop = lowering.instruction().name.find(".arrive_drop") != std::string_view::npos;
        const bool expects = lowering.accept(".expect_tx");
        lowering.accept(".noComplete");
        if (lowering.type() != Type::b64) lowering.refuse();
        lowering.expect_operands(2, 3);
        const Address address = lowering.address(1, space);
        const Place b = lowering.count() == 3 ? lowering.source(2, Type::u32) : no_place;
        const Place d =
            lowering.operand(0).kind == OperandKind::sink ? no_place : lowering.target(0, Type::b64);
        Op& op = emit_barrier(lowering, address, drop ? Action::drop : Action::arrive);
        op.extra |= expects ? 0x100U : 0U;
        op.b = b;
        op.d = d;
        return;
    }
    const bool expect = lowering.accept(".expect_tx");
    if (expect || lowering.accept(".complete_tx")) {
        if (lowering.type() != Type::b64) lowering.refuse();
        lowering.expect_operands(2);
        const Place b = lowering.source(1, Type::u32);
        const Address address = lowering.address(0, space);
        emit_barrier(lowering, address, expect ? Action::expect : Action::complete).b = b;
        return;
    }
    if (!lowering.accept_any({".test_wait", ".try_wait"})) lowering.refuse();
    const bool parity = lowering.accept(".parity");
    if (lowering.type() != Type::b64) lowering.refuse();
    lowering.expect_operands(3, 4);
    const Address address = lowering.address(1, space);
    const Place value = parity ? lowering.source(2, Type::u32) : lowering.source(2, Type::b64);
    const Place d = lowering.target(0, Type::pred);
    Op& op = emit_barrier(lowering, address, parity ? Action::parity : Action::test);
    (parity ? op.b : op.c) = value;
    op.d = d;
}

void lower_copy(Lowering& lowering) {
    if (!lowering.accept(".async")) lowering.refuse();
    if (lowering.accept(".bulk")) return lower_bulk_copy(lowering);
    if (lowering.accept(".reduce")) lowering.refuse();
    if (lowering.accept(".commit_group") || lowering.accept(".wait_all")) return lowering.expect_operands(0);
    if (lowering.accept(".wait_group")) {
        lowering.expect_operands(1);
        lowering.literal(0);
        return;
    }
    if (lowering.accept(".mbarrier")) {
        if (!lowering.accept(".arrive")) lowering.refuse();
        const bool counted = lowering.accept(".noinc");
        lowering.accept_any({".shared", ".shared::cta"});
        if (lowering.type() != Type::b64) lowering.refuse();
        lowering.expect_operands(1);
        // Without .noinc the arrival was not counted in the phase: nothing is pending for it.
        if (!counted) return;
        const Address address = lowering.address(0, Space::shared);
        emit_barrier(lowering, address, Action::arrive);
        return;
    }
    const bool past_first_level = lowering.accept(".cg");
    lowering.accept_any({".ca", ".shared", ".shared::cta", ".global"});
    const bool policy = lowering.accept(".L2::cache_hint");
    while (lowering.accept_prefix(".L2::")) {
    }
    lowering.expect_operands(3, policy ? 5 : 4);
    const std::uint32_t bytes = lowering.literal(2);
    if (bytes != 16 && (past_first_level || (bytes != 4 && bytes != 8))) lowering.refuse("so many bytes");
    const bool fourth = lowering.count() - (policy ? 1 : 0) == 4;
    const bool guarded =
        fourth && lowering.operand(3).kind == OperandKind::reg && lowering.operand(3).type == Type::pred;
    const Address to = lowering.address(0, Space::shared);
    const Address from = lowering.address(1, Space::global);
    const Place c = fourth && !guarded ? lowering.source(3, Type::u32) : lowering.constant(bytes, 4);
    const Place e = guarded ? lowering.predicate(lowering.operand(3)) : no_place;
    Op& op = lowering.emit(&copy_some, Work::memory);
    put_async_ends(lowering, op, to, from);
    op.c = c;
    op.e = e;
    op.width = static_cast<std::uint8_t>(bytes);
}

}  // namespace

u64 address_in(const Context& context, Place base, std::int64_t offset, bool wide, unsigned lane) {
    const u64 start = base == no_place ? 0 : wide ? context.at<u64>(base)[lane] : context.at<u32>(base)[lane];
    return start + static_cast<u64>(offset);
}

void put_async_ends(Lowering& lowering, Op& op, const Address& to, const Address& from) {
    to.put(op);
    op.b = from.base;
    if (from.offset != static_cast<std::int32_t>(from.offset))
        lowering.refuse("an offset of more than 32 bits");
    op.extra = static_cast<std::uint32_t>(from.offset);
    if (!from.wide) op.flags |= flag::negate;
    op.kind = Kind::checked;
}

void complete_bytes(Lowering& lowering, std::size_t barrier, Place bytes, Place blocks) {
    const Address address = lowering.address(barrier, Space::shared);
    Op& op = emit_barrier(lowering, address, Action::complete);
    op.b = bytes;
    op.e = blocks;
}

void add_async(Families& families) {
    families["cp"] = &lower_copy;
    families["mbarrier"] = &lower_mbarrier;
}

}  // namespace fikit::sim::ptx
