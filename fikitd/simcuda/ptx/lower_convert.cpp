// cvt: PTX ISA, "Data Movement and Conversion Instructions: cvt". The common conversions have handlers of
// their own; the rest goes through one function, lane by lane.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "ptx/engine.hpp"
#include "ptx/floats.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

struct Range {
    s128 least, greatest;
};

Range range_of(Type type) {
    const unsigned bits = 8 * bytes_of(type);
    if (is_signed(type)) return {-(s128{1} << (bits - 1)), (s128{1} << (bits - 1)) - 1};
    return {0, (s128{1} << bits) - 1};
}

s128 integer_from(Type type, u64 bits) {
    switch (type) {
        case Type::s8:
            return static_cast<s8>(bits);
        case Type::s16:
            return static_cast<s16>(bits);
        case Type::s32:
            return static_cast<s32>(bits);
        case Type::s64:
            return static_cast<s64>(bits);
        default:
            return bytes_of(type) == 8 ? bits : bits & ((u64{1} << (8 * bytes_of(type))) - 1);
    }
}

double real_from(Type type, u64 bits, std::uint8_t flags) {
    switch (type) {
        case Type::f16:
            return from_half(static_cast<u16>(bits));
        case Type::bf16:
            return from_bfloat(static_cast<u16>(bits));
        case Type::f64:
            return std::bit_cast<double>(bits);
        default: {
            const float value = std::bit_cast<float>(static_cast<u32>(bits));
            return (flags & flag::flush) != 0 ? flushed(value) : value;
        }
    }
}

// NaN of a double keeps its sign and the upper part of its payload, NaN made into tf32 by rna the bits that
// there are; every other becomes the one NaN that results have.
std::optional<u64> kept_nan(Type to, Type from, u64 bits, Rounding rounding) {
    if (from == Type::f64 && to == Type::f32)
        return std::bit_cast<u32>(static_cast<float>(std::bit_cast<double>(bits)));
    if (from == Type::f64 && to == Type::f16) return (bits >> 48 & 0x8000) | 0x7e00 | (bits >> 42 & 0x3ff);
    if (from == Type::f64 && to == Type::bf16) return (bits >> 48 & 0x8000) | 0x7fc0 | (bits >> 45 & 0x7f);
    if (to == Type::tf32) return rounding == Rounding::away ? bits & 0xffffe000 : 0x7fffe000;
    return std::nullopt;
}

u64 real_bits(Type type, double value, Rounding rounding, std::uint8_t flags) {
    if ((flags & flag::saturate) != 0) value = saturated(value);
    if ((flags & flag::relu) != 0) value = value > 0 || value != value ? value : 0.0;
    switch (type) {
        case Type::f16: {
            const u16 bits = to_half(value, rounding);
            return (flags & flag::finite) != 0 && (bits & 0x7fff) == 0x7c00 ? bits - 1U : bits;
        }
        case Type::bf16: {
            const u16 bits = to_bfloat(value, rounding);
            return (flags & flag::finite) != 0 && (bits & 0x7fff) == 0x7f80 ? bits - 1U : bits;
        }
        case Type::tf32:
            return std::bit_cast<u32>(static_cast<float>(rounded(value, tensor_format, rounding)));
        case Type::f64:
            return std::bit_cast<u64>(value);
        default: {
            const float result = to_single(value, rounding);
            return std::bit_cast<u32>((flags & flag::flush) != 0 ? flushed(result) : result);
        }
    }
}

double to_whole(double value, Rounding rounding) {
    switch (rounding) {
        case Rounding::zero:
            return std::trunc(value);
        case Rounding::down:
            return std::floor(value);
        case Rounding::up:
            return std::ceil(value);
        default:
            return std::nearbyint(value);
    }
}

// NaN becomes 0, or, where 64 bits are involved, the highest bit alone.
u64 whole_bits(Type to, Type from, double value, Rounding rounding) {
    if (value != value) {
        if (from == Type::f64 || bytes_of(to) == 8) return u64{1} << (8 * bytes_of(to) - 1);
        return 0;
    }
    value = to_whole(value, rounding);
    const Range range = range_of(to);
    if (value <= static_cast<double>(range.least)) return static_cast<u64>(range.least);
    if (value >= static_cast<double>(range.greatest)) return static_cast<u64>(range.greatest);
    return static_cast<u64>(static_cast<s128>(value));
}

