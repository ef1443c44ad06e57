// Integer arithmetic: PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision".
#include <algorithm>
#include <limits>
#include <type_traits>

#include "ptx/engine.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;

// The type of C++ for an integer type of PTX.
template <typename Visit>
Handler by_type(Lowering& lowering, Type type, Visit visit) {
    switch (type) {
        case Type::u16:
        case Type::b16:
            return visit(u16{});
        case Type::s16:
            return visit(s16{});
        case Type::u32:
        case Type::b32:
            return visit(u32{});
        case Type::s32:
            return visit(s32{});
        case Type::u64:
        case Type::b64:
            return visit(u64{});
        case Type::s64:
            return visit(s64{});
        default:
            lowering.refuse();
    }
}

template <typename T>
using Wide =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, s32, u32>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, s64, u64>,
                                          std::conditional_t<std::is_signed_v<T>, s128, u128>>>;

template <typename T>
T high(T a, T b) {
    using W = Wide<T>;
    return static_cast<T>((static_cast<W>(a) * static_cast<W>(b)) >> (8 * sizeof(T)));
}

template <typename T>
T low(T a, T b) {
    using W = std::conditional_t<sizeof(T) < 8, u64, Unsigned<T>>;
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
}

template <typename T>
T plus(T a, T b) {
    using U = Unsigned<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
}

s32 clamp32(s64 value) {
    return static_cast<s32>(
        std::clamp<s64>(value, std::numeric_limits<s32>::min(), std::numeric_limits<s32>::max()));
}

// The hardware's answers to a division by zero: all ones, and the dividend.
template <typename T>
T quotient(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1))
        return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a));
    return static_cast<T>(a / b);
}
template <typename T>
T remainder(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
}

// --- add.cc and its like: the carry is a bit per lane of the warp

template <typename T, bool subtract, bool in, bool out>
void carry_add(Context& context, const Op& op, Mask mask) {
    T* d = context.at<T>(op.d);
    const T* a = context.at<T>(op.a);
    const T* b = context.at<T>(op.b);
    Mask carry = context.warp->carry;
    each_lane(mask, [&](unsigned lane) {
        const Mask bit = Mask{1} << lane;
        // A subtraction is the sum with the complement: a bit that is set means that nothing was borrowed.
        // What NVRTC makes of divisions of 128 bits adds the bit that a subtraction left.
        const u128 before = in && ((carry & bit) != 0) != subtract ? 1 : 0;
        const u128 left = a[lane];
        const u128 right = b[lane];
        const u128 sum = subtract ? left - right - before : left + right + before;
        d[lane] = static_cast<T>(sum);
        const bool over = ((sum >> (8 * sizeof(T))) & 1) != 0;
        if (out) carry = over != subtract ? carry | bit : carry & ~bit;
    });
    context.warp->carry = carry;
}

template <typename T, bool take_high, bool in, bool out>
void carry_mad(Context& context, const Op& op, Mask mask) {
    using U = Unsigned<T>;
    U* d = context.at<U>(op.d);
    const T* a = context.at<T>(op.a);
    const T* b = context.at<T>(op.b);
    const U* c = context.at<U>(op.c);
    Mask carry = context.warp->carry;
    each_lane(mask, [&](unsigned lane) {
        const Mask bit = Mask{1} << lane;
        const u128 product = static_cast<U>(take_high ? high<T>(a[lane], b[lane]) : low<T>(a[lane], b[lane]));
        const u128 sum = product + c[lane] + (in && (carry & bit) != 0 ? 1 : 0);
        d[lane] = static_cast<U>(sum);
        const bool over = (sum >> (8 * sizeof(T))) != 0;
        if (out) carry = over ? carry | bit : carry & ~bit;
    });
    context.warp->carry = carry;
}

template <typename T, bool subtract>
Handler carry_handler(bool in, bool out) {
    if (in) return out ? &carry_add<T, subtract, true, true> : &carry_add<T, subtract, true, false>;
    return &carry_add<T, subtract, false, true>;
}

template <bool subtract>
void lower_carry(Lowering& lowering, bool in, bool out) {
    const Type type = lowering.type();
    const unsigned bytes = bytes_of(type);
    if (bytes != 4 && bytes != 8) lowering.refuse();
    lowering.emit(type, {type, type},
                  bytes == 4 ? carry_handler<u32, subtract>(in, out) : carry_handler<u64, subtract>(in, out));
}

// --- packed 16-bit integers

template <typename F>
u32 halves(u32 a, u32 b, F f) {
    const auto first = static_cast<u16>(f(static_cast<u16>(a), static_cast<u16>(b)));
    const auto second = static_cast<u16>(f(static_cast<u16>(a >> 16), static_cast<u16>(b >> 16)));
    return first | u32{second} << 16;
}

