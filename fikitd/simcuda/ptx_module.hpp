// A parsed PTX module: what the parser makes and the interpreter runs.
//
// The first form holds *uniform* kernels only: nothing in them depends on which thread or block
// runs, so that one execution stands for all. parse() refuses everything else by name and line.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fikit::sim::ptx {

enum class Opcode : std::uint8_t {
    move,
    add,
    sub,
    mul_lo,
    mul_hi,
    mul_wide,
    mad_lo,
    mad_wide,
    div,
    rem,
    band,
    bor,
    bxor,
    bnot,
    shl,
    shr,
    neg,
    min,
    max,
    setp,
    selp,
    cvt,
    branch,
    load_param,
    load,
    store,
    atomic,
    leave,
    trap,
    nanosleep,
    nothing
};

enum class Compare : std::uint8_t { eq, ne, lt, le, gt, ge };
enum class Atomic : std::uint8_t { add, min, max, band, bor, bxor, exchange, compare_swap };

// An integer type, or bits: the subset has no arithmetic on floating point.
struct Type {
    std::uint8_t bytes = 0;  // 0: predicate
    bool is_signed = false;
    bool is_float = false;
};

enum class OperandKind : std::uint8_t {
    none,
    reg,
    immediate,
    global_timer,
    global_timer_low,
    global_timer_high,
    clock,
    clock64,
    block_threads,
    grid_blocks,
    zero
};

struct Operand {
    OperandKind kind = OperandKind::none;
    std::uint32_t index = 0;     // register; for block_threads and grid_blocks the dimension
    std::uint64_t value = 0;     // immediate, or what is added to an address
    std::int32_t variable = -1;  // module variable whose address is meant
};

struct Instruction {
    Opcode opcode = Opcode::nothing;
    Type type;
    Type source_type;  // cvt
    Compare compare = Compare::eq;
    Atomic atomic = Atomic::add;
    std::int32_t guard = -1;  // predicate register
    bool guard_negated = false;
    std::int32_t destination = -1;
    Operand a, b, c;
    std::uint32_t target = 0;     // branch
    std::uint32_t parameter = 0;  // load_param: offset in the parameter buffer
    bool timed_loop = false;      // a backward branch that closes a loop waiting for a clock only
    std::uint32_t line = 0;
};

struct Parameter {
    std::uint32_t offset;
    std::uint32_t bytes;
};

struct Kernel {
    std::string name;
    std::vector<Parameter> parameters;
    std::uint32_t parameter_bytes = 0;
    std::vector<Instruction> code;
    std::uint32_t register_count = 0;        // slots of the interpreter
    std::uint32_t registers_per_thread = 0;  // what the hardware would allocate
    std::uint32_t static_shared = 0;
    std::uint32_t threads_limit = 1024;     // .maxntid or .reqntid
    std::uint32_t required[3] = {0, 0, 0};  // .reqntid
};

struct Variable {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint32_t alignment = 1;
    std::vector<std::uint8_t> initial;  // shorter than bytes: the rest is zero
};

struct Module {
    std::vector<Kernel> kernels;
    std::vector<Variable> variables;
    unsigned target = 0;  // 90 for sm_90
};

enum class Verdict { accepted, invalid, unsupported_version };

// Parses `text`. On anything but `accepted`, `log` says what was wrong, as "ptxas ..., line N;
// error : ...".
Verdict parse(std::string_view text, Module& module, std::string& log);

}  // namespace fikit::sim::ptx
