// atom and red: each lane in turn, in the order of lanes, so that results are the same each time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "ptx/async.hpp"
#include "ptx/engine.hpp"
#include "ptx/floats.hpp"
#include "ptx/limits.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

// Puts `change` of the old value in its place, also against the host; returns the old one.
template <typename T, typename Change>
T exchange(std::byte* place, Change change) {
    T* word = reinterpret_cast<T*>(place);
    T old = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    while (!__atomic_compare_exchange_n(word, &old, change(old), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    }
    return old;
}

// F::of(old, b, c) is the new value. op.d: where the old one goes, or nowhere.
template <typename T, typename F>
void atomic(Context& context, const Op& op, Mask mask) {
    if (op.d != no_place) context.patience -= std::min(context.patience, limits::fair_access);
    std::byte* places[lanes];
    if (!context.block->resolve(context, op, mask, sizeof(T), AccessKind::atomic, places)) return;
    const T* b = context.at<T>(op.b);
    const T* c = context.at<T>(op.c);
    T* d = op.d == no_place ? nullptr : context.at<T>(op.d);
    const u64 times = context.block->multiplicity;
    each_lane(mask, [&](unsigned lane) {
        const T second = b[lane];
        const T third = c[lane];
        const T old =
            exchange<T>(places[lane], [&](T before) { return F::of(before, second, third, times); });
        if (d != nullptr) d[lane] = old;
    });
}

template <typename T, typename F>
void change(std::byte* place, const std::byte* value) {
    T second;
    std::memcpy(&second, value, sizeof(T));
    exchange<T>(place, [&](T before) { return F::of(before, second, second, 1); });
}

// An operation on one value at a time, and on those of a warp.
struct Atomic {
    Handler run;
    Reduction one;
};
template <typename T, typename F>
constexpr Atomic both{&atomic<T, F>, &change<T, F>};

// What an operation by `times` threads at once leaves behind.
struct Add {
    template <typename T>
    static T of(T old, T b, T, u64 times) {
        return static_cast<T>(old + b * static_cast<T>(times));
    }
};
template <typename S, bool greater>
struct Extreme {
    template <typename T>
    static T of(T old, T b, T, u64) {
        return greater == (static_cast<S>(b) > static_cast<S>(old)) ? b : old;
    }
};
struct And {
    template <typename T>
    static T of(T old, T b, T, u64) {
        return old & b;
    }
};
struct Or {
    template <typename T>
    static T of(T old, T b, T, u64) {
        return old | b;
    }
};
struct Xor {
    template <typename T>
    static T of(T old, T b, T, u64 times) {
        return times % 2 == 1 ? old ^ b : old;
    }
};
struct Exchange {
    template <typename T>
    static T of(T, T b, T, u64) {
        return b;
    }
};
struct CompareSwap {
    template <typename T>
    static T of(T old, T b, T c, u64) {
        return old == b ? c : old;
    }
};
struct Increment {
    template <typename T>
    static T of(T old, T b, T, u64) {
        return old >= b ? T{0} : static_cast<T>(old + 1);
    }
};
struct Decrement {
    template <typename T>
    static T of(T old, T b, T, u64) {
        return old == 0 || old > b ? b : static_cast<T>(old - 1);
    }
};
// f32 in global memory flushes subnormal numbers, in shared memory it does not: PTX ISA, "atom".
struct AddSingle {
    template <typename T>
    static T of(T old, T b, T, u64) {
        return std::bit_cast<u32>(canonical(std::bit_cast<float>(old) + std::bit_cast<float>(b)));
    }
};
struct AddSingleFlushed {
    template <typename T>
    static T of(T old, T b, T, u64) {
        const float sum = flushed(std::bit_cast<float>(old)) + flushed(std::bit_cast<float>(b));
        return std::bit_cast<u32>(flushed(canonical(sum)));
    }
};
struct AddDouble {
    template <typename T>
    static T of(T old, T b, T, u64) {
        return std::bit_cast<u64>(std::bit_cast<double>(old) + std::bit_cast<double>(b));
    }
};

u16 half_of(u16 a, u16 b, char what) {
    const float x = from_half(a);
    const float y = from_half(b);
    if (what == '+') return to_half(x + y);
    if (x != x || y != y) return x != x ? (y != y ? u16{0x7fff} : b) : a;
    return (what == '<') == (x < y) ? a : b;
}
u16 bfloat_of(u16 a, u16 b, char what) {
    const float x = from_bfloat(a);
    const float y = from_bfloat(b);
    if (what == '+') return to_bfloat(odd_sum(x, y), Rounding::nearest);
    if (x != x || y != y) return x != x ? (y != y ? u16{0x7fff} : b) : a;
    return (what == '<') == (x < y) ? a : b;
}

template <u16 (*one)(u16, u16, char), char what>
struct Halves {
    template <typename T>
    static T of(T old, T b, T, u64) {
        if constexpr (sizeof(T) == 2) {
            return one(old, b, what);
        } else {
            const u16 low = one(static_cast<u16>(old), static_cast<u16>(b), what);
            const u16 high = one(static_cast<u16>(old >> 16), static_cast<u16>(b >> 16), what);
            return low | u32{high} << 16;
        }
    }
};

template <typename F>
Atomic of_integer(Lowering& lowering, Type type) {
    const unsigned bytes = bytes_of(type);
    if (bytes == 4) return both<u32, F>;
    if (bytes != 8) lowering.refuse();
    return both<u64, F>;
}

Atomic of_real(Lowering& lowering, Type type, char what, bool flush) {
    if (what != '+' && (type == Type::f32 || type == Type::f64)) lowering.refuse();
    switch (type) {
        case Type::f32:
            return flush ? both<u32, AddSingleFlushed> : both<u32, AddSingle>;
        case Type::f64:
            return both<u64, AddDouble>;
        case Type::f16:
            return what == '+'   ? both<u16, Halves<half_of, '+'>>
                   : what == '<' ? both<u16, Halves<half_of, '<'>>
                                 : both<u16, Halves<half_of, '>'>>;
        case Type::f16x2:
            return what == '+'   ? both<u32, Halves<half_of, '+'>>
                   : what == '<' ? both<u32, Halves<half_of, '<'>>
                                 : both<u32, Halves<half_of, '>'>>;
        case Type::bf16:
            return what == '+'   ? both<u16, Halves<bfloat_of, '+'>>
                   : what == '<' ? both<u16, Halves<bfloat_of, '<'>>
                                 : both<u16, Halves<bfloat_of, '>'>>;
        case Type::bf16x2:
            return what == '+'   ? both<u32, Halves<bfloat_of, '+'>>
                   : what == '<' ? both<u32, Halves<bfloat_of, '<'>>
                                 : both<u32, Halves<bfloat_of, '>'>>;
        default:
            lowering.refuse();
    }
}

template <bool greater>
Atomic extreme(Lowering& lowering, Type type) {
    switch (type) {
        case Type::u32:
            return both<u32, Extreme<u32, greater>>;
        case Type::s32:
            return both<u32, Extreme<s32, greater>>;
        case Type::u64:
            return both<u64, Extreme<u64, greater>>;
        case Type::s64:
            return both<u64, Extreme<s64, greater>>;
        default:
            return of_real(lowering, type, greater ? '>' : '<', false);
    }
}

// .b128: exch, and cas with `swap`. The host has no such operation everywhere, so one lock is for all of
// them.
template <bool swap>
void atomic_pair(Context& context, const Op& op, Mask mask) {
    context.patience -= std::min(context.patience, limits::fair_access);
    std::byte* places[lanes];
    if (!context.block->resolve(context, op, mask, 16, AccessKind::atomic, places)) return;
    const u64* b = context.at<u64>(op.b);
    const u64* c = context.at<u64>(op.c);
    u64* d = op.d == no_place ? nullptr : context.at<u64>(op.d);
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    each_lane(mask, [&](unsigned lane) {
        u64 old[2];
        std::memcpy(old, places[lane], 16);
        if (!swap || std::memcmp(old, b + 2 * lane, 16) == 0)
            std::memcpy(places[lane], (swap ? c : b) + 2 * lane, 16);
        if (d != nullptr) std::memcpy(d + 2 * lane, old, 16);
    });
}

struct Operation {
    Atomic how;
    bool swap;  // has a third operand
    Type type;
};

enum class Change : std::uint8_t {
    add,
    minimum,
    maximum,
    conjunction,
    disjunction,
    exclusion,
    exchange,
    compare_swap,
    increment,
    decrement
};

Change change_of(Lowering& lowering) {
    constexpr std::string_view names[] = {".add", ".min",  ".max", ".and", ".or",
                                          ".xor", ".exch", ".cas", ".inc", ".dec"};
    for (std::size_t number = 0; number < std::size(names); ++number) {
        if (lowering.accept(names[number])) return static_cast<Change>(number);
    }
    lowering.refuse();
}

Atomic atomic_of(Lowering& lowering, Change change, Type type, bool shared) {
    switch (change) {
        case Change::add:
            return is_integer(type) ? of_integer<Add>(lowering, type) : of_real(lowering, type, '+', !shared);
        case Change::minimum:
            return extreme<false>(lowering, type);
        case Change::maximum:
            return extreme<true>(lowering, type);
        case Change::conjunction:
            return of_integer<And>(lowering, type);
        case Change::disjunction:
            return of_integer<Or>(lowering, type);
        case Change::exclusion:
            return of_integer<Xor>(lowering, type);
        case Change::exchange:
            return type == Type::b128 ? Atomic{&atomic_pair<false>, nullptr}
                                      : of_integer<Exchange>(lowering, type);
        case Change::compare_swap:
            return type == Type::b128    ? Atomic{&atomic_pair<true>, nullptr}
                   : bytes_of(type) == 2 ? both<u16, CompareSwap>
                                         : of_integer<CompareSwap>(lowering, type);
        case Change::increment:
            if (type == Type::u32) return of_integer<Increment>(lowering, type);
            break;
        case Change::decrement:
            if (type == Type::u32) return of_integer<Decrement>(lowering, type);
            break;
    }
    lowering.refuse();
}

// By the modifiers .add, .min ... and the type.
Operation operation(Lowering& lowering, bool shared) {
    const Change change = change_of(lowering);
    const Type type = lowering.type();
    return {atomic_of(lowering, change, type, shared), change == Change::compare_swap, type};
}

void lower_atomic(Lowering& lowering) {
    const bool returns = lowering.opcode == "atom";
    const bool reports = !returns && lowering.accept(".async");
    if (reports && !lowering.accept(".mbarrier::complete_tx::bytes")) lowering.refuse();
    lowering.accept_any(
        {".relaxed", ".acquire", ".release", ".acq_rel", ".sys", ".gpu", ".cta", ".cluster", ".noftz"});
    const bool policy = lowering.accept(".L2::cache_hint");
    Space space = Space::generic;
    if (lowering.accept(".global")) space = Space::global;
    if (lowering.accept_any({".shared", ".shared::cta", ".shared::cluster"})) space = Space::shared;
    unsigned width = 1;
    for (const auto& [name, count] : {std::pair{".v2", 2U}, std::pair{".v4", 4U}, std::pair{".v8", 8U}}) {
        if (lowering.accept(name)) width = count;
    }
    const auto [run, swap, type] = operation(lowering, space == Space::shared);
    const std::size_t first = returns ? 1 : 0;
    const std::size_t operands = first + (swap || reports ? 3U : 2U);
    lowering.expect_operands(operands, operands + (policy ? 1 : 0));
    const Address address = lowering.address(first, space);
    if (address.space == Space::frame_parameter) lowering.refuse();
    const Operand& values = lowering.operand(first + 1);
    const bool vector = width > 1;
    if (vector && (values.kind != OperandKind::vector || values.parts.size() != width)) lowering.refuse();
    for (unsigned part = 0; part < width; ++part) {
        const Place b = lowering.source(vector ? values.parts[part] : values, type);
        const Place c = swap ? lowering.source(first + 2, type) : b;
        Place d = no_place;
        if (returns) {
            const Operand& to = lowering.operand(0);
            if (vector && (to.kind != OperandKind::vector || to.parts.size() != width)) lowering.refuse();
            const Operand& one = vector ? to.parts[part] : to;
            if (one.kind != OperandKind::sink) d = lowering.target(one, type);
        }
        Op& op = lowering.emit(run.run, Work::atomic);
        op.kind = Kind::checked;
        op.extra = static_cast<std::uint32_t>(address.space);
        address.put(op);
        op.offset += static_cast<std::int64_t>(part) * bytes_of(type);
        op.d = d;
        op.b = b;
        op.c = c;
    }
    if (reports) complete_bytes(lowering, 2, lowering.constant(bytes_of(type), 4));
}

}  // namespace