u64 real_from_integer(Type to, s128 value, Rounding rounding, std::uint8_t flags) {
    if (to == Type::f64) {
        const RoundingScope scope(rounding);
        volatile s64 low = static_cast<s64>(value);
        volatile u64 high = static_cast<u64>(value);
        const volatile double result = value < 0 ? static_cast<double>(low) : static_cast<double>(high);
        return real_bits(to, result, rounding, flags);
    }
    // What a double cannot hold is kept as one bit below: enough for the shorter formats' rounding.
    const s128 limit = s128{1} << 53;
    if (value >= limit || value <= -limit) {
        const s128 kept = value >> 11;
        value = (kept | ((kept << 11) != value ? 1 : 0)) << 11;
    }
    return real_bits(to, static_cast<double>(value), rounding, flags);
}

// op.extra: the source's type << 8 | the destination's; op.width: 1 where a real becomes a whole real.
u64 converted(const Op& op, u64 bits) {
    const auto to = static_cast<Type>(op.extra & 0xff);
    const auto from = static_cast<Type>(op.extra >> 8 & 0xff);
    const bool to_real = is_float(to);
    if (is_float(from)) {
        const double value = real_from(from, bits, op.flags);
        if (!to_real) return whole_bits(to, from, value, op.rounding);
        if (value != value && (op.flags & flag::saturate) == 0) {
            if (const auto kept = kept_nan(to, from, bits, op.rounding)) return *kept;
        }
        if (op.width == 1) return real_bits(to, to_whole(value, op.rounding), Rounding::nearest, op.flags);
        return real_bits(to, value, op.rounding, op.flags);
    }
    s128 value = integer_from(from, bits);
    if (to_real) return real_from_integer(to, value, op.rounding, op.flags);
    if ((op.flags & flag::saturate) != 0) {
        const Range range = range_of(to);
        value = std::clamp(value, range.least, range.greatest);
    }
    return static_cast<u64>(value);
}

template <typename D, typename A>
void convert(Context& context, const Op& op, Mask mask) {
    D* d = context.at<D>(op.d);
    const A* a = context.at<A>(op.a);
    each_lane(mask, [&](unsigned lane) { d[lane] = static_cast<D>(converted(op, a[lane])); });
}

Handler general(unsigned to, unsigned from) {
    return by_bytes(to, [&](auto d) {
        return by_bytes(from, [&](auto a) { return Handler{&convert<decltype(d), decltype(a)>}; });
    });
}

// The conversions that programs are full of; null for others.
Handler frequent(Type to, Type from, Rounding rounding, std::uint8_t flags, bool whole) {
    if (flags != 0 || whole) return nullptr;
    const bool nearest = rounding == Rounding::nearest;
    const auto pair = [&](Type d, Type a) { return to == d && from == a; };
    if (pair(Type::f32, Type::s32) && nearest)
        return map1<float, s32>([](s32 x) { return static_cast<float>(x); });
    if (pair(Type::f32, Type::u32) && nearest)
        return map1<float, u32>([](u32 x) { return static_cast<float>(x); });
    if (pair(Type::f64, Type::s32)) return map1<double, s32>([](s32 x) { return static_cast<double>(x); });
    if (pair(Type::f64, Type::u32)) return map1<double, u32>([](u32 x) { return static_cast<double>(x); });
    if (pair(Type::f64, Type::f32))
        return map1<double, float>([](float x) { return static_cast<double>(x); });
    if (pair(Type::f32, Type::f64) && nearest)
        return map1<float, double>([](double x) { return static_cast<float>(x); });
    if (pair(Type::f32, Type::f16)) return map1<float, u16>([](u16 x) { return canonical(from_half(x)); });
    if (pair(Type::f16, Type::f32) && nearest) return map1<u16, float>([](float x) { return to_half(x); });
    if (pair(Type::f32, Type::bf16)) return map1<float, u16>([](u16 x) { return from_bfloat(x); });
    if (pair(Type::bf16, Type::f32) && nearest) return map1<u16, float>([](float x) { return to_bfloat(x); });
    if (is_float(to) || is_float(from)) return nullptr;
    const unsigned wide = bytes_of(to);
    const auto extend = [&](auto zero) {
        using A = decltype(zero);
        return by_bytes(wide, [](auto d) {
            using D = decltype(d);
            return map1<D, A>([](A x) { return static_cast<D>(x); });
        });
    };
    switch (from) {
        case Type::s8:
            return extend(s8{});
        case Type::s16:
            return extend(s16{});
        case Type::s32:
            return extend(s32{});
        case Type::u8:
        case Type::b8:
            return extend(u8{});
        case Type::u16:
        case Type::b16:
            return extend(u16{});
        case Type::u32:
        case Type::b32:
            return extend(u32{});
        default:
            return extend(u64{});
    }
}

