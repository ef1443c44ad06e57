// See types.hpp.
#include "ptx/types.hpp"

#include <unordered_map>

namespace fikit::sim::ptx {

std::optional<Type> type_named(std::string_view name) {
    static const std::unordered_map<std::string_view, Type> types = {
        {".pred", Type::pred},     {".b8", Type::b8},         {".u8", Type::u8},
        {".s8", Type::s8},         {".b16", Type::b16},       {".u16", Type::u16},
        {".s16", Type::s16},       {".f16", Type::f16},       {".bf16", Type::bf16},
        {".e4m3x2", Type::e4m3x2}, {".e5m2x2", Type::e5m2x2}, {".b32", Type::b32},
        {".u32", Type::u32},       {".s32", Type::s32},       {".f32", Type::f32},
        {".tf32", Type::tf32},     {".f16x2", Type::f16x2},   {".bf16x2", Type::bf16x2},
        {".u16x2", Type::u16x2},   {".s16x2", Type::s16x2},   {".b64", Type::b64},
        {".u64", Type::u64},       {".s64", Type::s64},       {".f64", Type::f64},
        {".f32x2", Type::f32x2},   {".b128", Type::b128},
    };
    const auto found = types.find(name);
    if (found == types.end()) return std::nullopt;
    return found->second;
}

unsigned bytes_of(Type type) {
    if (type == Type::pred) return 0;
    if (type <= Type::s8) return 1;
    if (type <= Type::e5m2x2) return 2;
    if (type <= Type::s16x2) return 4;
    return type == Type::b128 ? 16 : 8;
}

bool is_signed(Type type) {
    return type == Type::s8 || type == Type::s16 || type == Type::s32 || type == Type::s64;
}

bool is_bits(Type type) {
    return type == Type::b8 || type == Type::b16 || type == Type::b32 || type == Type::b64 ||
           type == Type::b128;
}

bool is_unsigned(Type type) {
    return is_bits(type) || type == Type::u8 || type == Type::u16 || type == Type::u32 || type == Type::u64;
}

bool is_integer(Type type) { return is_signed(type) || (is_unsigned(type) && !is_bits(type)); }

bool is_float(Type type) {
    return type == Type::f16 || type == Type::bf16 || type == Type::f32 || type == Type::tf32 ||
           type == Type::f64;
}

bool agree(Type declared, Type wanted) {
    return declared == wanted || is_bits(declared) || is_bits(wanted) ||
           (is_integer(declared) && is_integer(wanted));
}

}  // namespace fikit::sim::ptx
