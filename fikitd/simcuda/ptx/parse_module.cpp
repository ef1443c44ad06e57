// The parser of modules: directives and variables.
//
// It is a recursive-descent parser without recursion on the input's depth, so no text can exhaust
// the stack; every table is bounded by the text's own length or by a limit here. Inside, an error
// is an exception (SyntaxError); none leaves parse().
#include <algorithm>
#include <bit>
#include <new>

#include "model.hpp"
#include "ptx/limits.hpp"
#include "ptx/parser.hpp"

namespace fikit::sim::ptx {

namespace {

constexpr std::uint64_t variable_limit = std::uint64_t{1} << 32;
constexpr std::uint64_t initial_limit = std::uint64_t{1} << 28;

}  // namespace

void fail(std::uint32_t line, const std::string& message) {
    throw SyntaxError{Verdict::invalid, line, message};
}

std::string quoted(std::string_view text) {
    std::string result(1, '\'');
    result.append(text);
    result.push_back('\'');
    return result;
}

Place Draft::allocate(Type type) {
    constexpr std::uint32_t limit = 1U << 24;
    if (type == Type::pred) {
        if (predicates_left == 0) {
            predicate = function->frame_bytes;
            function->frame_bytes += 64;
            predicates_left = 16;
        }
        --predicates_left;
        predicate += 4;
        return predicate - 4;
    }
    const Place place = function->frame_bytes;
    function->frame_bytes += std::max(64U, bytes_of(type) * lanes);
    if (function->frame_bytes > limit) fail(1, "Function uses too many registers");
    return place;
}

std::int32_t Program::find(std::string_view name) const {
    const auto found = index.find(std::string(name));
    return found == index.end() ? -1 : found->second;
}

bool same_formals(const std::vector<Formal>& left, const std::vector<Formal>& right) {
    return std::equal(
        left.begin(), left.end(), right.begin(), right.end(), [](const Formal& one, const Formal& other) {
            return one.bytes == other.bytes && (one.place == no_place) == (other.place == no_place);
        });
}

std::vector<Formal> in_registers(const Operand& operand) {
    std::vector<Formal> formals;
    const auto add = [&](const Operand& reg) {
        formals.push_back({0, reg.type == Type::pred ? 4 : bytes_of(reg.type) * lanes, reg.place});
    };
    if (operand.kind == OperandKind::reg) add(operand);
    if (operand.kind == OperandKind::vector) std::for_each(operand.parts.begin(), operand.parts.end(), add);
    return formals;
}

void Parser::fail_near(const Token& at) { fail(at.line, "Parsing error near " + quoted(at.text)); }

void Parser::expect(char mark) {
    const Token token = lexer_.take();
    if (!token.is(mark)) fail(token.line, "expected " + quoted({&mark, 1}) + " near " + quoted(token.text));
}

bool Parser::accept(char mark) {
    if (!lexer_.peek().is(mark)) return false;
    lexer_.take();
    return true;
}

Token Parser::word() {
    const Token token = lexer_.take();
    if (token.kind != TokenKind::word) fail(token.line, "expected a name near " + quoted(token.text));
    return token;
}

std::uint64_t Parser::number(std::uint64_t limit) {
    const Token token = lexer_.take();
    if (token.kind != TokenKind::number) fail(token.line, "expected a number near " + quoted(token.text));
    if (token.value > limit) fail(token.line, "number " + std::string(token.text) + " is too large");
    return token.value;
}

void Parser::skip_to(char mark) {
    for (Token token = lexer_.take(); !token.is(mark); token = lexer_.take()) {
        if (token.kind == TokenKind::end) fail(token.line, "unexpected end of file");
    }
}

void Parser::parse_module() {
    if (!lexer_.peek().is(".version"))
        fail(lexer_.peek().line, "Missing .version directive at start of file");
    lexer_.take();
    const Token version = lexer_.take();
    if (version.kind != TokenKind::real64)
        fail(version.line, "expected a number near " + quoted(version.text));
    if (std::bit_cast<double>(version.value) > limits::version) {
        throw SyntaxError{Verdict::unsupported_version, version.line,
                          "Unsupported .version " + std::string(version.text)};
    }
    module_.version = static_cast<unsigned>(10 * std::bit_cast<double>(version.value) + 0.5);
    if (!word().is(".target")) fail(version.line, "Missing .target directive");
    const Token target = word();
    if (target.text.substr(0, 3) != "sm_") fail(target.line, "Unknown .target " + quoted(target.text));
    for (const char digit : target.text.substr(3)) {
        if (digit < '0' || digit > '9' || module_.target > 1000) break;
        module_.target = module_.target * 10 + static_cast<unsigned>(digit - '0');
    }
    while (accept(',')) word();
    while (lexer_.peek().kind != TokenKind::end) parse_directive();
    for (const auto& [name, declared] : awaited_) {
        if (!declared.sized) fail(declared.line, "Unresolved extern variable " + quoted(name));
        module_.undefined.emplace_back(name);
    }
    std::uint64_t constant_bytes = 0;
    for (const Variable& variable : module_.variables)
        constant_bytes += variable.constant ? variable.bytes : 0;
    if (constant_bytes > model::constant_memory) fail(1, "File uses too much global constant data");
    resolve_references();
    for (Draft& draft : drafts_) make_room_for_shared(draft);
    for (Draft& draft : drafts_) lower(draft, module_, program_);
}

void Parser::parse_directive() {
    Token token = word();
    bool external = false;
    if (token.is(".visible") || token.is(".weak") || token.is(".common") || token.is(".extern")) {
        external = token.is(".extern");  // the others say nothing here: there is one module
        token = word();
        if (!token.is(".entry") && !token.is(".func") && !token.is(".global") && !token.is(".const") &&
            !token.is(".shared"))
            fail_near(token);
    }
    if (token.is(".address_size")) {
        if (number(64) != 64) fail(token.line, "only .address_size 64 is supported");
    } else if (token.is(".file")) {
        number(~std::uint64_t{0});
        const Token name = lexer_.take();
        if (name.kind != TokenKind::string) fail_near(name);
        while (accept(',')) number(~std::uint64_t{0});
    } else if (token.is(".section")) {
        skip_to('}');
    } else if (token.is(".pragma")) {
        // .pragma "fikit most registers 40": what the linker was told.
        if (const auto most = pragma_number("\"fikit most registers ")) most_registers_ = *most;
    } else if (token.is(".alias")) {
        parse_alias(token.line);
    } else if (token.is(".entry")) {
        parse_function(true);
    } else if (token.is(".func")) {
        parse_function(false);
    } else if (token.is(".global") || token.is(".const") || token.is(".shared")) {
        parse_variables(token.text, nullptr, external);
    } else {
        fail(token.line, "Directive " + quoted(token.text) + " is not supported by the simulated driver");
    }
}

// .align 4 .v2 .u32 name[4][2]
Parser::Declarator Parser::declarator() {
    Declarator declared;
    Token token = word();
    std::uint32_t alignment = 0;
    for (;; token = word()) {
        declared.line = token.line;
        if (token.is(".align")) {
            alignment = static_cast<std::uint32_t>(number(4096));
            if (!std::has_single_bit(alignment)) fail(token.line, "alignment must be a power of two");
        } else if (token.is(".attribute")) {
            expect('(');
            declared.managed = declared.managed || lexer_.peek().is(".managed");
            skip_to(')');
        } else if (token.is(".v2") || token.is(".v4")) {
            declared.width = token.is(".v2") ? 2 : 4;
        } else if (!token.is(".ptr") && !token.is(".global") && !token.is(".shared") && !token.is(".const") &&
                   !token.is(".local")) {
            const auto type = type_named(token.text);
            if (!type) {
                fail(token.line, "Type " + quoted(token.text) + " is not supported by the simulated driver");
            }
            declared.type = *type;
            break;
        }
    }
    // After the type of a parameter, what it points to.
    while (lexer_.peek().is(".ptr") || lexer_.peek().is(".global") || lexer_.peek().is(".shared") ||
           lexer_.peek().is(".const") || lexer_.peek().is(".local") || lexer_.peek().is(".align")) {
        if (lexer_.take().is(".align")) number(4096);
    }
    const unsigned bytes = bytes_of(declared.type);
    if (bytes == 0) fail(token.line, "a variable cannot be a predicate");
    declared.alignment = alignment != 0 ? alignment : bytes * declared.width;
    name_declared(declared);
    return declared;
}

// name[4][2], of the type that is known
void Parser::name_declared(Declarator& declared) {
    const Token token = word();
    declared.name = token.text;
    while (accept('[')) {
        if (accept(']')) {
            declared.sized = false;
            continue;
        }
        declared.elements *= number(variable_limit);
        if (declared.elements > variable_limit)
            fail(token.line, "variable " + quoted(declared.name) + " is too large");
        expect(']');
    }
}

std::uint32_t Parser::place_shared(const Declarator& declared, Draft* draft) {
    std::uint32_t& used = draft != nullptr ? shared_bytes_ : module_shared_;
    const std::uint64_t start =
        (std::uint64_t{used} + declared.alignment - 1) / declared.alignment * declared.alignment;
    const std::uint64_t end = declared.sized ? start + declared.bytes() : used;
    if (end > model::shared_per_block) fail(declared.line, "Entry function uses too much shared data");
    used = static_cast<std::uint32_t>(end);
    if (draft != nullptr) draft->shared_alignment = std::max(draft->shared_alignment, declared.alignment);
    return static_cast<std::uint32_t>(start);
}

// A name may be declared .extern, too, before or after its definition. Where there is none, as ptxas has it,
// what has a size is a variable like any other.
bool Parser::joins_others(std::string_view space, const Declarator& declared, bool external) {
    const auto known = scopes_.front().names.find(declared.name);
    if (known == scopes_.front().names.end() || known->second.kind != OperandKind::variable) return false;
    if (external) return true;
    if (awaited_.erase(declared.name) == 0) return false;
    const Operand& before = known->second;
    const Space wanted = space == ".shared"  ? Space::shared
                         : space == ".const" ? Space::constant
                                             : Space::global;
    if (before.space != wanted)
        fail(declared.line, "Variable " + quoted(declared.name) + " was declared in another state space");
    if (wanted == Space::shared) {
        if (!declared.sized || declared.bytes() != before.bytes)
            fail(declared.line, "Variable " + quoted(declared.name) + " was declared with another size");
    } else {
        Variable& variable = module_.variables[before.value];
        variable.alignment = std::max(variable.alignment, declared.alignment);
        variable.managed = declared.managed;
        parse_initial(variable, declared);
    }
    return true;
}

// After a comma: another name of the same type.
Parser::Declarator Parser::another(const Declarator& first) {
    Declarator next = first;
    next.elements = 1;
    next.sized = true;
    next.line = lexer_.peek().line;
    name_declared(next);
    return next;
}

// What name<3> stands for: name0, name1 and name2 (PTX ISA, Parameterized Variable Names).
std::vector<Parser::Declarator> Parser::numbered(const Declarator& declared) {
    if (!accept('<')) return {declared};
    const std::uint64_t count = number(limits::numbered_names);
    expect('>');
    if (!lexer_.peek().is(',') && !lexer_.peek().is(';')) fail_near(lexer_.peek());
    std::vector<Declarator> many(count, declared);
    for (std::uint64_t index = 0; index < count; ++index)
        many[index].name = numbered_.emplace_back(std::string(declared.name) + std::to_string(index));
    return many;
}

// .global .align 4 .u32 name[4] = {1, 2, 3, 4}, other;
void Parser::parse_variables(std::string_view space, Draft* draft, bool external) {
    const Declarator first = declarator();
    for (Declarator& declared : numbered(first)) parse_variable(space, draft, external, declared);
    while (accept(',')) {
        Declarator next = another(first);
        for (Declarator& declared : numbered(next)) parse_variable(space, draft, external, declared);
    }
    expect(';');
}

void Parser::parse_variable(std::string_view space, Draft* draft, bool external, Declarator& declared) {
    if (!external && (declared.sized ? declared.elements == 0 : space == ".shared" || space == ".local"))
        fail(declared.line, "Non-external variable " + quoted(declared.name) + " has incomplete type");
    if (declared.managed && space != ".global")
        fail(declared.line, "only a .global variable can be .managed");
    if (draft == nullptr && joins_others(space, declared, external)) return;
    const Token at = lexer_.peek();
    Operand operand;
    operand.kind = OperandKind::variable;
    operand.text = declared.name;
    operand.element = declared.width * bytes_of(declared.type);
    if (space == ".shared") {
        operand.space = Space::shared;
        operand.value = place_shared(declared, draft);
        operand.bytes = static_cast<std::uint32_t>(declared.bytes());
        if (!declared.sized || operand.bytes == 0) {
            // All unsized arrays begin where the sized ones end: `bytes` 0 says so.
            operand.value = declared.alignment;
            operand.bytes = 0;
        } else if (external) {
            awaited_.emplace(declared.name, declared);
        }
    } else if (space == ".local") {
        if (draft == nullptr) fail(declared.line, "a .local variable belongs in a function");
        std::uint32_t& used = draft->function->local_bytes;
        const std::uint64_t start =
            (std::uint64_t{used} + declared.alignment - 1) / declared.alignment * declared.alignment;
        if (start + declared.bytes() > limits::local_bytes) {
            fail(declared.line, "Function uses too much local data");
        }
        operand.space = Space::local;
        operand.value = start;
        operand.bytes = static_cast<std::uint32_t>(declared.bytes());
        used = static_cast<std::uint32_t>(start + declared.bytes());
    } else {
        Variable variable;
        variable.name = declared.name;
        variable.alignment = declared.alignment;
        variable.constant = space == ".const";
        variable.managed = declared.managed;
        operand.space = variable.constant ? Space::constant : Space::global;
        operand.value = module_.variables.size();
        module_.variables.push_back(std::move(variable));
        if (external) {
            if (declared.bytes() > variable_limit)
                fail(declared.line, "variable " + quoted(declared.name) + " is too large");
            awaited_.emplace(declared.name, declared);
            module_.variables.back().bytes = declared.bytes();
        } else {
            parse_initial(module_.variables.back(), declared);
        }
    }
    declare(at, declared.name, operand);
}

void Parser::parse_initial(Variable& variable, const Declarator& declared) {
    std::uint64_t bytes = declared.bytes();
    if (accept('=')) {
        // Nested braces only say what the dimensions say.
        int depth = 0;
        do {
            while (accept('{')) ++depth;
            if (depth > 0 && accept('}')) {
                --depth;
            } else {
                parse_value(variable, declared.type);
            }
            if (variable.initial.size() > initial_limit) fail(declared.line, "initial value is too large");
            while (depth > 0 && accept('}')) --depth;
        } while (depth > 0 && accept(','));
        if (depth > 0) expect('}');
        if (!declared.sized) bytes = variable.initial.size();
        if (variable.initial.size() > bytes) {
            fail(declared.line, "too many initial values for " + quoted(variable.name));
        }
    } else if (!declared.sized) {
        fail(declared.line, "Unresolved extern variable " + quoted(variable.name));
    }
    if (bytes > variable_limit) fail(declared.line, "variable " + quoted(variable.name) + " is too large");
    variable.bytes = bytes;
}

// A number, a real, or an address: name, generic(name), either + number, or 0xFF00(any of these).
void Parser::parse_value(Variable& variable, Type type) {
    const unsigned bytes = bytes_of(type);
    std::uint64_t value = 0;
    const bool negative = accept('-');
    Token token = lexer_.take();
    unsigned shift = 0;
    bool masked = false;
    if (token.kind == TokenKind::number && lexer_.peek().is('(')) {
        if (token.value == 0) fail_near(token);
        shift = static_cast<unsigned>(std::countr_zero(token.value));
        masked = true;
        expect('(');
        token = lexer_.take();
    }
    int parentheses = masked ? 1 : 0;
    if (token.is("generic")) {
        expect('(');
        ++parentheses;
        token = lexer_.take();
    }
    if ((begins_constant(token) || token.is('(')) && parentheses == 0) {
        Constant first = constant_part(token, 0);
        if (negative) first.value = ~first.value + 1;
        value = constant_from(first, 0).value;
    } else if (token.kind == TokenKind::word) {
        Relocation relocation{variable.initial.size(), bytes, 0, Relocation::none, shift};
        for (;;) {
            while (parentheses > 0 && accept(')')) --parentheses;
            if (accept('+'))
                relocation.addend += constant().value;
            else if (accept('-'))
                relocation.addend -= constant_part(lexer_.take(), 0).value;
            else
                break;
        }
        if (parentheses > 0) fail_near(lexer_.peek());
        references_.push_back({static_cast<std::size_t>(&variable - module_.variables.data()),
                               variable.relocations.size(), token.text, token.line});
        variable.relocations.push_back(relocation);
    } else if (token.kind == TokenKind::real32 || token.kind == TokenKind::real64) {
        value = token.value;
        const bool single = token.kind == TokenKind::real32;
        if (single && bytes == 8) {
            value = std::bit_cast<std::uint64_t>(
                static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(value))));
        } else if (!single && bytes == 4) {
            value = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(value)));
        }
        if (negative) value ^= std::uint64_t{1} << (bytes * 8 - 1);
    } else {
        fail_near(token);
    }
    for (unsigned byte = 0; byte < bytes; ++byte) {
        variable.initial.push_back(static_cast<std::uint8_t>(byte < 8 ? value >> (8 * byte) : 0));
    }
}

