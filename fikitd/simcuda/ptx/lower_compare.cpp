// Comparison and selection: PTX ISA, "Comparison and Selection Instructions", testp and copysign.
#include <cmath>

#include "ptx/floats.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

// Every comparison is one of these, its operands perhaps exchanged and its result perhaps turned round. Where
// an operand is no number none holds.
enum class Relation : std::uint8_t { equal, unequal, less, less_or_equal, numbers };

struct Comparison {
    std::string_view name;
    Relation relation;
    bool exchanged = false, negated = false;
};
constexpr Comparison comparisons[] = {
    {".eq", Relation::equal},
    {".ne", Relation::unequal},
    {".lt", Relation::less},
    {".le", Relation::less_or_equal},
    {".gt", Relation::less, true},
    {".ge", Relation::less_or_equal, true},
    {".lo", Relation::less},
    {".ls", Relation::less_or_equal},
    {".hi", Relation::less, true},
    {".hs", Relation::less_or_equal, true},
    // True where an operand is no number.
    {".equ", Relation::unequal, false, true},
    {".neu", Relation::equal, false, true},
    {".ltu", Relation::less_or_equal, true, true},
    {".leu", Relation::less, true, true},
    {".gtu", Relation::less_or_equal, false, true},
    {".geu", Relation::less, false, true},
    {".num", Relation::numbers},
    {".nan", Relation::numbers, false, true},
};

template <Relation relation, typename T>
bool holds(T a, T b) {
    switch (relation) {
        case Relation::equal:
            return a == b;
        case Relation::unequal:
            return a < b || a > b;
        case Relation::less:
            return a < b;
        case Relation::less_or_equal:
            return a <= b;
        case Relation::numbers:
            return a == a && b == b;
    }
}

// How a register becomes a number to compare.
template <typename T>
struct Plain {
    using Stored = T;
    static T load(const Op&, T value) { return value; }
};
struct Single {
    using Stored = float;
    static float load(const Op& op, float value) {
        return (op.flags & flag::flush) != 0 ? flushed(value) : value;
    }
};
struct HalfNumber {
    using Stored = u16;
    static float load(const Op& op, u16 bits) {
        const float value = from_half(bits);
        return (op.flags & flag::flush) != 0 && std::fabs(value) < 0x1p-14F ? 0.0F : value;
    }
};
struct BfloatNumber {
    using Stored = u16;
    static float load(const Op&, u16 bits) { return from_bfloat(bits); }
};

Mask turned(const Op& op) { return (op.flags & flag::negate) != 0 ? all_lanes : 0; }

// The lanes whose a and b stand in the relation, or with flag::negate those whose do not.
template <Relation relation, typename Number>
Mask comparing(Context& context, const Op& op, Mask mask) {
    using T = typename Number::Stored;
    const T* a = context.at<T>(op.a);
    const T* b = context.at<T>(op.b);
    Mask result = 0;
    if (mask == all_lanes) {
        for (unsigned lane = 0; lane < lanes; ++lane) {
            const bool bit = holds<relation>(Number::load(op, a[lane]), Number::load(op, b[lane]));
            result |= static_cast<Mask>(bit) << lane;
        }
    } else {
        each_lane(mask, [&](unsigned lane) {
            const bool bit = holds<relation>(Number::load(op, a[lane]), Number::load(op, b[lane]));
            result |= static_cast<Mask>(bit) << lane;
        });
    }
    return result ^ turned(op);
}

// How setp joins its result with a further predicate.
enum class Joined : std::uint8_t { alone, conjunction, disjunction, exclusive };

Mask join(std::uint8_t how, Mask value, Mask with) {
    switch (static_cast<Joined>(how)) {
        case Joined::conjunction:
            return value & with;
        case Joined::disjunction:
            return value | with;
        case Joined::exclusive:
            return value ^ with;
        default:
            return value;
    }
}

// setp: d is the result, e (where wanted) of the opposite; op.width: how joined with the predicate c.
template <Relation relation, typename Number>
void set_predicate(Context& context, const Op& op, Mask mask) {
    const Mask value = comparing<relation, Number>(context, op, mask);
    const Mask with = op.c == no_place ? 0 : context.predicate(op.c);
    Mask& d = context.predicate(op.d);
    const Mask before = d;
    if (op.e != no_place) {
        Mask& e = context.predicate(op.e);
        e = (e & ~mask) | (join(op.width, ~value, with) & mask);
    }
    context.predicate(op.d) = (before & ~mask) | (join(op.width, value, with) & mask);
}

