// What the lanes of a warp do together: shuffles, votes, matches, reductions.
#include <algorithm>
#include <cstring>

#include "ptx/engine.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

enum class Shuffle : std::uint32_t { up, down, butterfly, index };

// PTX ISA, "shfl.sync": c holds the mask of the segment (bits 8 to 12) and the clamp (bits 0 to 4).
void shuffle(Context& context, const Op& op, Mask mask) {
    const u32* a = context.at<u32>(op.a);
    const u32* b = context.at<u32>(op.b);
    const u32* clamps = context.at<u32>(op.e);
    const auto how = static_cast<Shuffle>(op.extra & 3);
    u32 result[lanes];
    Mask inside = 0;
    each_lane(mask, [&](unsigned lane) {
        const u32 by = b[lane] & 31;
        const u32 clamp = clamps[lane] & 31;
        const u32 segment = clamps[lane] >> 8 & 31;
        const u32 most = (lane & segment) | (clamp & ~segment);
        const u32 least = lane & segment;
        u32 from = lane;
        bool found = false;
        switch (how) {
            case Shuffle::up:
                from = lane - by;
                found = static_cast<s32>(from) >= static_cast<s32>(most);
                break;
            case Shuffle::down:
                from = lane + by;
                found = from <= most;
                break;
            case Shuffle::butterfly:
                from = lane ^ by;
                found = from <= most;
                break;
            case Shuffle::index:
                from = least | (by & ~segment);
                found = from <= most;
                break;
        }
        if (!found) from = lane;
        inside |= static_cast<Mask>(found) << lane;
        result[lane] = a[from & 31];
    });
    u32* d = context.at<u32>(op.d);
    each_lane(mask, [&](unsigned lane) { d[lane] = result[lane]; });
    if ((op.extra & 4) != 0) {
        // The second result shares no place with the first: it is a predicate.
        Mask& p = context.predicate(static_cast<Place>(op.offset));
        p = (p & ~mask) | inside;
    }
}

void lower_shuffle(Lowering& lowering) {
    const bool sync = lowering.accept(".sync");
    constexpr std::string_view names[] = {".up", ".down", ".bfly", ".idx"};
    std::uint32_t how = 4;
    for (std::uint32_t number = 0; number < 4; ++number) {
        if (lowering.accept(names[number])) how = number;
    }
    if (how == 4 || bytes_of(lowering.type()) != 4) lowering.refuse();
    lowering.expect_operands(sync ? 5 : 4);
    const Operand& to = lowering.operand(0);
    const Place a = lowering.source(1, Type::b32);
    const Place b = lowering.source(2, Type::b32);
    const Place e = lowering.source(3, Type::b32);
    const Place c = sync ? lowering.source(4, Type::b32) : no_place;
    const Place d = lowering.target(to, Type::b32);
    const Place p = to.parts.empty() ? no_place : lowering.target(to.parts.front(), Type::pred);
    Op& op = lowering.emit(&shuffle, Work::memory);
    op.kind = sync ? Kind::gather : Kind::compute;
    op.extra = how | (p == no_place ? 0U : 4U);
    op.offset = p == no_place ? 0 : static_cast<std::int64_t>(p);
    op.d = d;
    op.a = a;
    op.b = b;
    op.e = e;
    op.c = c;
}

// A handler for what lanes do together, F(context, op, group, here): the lanes of a group named the same
// members, of which `here` are those that have come. Tiles of a warp, say, are groups of their own.
using Together = void (*)(Context&, const Op&, Mask, Mask);
template <Together F>
void by_group(Context& context, const Op& op, Mask mask) {
    if (op.c == no_place) return F(context, op, mask, mask);
    const u32* members = context.at<u32>(op.c);
    u32 named[lanes];  // the result may lie where the masks do
    std::copy_n(members, lanes, named);
    for (Mask left = mask; left != 0;) {
        const u32 wanted = named[std::countr_zero(left)];
        Mask group = 0;
        each_lane(left, [&](unsigned lane) { group |= static_cast<Mask>(named[lane] == wanted) << lane; });
        F(context, op, group, mask & wanted);
        left &= ~group;
    }
}

