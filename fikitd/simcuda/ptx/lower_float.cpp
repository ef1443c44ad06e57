// f32 and f64 arithmetic, bit-exact: PTX ISA, "Floating Point Instructions"; f16 and bf16 are
// lower_half.cpp's, approximations lower_approximate.cpp's.
#include <cmath>

#include "ptx/floats.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

template <typename T>
T input(const Op& op, T value) {
    if constexpr (std::is_same_v<T, float>) {
        if ((op.flags & flag::flush) != 0) return flushed(value);
    }
    return value;
}

// `exact`: the result in double. With .ftz, one that is less than every normal number before it is rounded
// becomes zero, though it rounds to a normal one; the H200 does so at least for results of 24 bits.
template <typename T, typename Exact>
T output(const Op& op, T value, Exact exact) {
    value = input(op, value);
    if constexpr (std::is_same_v<T, float>) {
        const bool least = (op.flags & flag::flush) != 0 && std::fabs(value) == 0x1p-126F;
        if (least && std::fabs(exact()) < 0x1p-126) value = std::copysign(0.0F, value);
    }
    if ((op.flags & flag::saturate) != 0) return saturated(value);
    return canonical(value);
}

template <char operation, typename T>
T apply(T a, T b) {
    if constexpr (operation == '+') return a + b;
    if constexpr (operation == '-') return a - b;
    if constexpr (operation == '*') return a * b;
    if constexpr (operation == '/') return a / b;
}

// With a rounding, .ftz or .sat: lane by lane, the processor set to the rounding.
template <char operation, typename T>
void careful2(Context& context, const Op& op, Mask mask) {
    const RoundingScope scope(op.rounding);
    T* d = context.at<T>(op.d);
    const T* a = context.at<T>(op.a);
    const T* b = context.at<T>(op.b);
    each_lane(mask, [&](unsigned lane) {
        const T x = input(op, a[lane]);
        const T y = input(op, b[lane]);
        d[lane] = output(op, apply<operation>(x, y), [&] { return apply<operation, double>(x, y); });
    });
}

template <typename T>
void careful3(Context& context, const Op& op, Mask mask) {
    const RoundingScope scope(op.rounding);
    T* d = context.at<T>(op.d);
    const T* a = context.at<T>(op.a);
    const T* b = context.at<T>(op.b);
    const T* c = context.at<T>(op.c);
    each_lane(mask, [&](unsigned lane) {
        const T x = input(op, a[lane]);
        const T y = input(op, b[lane]);
        const T z = input(op, c[lane]);
        d[lane] = output(op, std::fma(x, y, z), [&] {
            const RoundingScope inwards(Rounding::zero);
            return std::fma(double{x}, double{y}, double{z});
        });
    });
}

#if defined(__x86_64__)
// The same as below where the processor has the instruction.
template <typename T>
__attribute__((target("avx2,fma"))) void fused_by_instruction(Context& context, const Op& op, Mask mask) {
    T* d = context.at<T>(op.d);
    const T* a = context.at<T>(op.a);
    const T* b = context.at<T>(op.b);
    const T* c = context.at<T>(op.c);
    if (mask == all_lanes) {
        FIKIT_EACH_LANE
        for (unsigned lane = 0; lane < lanes; ++lane) {
            T value;
            if constexpr (sizeof(T) == 4) {
                value = __builtin_fmaf(a[lane], b[lane], c[lane]);
                value = value != value ? std::bit_cast<float>(0x7fffffffU) : value;
            } else {
                value = __builtin_fma(a[lane], b[lane], c[lane]);
            }
            d[lane] = value;
        }
        return;
    }
    for (; mask != 0; mask &= mask - 1) {
        const auto lane = static_cast<unsigned>(__builtin_ctz(mask));
        if constexpr (sizeof(T) == 4) {
            const T value = __builtin_fmaf(a[lane], b[lane], c[lane]);
            d[lane] = value != value ? std::bit_cast<float>(0x7fffffffU) : value;
        } else {
            d[lane] = __builtin_fma(a[lane], b[lane], c[lane]);
        }
    }
}
#endif

template <typename T>
Handler fused() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")) return &fused_by_instruction<T>;
#endif
    return map3<T, T, T, T>([](T a, T b, T c) { return canonical(static_cast<T>(std::fma(a, b, c))); });
}

struct Manner {
    Rounding rounding;
    std::uint8_t flags;
    bool plain() const { return rounding == Rounding::nearest && flags == 0; }
};

Manner manner(Lowering& lowering) {
    const Rounding rounding = lowering.rounding(Rounding::nearest);
    return {rounding, lowering.flags()};
}

void check_type(Lowering& lowering, Type type, const Manner& how) {
    if (type != Type::f32 && type != Type::f64) lowering.refuse();
    if (type == Type::f64 && how.flags != 0) lowering.refuse("f64 has no .ftz and no .sat");
}

template <char operation>
void binary(Lowering& lowering) {
    const Manner how = manner(lowering);
    const Type type = lowering.type();
    check_type(lowering, type, how);
    const auto pick = [&](auto zero) -> Handler {
        using T = decltype(zero);
        if (!how.plain()) return &careful2<operation, T>;
        return map2<T, T, T>([](T x, T y) { return canonical(apply<operation>(x, y)); });
    };
    const Work cost = operation == '/' ? Work::special : type == Type::f64 ? Work::wide : Work::simple;
    Op& op = lowering.emit(type, {type, type}, type == Type::f32 ? pick(float{}) : pick(double{}), cost);
    op.rounding = how.rounding;
    op.flags = how.flags;
}

template <char operation>
void any_binary(Lowering& lowering) {
    if (!half_binary(lowering, operation)) binary<operation>(lowering);
}

