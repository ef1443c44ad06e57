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

// To the nearest, ties to even.
inline u16 to_half(float value) {
    const u32 bits = std::bit_cast<u32>(value);
    const auto sign = static_cast<u16>(bits >> 16 & 0x8000);
    const u32 size = bits & 0x7fffffff;
    if (size > 0x7f800000) return 0x7fff;
    if (size >= 0x47800000) return sign | 0x7c00;
    if (size < 0x38800000) {
        // Adding 1/2 puts the last bit of a subnormal half at the last bit of the sum.
        const float sum = std::bit_cast<float>(size) + 0.5F;
        return static_cast<u16>(sign | (std::bit_cast<u32>(sum) - 0x3f000000));
    }
    return static_cast<u16>(sign | ((size + 0xc8000fff + (size >> 13 & 1)) >> 13));
}
inline u16 to_bfloat(float value) {
    const u32 bits = std::bit_cast<u32>(value);
    if (value != value) return 0x7fff;
    return static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
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

// a * b + c rounded so that a second rounding to a shorter format is right: to odd (S. Boldo and
// G. Melquiond, "Emulation of FMA and correctly rounded sums", 2008). a * b must be exact in double.
double odd_sum(double product, double addend);

// The neighbour of a double that is odd, unless it is exact: a further rounding to 22 bits or fewer is then
// right.
inline float odd_single(double value) {
    const auto single = static_cast<float>(value);
    u32 bits = std::bit_cast<u32>(single);
    if (single != single || static_cast<double>(single) == value || (bits & 1) != 0) return single;
    bits = std::fabs(static_cast<double>(single)) < std::fabs(value) ? bits + 1 : bits - 1;
    return std::bit_cast<float>(bits);
}

// While it lives, the processor rounds in this direction.
class RoundingScope {
  public:
    explicit RoundingScope(Rounding rounding) : before_(std::fegetround()) {
        constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD,
                                 FE_UPWARD,    FE_TONEAREST,  FE_TONEAREST};
        std::fesetround(modes[static_cast<std::size_t>(rounding)]);
    }
    ~RoundingScope() { std::fesetround(before_); }
    RoundingScope(const RoundingScope&) = delete;
    RoundingScope& operator=(const RoundingScope&) = delete;

  private:
    int before_;
};

}  // namespace fikit::sim::ptx