void add(Lowering& lowering) {
    if (lowering.accept(".cc")) return lower_carry<false>(lowering, false, true);
    const bool saturate = lowering.accept(".sat");
    const Type type = lowering.type();
    if (saturate) {
        if (type != Type::s32) lowering.refuse();
        lowering.emit(type, {type, type},
                      map2<s32, s32, s32>([](s32 a, s32 b) { return clamp32(s64{a} + b); }));
        return;
    }
    if (type == Type::u16x2 || type == Type::s16x2) {
        lowering.emit(type, {type, type}, map2<u32, u32, u32>([](u32 a, u32 b) {
                          return halves(a, b, [](u16 x, u16 y) { return x + y; });
                      }));
        return;
    }
    lowering.emit(type, {type, type}, by_type(lowering, type, [](auto zero) {
                      using T = decltype(zero);
                      return map2<T, T, T>([](T a, T b) { return plus(a, b); });
                  }));
}

void subtract(Lowering& lowering) {
    if (lowering.accept(".cc")) return lower_carry<true>(lowering, false, true);
    const bool saturate = lowering.accept(".sat");
    const Type type = lowering.type();
    if (saturate) {
        if (type != Type::s32) lowering.refuse();
        lowering.emit(type, {type, type},
                      map2<s32, s32, s32>([](s32 a, s32 b) { return clamp32(s64{a} - b); }));
        return;
    }
    lowering.emit(type, {type, type}, by_type(lowering, type, [](auto zero) {
                      using T = decltype(zero);
                      return map2<T, T, T>([](T a, T b) {
                          using U = Unsigned<T>;
                          return static_cast<T>(static_cast<U>(static_cast<U>(a) - static_cast<U>(b)));
                      });
                  }));
}

void add_with_carry(Lowering& lowering) { lower_carry<false>(lowering, true, lowering.accept(".cc")); }
void subtract_with_borrow(Lowering& lowering) { lower_carry<true>(lowering, true, lowering.accept(".cc")); }

Type twice(Lowering& lowering, Type type) {
    switch (type) {
        case Type::u16:
            return Type::u32;
        case Type::s16:
            return Type::s32;
        case Type::u32:
            return Type::u64;
        case Type::s32:
            return Type::s64;
        default:
            lowering.refuse();
    }
}

void multiply(Lowering& lowering) {
    const bool wide = lowering.accept(".wide");
    const bool upper = lowering.accept(".hi");
    lowering.accept(".lo");
    const Type type = lowering.type();
    if (!wide) {
        lowering.emit(type, {type, type},
                      by_type(lowering, type,
                              [&](auto zero) {
                                  using T = decltype(zero);
                                  return upper ? map2<T, T, T>([](T a, T b) { return high(a, b); })
                                               : map2<T, T, T>([](T a, T b) { return low(a, b); });
                              }),
                      Work::integer);
        return;
    }
    const Type result = twice(lowering, type);
    lowering.emit(result, {type, type},
                  by_type(lowering, type,
                          [](auto zero) {
                              using T = decltype(zero);
                              if constexpr (sizeof(T) == 8) {
                                  return Handler{};  // twice() has refused it
                              } else {
                                  using W = Wide<T>;
                                  return map2<W, T, T>([](T x, T y) {
                                      return static_cast<W>(static_cast<W>(x) * static_cast<W>(y));
                                  });
                              }
                          }),
                  Work::integer);
}

template <bool in>
void multiply_add_carry(Lowering& lowering, bool upper, bool out, Type type) {
    lowering.emit(type, {type, type, type},
                  by_type(lowering, type,
                          [&](auto zero) -> Handler {
                              using T = decltype(zero);
                              if constexpr (sizeof(T) == 2) {
                                  lowering.refuse();
                              } else if (upper) {
                                  return out ? &carry_mad<T, true, in, true> : &carry_mad<T, true, in, false>;
                              } else {
                                  return out ? &carry_mad<T, false, in, true>
                                             : &carry_mad<T, false, in, false>;
                              }
                          }),
                  Work::integer);
}

void multiply_add(Lowering& lowering) {
    const bool wide = lowering.accept(".wide");
    const bool upper = lowering.accept(".hi");
    lowering.accept(".lo");
    const bool carry = lowering.accept(".cc");
    const bool saturate = lowering.accept(".sat");
    const Type type = lowering.type();
    if (carry) return multiply_add_carry<false>(lowering, upper, true, type);
    const Type result = wide ? twice(lowering, type) : type;
    Handler run = nullptr;
    if (saturate) {
        if (!upper || type != Type::s32) lowering.refuse();
        run = map3<s32, s32, s32, s32>([](s32 x, s32 y, s32 z) { return clamp32(s64{high(x, y)} + z); });
    } else {
        run = by_type(lowering, type, [&](auto zero) -> Handler {
            using T = decltype(zero);
            if (upper) return map3<T, T, T, T>([](T x, T y, T z) { return plus(high(x, y), z); });
            if constexpr (sizeof(T) < 8) {
                using W = Wide<T>;
                if (wide) {
                    return map3<W, T, T, W>([](T x, T y, W z) {
                        return plus(static_cast<W>(static_cast<W>(x) * static_cast<W>(y)), z);
                    });
                }
            }
            return map3<T, T, T, T>([](T x, T y, T z) { return plus(low(x, y), z); });
        });
    }
    lowering.emit(result, {type, type, result}, run, Work::integer);
}