enum class Vote : std::uint32_t { all, any, uniform, ballot };

void vote(Context& context, const Op& op, Mask group, Mask here) {
    const Mask yes = context.predicate(op.a) & here;
    if (static_cast<Vote>(op.extra) == Vote::ballot) {
        u32* d = context.at<u32>(op.d);
        each_lane(group, [&](unsigned lane) { d[lane] = yes; });
        return;
    }
    const bool all = yes == here;
    const bool any = yes != 0;
    const auto which = static_cast<Vote>(op.extra);
    const bool result = which == Vote::all ? all : which == Vote::any ? any : all || !any;
    Mask& d = context.predicate(op.d);
    d = (d & ~group) | (result ? group : 0);
}

void lower_vote(Lowering& lowering) {
    const bool sync = lowering.accept(".sync");
    constexpr std::string_view names[] = {".all", ".any", ".uni", ".ballot"};
    std::uint32_t which = 4;
    for (std::uint32_t number = 0; number < 4; ++number) {
        if (lowering.accept(names[number])) which = number;
    }
    const Type type = lowering.type();
    if (which == 4 || (which == 3) != (type != Type::pred)) lowering.refuse();
    lowering.expect_operands(sync ? 3 : 2);
    const Place a = lowering.predicate(lowering.operand(1));
    const Place c = sync ? lowering.source(2, Type::b32) : no_place;
    const Place d = lowering.target(0, type);
    Op& op = lowering.emit(&by_group<&vote>);
    op.kind = sync ? Kind::gather : Kind::compute;
    op.extra = which;
    op.d = d;
    op.a = a;
    op.c = c;
}

template <typename T>
void match_any(Context& context, const Op& op, Mask group, Mask here) {
    const T* a = context.at<T>(op.a);
    u32 result[lanes];
    each_lane(here, [&](unsigned lane) {
        Mask same = 0;
        each_lane(here, [&](unsigned other) { same |= static_cast<Mask>(a[other] == a[lane]) << other; });
        result[lane] = same;
    });
    u32* d = context.at<u32>(op.d);
    each_lane(group & here, [&](unsigned lane) { d[lane] = result[lane]; });
}

template <typename T>
void match_all(Context& context, const Op& op, Mask group, Mask here) {
    const T* a = context.at<T>(op.a);
    bool same = true;
    const auto first = static_cast<unsigned>(std::countr_zero(here != 0 ? here : group));
    each_lane(here, [&](unsigned lane) { same = same && a[lane] == a[first]; });
    u32* d = context.at<u32>(op.d);
    each_lane(group, [&](unsigned lane) { d[lane] = same ? here : 0; });
    if (op.e != no_place) {
        Mask& p = context.predicate(op.e);
        p = (p & ~group) | (same ? group : 0);
    }
}

void lower_match(Lowering& lowering) {
    const bool all = lowering.accept(".all");
    if ((!all && !lowering.accept(".any")) || !lowering.accept(".sync")) lowering.refuse();
    const Type type = lowering.type();
    const unsigned bytes = bytes_of(type);
    if (bytes != 4 && bytes != 8) lowering.refuse();
    lowering.expect_operands(3);
    const Operand& to = lowering.operand(0);
    const Place a = lowering.source(1, type);
    const Place c = lowering.source(2, Type::b32);
    const Place d = lowering.target(to, Type::b32);
    const Place e = to.parts.empty() ? no_place : lowering.target(to.parts.front(), Type::pred);
    Op& op = lowering.emit(all ? (bytes == 4 ? &by_group<&match_all<u32>> : &by_group<&match_all<u64>>)
                               : (bytes == 4 ? &by_group<&match_any<u32>> : &by_group<&match_any<u64>>),
                           Work::memory);
    op.kind = Kind::gather;
    op.d = d;
    op.e = e;
    op.a = a;
    op.c = c;
}

enum class Reduction : std::uint32_t { add, min, max, conjunction, disjunction, exclusive };

