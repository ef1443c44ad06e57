// The parser's state, shared by parse_module.cpp (directives, variables), parse_function.cpp,
// parse_body.cpp (instructions) and parse_constant.cpp (constant expressions).
#pragma once

#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "ptx/syntax.hpp"

namespace fikit::sim::ptx {

struct Constant {
    std::uint64_t value = 0;
    bool plain = false;  // .u64, not .s64
};

class Parser {
  public:
    Parser(std::string_view text, Module& module, Program& program)
        : lexer_(text), module_(module), program_(program) {}
    void parse_module();

  private:
    struct RegisterType {
        Type element;
        unsigned width;
    };
    struct RegisterRange {  // %rd<6>
        std::uint64_t count;
        RegisterType type;
    };
    struct Scope {
        std::unordered_map<std::string_view, Operand> names;
        std::unordered_map<std::string_view, RegisterRange> ranges;
        std::unordered_map<std::string_view, std::string_view> labels;  // to their names in the function
        std::size_t start = 0;                                          // its first instruction
    };
    struct Declarator {  // what .align, type, name and dimensions say
        Type type = Type::b8;
        std::uint32_t alignment = 1;
        std::string_view name;
        std::uint64_t elements = 1;
        unsigned width = 1;  // .v4: 4
        bool sized = true;
        bool managed = false;
        std::uint32_t line = 1;
        std::uint64_t bytes() const { return elements * width * bytes_of(type); }
    };
    // A name in an initial value that may be declared later.
    struct Reference {
        std::size_t variable;
        std::size_t relocation;
        std::string_view name;
        std::uint32_t line;
    };

    [[noreturn]] void fail_near(const Token& at);
    void expect(char mark);
    bool accept(char mark);
    Token word();
    std::uint64_t number(std::uint64_t limit);
    void skip_to(char mark);

    std::string_view constant_operator();
    bool begins_constant(const Token& token);
    Constant constant_part(const Token& first, int depth);
    Constant constant_from(const Constant& first, int depth);
    Constant constant(int depth = 0);

    void parse_directive();
    void parse_alias(unsigned line);
    Declarator declarator();
    void name_declared(Declarator& declared);
    Declarator another(const Declarator& first);
    std::vector<Declarator> numbered(const Declarator& declared);
    void parse_variables(std::string_view space, Draft* draft, bool external);
    void parse_variable(std::string_view space, Draft* draft, bool external, Declarator& declared);
    void parse_initial(Variable& variable, const Declarator& declared);
    void parse_value(Variable& variable, Type type);
    std::uint32_t place_shared(const Declarator& declared, Draft* draft);
    bool joins_others(std::string_view space, const Declarator& declared, bool external);
    void resolve_references();
    void make_room_for_shared(Draft& draft);

    void parse_function(bool entry);
    std::vector<Formal> parse_formals(Draft& draft, bool declaration_only);
    void parse_kernel_parameters(Kernel& kernel);
    std::uint32_t parse_limits(Kernel& kernel);
    void parse_body(Draft& draft);
    void parse_registers(Draft& draft);
    std::optional<std::uint32_t> pragma_number(std::string_view text);
    void parse_local_parameters(Draft& draft);

    void parse_statement(Draft& draft);
    void parse_label(Draft& draft, const Token& name);
    std::string_view declare_label(const Token& name);
    void leave_block(Draft& draft);
    Operand operand(Draft& draft, int depth);
    Operand address(Draft& draft, int depth);
    Operand sum(Draft& draft, const Operand& reg);
    Operand element(Draft& draft, const Operand& array, int depth);
    Operand named(Draft& draft, const Token& name);
    const Operand* find(std::string_view name, Draft& draft);
    RegisterType register_type();
    static Operand made_register(Draft& draft, RegisterType type);
    void declare(const Token& at, std::string_view name, const Operand& what);

    Lexer lexer_;
    Module& module_;
    Program& program_;
    std::vector<Scope> scopes_{1};                    // the module's first
    std::map<std::string_view, Declarator> awaited_;  // declared .extern, not defined yet
    std::vector<Reference> references_;
    std::deque<std::string> numbered_;  // names that the text has only as name<8>
    std::deque<std::string> labels_;    // names of labels that only a block knows
    std::deque<Draft> drafts_;
    std::uint32_t module_shared_ = 0;
    std::uint32_t register_wish_ = 0;
    std::uint32_t most_registers_ = 0;  // of every kernel that follows
    std::uint32_t shared_bytes_ = 0;    // of the function at hand
    bool in_call_ = false;              // where parentheses hold arguments
};

}  // namespace fikit::sim::ptx