void Parser::resolve_references() {
    for (const Reference& reference : references_) {
        Relocation& relocation = module_.variables[reference.variable].relocations[reference.relocation];
        const auto found = scopes_.front().names.find(reference.name);
        if (found != scopes_.front().names.end() &&
            (found->second.space == Space::global || found->second.space == Space::constant)) {
            relocation.variable = static_cast<std::uint32_t>(found->second.value);
            continue;
        }
        const std::int32_t function = program_.find(reference.name);
        if (function < 0) fail(reference.line, "Unknown symbol " + quoted(reference.name));
        relocation.addend += code_address(static_cast<std::uint64_t>(function));
    }
}

std::vector<std::uint8_t> initial_bytes(const Variable& variable,
                                        const std::vector<std::uint64_t>& addresses) {
    std::vector<std::uint8_t> bytes = variable.initial;
    for (const Relocation& relocation : variable.relocations) {
        std::uint64_t value = relocation.addend;
        if (relocation.variable != Relocation::none) value += addresses[relocation.variable];
        value >>= relocation.shift;
        for (unsigned byte = 0; byte < relocation.bytes; ++byte) {
            bytes[relocation.offset + byte] = static_cast<std::uint8_t>(byte < 8 ? value >> (8 * byte) : 0);
        }
    }
    return bytes;
}

Verdict parse(std::string_view text, Module& module, std::string& log) {
    try {
        Module parsed;
        auto program = std::make_shared<Program>();
        Parser(text, parsed, *program).parse_module();
        for (Kernel& kernel : parsed.kernels) kernel.program = program.get();
        for (const auto& function : program->functions) {
            program->local_bytes =
                std::min(program->local_bytes + function->local_bytes, limits::local_bytes);
        }
        parsed.program = std::move(program);
        module = std::move(parsed);
        return Verdict::accepted;
    } catch (const SyntaxError& error) {
        log = "ptxas application ptx input, line " + std::to_string(error.line) +
              "; error   : " + error.message + "\nptxas fatal   : Ptx assembly aborted due to errors\n";
        return error.verdict;
    } catch (const std::bad_alloc&) {
        log = "ptxas fatal   : out of memory\n";
        return Verdict::invalid;
    }
}

}  // namespace fikit::sim::ptx
