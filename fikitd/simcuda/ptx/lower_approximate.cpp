// Approximations: ex2, lg2, sin, cos, tanh, rsqrt, and rcp, sqrt and div with .approx or .full.
//
// The hardware's tables are not documented; what is here is the function rounded to nearest, which lies
// within the error that the PTX ISA states for each, and differs from the hardware in the last bits.
#include <cmath>

#include "ptx/floats.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

template <typename F>
void single(Context& context, const Op& op, Mask mask) {
    float* d = context.at<float>(op.d);
    const float* a = context.at<float>(op.a);
    const bool flush = (op.flags & flag::flush) != 0;
    each_lane(mask, [&](unsigned lane) {
        const float value = flush ? flushed(a[lane]) : a[lane];
        const float result = canonical(static_cast<float>(F::of(static_cast<double>(value))));
        d[lane] = flush ? flushed(result) : result;
    });
}

template <typename F>
void twice(Context& context, const Op& op, Mask mask) {
    double* d = context.at<double>(op.d);
    const double* a = context.at<double>(op.a);
    if ((op.flags & flag::flush) == 0) {  // rsqrt, which the driver's compiler makes as exact as a function
        each_lane(mask, [&](unsigned lane) { d[lane] = F::of(a[lane]); });
        return;
    }
    // .approx.ftz.f64 keeps the upper half of the number only.
    each_lane(mask, [&](unsigned lane) {
        const double value = std::bit_cast<double>(std::bit_cast<u64>(a[lane]) & ~u64{0xffffffff});
        const double result = F::of(std::fabs(value) < 0x1p-1022 ? std::copysign(0.0, value) : value);
        d[lane] = std::bit_cast<double>(std::bit_cast<u64>(result) & ~u64{0xffffffff});
    });
}

template <typename F, bool brain>
void halves(Context& context, const Op& op, Mask mask) {
    const auto one = [](u16 bits) {
        return brain ? to_bfloat(F::of(from_bfloat(bits)), Rounding::nearest)
                     : to_half(F::of(from_half(bits)), Rounding::nearest);
    };
    if (op.width == 1) {
        u16* d = context.at<u16>(op.d);
        const u16* a = context.at<u16>(op.a);
        each_lane(mask, [&](unsigned lane) { d[lane] = one(a[lane]); });
    } else {
        u32* d = context.at<u32>(op.d);
        const u32* a = context.at<u32>(op.a);
        each_lane(mask, [&](unsigned lane) {
            d[lane] = one(static_cast<u16>(a[lane])) | u32{one(static_cast<u16>(a[lane] >> 16))} << 16;
        });
    }
}

struct PowerOfTwo {
    static double of(double x) { return std::exp2(x); }
};
struct Logarithm {
    static double of(double x) { return std::log2(x); }
};
struct Sine {
    static double of(double x) { return std::sin(x); }
};
struct Cosine {
    static double of(double x) { return std::cos(x); }
};
struct Tangent {
    static double of(double x) { return std::tanh(x); }
};
struct Reciprocal {
    static double of(double x) { return 1 / x; }
};
struct Root {
    static double of(double x) { return std::sqrt(x); }
};
struct ReciprocalRoot {
    static double of(double x) { return 1 / std::sqrt(x); }
};

template <typename F>
Handler of_type(Lowering& lowering, Type type) {
    switch (type) {
        case Type::f32:
            return &single<F>;
        case Type::f64:
            return &twice<F>;
        case Type::f16:
        case Type::f16x2:
            return &halves<F, false>;
        case Type::bf16:
        case Type::bf16x2:
            return &halves<F, true>;
        default:
            lowering.refuse();
    }
}

template <typename F>
void unary(Lowering& lowering) {
    lowering.accept_any({".approx", ".rn"});
    const auto flags = lowering.flags();
    const Type type = lowering.type();
    const Handler run = of_type<F>(lowering, type);
    Op& op = lowering.emit(type, {type}, run, Work::special);
    op.width = type == Type::f16x2 || type == Type::bf16x2 ? 2 : 1;
    op.flags = flags;
}

}  // namespace

void approximate(Lowering& lowering) {
    if (lowering.opcode == "sqrt")
        unary<Root>(lowering);
    else
        unary<Reciprocal>(lowering);
}

// div.approx gives 0 for a divisor above 2^126 (its reciprocal is flushed); div.full does not.
void approximate_division(Lowering& lowering) {
    const auto flags = lowering.flags();
    if (lowering.type() != Type::f32) lowering.refuse();
    Op& op = lowering.emit(Type::f32, {Type::f32, Type::f32},
                           map_op2<float, float, float>([](const Op& o, float x, float y) {
                               const bool flush = (o.flags & flag::flush) != 0;
                               const float result = canonical(flush ? flushed(x) / flushed(y) : x / y);
                               return flush ? flushed(result) : result;
                           }),
                           Work::special);
    op.flags = flags;
}

void add_approximate(Families& families) {
    families["ex2"] = &unary<PowerOfTwo>;
    families["lg2"] = &unary<Logarithm>;
    families["sin"] = &unary<Sine>;
    families["cos"] = &unary<Cosine>;
    families["tanh"] = &unary<Tangent>;
    families["rsqrt"] = &unary<ReciprocalRoot>;
}

}  // namespace fikit::sim::ptx
