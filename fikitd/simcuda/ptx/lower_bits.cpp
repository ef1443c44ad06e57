// Logic, shifts and bit fields: PTX ISA, "Logic and Shift Instructions", and of the integer ones those
// that look at bits.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

Handler of_size(Lowering& lowering, Type type, Handler word, Handler twice) {
    const unsigned bytes = bytes_of(type);
    if (bytes != 4 && bytes != 8) lowering.refuse();
    return bytes == 4 ? word : twice;
}

template <char operation, typename T>
T combine(T a, T b) {
    return static_cast<T>(operation == '&' ? a & b : operation == '|' ? a | b : a ^ b);
}

template <char operation>
void logic(Lowering& lowering) {
    const Type type = lowering.type();
    Handler run = nullptr;
    if (type == Type::pred) {
        run = [](Context& context, const Op& op, Mask mask) {
            Mask& into = context.predicate(op.d);
            const Mask value = combine<operation>(context.predicate(op.a), context.predicate(op.b));
            into = (into & ~mask) | (value & mask);
        };
    } else {
        run = by_bytes(bytes_of(type), [](auto zero) {
            using T = decltype(zero);
            return map2<T, T, T>([](T x, T y) { return combine<operation>(x, y); });
        });
    }
    lowering.emit(type, {type, type}, run);
}

void invert(Lowering& lowering) {
    const Type type = lowering.type();
    if (type == Type::pred) {
        lowering.emit(type, {type}, [](Context& context, const Op& op, Mask mask) {
            Mask& into = context.predicate(op.d);
            into = (into & ~mask) | (~context.predicate(op.a) & mask);
        });
        return;
    }
    lowering.emit(type, {type}, by_bytes(bytes_of(type), [](auto zero) {
                      using T = decltype(zero);
                      return map1<T, T>([](T x) { return static_cast<T>(~x); });
                  }));
}

void is_zero(Lowering& lowering) {
    const Type type = lowering.type();
    lowering.emit(type, {type}, by_bytes(bytes_of(type), [](auto zero) {
                      using T = decltype(zero);
                      return map1<T, T>([](T x) { return x == 0 ? 1 : 0; });
                  }));
}

// op.extra: the truth table.
template <typename T>
void table_lookup(Context& context, const Op& op, Mask mask) {
    T* d = context.at<T>(op.d);
    const T* a = context.at<T>(op.a);
    const T* b = context.at<T>(op.b);
    const T* c = context.at<T>(op.c);
    T term[8];
    for (unsigned bit = 0; bit < 8; ++bit) term[bit] = (op.extra >> bit & 1) != 0 ? ~T{0} : T{0};
    const auto one = [&](unsigned lane) {
        const T x = a[lane];
        const T y = b[lane];
        const T z = c[lane];
        d[lane] = (~x & ~y & ~z & term[0]) | (~x & ~y & z & term[1]) | (~x & y & ~z & term[2]) |
                  (~x & y & z & term[3]) | (x & ~y & ~z & term[4]) | (x & ~y & z & term[5]) |
                  (x & y & ~z & term[6]) | (x & y & z & term[7]);
    };
    if (mask == all_lanes) {
        FIKIT_EACH_LANE
        for (unsigned lane = 0; lane < lanes; ++lane) one(lane);
    } else {
        each_lane(mask, one);
    }
}

// e: whether any bit of d is set, and or or c holds: op.a is d, op.width says which.
void any_bit(Context& context, const Op& op, Mask mask) {
    const u32* a = context.at<u32>(op.a);
    Mask holds = 0;
    each_lane(mask, [&](unsigned lane) { holds |= a[lane] != 0 ? Mask{1} << lane : 0; });
    const Mask other = context.predicate(op.c);
    Mask& into = context.predicate(op.d);
    into = (into & ~mask) | ((op.width != 0 ? holds | other : holds & other) & mask);
}

void truth_table(Lowering& lowering) {
    const bool disjoined = lowering.accept(".or");
    const bool joined = lowering.accept(".and") || disjoined;
    const Type type = lowering.type();
    if (bytes_of(type) != 4) lowering.refuse();
    lowering.expect_operands(joined ? 6 : 5);
    const Operand& to = lowering.operand(0);
    if (joined == to.parts.empty()) lowering.refuse();
    const std::uint32_t table = lowering.literal(4);
    const Place a = lowering.source(1, type);
    const Place b = lowering.source(2, type);
    const Place c = lowering.source(3, type);
    const Place q = joined ? lowering.predicate(lowering.operand(5)) : no_place;
    const Place d = lowering.target(to, type);
    Op& op = lowering.emit(&table_lookup<u32>);
    op.extra = table;
    op.d = d;
    op.a = a;
    op.b = b;
    op.c = c;
    if (!joined) return;
    const Place p = lowering.target(to.parts.front(), Type::pred);
    Op& then = lowering.emit(&any_bit);
    then.d = p;
    then.a = d;
    then.c = q;
    then.width = disjoined ? 1 : 0;
}