// The pair halves of set_predicate: d of the lower, e of the upper ones.
template <Relation relation, bool brain>
void set_predicate_pair(Context& context, const Op& op, Mask mask) {
    const u32* a = context.at<u32>(op.a);
    const u32* b = context.at<u32>(op.b);
    Mask low = 0;
    Mask high = 0;
    const auto load = [&](u32 bits) {
        return brain ? BfloatNumber::load(op, static_cast<u16>(bits))
                     : HalfNumber::load(op, static_cast<u16>(bits));
    };
    each_lane(mask, [&](unsigned lane) {
        low |= static_cast<Mask>(holds<relation>(load(a[lane]), load(b[lane]))) << lane;
        high |= static_cast<Mask>(holds<relation>(load(a[lane] >> 16), load(b[lane] >> 16))) << lane;
    });
    low ^= turned(op);
    high ^= turned(op);
    const Mask with = op.c == no_place ? 0 : context.predicate(op.c);
    Mask& d = context.predicate(op.d);
    d = (d & ~mask) | (join(op.width, low, with) & mask);
    Mask& e = context.predicate(op.e);
    e = (e & ~mask) | (join(op.width, high, with) & mask);
}

template <template <Relation, typename> typename Run, typename Number, std::size_t... index>
Handler table_of(Relation relation, std::index_sequence<index...>) {
    constexpr Handler table[] = {&Run<static_cast<Relation>(index), Number>::run...};
    return table[static_cast<std::size_t>(relation)];
}

template <Relation relation, typename Number>
struct SetPredicate {
    static void run(Context& context, const Op& op, Mask mask) {
        set_predicate<relation, Number>(context, op, mask);
    }
};
template <Relation relation, typename Brain>
struct SetPredicatePair {
    static void run(Context& context, const Op& op, Mask mask) {
        set_predicate_pair<relation, Brain::value>(context, op, mask);
    }
};

template <typename Number>
Handler set_of(Relation relation) {
    return table_of<SetPredicate, Number>(relation, std::make_index_sequence<5>());
}
// Integers are numbers: the last relation is not asked of them.
template <typename T>
Handler set_of_integers(Lowering& lowering, Relation relation) {
    if (relation == Relation::numbers) lowering.refuse();
    return table_of<SetPredicate, Plain<T>>(relation, std::make_index_sequence<4>());
}

Handler set_handler(Lowering& lowering, Relation relation, Type type) {
    switch (type) {
        case Type::u16:
        case Type::b16:
            return set_of_integers<u16>(lowering, relation);
        case Type::s16:
            return set_of_integers<s16>(lowering, relation);
        case Type::u32:
        case Type::b32:
            return set_of_integers<u32>(lowering, relation);
        case Type::s32:
            return set_of_integers<s32>(lowering, relation);
        case Type::u64:
        case Type::b64:
            return set_of_integers<u64>(lowering, relation);
        case Type::s64:
            return set_of_integers<s64>(lowering, relation);
        case Type::f32:
            return set_of<Single>(relation);
        case Type::f64:
            return set_of<Plain<double>>(relation);
        case Type::f16:
            return set_of<HalfNumber>(relation);
        case Type::bf16:
            return set_of<BfloatNumber>(relation);
        case Type::f16x2:
            return table_of<SetPredicatePair, std::false_type>(relation, std::make_index_sequence<5>());
        case Type::bf16x2:
            return table_of<SetPredicatePair, std::true_type>(relation, std::make_index_sequence<5>());
        default:
            lowering.refuse();
    }
}

const Comparison& comparison_of(Lowering& lowering) {
    for (const Comparison& comparison : comparisons) {
        if (lowering.accept(comparison.name)) return comparison;
    }
    lowering.refuse("the comparison is missing");
}

Joined joined(Lowering& lowering) {
    if (lowering.accept(".and")) return Joined::conjunction;
    if (lowering.accept(".or")) return Joined::disjunction;
    return lowering.accept(".xor") ? Joined::exclusive : Joined::alone;
}

