// What the parser leaves for lowering: instructions with their operands, names resolved to registers
// and variables where scopes decide, and left as symbols where the whole module does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx/lexer.hpp"
#include "ptx/module.hpp"
#include "ptx/program.hpp"

namespace fikit::sim::ptx {

struct SyntaxError {
    Verdict verdict;
    std::uint32_t line;
    std::string message;
};

[[noreturn]] void fail(std::uint32_t line, const std::string& message);
std::string quoted(std::string_view text);

enum class OperandKind : std::uint8_t {
    none,
    sink,  // _
    reg,
    integer,
    real32,  // value: the bits
    real64,
    special,   // text: %tid.x
    variable,  // of a state space: `space`, and value: its offset or index
    symbol,    // text: a label or a function
    address,   // parts[0] + value
    vector,    // parts
    list,      // parts, in parentheses
    part,      // of the register parts[0]: text, .b0 or .h10; negated: what -%r stands for
};

struct Operand {
    OperandKind kind = OperandKind::none;
    Type type = Type::b32;   // reg
    Place place = no_place;  // reg
    bool negated = false;    // !p
    Space space = Space::generic;
    std::uint64_t value = 0;
    std::uint64_t addend = 0;   // variable: what is added to its address
    std::uint32_t bytes = 0;    // variable: how large
    std::uint32_t element = 1;  // variable: how large each of its elements is
    std::string_view text;
    std::vector<Operand> parts;  // with `p|q`, q
};

// The registers that an operand is, as a call passes them: one, or a vector's elements; none of any other.
std::vector<Formal> in_registers(const Operand& operand);

struct Instruction {
    std::uint32_t line = 1;
    std::string_view name;
    Place guard = no_place;
    bool guard_negated = false;
    std::vector<Operand> operands;
};

// A function whose text is read and whose code is not yet made.
struct Draft {
    Function* function = nullptr;
    std::int32_t kernel = -1;  // in the module, for an entry function
    std::vector<Instruction> instructions;
    std::unordered_map<std::string_view, std::uint32_t> labels;  // to an instruction
    struct Jumps {                                               // .branchtargets
        std::uint32_t place = 0;                                 // before which instruction
        std::vector<std::string_view> targets;
    };
    std::unordered_map<std::string_view, Jumps> jumps;
    std::vector<std::uint32_t> starts;   // of each instruction, its first operation; and the end
    std::uint32_t shared_start = 0;      // from where on its own shared variables lie
    std::uint32_t shared_alignment = 1;  // of those
    std::uint32_t predicates_left = 0;
    Place predicate = 0;

    Place allocate(Type type);
};

// How many registers of 32 bits each thread needs, about.
std::uint32_t registers_needed(const Draft& draft);
// Makes the code of a function. Throws SyntaxError.
void lower(Draft& draft, Module& module, Program& program);

}  // namespace fikit::sim::ptx
