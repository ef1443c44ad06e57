// The parser of modules and kernels; single instructions are ptx_instruction.cpp's.
//
// It is a recursive-descent parser without recursion on the input's depth, so no text can exhaust
// the stack; every table is bounded by the text's own length or by a limit here. Inside, an error
// is an exception (SyntaxError); none leaves parse().
#include <new>

#include "model.hpp"
#include "ptx_parser.hpp"

namespace fikit::sim::ptx {

namespace {

constexpr std::uint64_t variable_limit = std::uint64_t{1} << 32;
constexpr std::uint32_t parameter_limit = 32764;

}  // namespace

void Parser::fail(const Token& at, const std::string& message) {
    throw SyntaxError{Verdict::invalid, at.line, message};
}

void Parser::expect(char mark) {
    const Token token = lexer_.take();
    if (!token.is(mark))
        fail(token, "expected '" + std::string(1, mark) + "' near '" + std::string(token.text) + "'");
}

bool Parser::accept(char mark) {
    if (!lexer_.peek().is(mark)) return false;
    lexer_.take();
    return true;
}

Token Parser::word() {
    const Token token = lexer_.take();
    if (token.kind != TokenKind::word) fail(token, "expected a name near '" + std::string(token.text) + "'");
    return token;
}

std::uint64_t Parser::number(std::uint64_t limit) {
    const Token token = lexer_.take();
    if (token.kind != TokenKind::number)
        fail(token, "expected a number near '" + std::string(token.text) + "'");
    if (token.value > limit) fail(token, "number " + std::string(token.text) + " is too large");
    return token.value;
}

std::uint64_t Parser::signed_number() {
    const bool negative = accept('-');
    const std::uint64_t value = number(~std::uint64_t{0});
    return negative ? ~value + 1 : value;
}

Type Parser::type_named(std::string_view name, const Token& at) {
    static const std::map<std::string_view, Type> types = {
        {".pred", {0, false, false}}, {".b8", {1, false, false}},  {".b16", {2, false, false}},
        {".b32", {4, false, false}},  {".b64", {8, false, false}}, {".u8", {1, false, false}},
        {".u16", {2, false, false}},  {".u32", {4, false, false}}, {".u64", {8, false, false}},
        {".s8", {1, true, false}},    {".s16", {2, true, false}},  {".s32", {4, true, false}},
        {".s64", {8, true, false}},   {".f16", {2, false, true}},  {".f32", {4, false, true}},
        {".f64", {8, false, true}},
    };
    const auto found = types.find(name);
    if (found == types.end())
        fail(at, "Type '" + std::string(name) + "' is not supported by the simulated driver");
    return found->second;
}

void Parser::parse_module() {
    if (!lexer_.peek().is(".version")) fail(lexer_.peek(), "Missing .version directive at start of file");
    lexer_.take();
    const Token major = lexer_.peek();
    const std::uint64_t version = number(1000);
    const Token minor = word();
    if (version > 9 || (version == 9 && minor.text != ".0")) {
        throw SyntaxError{Verdict::unsupported_version, major.line, "Unsupported .version"};
    }
    if (!word().is(".target")) fail(lexer_.peek(), "Missing .target directive");
    const Token target = word();
    if (target.text.substr(0, 3) != "sm_") fail(target, "Unknown .target '" + std::string(target.text) + "'");
    for (const char digit : target.text.substr(3)) {
        if (digit < '0' || digit > '9' || module_.target > 1000) break;
        module_.target = module_.target * 10 + static_cast<unsigned>(digit - '0');
    }
    while (accept(',')) word();
    while (lexer_.peek().kind != TokenKind::end) parse_directive();
}

void Parser::skip_to(char mark) {
    for (Token token = lexer_.take(); !token.is(mark); token = lexer_.take()) {
        if (token.kind == TokenKind::end) fail(token, "unexpected end of file");
    }
}

void Parser::parse_directive() {
    const Token token = word();
    if (token.is(".address_size")) {
        if (number(64) != 64) fail(token, "only .address_size 64 is supported");
    } else if (token.is(".file")) {
        number(~std::uint64_t{0});
        lexer_.take();
        while (accept(',')) number(~std::uint64_t{0});
    } else if (token.is(".section")) {
        skip_to('}');
    } else if (token.is(".pragma")) {
        skip_to(';');
    } else if (token.is(".visible") || token.is(".weak") || token.is(".common")) {
        return;  // linking: there is only one module
    } else if (token.is(".extern")) {
        external_ = true;
    } else if (token.is(".entry")) {
        parse_kernel();
    } else if (token.is(".global") || token.is(".const") || token.is(".shared")) {
        parse_variable(token.text, nullptr);
    } else {
        fail(token, "Directive '" + std::string(token.text) + "' is not supported by the simulated driver");
    }
}

// .global .align 4 .u32 name[4] = {1, 2, 3, 4};
void Parser::parse_variable(std::string_view space, Kernel* kernel) {
    Variable variable;
    const bool external = external_;
    external_ = false;
    Token token = word();
    std::uint32_t alignment = 0;
    if (token.is(".align")) {
        alignment = static_cast<std::uint32_t>(number(4096));
        if (alignment == 0 || (alignment & (alignment - 1)) != 0)
            fail(token, "alignment must be a power of two");
        token = word();
    }
    const Type type = type_named(token.text, token);
    if (type.bytes == 0) fail(token, "a variable cannot be a predicate");
    variable.alignment = alignment != 0 ? alignment : type.bytes;
    const Token name = word();
    variable.name = name.text;
    std::uint64_t elements = 1;
    bool sized = true;
    while (accept('[')) {
        if (accept(']')) {
            sized = false;
            continue;
        }
        elements *= number(variable_limit);
        if (elements > variable_limit) fail(name, "variable '" + variable.name + "' is too large");
        expect(']');
    }
    if (accept('=')) {
        const bool list = accept('{');
        std::uint64_t count = 0;
        do {
            const std::uint64_t value = signed_number();
            for (unsigned byte = 0; byte < type.bytes; ++byte) {
                variable.initial.push_back(static_cast<std::uint8_t>(value >> (8 * byte)));
            }
            ++count;
        } while (list && accept(','));
        if (list) expect('}');
        if (!sized) elements = count;
        sized = true;
        if (count > elements) fail(name, "too many initial values for '" + variable.name + "'");
    }
    expect(';');
    variable.bytes = elements * type.bytes;
    if (space == ".shared") {
        const std::uint64_t before = kernel != nullptr ? kernel->static_shared : module_shared_;
        const std::uint64_t start =
            (before + variable.alignment - 1) / variable.alignment * variable.alignment;
        const std::uint64_t end = external || !sized ? before : start + variable.bytes;
        if (end > model::shared_per_block) fail(name, "uses too much shared data");
        (kernel != nullptr ? kernel->static_shared : module_shared_) = static_cast<std::uint32_t>(end);
        return;
    }
    if (external || !sized) fail(name, "Unresolved extern variable '" + variable.name + "'");
    if (!variable_index_.emplace(variable.name, static_cast<std::int32_t>(module_.variables.size())).second) {
        fail(name, "Duplicate definition of variable '" + variable.name + "'");
    }
    module_.variables.push_back(std::move(variable));
}

void Parser::parse_kernel() {
    Kernel kernel;
    const Token name = word();
    kernel.name = name.text;
    for (const Kernel& other : module_.kernels) {
        if (other.name == kernel.name) fail(name, "Duplicate definition of function '" + kernel.name + "'");
    }
    registers_.clear();
    register_ranges_.clear();
    parameters_.clear();
    labels_.clear();
    jumps_.clear();
    declared_registers_ = 0;
    if (accept('(')) {
        if (!accept(')')) {
            do parse_parameter(kernel);
            while (accept(','));
            expect(')');
        }
    }
    std::uint32_t register_limit = 0;
    while (!lexer_.peek().is('{')) {
        const Token token = word();
        std::uint32_t values[3] = {1, 1, 1};
        if (token.is(".noreturn") || token.is(".explicitcluster")) continue;
        if (token.is(".pragma")) {
            skip_to(';');
            continue;
        }
        for (std::uint32_t& value : values) {
            value = static_cast<std::uint32_t>(number(1U << 30));
            if (!accept(',')) break;
        }
        const std::uint64_t threads = std::uint64_t{values[0]} * values[1] * values[2];
        if (token.is(".maxntid") || token.is(".reqntid")) {
            if (threads == 0 || threads > model::threads_per_block)
                fail(token, "too many threads in a block");
            kernel.threads_limit = static_cast<std::uint32_t>(threads);
            if (token.is(".reqntid")) std::copy(std::begin(values), std::end(values), kernel.required);
        } else if (token.is(".maxnreg")) {
            register_limit = values[0];
        } else if (!token.is(".minnctapersm") && !token.is(".maxnctapersm") &&
                   !token.is(".reqnctapercluster") && !token.is(".maxclusterrank")) {
            fail(token,
                 "Directive '" + std::string(token.text) + "' is not supported by the simulated driver");
        }
    }
    parse_body(kernel);
    // Half of the declared registers, in units of 8, as ptxas reuses what is dead; the least it
    // gives is 16 or so.
    std::uint32_t estimate = 8 + declared_registers_ / 2;
    estimate = std::clamp((estimate + 7) / 8 * 8, 16U, model::registers_per_thread);
    if (register_limit != 0) estimate = std::min(estimate, register_limit);
    if (register_wish_ != 0) estimate = register_wish_;
    kernel.registers_per_thread = estimate;
    register_wish_ = 0;
    module_.kernels.push_back(std::move(kernel));
}

// .param .u64 name   or   .param .align 8 .b8 name[16]
void Parser::parse_parameter(Kernel& kernel) {
    if (!word().is(".param")) fail(lexer_.peek(), "expected .param");
    Token token = word();
    std::uint32_t alignment = 0;
    if (token.is(".align")) {
        alignment = static_cast<std::uint32_t>(number(128));
        if (alignment == 0 || (alignment & (alignment - 1)) != 0)
            fail(token, "alignment must be a power of two");
        token = word();
    }
    const Type type = type_named(token.text, token);
    if (type.bytes == 0) fail(token, "a parameter cannot be a predicate");
    token = word();
    while (token.is(".ptr") || token.is(".global") || token.is(".align")) {
        if (token.is(".align")) number(4096);
        token = word();
    }
    std::uint64_t bytes = type.bytes;
    if (accept('[')) {
        bytes *= number(parameter_limit);
        expect(']');
    }
    if (alignment == 0) alignment = type.bytes;
    const std::uint32_t offset = (kernel.parameter_bytes + alignment - 1) / alignment * alignment;
    if (bytes == 0 || offset + bytes > parameter_limit) fail(token, "Formal parameter space overflowed");
    if (!parameters_.emplace(token.text, kernel.parameters.size()).second) fail(token, "Duplicate parameter");
    kernel.parameters.push_back({offset, static_cast<std::uint32_t>(bytes)});
    kernel.parameter_bytes = offset + static_cast<std::uint32_t>(bytes);
}

void Parser::parse_body(Kernel& kernel) {
    expect('{');
    kernel.static_shared = module_shared_;
    while (!lexer_.peek().is('}')) {
        const Token token = lexer_.peek();
        if (token.kind == TokenKind::end) fail(token, "unexpected end of file");
        if (token.is(".reg")) {
            parse_registers();
        } else if (token.is(".shared")) {
            lexer_.take();
            parse_variable(".shared", &kernel);
        } else if (token.is(".pragma")) {
            lexer_.take();
            const Token text = lexer_.peek();
            // .pragma "fikit registers 40": what a test wants the kernel to use.
            constexpr std::string_view wish = "\"fikit registers ";
            if (text.kind == TokenKind::string && text.text.substr(0, wish.size()) == wish) {
                Lexer count(text.text.substr(wish.size()));
                register_wish_ = static_cast<std::uint32_t>(
                    std::clamp<std::uint64_t>(count.peek().value, 1, model::registers_per_thread));
            }
            skip_to(';');
        } else if (token.is(".loc")) {
            lexer_.take();
            for (int part = 0; part < 3; ++part) number(~std::uint64_t{0});
        } else {
            parse_statement(kernel);
        }
    }
    expect('}');
    Instruction end;
    end.opcode = Opcode::leave;
    kernel.code.push_back(end);
    kernel.register_count = static_cast<std::uint32_t>(registers_.size());
    resolve_jumps(kernel);
}

// .reg .b64 %rd<6>;   or   .reg .pred p, q;
void Parser::parse_registers() {
    lexer_.take();
    Token token = word();
    if (token.is(".v2") || token.is(".v4"))
        fail(token, "vector registers are not supported by the simulated driver");
    const Type type = type_named(token.text, token);
    do {
        const Token name = word();
        std::uint64_t count = 1;
        if (accept('<')) {
            count = number(1U << 20);
            expect('>');
            register_ranges_.push_back({std::string(name.text), static_cast<std::uint32_t>(count), type});
        } else {
            declare_register(std::string(name.text), type, name);
        }
        declared_registers_ += static_cast<std::uint32_t>(std::min<std::uint64_t>(count, 1024) *
                                                          (type.bytes == 8 ? 2 : type.bytes != 0));
    } while (accept(','));
    expect(';');
}

Verdict parse(std::string_view text, Module& module, std::string& log) {
    try {
        Module parsed;
        Parser(text, parsed).parse_module();
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
