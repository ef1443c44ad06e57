// Numbers of floating point as the hardware has them: f16, bf16, tf32 and 8-bit forms, rounding in every
// direction, flushing, and the one NaN that results have.
#pragma once

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>

#include "ptx/lanes.hpp"

namespace fikit::sim::ptx {

// Results of f32, f16 and bf16 arithmetic that are no number are this one (PTX ISA, "Floating Point
// Instructions"); f64 keeps the payload of an operand.
inline float canonical(float value) { return value != value ? std::bit_cast<float>(0x7fffffffU) : value; }
inline double canonical(double value) { return value; }

inline float flushed(float value) {
    return std::fabs(value) < 0x1p-126F ? std::copysign(0.0F, value) : value;
}
inline float saturated(float value) { return value > 0 ? (value < 1 ? value : 1.0F) : 0.0F; }
inline double saturated(double value) { return value > 0 ? (value < 1 ? value : 1.0) : 0.0; }

inline float from_half(u16 half) {
    const u32 bits = static_cast<u32>(half & 0x7fff) << 13;
    // The exponent is 112 higher. A subnormal number is the fraction of one that is normal, less that one: no
    // subnormal float takes part, which costs processors a hundred cycles.
    const float normal = std::bit_cast<float>(bits + 0x38000000);
    const float subnormal = std::bit_cast<float>(bits + 0x38800000) - 0x1p-14F;
    float value = bits < 0x00800000 ? subnormal : normal;
    if (bits >= 0x0f800000) value = std::bit_cast<float>(bits | 0x7f800000);
    return std::bit_cast<float>(std::bit_cast<u32>(value) | static_cast<u32>(half & 0x8000) << 16);
}
inline float from_bfloat(u16 value) { return std::bit_cast<float>(u32{value} << 16); }

// To the nearest, ties to even. Without branches, so that loops of these become vectors.
inline u16 to_half(float value) {
    const u32 bits = std::bit_cast<u32>(value);
    const u32 size = bits & 0x7fffffff;
    // Adding 1/2 puts the last bit of a subnormal half at the last bit of the sum.
    const float sum = std::bit_cast<float>(size) + 0.5F;
    const u32 subnormal = std::bit_cast<u32>(sum) - 0x3f000000;
    const u32 normal = (size + 0xc8000fff + (size >> 13 & 1)) >> 13;
    u32 half = size < 0x38800000 ? subnormal : normal;
    half = size >= 0x47800000 ? 0x7c00 : half;
    half |= bits >> 16 & 0x8000;
    return static_cast<u16>(size > 0x7f800000 ? 0x7fff : half);
}
inline u16 to_bfloat(float value) {
    const u32 bits = std::bit_cast<u32>(value);
    const u32 nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return static_cast<u16>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : nearest);
}

// A binary format: stored bits of the significand, and the exponents of its normal numbers.
struct Format {
    int fraction, least, greatest;
};
inline constexpr Format half_format{10, -14, 15};
inline constexpr Format bfloat_format{7, -126, 127};
inline constexpr Format tensor_format{10, -126, 127};  // tf32
inline constexpr Format single_format{23, -126, 127};
inline constexpr Format e5m2_format{2, -14, 15};
inline constexpr Format e4m3_format{3, -6, 8};  // its largest number is 448: see to_e4m3

// The number of the format next to `value` in that direction; infinite where there is none, or the
// largest where the direction forbids infinity.
double rounded(double value, const Format& format, Rounding rounding);
u16 to_half(double value, Rounding rounding);
u16 to_bfloat(double value, Rounding rounding);
float to_single(double value, Rounding rounding);
// 8-bit forms saturate: their largest number for what is greater, NaN (0x7f) for NaN.
std::uint8_t to_e4m3(float value);
std::uint8_t to_e5m2(float value);
float from_e4m3(std::uint8_t value);
float from_e5m2(std::uint8_t value);

// Rounding to odd: a second rounding to a format that is two bits or more shorter is then right (S. Boldo and
// G. Melquiond, "Emulation of FMA and correctly rounded sums", 2008). An inexact value goes to that one of
// its neighbours whose last bit is set; `nearest` is one of them, and `away` says whether the other is
// greater in size.
template <typename Bits, typename Float>
Float to_odd(Float nearest, bool inexact, bool away) {
    const Bits bits = std::bit_cast<Bits>(nearest);
    const Bits other = away ? bits + 1 : bits - 1;
    return std::bit_cast<Float>(inexact && (bits & 1) == 0 ? other : bits);
}

// a + b, rounded to odd; the sum must not overflow from numbers. An exact error by D. E. Knuth.
template <typename Bits, typename Float>
Float odd_sum(Float a, Float b) {
    const Float sum = a + b;
    const Float other = sum - a;
    const Float error = (a - (sum - other)) + (b - other);
    // Of infinity and NaN the error is NaN.
    const bool inexact = (error < 0) | (error > 0);
    return to_odd<Bits>(sum, inexact, (error > 0) == (sum > 0));
}
inline double odd_sum(double a, double b) { return odd_sum<u64>(a, b); }

// A double rounded to odd among floats.
inline float odd_single(double value) {
    const auto single = static_cast<float>(value);
    const auto back = static_cast<double>(single);
    const bool inexact = (back < value) | (back > value);
    return to_odd<u32>(single, inexact, std::fabs(back) < std::fabs(value));
}

// While it lives, the processor rounds in this direction.
class RoundingScope {
  public:
    explicit RoundingScope(Rounding rounding) : before_(std::fegetround()) {
        constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD, FE_TONEAREST};
        std::fesetround(modes[static_cast<std::size_t>(rounding)]);
    }
    ~RoundingScope() { std::fesetround(before_); }
    RoundingScope(const RoundingScope&) = delete;
    RoundingScope& operator=(const RoundingScope&) = delete;

  private:
    int before_;
};

}  // namespace fikit::sim::ptx