void compare(Op& op, const Comparison& comparison, std::uint8_t flags, Place a, Place b) {
    op.flags = static_cast<std::uint8_t>(flags | (comparison.negated ? flag::negate : 0));
    op.a = comparison.exchanged ? b : a;
    op.b = comparison.exchanged ? a : b;
}

void lower_setp(Lowering& lowering) {
    const Comparison& comparison = comparison_of(lowering);
    const Joined how = joined(lowering);
    const auto flags = lowering.flags();
    const Type type = lowering.type();
    lowering.expect_operands(how == Joined::alone ? 3 : 4);
    const Handler run = set_handler(lowering, comparison.relation, type);
    const Place a = lowering.source(1, type);
    const Place b = lowering.source(2, type);
    const Place c = how == Joined::alone ? no_place : lowering.predicate(lowering.operand(3));
    const Operand& into = lowering.operand(0);
    const Place d = lowering.target(into, Type::pred);
    const bool pair = type == Type::f16x2 || type == Type::bf16x2;
    Place e = no_place;
    if (!into.parts.empty()) e = lowering.target(into.parts.front(), Type::pred);
    if (pair && e == no_place) e = lowering.temporary(Type::pred);
    Op& op = lowering.emit(run);
    compare(op, comparison, flags, a, b);
    op.width = static_cast<std::uint8_t>(how);
    op.d = d;
    op.e = e;
    op.c = c;
}

// set: all ones, or 1.0, where the relation holds: a setp into a predicate and a choice by it.
template <typename T>
void choose(Context& context, const Op& op, Mask mask) {
    T* d = context.at<T>(op.d);
    const T* a = context.at<T>(op.a);
    const T* b = context.at<T>(op.b);
    const Mask p = context.predicate(op.c);
    if (mask == all_lanes) {
        for (unsigned lane = 0; lane < lanes; ++lane) d[lane] = (p >> lane & 1) != 0 ? a[lane] : b[lane];
    } else {
        each_lane(mask, [&](unsigned lane) { d[lane] = (p >> lane & 1) != 0 ? a[lane] : b[lane]; });
    }
}

Handler choose_bytes(Lowering& lowering, Type type) {
    const unsigned bytes = bytes_of(type);
    if (bytes < 2 || bytes > 8) lowering.refuse();
    return by_bytes(bytes, [](auto zero) { return Handler{&choose<decltype(zero)>}; });
}

void join_halves(Context& context, const Op& op, Mask mask) {
    u32* d = context.at<u32>(op.d);
    const Mask low = context.predicate(op.c);
    const Mask high = context.predicate(op.e);
    const u32 one = op.extra;
    each_lane(mask, [&](unsigned lane) {
        d[lane] = ((low >> lane & 1) != 0 ? one : 0) | ((high >> lane & 1) != 0 ? one << 16 : 0);
    });
}

void lower_set(Lowering& lowering) {
    const Comparison& comparison = comparison_of(lowering);
    const Joined how = joined(lowering);
    const auto flags = lowering.flags();
    const Type to = lowering.type();
    // One type alone stands for both (set.eq.f16x2 is written with two).
    const Type from = lowering.maybe_type().value_or(to);
    lowering.expect_operands(how == Joined::alone ? 3 : 4);
    const Handler run = set_handler(lowering, comparison.relation, from);
    const Place a = lowering.source(1, from);
    const Place b = lowering.source(2, from);
    const Place c = how == Joined::alone ? no_place : lowering.predicate(lowering.operand(3));
    const bool pair = from == Type::f16x2 || from == Type::bf16x2;
    const Place low = lowering.temporary(Type::pred);
    const Place high = pair ? lowering.temporary(Type::pred) : no_place;
    const Place d = lowering.target(0, to);
    Op& first = lowering.emit(run);
    compare(first, comparison, flags, a, b);
    first.width = static_cast<std::uint8_t>(how);
    first.d = low;
    first.e = high;
    first.c = c;
    std::uint64_t one = ~std::uint64_t{0};
    if (to == Type::f32) one = 0x3f800000;
    if (to == Type::f16 || to == Type::f16x2) one = 0x3c00;
    if (to == Type::bf16 || to == Type::bf16x2) one = 0x3f80;
    if (pair) {
        if (bytes_of(to) != 4) lowering.refuse();
        Op& second = lowering.emit(&join_halves);
        second.extra = is_float(to) || to == Type::f16x2 || to == Type::bf16x2
                           ? static_cast<std::uint32_t>(one)
                           : 0xffff;
        second.d = d;
        second.c = low;
        second.e = high;
        return;
    }
    const Place yes = lowering.constant(one, bytes_of(to));
    const Place no = lowering.constant(0, bytes_of(to));
    Op& second = lowering.emit(choose_bytes(lowering, to));
    second.d = d;
    second.a = yes;
    second.b = no;
    second.c = low;
}