void reduce(Context& context, const Op& op, Mask group, Mask here) {
    const bool sign = op.width != 0;
    const u32* a = context.at<u32>(op.a);
    const auto which = static_cast<Reduction>(op.extra);
    u32 result = 0;
    bool first = true;
    each_lane(here, [&](unsigned lane) {
        const u32 value = a[lane];
        if (first) {
            result = value;
            first = false;
            return;
        }
        const bool less = sign ? static_cast<s32>(value) < static_cast<s32>(result) : value < result;
        switch (which) {
            case Reduction::add:
                result += value;
                break;
            case Reduction::min:
                result = less ? value : result;
                break;
            case Reduction::max:
                result = less ? result : value;
                break;
            case Reduction::conjunction:
                result &= value;
                break;
            case Reduction::disjunction:
                result |= value;
                break;
            case Reduction::exclusive:
                result ^= value;
                break;
        }
    });
    u32* d = context.at<u32>(op.d);
    each_lane(group, [&](unsigned lane) { d[lane] = result; });
}

void lower_reduce(Lowering& lowering) {
    if (!lowering.accept(".sync")) lowering.refuse();
    constexpr std::string_view names[] = {".add", ".min", ".max", ".and", ".or", ".xor"};
    std::uint32_t which = std::size(names);
    for (std::uint32_t number = 0; number < std::size(names); ++number) {
        if (lowering.accept(names[number])) which = number;
    }
    const Type type = lowering.type();
    if (which == std::size(names) || bytes_of(type) != 4 || is_float(type)) lowering.refuse();
    lowering.expect_operands(3);
    const Place a = lowering.source(1, type);
    const Place c = lowering.source(2, Type::b32);
    const Place d = lowering.target(0, type);
    Op& op = lowering.emit(&by_group<&reduce>, Work::memory);
    op.kind = Kind::gather;
    op.extra = which;
    op.width = is_signed(type) ? 1 : 0;
    op.d = d;
    op.a = a;
    op.c = c;
}

void active_mask(Context& context, const Op& op, Mask mask) {
    u32* d = context.at<u32>(op.d);
    each_lane(mask, [&](unsigned lane) { d[lane] = mask; });
}

void lower_active_mask(Lowering& lowering) {
    if (bytes_of(lowering.type()) != 4) lowering.refuse();
    lowering.expect_operands(1);
    const Place d = lowering.target(0, Type::b32);
    lowering.emit(&active_mask).d = d;
}

// elect.sync: the lowest lane of the mask is the one.
void elect(Context& context, const Op& op, Mask group, Mask here) {
    const Mask chosen = here & (~here + 1);
    u32* d = context.at<u32>(op.d);
    each_lane(group, [&](unsigned lane) { d[lane] = static_cast<u32>(std::countr_zero(chosen)); });
    Mask& p = context.predicate(op.e);
    p = (p & ~group) | (chosen & group);
}

void lower_elect(Lowering& lowering) {
    if (!lowering.accept(".sync")) lowering.refuse();
    lowering.expect_operands(2);
    const Operand& to = lowering.operand(0);
    if (to.parts.empty()) lowering.refuse();
    const Place c = lowering.source(1, Type::b32);
    const Place d = lowering.target(to, Type::b32);
    const Place e = lowering.target(to.parts.front(), Type::pred);
    Op& op = lowering.emit(&by_group<&elect>);
    op.kind = Kind::gather;
    op.d = d;
    op.e = e;
    op.c = c;
}

void nothing(Context&, const Op&, Mask) {}

// What an instruction of a warp reads and writes: bytes of registers, 0 for none.
struct Operands {
    unsigned a = 0, b = 0, e = 0, d = 0;  // e: what shuffles read
    bool asks = false, tells = false;     // a, and d, is a predicate
    Place second = no_place;              // the predicate written beside d
};