void shift(Lowering& lowering) {
    const bool left = lowering.opcode == "shl";
    const Type type = lowering.type();
    if (bytes_of(type) < 2) lowering.refuse();
    lowering.emit(
        type, {type, Type::u32}, by_bytes(bytes_of(type), [&](auto zero) -> Handler {
            using U = decltype(zero);
            using S = std::make_signed_t<U>;
            constexpr u32 bits = 8 * sizeof(U);
            if (left)
                return map2<U, U, u32>([](U x, u32 n) { return n >= bits ? U{0} : static_cast<U>(x << n); });
            if (is_signed(type))
                return map2<S, S, u32>([](S x, u32 n) { return static_cast<S>(x >> std::min(n, bits - 1)); });
            return map2<U, U, u32>([](U x, u32 n) { return n >= bits ? U{0} : static_cast<U>(x >> n); });
        }));
}

// shf: 64 bits (b:a) shifted; the upper word for .l, the lower for .r.
void funnel(Lowering& lowering) {
    const bool left = lowering.accept(".l");
    if (!left && !lowering.accept(".r")) lowering.refuse();
    const bool wrap = lowering.accept(".wrap");
    if (!wrap && !lowering.accept(".clamp")) lowering.refuse();
    if (bytes_of(lowering.type()) != 4) lowering.refuse();
    const auto pick = [&] {
        if (left && wrap)
            return map3<u32, u32, u32, u32>(
                [](u32 a, u32 b, u32 n) { return static_cast<u32>(((u64{b} << 32 | a) << (n & 31)) >> 32); });
        if (left)
            return map3<u32, u32, u32, u32>([](u32 a, u32 b, u32 n) {
                return static_cast<u32>(((u64{b} << 32 | a) << std::min(n, 32U)) >> 32);
            });
        if (wrap)
            return map3<u32, u32, u32, u32>(
                [](u32 a, u32 b, u32 n) { return static_cast<u32>((u64{b} << 32 | a) >> (n & 31)); });
        return map3<u32, u32, u32, u32>(
            [](u32 a, u32 b, u32 n) { return static_cast<u32>((u64{b} << 32 | a) >> std::min(n, 32U)); });
    };
    lowering.emit(Type::b32, {Type::b32, Type::b32, Type::u32}, pick());
}

void population(Lowering& lowering) {
    const Type type = lowering.type();
    lowering.emit(Type::u32, {type},
                  of_size(lowering, type, map1<u32, u32>([](u32 x) { return std::popcount(x); }),
                          map1<u32, u64>([](u64 x) { return std::popcount(x); })));
}

void leading_zeros(Lowering& lowering) {
    const Type type = lowering.type();
    lowering.emit(Type::u32, {type},
                  of_size(lowering, type, map1<u32, u32>([](u32 x) { return std::countl_zero(x); }),
                          map1<u32, u64>([](u64 x) { return std::countl_zero(x); })));
}

// The place of the highest bit that is set (of a negative number, clear); -1: none.
template <typename U>
u32 highest(U value, bool sign, bool amount) {
    constexpr unsigned bits = 8 * sizeof(U);
    if (sign && (value >> (bits - 1)) != 0) value = static_cast<U>(~value);
    if (value == 0) return ~u32{0};
    const auto zeros = static_cast<unsigned>(std::countl_zero(value));
    return amount ? zeros : bits - 1 - zeros;
}

void find_highest(Lowering& lowering) {
    const bool amount = lowering.accept(".shiftamt");
    const Type type = lowering.type();
    if (bytes_of(type) != 4 && bytes_of(type) != 8) lowering.refuse();
    lowering.emit(Type::u32, {type}, by_bytes(bytes_of(type), [&](auto zero) -> Handler {
                      using U = decltype(zero);
                      if (is_signed(type)) {
                          return amount ? map1<u32, U>([](U x) { return highest(x, true, true); })
                                        : map1<u32, U>([](U x) { return highest(x, true, false); });
                      }
                      return amount ? map1<u32, U>([](U x) { return highest(x, false, true); })
                                    : map1<u32, U>([](U x) { return highest(x, false, false); });
                  }));
}