void lower_selp(Lowering& lowering) {
    const Type type = lowering.type();
    const Handler run = choose_bytes(lowering, type);
    lowering.emit(type, {type, type, Type::pred}, run);
}

// slct: a where c >= 0, else b.
void lower_slct(Lowering& lowering) {
    const auto flags = lowering.flags();
    const Type type = lowering.type();
    const Type by = lowering.type();
    if (by != Type::s32 && by != Type::f32) lowering.refuse();
    lowering.expect_operands(4);
    const Place a = lowering.source(1, type);
    const Place b = lowering.source(2, type);
    const Place c = lowering.source(3, by);
    const Place zero = lowering.constant(0, 4);
    const Place p = lowering.temporary(Type::pred);
    const Place d = lowering.target(0, type);
    Op& test = lowering.emit(set_handler(lowering, Relation::less_or_equal, by));
    test.flags = flags;
    test.d = p;
    test.a = zero;
    test.b = c;
    Op& op = lowering.emit(choose_bytes(lowering, type));
    op.d = d;
    op.a = a;
    op.b = b;
    op.c = p;
}

// testp: what kind of number it is; zero counts as normal.
bool is_kind(u32 kind, double value, bool normal) {
    switch (kind) {
        case 0:
            return std::isfinite(value);
        case 1:
            return std::isinf(value);
        case 2:
            return !std::isnan(value);
        case 3:
            return std::isnan(value);
        case 4:
            return std::isfinite(value) && normal;
        default:
            return !normal;
    }
}

template <typename T>
void test_kind(Context& context, const Op& op, Mask mask) {
    const T* a = context.at<T>(op.a);
    Mask value = 0;
    each_lane(mask, [&](unsigned lane) {
        value |= static_cast<Mask>(is_kind(op.extra, static_cast<double>(a[lane]),
                                           std::fpclassify(a[lane]) != FP_SUBNORMAL))
                 << lane;
    });
    Mask& d = context.predicate(op.d);
    d = (d & ~mask) | (value & mask);
}

void lower_testp(Lowering& lowering) {
    constexpr std::string_view kinds[] = {".finite",     ".infinite", ".number",
                                          ".notanumber", ".normal",   ".subnormal"};
    std::uint32_t kind = std::size(kinds);
    for (std::uint32_t number = 0; number < std::size(kinds); ++number) {
        if (lowering.accept(kinds[number])) kind = number;
    }
    const Type type = lowering.type();
    if (kind == std::size(kinds) || (type != Type::f32 && type != Type::f64)) lowering.refuse();
    Op& op = lowering.emit(Type::pred, {type}, type == Type::f32 ? &test_kind<float> : &test_kind<double>);
    op.extra = kind;
}

void lower_copysign(Lowering& lowering) {
    const Type type = lowering.type();
    if (type != Type::f32 && type != Type::f64) lowering.refuse();
    // The sign of a on the number b.
    lowering.emit(type, {type, type},
                  type == Type::f32
                      ? map2<float, float, float>([](float x, float y) { return std::copysign(y, x); })
                      : map2<double, double, double>([](double x, double y) { return std::copysign(y, x); }));
}

}  // namespace

void add_compare(Families& families) {
    families["setp"] = &lower_setp;
    families["set"] = &lower_set;
    families["selp"] = &lower_selp;
    families["slct"] = &lower_slct;
    families["testp"] = &lower_testp;
    families["copysign"] = &lower_copysign;
}

}  // namespace fikit::sim::ptx
