// The parser's state, shared by ptx_parse.cpp (modules, kernels) and ptx_instruction.cpp
// (instructions).
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>

#include "ptx_lexer.hpp"
#include "ptx_module.hpp"

namespace fikit::sim::ptx {

struct SyntaxError {
    Verdict verdict;
    std::uint32_t line;
    std::string message;
};

class Parser {
  public:
    Parser(std::string_view text, Module& module) : lexer_(text), module_(module) {}
    void parse_module();

  private:
    struct Register {
        std::uint32_t index;
        Type type;
    };
    struct RegisterRange {  // %rd<6>
        std::string prefix;
        std::uint32_t count;
        Type type;
    };
    struct Jump {
        std::size_t instruction;
        std::string label;
    };

    [[noreturn]] void fail(const Token& at, const std::string& message);
    void expect(char mark);
    bool accept(char mark);
    Token word();
    std::uint64_t number(std::uint64_t limit);
    std::uint64_t signed_number();
    Type type_named(std::string_view name, const Token& at);
    void skip_to(char mark);

    void parse_directive();
    void parse_variable(std::string_view space, Kernel* kernel);
    void parse_kernel();
    void parse_parameter(Kernel& kernel);
    void parse_body(Kernel& kernel);
    void parse_registers();

    void parse_statement(Kernel& kernel);
    void parse_instruction(Kernel& kernel, const Token& name, Instruction instruction);
    void parse_load_param(Kernel& kernel, const Token& name, Instruction& instruction);
    void parse_memory(Instruction& instruction, const Token& name);
    std::uint32_t declare_register(const std::string& name, Type type, const Token& at);
    const Register* find_register(std::string_view name, const Token& at);
    std::int32_t destination(const Token& name, bool predicate);
    Operand operand(bool predicate);
    Operand address();
    void resolve_jumps(Kernel& kernel);

    Lexer lexer_;
    Module& module_;
    bool external_ = false;
    std::uint32_t module_shared_ = 0;
    std::uint32_t register_wish_ = 0;
    std::uint32_t declared_registers_ = 0;
    std::unordered_map<std::string, std::int32_t> variable_index_;
    std::unordered_map<std::string, Register> registers_;
    std::vector<RegisterRange> register_ranges_;
    std::unordered_map<std::string, std::size_t> parameters_;
    std::unordered_map<std::string, std::uint32_t> labels_;
    std::vector<Jump> jumps_;
};

}  // namespace fikit::sim::ptx
