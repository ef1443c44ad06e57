// f16 and bf16 arithmetic, alone and in pairs, rounded once to its format.
//
// Sums and products of two halves are those of f32: exact, or rounded to a format that has more than twice
// their bits, from which the second rounding is right (S. A. Figueroa, "When is double rounding innocuous?",
// 1995). Three operands are rounded to odd on the way: in f32 for f16, whose products have no more than 22
// bits and are neither too great nor too small for it; in f64 for bf16.
#include <cmath>
#include <cstring>

#include "ptx/floats.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

// What flags make of a result before it is rounded to its format.
template <typename Float>
Float adjusted(std::uint8_t flags, Float value) {
    if ((flags & flag::saturate) != 0) value = saturated(value);
    if ((flags & flag::relu) != 0 && value <= 0) value = 0;  // -0 too
    return value;
}

struct Half {
    static float load(std::uint8_t flags, u16 bits) {
        const float value = from_half(bits);
        return (flags & flag::flush) != 0 && std::fabs(value) < 0x1p-14F ? std::copysign(0.0F, value) : value;
    }
    static u16 store(std::uint8_t flags, float value) {
        value = adjusted(flags, value);
        // What is subnormal before it is rounded.
        if ((flags & flag::flush) != 0 && std::fabs(value) < 0x1p-14F) value = std::copysign(0.0F, value);
        return to_half(value);
    }
    static float fused(float a, float b, float c) { return odd_sum<u32>(a * b, c); }
};

struct Bfloat {
    static float load(std::uint8_t, u16 bits) { return from_bfloat(bits); }
    static u16 store(std::uint8_t flags, float value) { return to_bfloat(adjusted(flags, value)); }
    static float fused(float a, float b, float c) {
        return odd_single(odd_sum(static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c)));
    }
};

struct Add {
    static float of(float a, float b) { return a + b; }
};
struct Subtract {
    static float of(float a, float b) { return a - b; }
};
struct Multiply {
    static float of(float a, float b) { return a * b; }
};

// F: of the halves a, b and c to a half, by flags and op.extra. A pair is two numbers that follow each other.
template <typename F>
[[gnu::always_inline]] inline void pairs_of(Context& context, const Op& op, Mask mask) {
    u16* d = context.at<u16>(op.d);
    const u16* a = context.at<u16>(op.a);
    const u16* b = context.at<u16>(op.b);
    const u16* c = context.at<u16>(op.c);
    if (mask == all_lanes && op.flags == 0) {
        const unsigned numbers = lanes * op.width;
        for (unsigned first = 0; first < numbers; first += lanes) {
            u16 results[lanes];
            for (unsigned at = 0; at < lanes; ++at)
                results[at] = F::of(0, op.extra, a[first + at], b[first + at], c[first + at]);
            std::memcpy(d + first, results, sizeof results);
        }
        return;
    }
    each_lane(mask, [&](unsigned lane) {
        for (unsigned at = lane * op.width; at < (lane + 1) * op.width; ++at)
            d[at] = F::of(op.flags, op.extra, a[at], b[at], c[at]);
    });
}

template <typename F>
void pairs(Context& context, const Op& op, Mask mask) {
    pairs_of<F>(context, op, mask);
}

// The same in vectors of 32 bytes, where the processor has them.
#if defined(__x86_64__)
template <typename F>
[[gnu::target("avx2")]] void wide_pairs(Context& context, const Op& op, Mask mask) {
    pairs_of<F>(context, op, mask);
}
template <typename F>
Handler handler() {
    return __builtin_cpu_supports("avx2") ? &wide_pairs<F> : &pairs<F>;
}
#else
template <typename F>
Handler handler() {
    return &pairs<F>;
}
#endif

template <typename Number, typename Operation>
struct Binary {
    static u16 of(std::uint8_t flags, u32, u16 a, u16 b, u16) {
        return Number::store(flags, Operation::of(Number::load(flags, a), Number::load(flags, b)));
    }
};

template <typename Number>
struct Fused {
    static u16 of(std::uint8_t flags, u32, u16 a, u16 b, u16 c) {
        return Number::store(
            flags, Number::fused(Number::load(flags, a), Number::load(flags, b), Number::load(flags, c)));
    }
};

// op.extra: as in lower_float.cpp.
template <typename Number>
struct Extreme {
    static u16 of(std::uint8_t flags, u32 extra, u16 a, u16 b, u16) {
        const bool greater = (extra & 1) != 0;
        float x = Number::load(flags, a);
        float y = Number::load(flags, b);
        const bool sign = std::signbit(x) != std::signbit(y);
        const bool by_sign = (extra & 4) != 0;
        if (by_sign) {
            x = std::fabs(x);
            y = std::fabs(y);
        }
        if (x != x || y != y) {
            if ((extra & 2) != 0 || (x != x && y != y)) return 0x7fff;
            x = x != x ? y : x;
        } else if (x == y) {
            x = std::signbit(x) != greater ? x : y;
        } else {
            x = greater == (x > y) ? x : y;
        }
        return Number::store(flags, by_sign ? std::copysign(x, sign ? -1.0F : 1.0F) : x);
    }
};

template <typename Number>
struct Sign {
    static u16 of(std::uint8_t flags, u32, u16 a, u16, u16) {
        const float value = Number::load(flags, a);
        if (value != value) return 0x7fff;
        if (value == 0) a &= 0x8000;
        return (flags & flag::negate) != 0 ? a ^ 0x8000 : a & 0x7fff;
    }
};

template <template <typename> typename F>
Handler of_number(Type type) {
    return type == Type::f16 || type == Type::f16x2 ? handler<F<Half>>() : handler<F<Bfloat>>();
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
    return operation == '+'   ? handler<Binary<Number, Add>>()
           : operation == '-' ? handler<Binary<Number, Subtract>>()
                              : handler<Binary<Number, Multiply>>();
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
