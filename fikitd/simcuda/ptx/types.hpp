// The types of PTX.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace fikit::sim::ptx {

enum class Type : std::uint8_t {
    pred,
    b8,
    u8,
    s8,
    b16,
    u16,
    s16,
    f16,
    bf16,
    e4m3x2,
    e5m2x2,
    b32,
    u32,
    s32,
    f32,
    tf32,
    f16x2,
    bf16x2,
    u16x2,
    s16x2,
    b64,
    u64,
    s64,
    f64,
    f32x2,
    b128,
};

// ".u32" and so on; nothing for what is no type.
std::optional<Type> type_named(std::string_view name);
// 0 for a predicate.
unsigned bytes_of(Type type);
bool is_signed(Type type);
bool is_unsigned(Type type);  // .u and .b
bool is_bits(Type type);
bool is_integer(Type type);  // .u and .s, not .b
bool is_float(Type type);    // one number, not a pair
// Whether an instruction of the type `wanted` takes a register declared as of the other, apart from their
// sizes.
bool agree(Type declared, Type wanted);

}  // namespace fikit::sim::ptx
