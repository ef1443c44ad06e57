// See floats.hpp.
#include "ptx/floats.hpp"

#include <algorithm>
#include <limits>

namespace fikit::sim::ptx {

double rounded(double value, const Format& format, Rounding rounding) {
    if (value == 0 || !std::isfinite(value)) return value;
    int exponent = 0;
    std::frexp(value, &exponent);
    const int unit = std::max(exponent - 1, format.least) - format.fraction;
    const double scaled = std::ldexp(value, -unit);
    double whole = 0;
    switch (rounding) {
        case Rounding::zero:
            whole = std::trunc(scaled);
            break;
        case Rounding::down:
            whole = std::floor(scaled);
            break;
        case Rounding::up:
            whole = std::ceil(scaled);
            break;
        case Rounding::away:
            whole = std::round(scaled);
            break;
        default:
            whole = std::nearbyint(scaled);
    }
    const double result = std::copysign(std::ldexp(whole, unit), value);
    const double greatest = std::ldexp(2 - std::ldexp(1.0, -format.fraction), format.greatest);
    if (std::fabs(result) <= greatest) return result;
    const bool inwards = rounding == Rounding::zero || (rounding == Rounding::down && value > 0) ||
                         (rounding == Rounding::up && value < 0);
    return std::copysign(inwards ? greatest : std::numeric_limits<double>::infinity(), value);
}

// What `rounded` has made exact: no second rounding happens below.
u16 to_half(double value, Rounding rounding) {
    return to_half(static_cast<float>(rounded(value, half_format, rounding)));
}
u16 to_bfloat(double value, Rounding rounding) {
    return to_bfloat(static_cast<float>(rounded(value, bfloat_format, rounding)));
}
float to_single(double value, Rounding rounding) {
    return canonical(static_cast<float>(rounded(value, single_format, rounding)));
}

namespace {

std::uint8_t to_byte(float value, const Format& format, float greatest) {
    const auto sign = static_cast<std::uint8_t>(std::signbit(value) ? 0x80 : 0);
    if (value != value) return 0x7f;
    const float size = std::fabs(std::clamp(value, -greatest, greatest));
    const double exact = std::min<double>(rounded(size, format, Rounding::nearest), greatest);
    const double unit = std::ldexp(1.0, format.least - format.fraction);
    if (exact < std::ldexp(1.0, format.least))
        return static_cast<std::uint8_t>(sign | static_cast<u32>(exact / unit));
    int exponent = 0;
    const double fraction = std::frexp(exact, &exponent) * 2 - 1;
    const auto biased = static_cast<u32>(exponent - 1 - format.least + 1);
    const auto stored = static_cast<u32>(std::ldexp(fraction, format.fraction));
    return static_cast<std::uint8_t>(sign | biased << format.fraction | stored);
}

float from_byte(std::uint8_t value, const Format& format) {
    const u32 fraction = value & ((1U << format.fraction) - 1);
    const u32 biased = (value & 0x7fU) >> format.fraction;
    const float size = biased == 0
                           ? std::ldexp(static_cast<float>(fraction), format.least - format.fraction)
                           : std::ldexp(static_cast<float>(fraction | 1U << format.fraction),
                                        static_cast<int>(biased) - 1 + format.least - format.fraction);
    return (value & 0x80) != 0 ? -size : size;
}

}  // namespace

std::uint8_t to_e4m3(float value) { return to_byte(value, e4m3_format, 448); }
std::uint8_t to_e5m2(float value) { return to_byte(value, e5m2_format, 57344); }
float from_e4m3(std::uint8_t value) {
    if ((value & 0x7f) == 0x7f) return std::bit_cast<float>(0x7fffffffU);
    return from_byte(value, e4m3_format);
}
float from_e5m2(std::uint8_t value) {
    if ((value & 0x7f) > 0x7c) return std::bit_cast<float>(0x7fffffffU);
    if ((value & 0x7f) == 0x7c) return (value & 0x80) != 0 ? -INFINITY : INFINITY;
    return from_byte(value, e5m2_format);
}

}  // namespace fikit::sim::ptx