template <typename U>
U reversed(U value) {
    U result = 0;
    for (unsigned bit = 0; bit < 8 * sizeof(U); ++bit)
        result = static_cast<U>(result << 1 | (value >> bit & 1));
    return result;
}

void reverse(Lowering& lowering) {
    const Type type = lowering.type();
    lowering.emit(type, {type},
                  of_size(lowering, type, map1<u32, u32>([](u32 x) { return reversed(x); }),
                          map1<u64, u64>([](u64 x) { return reversed(x); })));
}

// The start or length of a bit field: of one byte, except that the 64-bit forms take the whole word.
template <typename U>
u32 field_bound(u32 value) {
    return sizeof(U) == 4 ? value & 255 : value;
}

template <typename U>
U extracted(U value, u32 start, u32 length, bool sign) {
    constexpr u32 bits = 8 * sizeof(U);
    start = std::min(field_bound<U>(start), bits);
    length = std::min(field_bound<U>(length), bits);
    if (length == 0) return 0;
    const u32 top = std::min(start + length - 1, bits - 1);
    const bool fill = sign && (value >> top & 1) != 0;
    U field = start == bits ? U{0} : static_cast<U>(value >> start);
    const u32 room = bits - start;  // bits of the field that the value has
    const u32 kept = std::min(length, room);
    if (kept < bits) {
        const U ones = static_cast<U>((U{1} << kept) - 1);
        field = fill ? static_cast<U>(field | static_cast<U>(~ones)) : static_cast<U>(field & ones);
    }
    return field;
}

void extract(Lowering& lowering) {
    const Type type = lowering.type();
    if (bytes_of(type) != 4 && bytes_of(type) != 8) lowering.refuse();
    lowering.emit(type, {type, Type::u32, Type::u32}, by_bytes(bytes_of(type), [&](auto zero) -> Handler {
                      using U = decltype(zero);
                      return is_signed(type) ? map3<U, U, u32, u32>([](U x, u32 start, u32 length) {
                          return extracted(x, start, length, true);
                      })
                                             : map3<U, U, u32, u32>([](U x, u32 start, u32 length) {
                                                   return extracted(x, start, length, false);
                                               });
                  }));
}

template <typename U>
void insert_field(Context& context, const Op& op, Mask mask) {
    constexpr u32 bits = 8 * sizeof(U);
    U* d = context.at<U>(op.d);
    const U* a = context.at<U>(op.a);
    const U* b = context.at<U>(op.b);
    const u32* starts = context.at<u32>(op.c);
    const u32* lengths = context.at<u32>(op.e);
    each_lane(mask, [&](unsigned lane) {
        const u32 start = field_bound<U>(starts[lane]);
        const u32 length = std::min(field_bound<U>(lengths[lane]), bits);
        U result = b[lane];
        if (start < bits && length > 0) {
            const U ones = length == bits ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << length) - 1);
            const U field = static_cast<U>(ones << start);
            result = static_cast<U>((result & static_cast<U>(~field)) |
                                    (static_cast<U>(a[lane] << start) & field));
        }
        d[lane] = result;
    });
}

void insert(Lowering& lowering) {
    const Type type = lowering.type();
    lowering.emit(type, {type, type, Type::u32, Type::u32},
                  of_size(lowering, type, &insert_field<u32>, &insert_field<u64>));
}

// prmt: bytes of b:a; op.extra 0: by the selector's nibbles, else the mode.
enum PermuteMode : u32 { indexed, f4e, b4e, rc8, ecl, ecr, rc16 };

u32 permuted(u32 mode, u32 a, u32 b, u32 selector) {
    const u64 bytes = u64{b} << 32 | a;
    const auto at = [&](u32 index) { return static_cast<u32>(bytes >> (8 * (index & 7)) & 255); };
    const u32 n = selector & 3;
    u32 result = 0;
    for (u32 place = 0; place < 4; ++place) {
        u32 byte = 0;
        switch (mode) {
            case indexed: {
                const u32 nibble = selector >> (4 * place) & 15;
                byte = at(nibble & 7);
                if ((nibble & 8) != 0) byte = (byte & 0x80) != 0 ? 255 : 0;
                break;
            }
            case f4e:
                byte = at(n + place);
                break;
            case b4e:
                byte = at(n + 8 - place);
                break;
            case rc8:
                byte = at(n);
                break;
            case ecl:
                byte = at(std::max(n, place));
                break;
            case ecr:
                byte = at(std::min(n, place));
                break;
            default:
                byte = at((n & 1) * 2 + (place & 1));
                break;
        }
        result |= byte << (8 * place);
    }
    return result;
}