Reduction reduction(Lowering& lowering, bool shared, unsigned& bytes) {
    lowering.accept(".noftz");
    const Operation found = operation(lowering, shared);
    if (found.swap || found.how.one == nullptr) lowering.refuse();
    bytes = bytes_of(found.type);
    return found.how.one;
}

std::array<Reduction, 13> reductions_by_tensor(Lowering& lowering) {
    constexpr std::pair<CUtensorMapDataType, Type> kinds[] = {
        {CU_TENSOR_MAP_DATA_TYPE_UINT32, Type::u32},      {CU_TENSOR_MAP_DATA_TYPE_INT32, Type::s32},
        {CU_TENSOR_MAP_DATA_TYPE_UINT64, Type::u64},      {CU_TENSOR_MAP_DATA_TYPE_INT64, Type::s64},
        {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, Type::f16},     {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, Type::bf16},
        {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, Type::f32},     {CU_TENSOR_MAP_DATA_TYPE_FLOAT64, Type::f64},
        {CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ, Type::f32},
    };
    const Change change = change_of(lowering);
    if (change == Change::exchange || change == Change::compare_swap) lowering.refuse();
    std::array<Reduction, 13> found{};
    for (const auto& [tensor, type] : kinds) {
        const unsigned bytes = bytes_of(type);
        const bool fits = change == Change::add ? true
                          : change == Change::minimum || change == Change::maximum
                              ? type != Type::f32 && type != Type::f64
                          : change == Change::increment || change == Change::decrement ? type == Type::u32
                                                                                       : is_integer(type);
        if (!fits) continue;
        const bool bits =
            change == Change::conjunction || change == Change::disjunction || change == Change::exclusion;
        found[tensor] = atomic_of(lowering, change,
                                  !bits        ? type
                                  : bytes == 4 ? Type::b32
                                               : Type::b64,
                                  false)
                            .one;
    }
    return found;
}

void add_atomic(Families& families) {
    families["atom"] = &lower_atomic;
    families["red"] = &lower_atomic;
}

}  // namespace fikit::sim::ptx