// --- one operand

template <typename T, typename F>
void careful1(Context& context, const Op& op, Mask mask) {
    const RoundingScope scope(op.rounding);
    T* d = context.at<T>(op.d);
    const T* a = context.at<T>(op.a);
    each_lane(mask, [&](unsigned lane) {
        const T x = input(op, a[lane]);
        d[lane] = output(op, F{}(x), [&] { return F{}(double{x}); });
    });
}

void square_root_or_reciprocal(Lowering& lowering) {
    if (lowering.accept(".approx")) return approximate(lowering);
    const bool root = lowering.opcode == "sqrt";
    const Manner how = manner(lowering);
    const Type type = lowering.type();
    check_type(lowering, type, how);
    const auto pick = [&](auto zero) -> Handler {
        using T = decltype(zero);
        using Root = decltype([](auto x) { return std::sqrt(x); });
        using Reciprocal = decltype([](auto x) { return 1 / x; });
        return root ? &careful1<T, Root> : &careful1<T, Reciprocal>;
    };
    Op& op = lowering.emit(type, {type}, type == Type::f32 ? pick(float{}) : pick(double{}), Work::special);
    op.rounding = how.rounding;
    op.flags = how.flags;
}

// --- minimum and maximum: a number wins over NaN, and -0 is less than +0

template <typename T>
T extreme(const Op& op, T a, T b) {
    const bool greater = (op.extra & 1) != 0;
    const bool keep_nan = (op.extra & 2) != 0;
    const bool by_sign = (op.extra & 4) != 0;
    a = input(op, a);
    b = input(op, b);
    const bool sign = std::signbit(a) != std::signbit(b);
    if (by_sign) {
        a = std::fabs(a);
        b = std::fabs(b);
    }
    T result;
    if (a != a || b != b) {
        if ((a != a && b != b) || keep_nan)
            return sizeof(T) == 4 ? canonical(a != a ? a : b) : (a != a ? a : b);
        result = a != a ? b : a;
    } else if (a == b) {
        result = std::signbit(a) != greater ? a : b;
    } else {
        result = greater == (a > b) ? a : b;
    }
    return by_sign ? std::copysign(result, sign ? T{-1} : T{1}) : result;
}

void extreme_of(Lowering& lowering, bool greater) {
    const auto flags = lowering.flags();
    const bool keep_nan = lowering.accept(".NaN");
    const bool by_sign = lowering.accept(".xorsign");
    if (by_sign && !lowering.accept(".abs")) lowering.refuse();
    const Type type = lowering.type();
    if (type != Type::f32 && type != Type::f64) lowering.refuse();
    const auto pick = [&](auto zero) {
        using T = decltype(zero);
        return map_op2<T, T, T>([](const Op& o, T x, T y) { return extreme(o, x, y); });
    };
    Op& op = lowering.emit(type, {type, type}, type == Type::f32 ? pick(float{}) : pick(double{}),
                           type == Type::f64 ? Work::wide : Work::simple);
    op.extra = (greater ? 1U : 0U) | (keep_nan ? 2U : 0U) | (by_sign ? 4U : 0U);
    op.flags = flags;
}

template <bool negative>
void sign(Lowering& lowering) {
    const auto flags = lowering.flags();
    const Type type = lowering.type();
    if (type != Type::f32 && type != Type::f64) lowering.refuse();
    const auto pick = [&](auto zero) -> Handler {
        using T = decltype(zero);
        if (flags != 0)
            return map_op1<T, T>(
                [](const Op& o, T x) { return canonical(negative ? -input(o, x) : std::fabs(input(o, x))); });
        return map1<T, T>([](T x) { return canonical(negative ? -x : std::fabs(x)); });
    };
    Op& op = lowering.emit(type, {type}, type == Type::f32 ? pick(float{}) : pick(double{}));
    op.flags = flags;
}

void fused_multiply_add(Lowering& lowering) {
    if (half_fused(lowering)) return;
    const Manner how = manner(lowering);
    const Type type = lowering.type();
    check_type(lowering, type, how);
    Handler run = nullptr;
    if (how.plain())
        run = type == Type::f32 ? fused<float>() : fused<double>();
    else
        run = type == Type::f32 ? &careful3<float> : &careful3<double>;
    Op& op = lowering.emit(type, {type, type, type}, run, type == Type::f64 ? Work::wide : Work::simple);
    op.rounding = how.rounding;
    op.flags = how.flags;
}

}  // namespace

void float_add(Lowering& lowering) { any_binary<'+'>(lowering); }
void float_subtract(Lowering& lowering) { any_binary<'-'>(lowering); }
void float_multiply(Lowering& lowering) { any_binary<'*'>(lowering); }
void float_multiply_add(Lowering& lowering) { fused_multiply_add(lowering); }
void float_divide(Lowering& lowering) {
    if (lowering.accept_any({".approx", ".full"})) return approximate_division(lowering);
    binary<'/'>(lowering);
}
void float_minimum(Lowering& lowering) {
    if (!half_extreme(lowering, false)) extreme_of(lowering, false);
}
void float_maximum(Lowering& lowering) {
    if (!half_extreme(lowering, true)) extreme_of(lowering, true);
}
void float_absolute(Lowering& lowering) {
    if (!half_sign(lowering, false)) sign<false>(lowering);
}
void float_negate(Lowering& lowering) {
    if (!half_sign(lowering, true)) sign<true>(lowering);
}

void add_float(Families& families) {
    families["fma"] = &fused_multiply_add;
    families["sqrt"] = &square_root_or_reciprocal;
    families["rcp"] = &square_root_or_reciprocal;
}

}  // namespace fikit::sim::ptx