void permute(Lowering& lowering) {
    if (bytes_of(lowering.type()) != 4) lowering.refuse();
    u32 mode = indexed;
    constexpr std::string_view names[] = {"", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"};
    for (u32 number = 1; number < std::size(names); ++number) {
        if (lowering.accept(names[number])) mode = number;
    }
    Op& op = lowering.emit(Type::b32, {Type::b32, Type::b32, Type::b32},
                           map_op3<u32, u32, u32, u32>(
                               [](const Op& o, u32 a, u32 b, u32 c) { return permuted(o.extra, a, b, c); }));
    op.extra = mode;
}

// fns: the n-th set bit of `mask`, counted from `base` up (n > 0) or down (n < 0).
u32 nth_set(u32 mask, u32 base, s32 n) {
    if (base > 31) return ~u32{0};
    if (n == 0) return (mask >> base & 1) != 0 ? base : ~u32{0};
    if (n == std::numeric_limits<s32>::min()) return 0;  // as the H200 does
    s32 left = n > 0 ? n : -n;
    for (s32 bit = static_cast<s32>(base); bit >= 0 && bit < 32; bit += n > 0 ? 1 : -1) {
        if ((mask >> bit & 1) != 0 && --left == 0) return static_cast<u32>(bit);
    }
    return ~u32{0};
}

void find_nth(Lowering& lowering) {
    if (bytes_of(lowering.type()) != 4) lowering.refuse();
    lowering.emit(Type::b32, {Type::b32, Type::b32, Type::s32},
                  map3<u32, u32, u32, s32>([](u32 mask, u32 base, s32 n) { return nth_set(mask, base, n); }));
}

// szext: the lower n bits, extended; bmsk: n ones from bit `start` up.
u32 sized(u32 value, u32 n, bool sign) {
    if (n == 0) return 0;
    if (n >= 32) return value;
    const u32 ones = (u32{1} << n) - 1;
    return sign && (value >> (n - 1) & 1) != 0 ? value | ~ones : value & ones;
}
u32 ones_from(u32 start, u32 n) {
    if (start >= 32 || n == 0) return 0;
    const u32 ones = n >= 32 ? ~u32{0} : (u32{1} << n) - 1;
    return ones << start;
}

void extend_size(Lowering& lowering) {
    const bool wrap = lowering.accept(".wrap");
    if (!wrap && !lowering.accept(".clamp")) lowering.refuse();
    const Type type = lowering.type();
    if (bytes_of(type) != 4) lowering.refuse();
    const bool sign = is_signed(type);
    lowering.emit(type, {type, Type::u32},
                  wrap ? (sign ? map2<u32, u32, u32>([](u32 x, u32 n) { return sized(x, n & 31, true); })
                               : map2<u32, u32, u32>([](u32 x, u32 n) { return sized(x, n & 31, false); }))
                       : (sign ? map2<u32, u32, u32>([](u32 x, u32 n) { return sized(x, n, true); })
                               : map2<u32, u32, u32>([](u32 x, u32 n) { return sized(x, n, false); })));
}

void make_mask(Lowering& lowering) {
    const bool wrap = lowering.accept(".wrap");
    if (!wrap && !lowering.accept(".clamp")) lowering.refuse();
    if (bytes_of(lowering.type()) != 4) lowering.refuse();
    lowering.emit(Type::b32, {Type::u32, Type::u32},
                  wrap ? map2<u32, u32, u32>([](u32 x, u32 n) { return ones_from(x & 31, n & 31); })
                       : map2<u32, u32, u32>([](u32 x, u32 n) { return ones_from(x, n); }));
}

}  // namespace

void add_bits(Families& families) {
    families["and"] = &logic<'&'>;
    families["or"] = &logic<'|'>;
    families["xor"] = &logic<'^'>;
    families["not"] = &invert;
    families["cnot"] = &is_zero;
    families["lop3"] = &truth_table;
    families["shl"] = &shift;
    families["shr"] = &shift;
    families["shf"] = &funnel;
    families["popc"] = &population;
    families["clz"] = &leading_zeros;
    families["bfind"] = &find_highest;
    families["brev"] = &reverse;
    families["bfe"] = &extract;
    families["bfi"] = &insert;
    families["prmt"] = &permute;
    families["fns"] = &find_nth;
    families["szext"] = &extend_size;
    families["bmsk"] = &make_mask;
}

}  // namespace fikit::sim::ptx
