// f16 and bf16 arithmetic, alone and in pairs. Every operation is exact in double, or rounded to odd
// there, and rounded once to its format.
#include <cmath>

#include "ptx/floats.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

struct Half {
    static float load(const Op& op, u16 bits) {
        const float value = from_half(bits);
        return (op.flags & flag::flush) != 0 && std::fabs(value) < 0x1p-14F ? std::copysign(0.0F, value)
                                                                            : value;
    }
    static u16 store(const Op& op, double value) {
        if ((op.flags & flag::saturate) != 0) value = saturated(value);
        if ((op.flags & flag::relu) != 0 && value < 0) value = 0;
        const u16 bits = to_half(odd_single(value));
        if ((op.flags & flag::flush) != 0 && (bits & 0x7c00) == 0) return bits & 0x8000;
        return bits;
    }
};

struct Bfloat {
    static float load(const Op&, u16 bits) { return from_bfloat(bits); }
    static u16 store(const Op& op, double value) {
        if ((op.flags & flag::saturate) != 0) value = saturated(value);
        if ((op.flags & flag::relu) != 0 && value < 0) value = 0;
        return to_bfloat(odd_single(value));
    }
};

struct Add {
    static double of(double a, double b) { return odd_sum(a, b); }
};
struct Subtract {
    static double of(double a, double b) { return odd_sum(a, -b); }
};
struct Multiply {
    static double of(double a, double b) { return a * b; }
};

// F: of the halves a and b to a half. One number is a pair whose upper half is not looked at.
template <typename F>
void pairs(Context& context, const Op& op, Mask mask) {
    if (op.width == 1) {
        u16* d = context.at<u16>(op.d);
        const u16* a = context.at<u16>(op.a);
        const u16* b = context.at<u16>(op.b);
        const u16* c = context.at<u16>(op.c);
        each_lane(mask, [&](unsigned lane) { d[lane] = F::of(op, a[lane], b[lane], c[lane]); });
        return;
    }
    u32* d = context.at<u32>(op.d);
    const u32* a = context.at<u32>(op.a);
    const u32* b = context.at<u32>(op.b);
    const u32* c = context.at<u32>(op.c);
    each_lane(mask, [&](unsigned lane) {
        const u16 low =
            F::of(op, static_cast<u16>(a[lane]), static_cast<u16>(b[lane]), static_cast<u16>(c[lane]));
        const u16 high = F::of(op, static_cast<u16>(a[lane] >> 16), static_cast<u16>(b[lane] >> 16),
                               static_cast<u16>(c[lane] >> 16));
        d[lane] = low | u32{high} << 16;
    });
}

template <typename Number, typename Operation>
struct Binary {
    static u16 of(const Op& op, u16 a, u16 b, u16) {
        return Number::store(op, Operation::of(Number::load(op, a), Number::load(op, b)));
    }
};

template <typename Number>
struct Fused {
    static u16 of(const Op& op, u16 a, u16 b, u16 c) {
        const double product = static_cast<double>(Number::load(op, a)) * Number::load(op, b);
        return Number::store(op, odd_sum(product, Number::load(op, c)));
    }
};

// op.extra: as in lower_float.cpp.
template <typename Number>
struct Extreme {
    static u16 of(const Op& op, u16 a, u16 b, u16) {
        const bool greater = (op.extra & 1) != 0;
        float x = Number::load(op, a);
        float y = Number::load(op, b);
        const bool sign = std::signbit(x) != std::signbit(y);
        const bool by_sign = (op.extra & 4) != 0;
        if (by_sign) {
            x = std::fabs(x);
            y = std::fabs(y);
        }
        if (x != x || y != y) {
            if ((op.extra & 2) != 0 || (x != x && y != y)) return 0x7fff;
            x = x != x ? y : x;
        } else if (x == y) {
            x = std::signbit(x) != greater ? x : y;
        } else {
            x = greater == (x > y) ? x : y;
        }
        return Number::store(op, by_sign ? std::copysign(x, sign ? -1.0F : 1.0F) : x);
    }
};

template <typename Number>
struct Sign {
    static u16 of(const Op& op, u16 a, u16, u16) {
        if ((op.flags & flag::flush) != 0 && (a & 0x7c00) == 0) a &= 0x8000;
        return (op.flags & flag::negate) != 0 ? a ^ 0x8000 : a & 0x7fff;
    }
};

template <template <typename> typename F>
Handler of_number(Type type) {
    return type == Type::f16 || type == Type::f16x2 ? &pairs<F<Half>> : &pairs<F<Bfloat>>;
}

bool is_half(const std::optional<Type>& type) {
    return type &&
           (*type == Type::f16 || *type == Type::f16x2 || *type == Type::bf16 || *type == Type::bf16x2);
}

void emit_half(Lowering& lowering, Handler run, Type type, std::uint8_t flags, std::uint32_t extra) {
    const bool pair = type == Type::f16x2 || type == Type::bf16x2;
    const std::size_t sources = lowering.count() - 1;
    const Place a = lowering.source(1, type);
    const Place b = sources > 1 ? lowering.source(2, type) : a;
    const Place c = sources > 2 ? lowering.source(3, type) : a;
    const Place d = lowering.target(0, type);
    Op& op = lowering.emit(run);
    op.width = pair ? 2 : 1;
    op.flags = flags;
    op.extra = extra;
    op.d = d;
    op.a = a;
    op.b = b;
    op.c = c;
}

template <typename Number>
Handler binary_of(char operation) {
    return operation == '+'   ? &pairs<Binary<Number, Add>>
           : operation == '-' ? &pairs<Binary<Number, Subtract>>
                              : &pairs<Binary<Number, Multiply>>;
}

}  // namespace

bool half_binary(Lowering& lowering, char operation) {
    if (!is_half(lowering.peek_type())) return false;
    lowering.accept(".rn");
    const auto flags = lowering.flags();
    const Type type = lowering.type();
    lowering.expect_operands(3);
    const bool half = type == Type::f16 || type == Type::f16x2;
    emit_half(lowering, half ? binary_of<Half>(operation) : binary_of<Bfloat>(operation), type, flags, 0);
    return true;
}

bool half_fused(Lowering& lowering) {
    if (!is_half(lowering.peek_type())) return false;
    lowering.accept(".rn");
    auto flags = lowering.flags();
    if (lowering.accept(".relu")) flags |= flag::relu;
    const Type type = lowering.type();
    lowering.expect_operands(4);
    emit_half(lowering, of_number<Fused>(type), type, flags, 0);
    return true;
}

bool half_extreme(Lowering& lowering, bool greater) {
    if (!is_half(lowering.peek_type())) return false;
    const auto flags = lowering.flags();
    const bool keep_nan = lowering.accept(".NaN");
    const bool by_sign = lowering.accept(".xorsign");
    if (by_sign && !lowering.accept(".abs")) lowering.refuse();
    const Type type = lowering.type();
    lowering.expect_operands(3);
    emit_half(lowering, of_number<Extreme>(type), type, flags,
              (greater ? 1U : 0U) | (keep_nan ? 2U : 0U) | (by_sign ? 4U : 0U));
    return true;
}

bool half_sign(Lowering& lowering, bool negative) {
    if (!is_half(lowering.peek_type())) return false;
    auto flags = lowering.flags();
    if (negative) flags |= flag::negate;
    const Type type = lowering.type();
    lowering.expect_operands(2);
    emit_half(lowering, of_number<Sign>(type), type, flags, 0);
    return true;
}

}  // namespace fikit::sim::ptx