// --- two numbers into one register, and out of it

void pack_reals(Context& context, const Op& op, Mask mask) {
    const auto to = static_cast<Type>(op.extra & 0xff);
    const float* a = context.at<float>(op.a);
    const float* b = context.at<float>(op.b);
    u32* d = context.at<u32>(op.d);
    each_lane(mask, [&](unsigned lane) {
        const u64 high =
            real_bits(to, real_from(Type::f32, std::bit_cast<u32>(a[lane]), op.flags), op.rounding, op.flags);
        const u64 low =
            real_bits(to, real_from(Type::f32, std::bit_cast<u32>(b[lane]), op.flags), op.rounding, op.flags);
        d[lane] = static_cast<u32>(low | high << 16);
    });
}

std::uint8_t byte_form(bool e4m3, float value, std::uint8_t flags) {
    if ((flags & flag::relu) != 0 && value <= 0) value = 0;  // also a zero's sign
    return e4m3 ? to_e4m3(value) : to_e5m2(value);
}

void pack_bytes(Context& context, const Op& op, Mask mask) {
    const bool e4m3 = static_cast<Type>(op.extra & 0xff) == Type::e4m3x2;
    const float* a = context.at<float>(op.a);
    const float* b = context.at<float>(op.b);
    u16* d = context.at<u16>(op.d);
    each_lane(mask, [&](unsigned lane) {
        d[lane] =
            static_cast<u16>(byte_form(e4m3, b[lane], op.flags) | byte_form(e4m3, a[lane], op.flags) << 8);
    });
}

void pack_bytes_of_halves(Context& context, const Op& op, Mask mask) {
    const bool e4m3 = static_cast<Type>(op.extra & 0xff) == Type::e4m3x2;
    const u32* a = context.at<u32>(op.a);
    u16* d = context.at<u16>(op.d);
    each_lane(mask, [&](unsigned lane) {
        const float low = from_half(static_cast<u16>(a[lane]));
        const float high = from_half(static_cast<u16>(a[lane] >> 16));
        d[lane] = static_cast<u16>(byte_form(e4m3, low, op.flags) | byte_form(e4m3, high, op.flags) << 8);
    });
}

void unpack_bytes(Context& context, const Op& op, Mask mask) {
    const bool e4m3 = static_cast<Type>(op.extra >> 8 & 0xff) == Type::e4m3x2;
    const u16* a = context.at<u16>(op.a);
    u32* d = context.at<u32>(op.d);
    const auto one = [&](unsigned byte) {
        const auto bits = static_cast<std::uint8_t>(byte);
        float value = e4m3 ? from_e4m3(bits) : from_e5m2(bits);
        if ((op.flags & flag::relu) != 0 && value <= 0) value = 0;
        return to_half(value);
    };
    each_lane(mask, [&](unsigned lane) { d[lane] = one(a[lane] & 255U) | u32{one(a[lane] >> 8U)} << 16; });
}

// cvt.pack.sat: two integers, clamped, below what is in c. op.extra: of how many bits; flag::negate: signed.
void pack_integers(Context& context, const Op& op, Mask mask) {
    const unsigned bits = op.extra;
    const bool sign = (op.flags & flag::negate) != 0;
    const s32 least = sign ? -(s32{1} << (bits - 1)) : 0;
    const s32 greatest = (s32{1} << (sign ? bits - 1 : bits)) - 1;
    const s32* a = context.at<s32>(op.a);
    const s32* b = context.at<s32>(op.b);
    const u32* c = context.at<u32>(op.c);
    u32* d = context.at<u32>(op.d);
    each_lane(mask, [&](unsigned lane) {
        const auto one = [&](s32 value) {
            return static_cast<u32>(std::clamp(value, least, greatest)) & ((1U << bits) - 1);
        };
        const u32 rest = bits == 16 ? 0 : c[lane] << (2 * bits);
        d[lane] = rest | one(a[lane]) << bits | one(b[lane]);
    });
}

