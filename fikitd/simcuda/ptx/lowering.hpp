// From instructions to operations: one family of instructions a file (lower_*.cpp holds a family's
// lowering with its handlers).
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ptx/lanes.hpp"
#include "ptx/syntax.hpp"

namespace fikit::sim::ptx {

// What stands in [ ... ].
struct Address {
    Place base = no_place;  // none: op.offset alone
    std::int64_t offset = 0;
    bool wide = true;  // the base has 64 bits
    Space space = Space::generic;

    void put(Op& op) const {
        op.a = base;
        op.offset = offset;
        if (wide) op.flags |= flag::wide;
    }
};

class Lowering {
  public:
    Lowering(Draft& draft, Module& module, Program& program);
    void run();

    // --- what a family sees of the instruction at hand
    std::string_view opcode;
    const Instruction& instruction() const { return *instruction_; }
    std::size_t count() const { return instruction_->operands.size(); }
    const Operand& operand(std::size_t index) const;
    [[noreturn]] void refuse(std::string_view why = {}) const;

    // Takes a modifier, wherever it stands.
    bool accept(std::string_view modifier);
    bool accept_any(std::initializer_list<std::string_view> modifiers);
    std::optional<std::string_view> accept_prefix(std::string_view prefix);
    // Takes the first modifier that `find` makes something of.
    template <typename Found>
    std::optional<Found> accept_first(std::optional<Found> (*find)(std::string_view)) {
        for (auto at = modifiers_.begin(); at != modifiers_.end(); ++at) {
            const auto found = find(*at);
            if (!found) continue;
            modifiers_.erase(at);
            return found;
        }
        return std::nullopt;
    }
    Type type();  // the first type among the modifiers
    std::optional<Type> maybe_type();
    // .rn, .rz, .rm, .rp and the integer forms .rni ...; nothing: `otherwise`.
    Rounding rounding(Rounding otherwise);
    std::uint8_t flags();                   // .ftz .sat
    std::optional<Type> peek_type() const;  // what type() would take
    bool is_floating() const;               // whether the first type is one of floating point
    void expect_operands(std::size_t least, std::size_t most = 0) const;

    // --- operands as places
    Place source(std::size_t index, Type type) { return source(operand(index), type); }
    Place source(const Operand& operand, Type type);
    // A source that may be the address of a variable or of a function, too.
    Place source_or_address(const Operand& operand, Type type);
    Place predicate(const Operand& operand);  // read, with its negation
    Place target(std::size_t index, Type type) { return target(operand(index), type); }
    // A place to write; a wider register is filled by extension afterwards where `wider` allows it.
    Place target(const Operand& operand, Type type, bool wider = false);
    // A source whose register may be wider: its lower part.
    Place narrow(const Operand& operand, Type type);
    Place temporary(Type type);
    Place constant(std::uint64_t bits, unsigned bytes);
    std::uint32_t literal(std::size_t index) const;  // must be a number
    Address address(std::size_t index, Space space);
    Place address_of(const Operand& variable, unsigned bytes, bool generic);

    Op& emit(Handler handler, Work cost = Work::simple);
    // The instruction as one operation: its operands are a target and so many sources (a, b, c and e).
    Op& emit(Type target, std::initializer_list<Type> sources, Handler handler, Work cost = Work::simple);
    // An operation before the one at hand, without its guard.
    Op& prepare(Handler handler);

    Draft& draft() { return draft_; }
    Module& module() { return module_; }
    Program& program() { return program_; }
    Function& function() { return *draft_.function; }
    void branch_to(std::string_view name);  // the last operation goes there
    std::uint32_t jump_table(std::string_view name);
    [[noreturn]] void mismatch() const;  // of an operand

  private:
    struct Fixup {
        std::uint32_t op;
        std::string_view label;
    };
    void lower_one(const Instruction& instruction);
    void keep_inputs_in_local_memory();
    bool is_kept_input(const Operand& operand) const;
    void resolve_branches();

    Draft& draft_;
    Module& module_;
    Program& program_;
    const Instruction* instruction_ = nullptr;
    std::optional<std::uint32_t> inputs_;  // where the function's inputs lie in its local memory
    std::vector<std::string_view> modifiers_;
    std::vector<Op> after_;
    std::map<std::pair<std::uint64_t, unsigned>, Place> constants_;
    std::map<std::pair<std::uint64_t, std::uint64_t>, Place> addresses_;
    std::map<unsigned, std::vector<Place>> temporaries_;
    std::map<unsigned, std::size_t> temporaries_used_;
    std::vector<Fixup> fixups_;
    std::unordered_set<std::string_view> known_forms_;  // names of instructions whose forms there are
};

// opcode (its first word) to what lowers it
using Families = std::unordered_map<std::string_view, void (*)(Lowering&)>;
void add_integer(Families& families);
// What instructions of the same name do with numbers of floating point.
void float_add(Lowering& lowering);
void float_subtract(Lowering& lowering);
void float_multiply(Lowering& lowering);
void float_multiply_add(Lowering& lowering);
void float_divide(Lowering& lowering);
void float_minimum(Lowering& lowering);
void float_maximum(Lowering& lowering);
void float_absolute(Lowering& lowering);
void float_negate(Lowering& lowering);

// The same for f16 and bf16; false: of another type, nothing was taken.
bool half_binary(Lowering& lowering, char operation);
bool half_fused(Lowering& lowering);
bool half_extreme(Lowering& lowering, bool greater);
bool half_sign(Lowering& lowering, bool negative);
void approximate(Lowering& lowering);
void approximate_division(Lowering& lowering);
void lower_warp_barrier(Lowering& lowering);  // bar.warp.sync
void add_products(Families& families);
void add_video(Families& families);
void add_bits(Families& families);
void add_float(Families& families);
void add_approximate(Families& families);
void add_compare(Families& families);
void add_convert(Families& families);
void add_move(Families& families);
void add_memory(Families& families);
void add_atomic(Families& families);
void add_control(Families& families);
void add_stack(Families& families);
void add_tensor(Families& families);
void add_barrier(Families& families);
void add_cluster(Families& families);
void add_texture(Families& families);
void add_surface(Families& families);
void add_warp(Families& families);
void add_matrix(Families& families);
void add_matrix_moves(Families& families);
void add_wgmma(Families& families);
void add_async(Families& families);

// Chooses by the width of a type.
template <typename Visit>
auto by_bytes(unsigned bytes, Visit visit) {
    switch (bytes) {
        case 1:
            return visit(u8{});
        case 2:
            return visit(u16{});
        case 4:
            return visit(u32{});
        default:
            return visit(u64{});
    }
}

}  // namespace fikit::sim::ptx
