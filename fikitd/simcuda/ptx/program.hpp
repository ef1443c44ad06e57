// What lowering makes of a module and the engine runs: operations on registers of a whole warp.
//
// A register is an array of 32 values, one a lane, at a fixed offset of its frame; a predicate is a
// mask of 32 bits. Constants lie in a pool of the same form, so that every operand is a place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cost.hpp"
#include "ptx/types.hpp"

namespace fikit::sim::ptx {

inline constexpr unsigned lanes = 32;
using Mask = std::uint32_t;
inline constexpr Mask all_lanes = ~Mask{0};

// An offset: of the frame or, with the highest bit set, of the function's constants.
using Place = std::uint32_t;
inline constexpr Place constant_bit = std::uint32_t{1} << 31;
inline constexpr Place no_place = ~Place{0};

struct Context;
struct Op;
using Handler = void (*)(Context& context, const Op& op, Mask mask);

// What the warp's loop does itself, and what it leaves to the handler.
enum class Kind : std::uint8_t {
    compute,  // the handler cannot fail
    checked,  // the handler may set Context::fault
    branch,
    branch_indexed,
    call,
    leave,  // ret
    exit,
    trap,
    breakpoint,
    gather,  // needs all lanes of the member mask in `c`; then the handler
    barrier,
    cluster_arrive,
    cluster_wait,
    sleep,
};

enum class Rounding : std::uint8_t { nearest, zero, down, up, away };

struct Op {
    Handler run = nullptr;
    Place d = no_place, e = no_place;  // destinations; e also a fourth source
    Place a = no_place, b = no_place, c = no_place;
    Place guard = no_place;
    std::int64_t offset = 0;  // added to an address
    std::uint32_t extra = 0;  // branch: where to; lists: their index; else the handler's own
    std::uint32_t line = 0;
    Kind kind = Kind::compute;
    Work cost = Work::simple;
    bool guard_negated = false;
    Rounding rounding = Rounding::nearest;
    std::uint8_t flags = 0;
    std::uint8_t width = 0;   // elements of a vector, or what the handler likes
    bool clock_loop = false;  // a backward branch that closes a loop waiting for a clock only
};

namespace flag {
inline constexpr std::uint8_t flush = 1;     // .ftz
inline constexpr std::uint8_t saturate = 2;  // .sat
inline constexpr std::uint8_t relu = 4;
inline constexpr std::uint8_t wide = 8;     // an address register of 64 bits
inline constexpr std::uint8_t finite = 16;  // .satfinite
inline constexpr std::uint8_t negate = 32;
}  // namespace flag

enum class Space : std::uint8_t { generic, global, constant, shared, local, parameter, frame_parameter };

// A formal parameter of a function, or an argument of a call: bytes of the frame's parameter area,
// or a register.
struct Formal {
    std::uint32_t offset = 0;
    std::uint32_t bytes = 0;
    Place place = no_place;
};

struct Call {
    std::int32_t function = -1;  // -1: through the register op.a
    std::vector<Formal> arguments, results;
};

// Whether arguments are what parameters are: as long, and as much in registers.
bool same_formals(const std::vector<Formal>& left, const std::vector<Formal>& right);

struct Function {
    std::string name;
    bool entry = false;
    bool defined = false;
    std::vector<Op> code;
    std::uint32_t frame_bytes = 0;      // registers
    std::uint32_t parameter_bytes = 0;  // per lane: formal parameters, results and the arguments of calls
    std::uint32_t local_bytes = 0;      // per lane
    std::vector<Formal> inputs, outputs;
    std::vector<Call> calls;
    std::vector<std::vector<Place>> lists;
    std::vector<std::vector<std::uint32_t>> jumps;
    std::vector<std::byte> constants;
    struct Patch {  // the address of a variable in the constants
        std::uint32_t offset;
        std::uint32_t variable;
        std::uint64_t addend;
    };
    std::vector<Patch> patches;
    Place thread_index[3] = {no_place, no_place, no_place};  // entry functions: %tid
};

struct Program {
    std::vector<std::unique_ptr<Function>> functions;
    std::uint32_t local_bytes = 0;  // of all functions: what calls without recursion need at most
    std::unordered_map<std::string, std::int32_t> index;  // by name
    std::int32_t find(std::string_view name) const;       // -1: none
};

// Windows of the generic address space. No memory of the device or the host lies so high.
namespace window {
inline constexpr unsigned shift = 56;
inline constexpr std::uint64_t shared = std::uint64_t{1} << shift;
inline constexpr std::uint64_t local = std::uint64_t{2} << shift;
inline constexpr std::uint64_t parameter = std::uint64_t{3} << shift;
inline constexpr std::uint64_t code = std::uint64_t{4} << shift;
inline constexpr std::uint64_t workspace = std::uint64_t{5} << shift;  // of a cooperative launch
inline constexpr std::uint64_t heap = std::uint64_t{6} << shift;       // of malloc
inline constexpr std::uint64_t mask = (std::uint64_t{1} << shift) - 1;
// In shared memory, from here on: one more than the rank in its cluster of the block that is meant; 0 is
// one's own block.
inline constexpr unsigned rank_shift = 24;
}  // namespace window

// 0: none, its addresses are the generic ones.
constexpr std::uint64_t window_of(Space space) {
    switch (space) {
        case Space::shared:
            return window::shared;
        case Space::local:
            return window::local;
        case Space::parameter:
        case Space::frame_parameter:
            return window::parameter;
        default:
            return 0;
    }
}

constexpr std::uint64_t code_address(std::uint64_t function) { return window::code | ((function + 1) << 4); }

}  // namespace fikit::sim::ptx