std::optional<Operands> operands_of(const Op& op) {
    if (op.run == &shuffle) {
        const Place second = (op.extra & 4) != 0 ? static_cast<Place>(op.offset) : no_place;
        return Operands{4, 4, 4, 4, false, false, second};
    }
    if (op.run == &by_group<&vote>) {
        const bool ballot = static_cast<Vote>(op.extra) == Vote::ballot;
        return Operands{0, 0, 0, ballot ? 4U : 0U, true, !ballot, no_place};
    }
    if (op.run == &by_group<&reduce>) return Operands{4, 0, 0, 4, false, false, no_place};
    if (op.run == &by_group<&elect>) return Operands{0, 0, 0, 4, false, false, op.e};
    if (op.run == &by_group<&match_any<u32>> || op.run == &by_group<&match_all<u32>>)
        return Operands{4, 0, 0, 4, false, false, op.e};
    if (op.run == &by_group<&match_any<u64>> || op.run == &by_group<&match_all<u64>>)
        return Operands{8, 0, 0, 4, false, false, op.e};
    return std::nullopt;
}

std::uint32_t qualifiers(const Op& op) { return op.run == &shuffle ? op.extra & 3 : op.extra; }

}  // namespace

bool may_meet(const Op& one, const Op& other) {
    return operands_of(one) && one.run == other.run && qualifiers(one) == qualifiers(other) &&
           one.width == other.width && one.c != no_place && other.c != no_place;
}

// By one operation on registers of its own, into which each part's go and from which its results come.
void run_apart(const std::vector<Apart>& parts) {
    constexpr Place row = lanes * 8;
    alignas(64) std::byte registers[6 * row] = {};
    Context joint = parts.front().context;
    joint.bases[0] = registers;
    Op op = *parts.front().op;
    op.d = 0;
    op.a = row;
    op.b = 2 * row;
    op.c = 3 * row;
    op.e = 4 * row;
    const Place second = op.run == &shuffle ? 5 * row : op.e;
    op.offset = second;
    op.extra = op.run == &shuffle ? op.extra | 4 : op.extra;
    const auto copy = [&](const Context& to, Place into, const Context& from, Place of, unsigned bytes,
                          Mask mask) {
        if (bytes == 0) return;
        each_lane(mask, [&](unsigned lane) {
            std::memcpy(to.at<std::byte>(into) + lane * bytes, from.at<std::byte>(of) + lane * bytes, bytes);
        });
    };
    const auto copy_bits = [&](const Context& to, Place into, const Context& from, Place of, Mask mask) {
        Mask& bits = to.predicate(into);
        bits = (bits & ~mask) | (from.predicate(of) & mask);
    };
    Mask all = 0;
    for (const Apart& part : parts) {
        const Operands has = *operands_of(*part.op);
        all |= part.mask;
        copy(joint, op.c, part.context, part.op->c, 4, part.mask);
        copy(joint, op.a, part.context, part.op->a, has.a, part.mask);
        copy(joint, op.b, part.context, part.op->b, has.b, part.mask);
        copy(joint, op.e, part.context, part.op->e, has.e, part.mask);
        if (has.asks) copy_bits(joint, op.a, part.context, part.op->a, part.mask);
    }
    op.run(joint, op, all);
    for (const Apart& part : parts) {
        const Operands has = *operands_of(*part.op);
        copy(part.context, part.op->d, joint, op.d, has.d, part.mask);
        if (has.tells) copy_bits(part.context, part.op->d, joint, op.d, part.mask);
        if (has.second != no_place) copy_bits(part.context, has.second, joint, second, part.mask);
    }
}

void lower_warp_barrier(Lowering& lowering) {
    if (!lowering.accept(".sync")) lowering.refuse();
    lowering.expect_operands(1);
    const Place c = lowering.source(0, Type::b32);
    Op& op = lowering.emit(&nothing, Work::barrier);
    op.kind = Kind::gather;
    op.c = c;
}

void add_warp(Families& families) {
    families["shfl"] = &lower_shuffle;
    families["vote"] = &lower_vote;
    families["match"] = &lower_match;
    families["redux"] = &lower_reduce;
    families["activemask"] = &lower_active_mask;
    families["elect"] = &lower_elect;
}

}  // namespace fikit::sim::ptx