void multiply_add_with_carry(Lowering& lowering) {
    const bool upper = lowering.accept(".hi");
    lowering.accept(".lo");
    const bool out = lowering.accept(".cc");
    multiply_add_carry<true>(lowering, upper, out, lowering.type());
}

template <bool rest>
void divide(Lowering& lowering) {
    const Type type = lowering.type();
    lowering.emit(
        type, {type, type},
        by_type(lowering, type,
                [](auto zero) {
                    using T = decltype(zero);
                    return map2<T, T, T>([](T a, T b) { return rest ? remainder(a, b) : quotient(a, b); });
                }),
        Work::special);
}

template <bool greater, typename T>
u16 choose(u16 a, u16 b) {
    return greater == (static_cast<T>(a) > static_cast<T>(b)) ? a : b;
}

template <bool greater>
void extreme(Lowering& lowering) {
    const bool relu = lowering.accept(".relu");
    const Type type = lowering.type();
    if (type == Type::u16x2 || type == Type::s16x2) {
        const bool sign = type == Type::s16x2;
        if (relu && !sign) lowering.refuse();
        Handler run =
            sign ? map2<u32, u32, u32>([](u32 a, u32 b) { return halves(a, b, choose<greater, s16>); })
                 : map2<u32, u32, u32>([](u32 a, u32 b) { return halves(a, b, choose<greater, u16>); });
        if (relu) {
            run = map2<u32, u32, u32>([](u32 a, u32 b) {
                return halves(a, b, [](u16 x, u16 y) {
                    return std::max<s16>(0, static_cast<s16>(choose<greater, s16>(x, y)));
                });
            });
        }
        lowering.emit(type, {type, type}, run);
        return;
    }
    if (relu) {
        if (type != Type::s32) lowering.refuse();
        lowering.emit(type, {type, type}, map2<s32, s32, s32>([](s32 a, s32 b) {
                          return std::max(0, greater == (a > b) ? a : b);
                      }));
        return;
    }
    lowering.emit(type, {type, type}, by_type(lowering, type, [](auto zero) {
                      using T = decltype(zero);
                      return map2<T, T, T>([](T a, T b) { return greater == (a > b) ? a : b; });
                  }));
}

void absolute(Lowering& lowering) {
    const Type type = lowering.type();
    lowering.emit(
        type, {type}, by_type(lowering, type, [&](auto zero) -> Handler {
            using T = decltype(zero);
            using U = Unsigned<T>;
            if constexpr (!std::is_signed_v<T>) lowering.refuse();
            return map1<T, T>([](T x) {
                return static_cast<T>(x < 0 ? static_cast<U>(U{0} - static_cast<U>(x)) : static_cast<U>(x));
            });
        }));
}

void negate(Lowering& lowering) {
    const Type type = lowering.type();
    lowering.emit(type, {type}, by_bytes(bytes_of(type), [](auto zero) {
                      using U = decltype(zero);
                      return map1<U, U>([](U x) { return static_cast<U>(U{0} - x); });
                  }));
}

// |a - b| + c
void sum_of_differences(Lowering& lowering) {
    const Type type = lowering.type();
    lowering.emit(type, {type, type, type}, by_type(lowering, type, [](auto zero) {
                      using T = decltype(zero);
                      using U = Unsigned<T>;
                      return map3<U, T, T, U>([](T x, T y, U z) {
                          const U difference = x < y ? static_cast<U>(static_cast<U>(y) - static_cast<U>(x))
                                                     : static_cast<U>(static_cast<U>(x) - static_cast<U>(y));
                          return static_cast<U>(difference + z);
                      });
                  }));
}

// The same name for numbers of both kinds.
template <void (*integer)(Lowering&), void (*floating)(Lowering&)>
void either(Lowering& lowering) {
    (lowering.is_floating() ? floating : integer)(lowering);
}

}  // namespace

void add_integer(Families& families) {
    families["add"] = &either<add, float_add>;
    families["sub"] = &either<subtract, float_subtract>;
    families["mul"] = &either<multiply, float_multiply>;
    families["mad"] = &either<multiply_add, float_multiply_add>;
    families["div"] = &either<divide<false>, float_divide>;
    families["min"] = &either<extreme<false>, float_minimum>;
    families["max"] = &either<extreme<true>, float_maximum>;
    families["abs"] = &either<absolute, float_absolute>;
    families["neg"] = &either<negate, float_negate>;
    families["rem"] = &divide<true>;
    families["addc"] = &add_with_carry;
    families["subc"] = &subtract_with_borrow;
    families["madc"] = &multiply_add_with_carry;
    families["sad"] = &sum_of_differences;
}

}  // namespace fikit::sim::ptx
