// Integer instructions that work on parts of words: products of 24 bits, dp4a and dp2a.
#include <algorithm>
#include <limits>

#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

s32 clamp32(s64 value) {
    return static_cast<s32>(
        std::clamp<s64>(value, std::numeric_limits<s32>::min(), std::numeric_limits<s32>::max()));
}

s64 product_24(s32 a, s32 b) {
    const auto extend = [](s32 value) { return s64{static_cast<s32>(static_cast<u32>(value) << 8) >> 8}; };
    return extend(a) * extend(b);
}
u64 product_24(u32 a, u32 b) { return u64{a & 0xffffff} * (b & 0xffffff); }

// mul24 and mad24: the 48-bit product's lower 32 bits, or its bits 16 to 47.
template <bool add_third>
void multiply_24(Lowering& lowering) {
    const bool upper = lowering.accept(".hi");
    lowering.accept(".lo");
    const bool saturate = lowering.accept(".sat");
    const Type type = lowering.type();
    if ((type != Type::u32 && type != Type::s32) || (saturate && (type != Type::s32 || !upper)))
        lowering.refuse();
    lowering.expect_operands(add_third ? 4 : 3);
    const Place a = lowering.source(1, type);
    const Place b = lowering.source(2, type);
    const Place c = add_third ? lowering.source(3, type) : lowering.constant(0, 4);
    const Place d = lowering.target(0, type);
    Handler run = nullptr;
    if (type == Type::s32) {
        run = saturate ? map3<s32, s32, s32, s32>(
                             [](s32 x, s32 y, s32 z) { return clamp32((product_24(x, y) >> 16) + z); })
              : upper  ? map3<u32, s32, s32, u32>(
                             [](s32 x, s32 y, u32 z) { return static_cast<u32>(product_24(x, y) >> 16) + z; })
                       : map3<u32, s32, s32, u32>(
                             [](s32 x, s32 y, u32 z) { return static_cast<u32>(product_24(x, y)) + z; });
    } else {
        run = upper ? map3<u32, u32, u32, u32>(
                          [](u32 x, u32 y, u32 z) { return static_cast<u32>(product_24(x, y) >> 16) + z; })
                    : map3<u32, u32, u32, u32>(
                          [](u32 x, u32 y, u32 z) { return static_cast<u32>(product_24(x, y)) + z; });
    }
    Op& op = lowering.emit(run, Work::integer);
    op.d = d;
    op.a = a;
    op.b = b;
    op.c = c;
}

// dp4a: op.extra bit 0: a is signed, bit 1: b is; dp2a also bit 2: the upper half of b.
u32 dot4(const Op& op, u32 a, u32 b, u32 c) {
    u32 sum = c;
    for (unsigned byte = 0; byte < 4; ++byte) {
        const auto x = static_cast<u8>(a >> (8 * byte));
        const auto y = static_cast<u8>(b >> (8 * byte));
        const s32 left = (op.extra & 1) != 0 ? static_cast<s8>(x) : s32{x};
        const s32 right = (op.extra & 2) != 0 ? static_cast<s8>(y) : s32{y};
        sum += static_cast<u32>(left * right);
    }
    return sum;
}

u32 dot2(const Op& op, u32 a, u32 b, u32 c) {
    u32 sum = c;
    for (unsigned half = 0; half < 2; ++half) {
        const auto x = static_cast<u16>(a >> (16 * half));
        const auto y = static_cast<u8>(b >> (8 * half + ((op.extra & 4) != 0 ? 16 : 0)));
        const s64 left = (op.extra & 1) != 0 ? static_cast<s16>(x) : s32{x};
        const s64 right = (op.extra & 2) != 0 ? static_cast<s8>(y) : s32{y};
        sum += static_cast<u32>(left * right);
    }
    return sum;
}

void dot_product(Lowering& lowering) {
    const bool four = lowering.opcode == "dp4a";
    const bool upper = lowering.accept(".hi");
    lowering.accept(".lo");
    const Type a_type = lowering.type();
    const Type b_type = lowering.type();
    if (bytes_of(a_type) != 4 || bytes_of(b_type) != 4 || !is_integer(a_type) || !is_integer(b_type))
        lowering.refuse();
    Op& op = lowering.emit(
        Type::u32, {Type::u32, Type::u32, Type::u32},
        four ? map_op3<u32, u32, u32, u32>([](const Op& o, u32 x, u32 y, u32 z) { return dot4(o, x, y, z); })
             : map_op3<u32, u32, u32, u32>([](const Op& o, u32 x, u32 y, u32 z) { return dot2(o, x, y, z); }),
        Work::integer);
    op.extra = (is_signed(a_type) ? 1U : 0U) | (is_signed(b_type) ? 2U : 0U) | (upper ? 4U : 0U);
}

}  // namespace

void add_products(Families& families) {
    families["mul24"] = &multiply_24<false>;
    families["mad24"] = &multiply_24<true>;
    families["dp4a"] = &dot_product;
    families["dp2a"] = &dot_product;
}

}  // namespace fikit::sim::ptx
