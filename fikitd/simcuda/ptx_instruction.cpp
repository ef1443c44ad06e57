// The parser of single instructions, and what is found out about a kernel's loops once all of them
// are known.
//
// Uniformity is kept by construction: the only special registers accepted are those that read the
// same in every thread, and an atomic whose old value is used is refused, since every thread would
// get another one.
#include <set>

#include "ptx_parser.hpp"

namespace fikit::sim::ptx {

namespace {

struct OpcodeForm {
    Opcode opcode;
    std::uint8_t sources;
};

const std::map<std::string_view, OpcodeForm> forms = {
    {"mov", {Opcode::move, 1}},
    {"add", {Opcode::add, 2}},
    {"sub", {Opcode::sub, 2}},
    {"mul", {Opcode::mul_lo, 2}},
    {"mad", {Opcode::mad_lo, 3}},
    {"div", {Opcode::div, 2}},
    {"rem", {Opcode::rem, 2}},
    {"and", {Opcode::band, 2}},
    {"or", {Opcode::bor, 2}},
    {"xor", {Opcode::bxor, 2}},
    {"not", {Opcode::bnot, 1}},
    {"shl", {Opcode::shl, 2}},
    {"shr", {Opcode::shr, 2}},
    {"neg", {Opcode::neg, 1}},
    {"min", {Opcode::min, 2}},
    {"max", {Opcode::max, 2}},
    {"setp", {Opcode::setp, 2}},
    {"selp", {Opcode::selp, 3}},
    {"cvt", {Opcode::cvt, 1}},
    {"cvta", {Opcode::move, 1}},
    {"bra", {Opcode::branch, 0}},
    {"ld", {Opcode::load, 0}},
    {"st", {Opcode::store, 0}},
    {"atom", {Opcode::atomic, 0}},
    {"red", {Opcode::atomic, 0}},
    {"ret", {Opcode::leave, 0}},
    {"exit", {Opcode::leave, 0}},
    {"trap", {Opcode::trap, 0}},
    {"nanosleep", {Opcode::nanosleep, 1}},
    // In a uniform kernel there is nobody to wait for and one order of accesses.
    {"membar", {Opcode::nothing, 0}},
    {"fence", {Opcode::nothing, 0}},
    {"bar", {Opcode::nothing, 0}},
    {"barrier", {Opcode::nothing, 0}},
};

const std::map<std::string_view, Compare> compares = {
    {".eq", Compare::eq}, {".ne", Compare::ne}, {".lt", Compare::lt}, {".le", Compare::le},
    {".gt", Compare::gt}, {".ge", Compare::ge}, {".lo", Compare::lt}, {".ls", Compare::le},
    {".hi", Compare::gt}, {".hs", Compare::ge}};

const std::map<std::string_view, Atomic> atomics = {
    {".add", Atomic::add},       {".min", Atomic::min},         {".max", Atomic::max},
    {".and", Atomic::band},      {".or", Atomic::bor},          {".xor", Atomic::bxor},
    {".exch", Atomic::exchange}, {".cas", Atomic::compare_swap}};

const std::map<std::string_view, Operand> specials = {
    {"%globaltimer", {OperandKind::global_timer, 0, 0, -1}},
    {"%globaltimer_lo", {OperandKind::global_timer_low, 0, 0, -1}},
    {"%globaltimer_hi", {OperandKind::global_timer_high, 0, 0, -1}},
    {"%clock", {OperandKind::clock, 0, 0, -1}},
    {"%clock64", {OperandKind::clock64, 0, 0, -1}},
    {"%ntid.x", {OperandKind::block_threads, 0, 0, -1}},
    {"%ntid.y", {OperandKind::block_threads, 1, 0, -1}},
    {"%ntid.z", {OperandKind::block_threads, 2, 0, -1}},
    {"%nctaid.x", {OperandKind::grid_blocks, 0, 0, -1}},
    {"%nctaid.y", {OperandKind::grid_blocks, 1, 0, -1}},
    {"%nctaid.z", {OperandKind::grid_blocks, 2, 0, -1}},
};

const std::set<std::string_view> ignored_modifiers = {".uni",
                                                      ".global",
                                                      ".volatile",
                                                      ".relaxed",
                                                      ".acquire",
                                                      ".release",
                                                      ".acq_rel",
                                                      ".weak",
                                                      ".sys",
                                                      ".gpu",
                                                      ".cta",
                                                      ".cluster",
                                                      ".to",
                                                      ".ca",
                                                      ".cg",
                                                      ".cs",
                                                      ".cv",
                                                      ".lu",
                                                      ".wb",
                                                      ".wt",
                                                      ".nc",
                                                      ".const",
                                                      ".sync",
                                                      ".gl",
                                                      ".sc",
                                                      ".aligned",
                                                      ".mmio",
                                                      ".L1::no_allocate",
                                                      ".L1::evict_last",
                                                      ".L1::evict_first",
                                                      ".L1::evict_normal"};

std::vector<std::string_view> split_modifiers(std::string_view text) {
    std::vector<std::string_view> parts;
    std::size_t start = 0;
    for (std::size_t dot = text.find('.', 1); start < text.size(); dot = text.find('.', start + 1)) {
        const std::size_t end = std::min(dot, text.size());
        parts.push_back(text.substr(start, end - start));
        start = end;
    }
    return parts;
}

bool reads_clock(const Operand& operand) {
    return operand.kind >= OperandKind::global_timer && operand.kind <= OperandKind::clock64;
}

// A loop of pure arithmetic whose only changing input is a clock: everything it reads is either a
// clock, unchanged by the loop, or computed earlier in the same turn. Its end is then a function of
// time and need not be iterated.
bool waits_for_clock(const Kernel& kernel, std::size_t first, std::size_t last) {
    std::set<std::int32_t> written;
    std::set<std::int32_t> ready;
    for (std::size_t at = first; at <= last; ++at) written.insert(kernel.code[at].destination);
    bool clock = false;
    bool exit = false;
    for (std::size_t at = first; at <= last; ++at) {
        const Instruction& instruction = kernel.code[at];
        const auto known = [&](const Operand& operand) {
            const auto index = static_cast<std::int32_t>(operand.index);
            return operand.kind != OperandKind::reg || written.count(index) == 0 || ready.count(index) != 0;
        };
        if (!known(instruction.a) || !known(instruction.b) || !known(instruction.c)) return false;
        if (instruction.guard >= 0 && written.count(instruction.guard) != 0 &&
            ready.count(instruction.guard) == 0) {
            return false;
        }
        switch (instruction.opcode) {
            case Opcode::branch: {
                const bool inside = instruction.target >= first && instruction.target <= last;
                if (at == last) break;
                if (inside || instruction.guard < 0) return false;
                exit = true;
                break;
            }
            case Opcode::load_param:
            case Opcode::load:
            case Opcode::store:
            case Opcode::atomic:
            case Opcode::leave:
            case Opcode::trap:
                return false;
            default:
                if (instruction.guard >= 0) return false;
        }
        clock =
            clock || reads_clock(instruction.a) || reads_clock(instruction.b) || reads_clock(instruction.c);
        ready.insert(instruction.destination);
    }
    return clock && (exit || kernel.code[last].guard >= 0);
}

}  // namespace

std::uint32_t Parser::declare_register(const std::string& name, Type type, const Token& at) {
    const auto index = static_cast<std::uint32_t>(registers_.size());
    if (!registers_.emplace(name, Register{index, type}).second)
        fail(at, "Duplicate definition of '" + name + "'");
    return index;
}

const Parser::Register* Parser::find_register(std::string_view name, const Token& at) {
    const std::string key(name);
    const auto found = registers_.find(key);
    if (found != registers_.end()) return &found->second;
    for (const RegisterRange& range : register_ranges_) {
        if (key.size() <= range.prefix.size() || key.size() > range.prefix.size() + 7 ||
            key.compare(0, range.prefix.size(), range.prefix) != 0) {
            continue;
        }
        const std::string digits = key.substr(range.prefix.size());
        if (digits.find_first_not_of("0123456789") != std::string::npos) continue;
        if (digits.size() > 1 && digits[0] == '0') continue;
        if (std::stoul(digits) >= range.count) continue;
        declare_register(key, range.type, at);
        return &registers_.find(key)->second;
    }
    return nullptr;
}

std::int32_t Parser::destination(const Token& name, bool predicate) {
    const Register* found = find_register(name.text, name);
    if (found == nullptr) fail(name, "Unknown symbol '" + std::string(name.text) + "'");
    if ((found->type.bytes == 0) != predicate)
        fail(name, "Arguments mismatch for '" + std::string(name.text) + "'");
    return static_cast<std::int32_t>(found->index);
}

Operand Parser::operand(bool predicate) {
    const Token token = lexer_.peek();
    Operand result;
    if (token.kind == TokenKind::number || token.is('-')) {
        result.kind = OperandKind::immediate;
        result.value = signed_number();
        return result;
    }
    const Token name = word();
    const auto special = specials.find(name.text);
    if (special != specials.end()) return special->second;
    if (const Register* found = find_register(name.text, name); found != nullptr) {
        if ((found->type.bytes == 0) != predicate)
            fail(name, "Arguments mismatch for '" + std::string(name.text) + "'");
        result.kind = OperandKind::reg;
        result.index = found->index;
        return result;
    }
    const auto variable = variable_index_.find(std::string(name.text));
    if (variable != variable_index_.end()) {
        result.kind = OperandKind::immediate;
        result.variable = variable->second;
        return result;
    }
    if (name.text.substr(0, 1) == "%") {
        fail(name, "'" + std::string(name.text) +
                       "' is not declared, or differs between threads: the simulated driver runs "
                       "uniform kernels only");
    }
    fail(name, "Unknown symbol '" + std::string(name.text) + "'");
}

Operand Parser::address() {
    expect('[');
    Operand result = operand(false);
    if (accept('+'))
        result.value += signed_number();
    else if (result.kind != OperandKind::immediate && lexer_.peek().is('-'))
        result.value += signed_number();
    expect(']');
    if (result.kind == OperandKind::none || result.kind > OperandKind::immediate) {
        fail(lexer_.peek(), "an address must be a register, a variable or a number");
    }
    return result;
}

void Parser::parse_statement(Kernel& kernel) {
    Instruction instruction;
    Token token = lexer_.take();
    if (token.is('{') || token.is('}'))
        fail(token, "nested scopes are not supported by the simulated driver");
    if (token.is('@')) {
        instruction.guard_negated = accept('!');
        instruction.guard = destination(word(), true);
        token = word();
    }
    if (token.kind != TokenKind::word) fail(token, "Parsing error near '" + std::string(token.text) + "'");
    if (instruction.guard < 0 && accept(':')) {
        if (!labels_.emplace(token.text, kernel.code.size()).second) {
            fail(token, "Duplicate definition of label '" + std::string(token.text) + "'");
        }
        return;
    }
    instruction.line = token.line;
    parse_instruction(kernel, token, instruction);
    expect(';');
}

void Parser::parse_load_param(Kernel& kernel, const Token& name, Instruction& instruction) {
    instruction.opcode = Opcode::load_param;
    instruction.destination = destination(word(), false);
    expect(',');
    expect('[');
    const Token symbol = word();
    const auto found = parameters_.find(std::string(symbol.text));
    if (found == parameters_.end()) fail(symbol, "Unknown symbol '" + std::string(symbol.text) + "'");
    const std::uint64_t offset = accept('+') ? number(1U << 20) : 0;
    expect(']');
    const Parameter& parameter = kernel.parameters[found->second];
    if (offset + instruction.type.bytes > parameter.bytes) fail(name, "Parameter access out of range");
    instruction.parameter = parameter.offset + static_cast<std::uint32_t>(offset);
}

void Parser::parse_memory(Instruction& instruction, const Token& name) {
    if (instruction.opcode == Opcode::load) {
        instruction.destination = destination(word(), false);
        expect(',');
        instruction.a = address();
    } else if (instruction.opcode == Opcode::store) {
        instruction.a = address();
        expect(',');
        instruction.b = operand(false);
    } else {
        if (name.text.substr(0, 4) == "atom") {
            // The old value differs between threads: it may only go where nobody looks ("_").
            const Token old = word();
            if (!old.is("_")) instruction.destination = destination(old, false);
            expect(',');
        }
        instruction.a = address();
        expect(',');
        instruction.b = operand(false);
        if (instruction.atomic == Atomic::compare_swap) {
            expect(',');
            instruction.c = operand(false);
        }
        if (instruction.type.is_float || instruction.type.bytes < 4) {
            fail(name,
                 "Instruction '" + std::string(name.text) + "' is not supported by the simulated driver");
        }
    }
}

void Parser::parse_instruction(Kernel& kernel, const Token& name, Instruction instruction) {
    const std::vector<std::string_view> parts = split_modifiers(name.text);
    const auto refuse = [&] {
        fail(name, "Instruction '" + std::string(name.text) + "' is not supported by the simulated driver");
    };
    const auto form = parts.empty() ? forms.end() : forms.find(parts[0]);
    if (form == forms.end()) refuse();
    instruction.opcode = form->second.opcode;
    bool parameter = false;
    bool typed = false;
    bool chosen = false;
    for (std::size_t at = 1; at < parts.size(); ++at) {
        const std::string_view part = parts[at];
        if (instruction.opcode == Opcode::setp && !typed && compares.count(part) != 0) {
            instruction.compare = compares.at(part);
            chosen = true;
        } else if (instruction.opcode == Opcode::atomic && !typed && atomics.count(part) != 0) {
            instruction.atomic = atomics.at(part);
            chosen = true;
        } else if ((instruction.opcode == Opcode::mul_lo || instruction.opcode == Opcode::mad_lo) &&
                   part == ".lo") {
            chosen = true;
        } else if ((instruction.opcode == Opcode::mul_lo || instruction.opcode == Opcode::mad_lo) &&
                   part == ".wide") {
            instruction.opcode = instruction.opcode == Opcode::mul_lo ? Opcode::mul_wide : Opcode::mad_wide;
            chosen = true;
        } else if (instruction.opcode == Opcode::mul_lo && part == ".hi") {
            instruction.opcode = Opcode::mul_hi;
            chosen = true;
        } else if (part == ".param" && instruction.opcode == Opcode::load) {
            parameter = true;
        } else if (ignored_modifiers.count(part) == 0) {
            static const std::set<std::string_view> types = {".pred", ".b8",  ".b16", ".b32", ".b64", ".u8",
                                                             ".u16",  ".u32", ".u64", ".s8",  ".s16", ".s32",
                                                             ".s64",  ".f16", ".f32", ".f64"};
            if (types.count(part) == 0) refuse();
            if (typed)
                instruction.source_type = type_named(part, name);
            else
                instruction.type = type_named(part, name);
            typed = true;
        }
    }
    const Opcode opcode = instruction.opcode;
    const bool needs_choice = opcode == Opcode::setp || opcode == Opcode::atomic ||
                              opcode == Opcode::mul_lo || opcode == Opcode::mad_lo;
    if (needs_choice && !chosen) refuse();
    const bool moves_bits = opcode == Opcode::move || opcode == Opcode::load || opcode == Opcode::store ||
                            opcode == Opcode::selp || opcode == Opcode::load_param;
    if ((instruction.type.is_float || instruction.source_type.is_float) && !moves_bits) refuse();
    if (opcode == Opcode::cvt && instruction.source_type.bytes == 0) refuse();
    const std::uint8_t sources = form->second.sources;
    const bool logical = opcode == Opcode::band || opcode == Opcode::bor || opcode == Opcode::bxor ||
                         opcode == Opcode::bnot || opcode == Opcode::move;
    const bool predicates = typed && instruction.type.bytes == 0;
    if (predicates && !logical) refuse();
    if ((opcode == Opcode::load || opcode == Opcode::store || opcode == Opcode::atomic || sources > 0) &&
        !typed) {
        refuse();
    }

    if (opcode == Opcode::branch) {
        jumps_.push_back({kernel.code.size(), std::string(word().text)});
    } else if (parameter) {
        parse_load_param(kernel, name, instruction);
    } else if (opcode == Opcode::load || opcode == Opcode::store || opcode == Opcode::atomic) {
        parse_memory(instruction, name);
    } else if (opcode == Opcode::nothing) {
        while (!lexer_.peek().is(';') && lexer_.peek().kind != TokenKind::end) lexer_.take();
    } else if (opcode == Opcode::nanosleep) {
        instruction.a = operand(false);
    } else if (sources > 0) {
        instruction.destination = destination(word(), predicates || opcode == Opcode::setp);
        expect(',');
        instruction.a = operand(predicates);
        if (sources > 1) {
            expect(',');
            instruction.b = operand(predicates);
        }
        if (sources > 2) {
            expect(',');
            instruction.c = operand(opcode == Opcode::selp);
        }
    }
    kernel.code.push_back(instruction);
}

void Parser::resolve_jumps(Kernel& kernel) {
    for (const Jump& jump : jumps_) {
        const auto found = labels_.find(jump.label);
        Instruction& instruction = kernel.code[jump.instruction];
        if (found == labels_.end()) {
            throw SyntaxError{Verdict::invalid, instruction.line, "Unknown symbol '" + jump.label + "'"};
        }
        instruction.target = found->second;
    }
    std::set<std::int32_t> read;
    for (const Instruction& instruction : kernel.code) {
        for (const Operand* source : {&instruction.a, &instruction.b, &instruction.c}) {
            if (source->kind == OperandKind::reg) read.insert(static_cast<std::int32_t>(source->index));
        }
    }
    for (std::size_t at = 0; at < kernel.code.size(); ++at) {
        Instruction& instruction = kernel.code[at];
        if (instruction.opcode == Opcode::atomic && instruction.destination >= 0) {
            if (read.count(instruction.destination) != 0) {
                throw SyntaxError{
                    Verdict::invalid, instruction.line,
                    "Instruction 'atom' with a used result differs between threads: the simulated "
                    "driver runs uniform kernels only"};
            }
            instruction.destination = -1;
        }
        if (instruction.opcode == Opcode::branch && instruction.target <= at) {
            instruction.timed_loop = waits_for_clock(kernel, instruction.target, at);
        }
    }
}

}  // namespace fikit::sim::ptx
