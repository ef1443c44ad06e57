// Handlers for operations that work on each lane by itself.
//
// A handler is made from a function of one lane's values: map<u32, u32, u32>([](auto a, auto b) {...}).
// With all lanes active it is a plain loop over arrays, which the compiler turns into vectors.
#pragma once

#include <cuda.h>

#include <bit>
#include <cstdint>

#include "ptx/program.hpp"

#if defined(__clang__)
#define FIKIT_EACH_LANE  // clang warns of a loop that it cannot turn into vectors
#else
#define FIKIT_EACH_LANE _Pragma("GCC ivdep")
#endif

namespace fikit::sim::ptx {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
__extension__ using u128 = unsigned __int128;
__extension__ using s128 = __int128;

struct Frame;
struct Warp;
class BlockRun;

// What a handler works on: the registers of a group of lanes that run together.
struct Context {
    std::byte* bases[2] = {nullptr, nullptr};  // registers, constants
    Mask active = 0;
    Frame* frame = nullptr;
    Warp* warp = nullptr;
    BlockRun* block = nullptr;
    CUresult fault = CUDA_SUCCESS;
    std::uint32_t patience = 0;  // warp instructions until others get their turn

    template <typename T>
    T* at(Place place) const {
        return reinterpret_cast<T*>(bases[place >> 31] + (place & ~constant_bit));
    }
    Mask& predicate(Place place) const { return *at<Mask>(place); }
};

template <typename Body>
inline void each_lane(Mask mask, Body body) {
    for (; mask != 0; mask &= mask - 1) body(static_cast<unsigned>(std::countr_zero(mask)));
}

// The same; with all lanes active it is a plain loop.
template <typename Body>
inline void every_lane(Mask mask, Body body) {
    if (mask != all_lanes) return each_lane(mask, body);
    for (unsigned lane = 0; lane < lanes; ++lane) body(lane);
}

template <typename F, typename D, typename A>
void run1(Context& context, const Op& op, Mask mask) {
    D* d = context.at<D>(op.d);
    const A* a = context.at<A>(op.a);
    if (mask == all_lanes) {
        FIKIT_EACH_LANE
        for (unsigned lane = 0; lane < lanes; ++lane) d[lane] = static_cast<D>(F{}(a[lane]));
    } else {
        each_lane(mask, [&](unsigned lane) { d[lane] = static_cast<D>(F{}(a[lane])); });
    }
}

template <typename F, typename D, typename A, typename B>
void run2(Context& context, const Op& op, Mask mask) {
    D* d = context.at<D>(op.d);
    const A* a = context.at<A>(op.a);
    const B* b = context.at<B>(op.b);
    if (mask == all_lanes) {
        FIKIT_EACH_LANE
        for (unsigned lane = 0; lane < lanes; ++lane) d[lane] = static_cast<D>(F{}(a[lane], b[lane]));
    } else {
        each_lane(mask, [&](unsigned lane) { d[lane] = static_cast<D>(F{}(a[lane], b[lane])); });
    }
}

template <typename F, typename D, typename A, typename B, typename C>
void run3(Context& context, const Op& op, Mask mask) {
    D* d = context.at<D>(op.d);
    const A* a = context.at<A>(op.a);
    const B* b = context.at<B>(op.b);
    const C* c = context.at<C>(op.c);
    if (mask == all_lanes) {
        FIKIT_EACH_LANE
        for (unsigned lane = 0; lane < lanes; ++lane)
            d[lane] = static_cast<D>(F{}(a[lane], b[lane], c[lane]));
    } else {
        each_lane(mask, [&](unsigned lane) { d[lane] = static_cast<D>(F{}(a[lane], b[lane], c[lane])); });
    }
}

template <typename D, typename A, typename F>
constexpr Handler map1(F) {
    return &run1<F, D, A>;
}
template <typename D, typename A, typename B, typename F>
constexpr Handler map2(F) {
    return &run2<F, D, A, B>;
}
template <typename D, typename A, typename B, typename C, typename F>
constexpr Handler map3(F) {
    return &run3<F, D, A, B, C>;
}

// The same with the operation at hand, for what depends on its flags, rounding or `extra`.
template <typename F, typename D, typename A>
void run_op1(Context& context, const Op& op, Mask mask) {
    D* d = context.at<D>(op.d);
    const A* a = context.at<A>(op.a);
    each_lane(mask, [&](unsigned lane) { d[lane] = static_cast<D>(F{}(op, a[lane])); });
}
template <typename F, typename D, typename A, typename B>
void run_op2(Context& context, const Op& op, Mask mask) {
    D* d = context.at<D>(op.d);
    const A* a = context.at<A>(op.a);
    const B* b = context.at<B>(op.b);
    each_lane(mask, [&](unsigned lane) { d[lane] = static_cast<D>(F{}(op, a[lane], b[lane])); });
}
template <typename F, typename D, typename A, typename B, typename C>
void run_op3(Context& context, const Op& op, Mask mask) {
    D* d = context.at<D>(op.d);
    const A* a = context.at<A>(op.a);
    const B* b = context.at<B>(op.b);
    const C* c = context.at<C>(op.c);
    each_lane(mask, [&](unsigned lane) { d[lane] = static_cast<D>(F{}(op, a[lane], b[lane], c[lane])); });
}
template <typename D, typename A, typename F>
constexpr Handler map_op1(F) {
    return &run_op1<F, D, A>;
}
template <typename D, typename A, typename B, typename F>
constexpr Handler map_op2(F) {
    return &run_op2<F, D, A, B>;
}
template <typename D, typename A, typename B, typename C, typename F>
constexpr Handler map_op3(F) {
    return &run_op3<F, D, A, B, C>;
}

}  // namespace fikit::sim::ptx