void lower_pack(Lowering& lowering) {
    if (!lowering.accept(".sat")) lowering.refuse();
    unsigned bits = 0;
    bool sign = false;
    constexpr std::pair<std::string_view, unsigned> widths[] = {{"16", 16}, {"8", 8}, {"4", 4}, {"2", 2}};
    for (const auto& [digits, width] : widths) {
        for (const char letter : {'u', 's'}) {
            if (!lowering.accept(std::string{'.', letter}.append(digits))) continue;
            bits = width;
            sign = letter == 's';
        }
    }
    if (bits == 0 || lowering.type() != Type::s32) lowering.refuse();
    lowering.maybe_type();
    lowering.expect_operands(bits == 16 ? 3 : 4);
    const Place a = lowering.source(1, Type::s32);
    const Place b = lowering.source(2, Type::s32);
    const Place c = lowering.count() == 4 ? lowering.source(3, Type::b32) : a;
    const Place d = lowering.target(0, Type::b32);
    Op& op = lowering.emit(&pack_integers);
    op.extra = bits;
    op.flags = sign ? flag::negate : 0;
    op.d = d;
    op.a = a;
    op.b = b;
    op.c = c;
}

void emit_packed(Lowering& lowering, Type to, Type from, Rounding rounding, std::uint8_t flags) {
    Handler run = nullptr;
    Type element = to;
    const bool pair = from == Type::f32;
    if (pair && (to == Type::f16x2 || to == Type::bf16x2)) {
        run = &pack_reals;
        element = to == Type::f16x2 ? Type::f16 : Type::bf16;
    } else if (pair) {
        run = &pack_bytes;
    } else if (from == Type::f16x2 && bytes_of(to) == 2) {
        run = &pack_bytes_of_halves;
    } else if (to == Type::f16x2 && bytes_of(from) == 2) {
        run = &unpack_bytes;
    } else {
        lowering.refuse();
    }
    lowering.expect_operands(pair ? 3 : 2);
    const Place a = lowering.source(1, from);
    const Place b = pair ? lowering.source(2, from) : a;
    const Place d = lowering.target(0, to);
    Op& op = lowering.emit(run, Work::convert);
    op.extra = static_cast<std::uint32_t>(from) << 8 | static_cast<std::uint32_t>(element);
    op.rounding = rounding;
    op.flags = flags;
    op.d = d;
    op.a = a;
    op.b = b;
}

bool is_packed(Type type) {
    return type == Type::f16x2 || type == Type::bf16x2 || type == Type::e4m3x2 || type == Type::e5m2x2;
}

void lower_cvt(Lowering& lowering) {
    if (lowering.accept(".pack")) return lower_pack(lowering);
    const bool whole = lowering.instruction().name.find("i.") != std::string_view::npos;
    const Rounding rounding = lowering.rounding(Rounding::nearest);
    auto flags = lowering.flags();
    if (lowering.accept(".relu")) flags |= flag::relu;
    if (lowering.accept(".satfinite")) flags |= flag::finite;
    const Type to = lowering.type();
    const Type from = lowering.type();
    if (is_packed(to) || is_packed(from)) return emit_packed(lowering, to, from, rounding, flags);
    if (to == Type::pred || from == Type::pred || bytes_of(to) > 8 || bytes_of(from) > 8) lowering.refuse();
    lowering.expect_operands(2);
    const Operand& what = lowering.operand(1);
    Place a = no_place;
    const bool brain = to == Type::bf16 || from == Type::bf16;  // whose registers are no wider than the types
    if (what.kind == OperandKind::special && !brain)
        read_special(lowering, what.text, a = lowering.temporary(from), bytes_of(from));
    else
        a = brain ? lowering.source(what, from) : lowering.narrow(what, from);
    const bool wider = !brain && to != Type::tf32;
    const Place d = lowering.target(lowering.operand(0), to, wider);
    const bool to_whole_real = whole && is_float(to) && is_float(from);
    const Handler run = frequent(to, from, rounding, flags, to_whole_real);
    Op& op = lowering.emit(run != nullptr ? run : general(bytes_of(to), bytes_of(from)), Work::convert);
    op.extra = static_cast<std::uint32_t>(from) << 8 | static_cast<std::uint32_t>(to);
    op.rounding = rounding;
    op.flags = flags;
    op.width = to_whole_real ? 1 : 0;
    op.d = d;
    op.a = a;
}

}  // namespace

void add_convert(Families& families) { families["cvt"] = &lower_cvt; }

}  // namespace fikit::sim::ptx
