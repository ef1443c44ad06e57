// The parser of functions: what stands before a body, and the body's declarations.
#include <algorithm>

#include "model.hpp"
#include "ptx/limits.hpp"
#include "ptx/parser.hpp"

namespace fikit::sim::ptx {

namespace {

constexpr std::uint32_t align_up(std::uint64_t value, std::uint32_t unit) {
    return static_cast<std::uint32_t>((value + unit - 1) / unit * unit);
}

constexpr std::uint32_t argument_limit = 1U << 20;  // bytes of one function's parameters and arguments

// How many registers ptxas gives a kernel at most so that the blocks its author asked for fit an SM. More
// blocks than an SM takes of any kernel are no request.
std::uint32_t registers_for(std::uint32_t threads, std::uint32_t blocks) {
    const std::uint32_t warps = (threads + model::warp_size - 1) / model::warp_size;
    const bool fits =
        blocks <= model::blocks_per_sm && blocks * warps * model::warp_size <= model::threads_per_sm;
    const std::uint32_t all_warps = fits ? std::max(blocks, 1U) * warps : warps;
    const std::uint32_t places =
        (all_warps + model::sm_quarters - 1) / model::sm_quarters * model::sm_quarters;
    const std::uint32_t units = model::registers_per_sm / model::register_allocation_unit / places;
    return units * model::register_allocation_unit / model::warp_size;
}

}  // namespace

void Parser::declare(const Token& at, std::string_view name, const Operand& what) {
    if (!scopes_.back().names.emplace(name, what).second) {
        fail(at.line, "Duplicate definition of variable " + quoted(name));
    }
}

// (.param .b32 a, .param .align 8 .b8 b[16])   or   (.reg .u32 a, .reg .v2 .f32 b)
std::vector<Formal> Parser::parse_formals(Draft& draft, bool declaration_only) {
    std::vector<Formal> formals;
    expect('(');
    if (accept(')')) return formals;
    do {
        const Token kind = word();
        Operand operand;
        if (kind.is(".reg")) {
            const RegisterType type = register_type();
            operand = made_register(draft, type);
            operand.text = word().text;
            const std::vector<Formal> elements = in_registers(operand);
            formals.insert(formals.end(), elements.begin(), elements.end());
        } else if (kind.is(".param")) {
            const Declarator declared = declarator();
            std::uint32_t& used = draft.function->parameter_bytes;
            Formal formal;
            formal.offset = align_up(used, declared.alignment);
            if (formal.offset + declared.bytes() > argument_limit) fail(kind.line, "too many parameters");
            formal.bytes = declared.sized ? static_cast<std::uint32_t>(declared.bytes()) : 0;
            used = formal.offset + formal.bytes;
            operand.kind = OperandKind::variable;
            operand.space = Space::frame_parameter;
            operand.text = declared.name;
            operand.value = formal.offset;
            operand.bytes = formal.bytes;
            formals.push_back(formal);
        } else {
            fail_near(kind);
        }
        if (!declaration_only && operand.text != "_") declare(kind, operand.text, operand);
    } while (accept(','));
    expect(')');
    return formals;
}

// (.param .u64 name, .param .align 8 .b8 name[16])
void Parser::parse_kernel_parameters(Kernel& kernel) {
    expect('(');
    if (accept(')')) return;
    do {
        const Token at = word();
        if (!at.is(".param")) fail(at.line, "expected .param");
        const Declarator declared = declarator();
        const std::uint32_t offset = align_up(kernel.parameter_bytes, declared.alignment);
        if (declared.bytes() == 0 || offset + declared.bytes() > limits::kernel_parameter_bytes) {
            fail(at.line, "Formal parameter space overflowed");
        }
        const auto bytes = static_cast<std::uint32_t>(declared.bytes());
        Operand operand;
        operand.kind = OperandKind::variable;
        operand.space = Space::parameter;
        operand.text = declared.name;
        operand.value = offset;
        operand.bytes = bytes;
        declare(at, declared.name, operand);
        kernel.parameters.push_back({offset, bytes});
        kernel.parameter_bytes = offset + bytes;
    } while (accept(','));
    expect(')');
}

// .maxntid 128, 1, 1 and its like, up to the body; returns the limit of registers, 0 for none.
std::uint32_t Parser::parse_limits(Kernel& kernel) {
    std::uint32_t register_limit = 0;
    std::uint32_t wished_blocks = 1;
    std::uint32_t bound = 0;  // of threads, 0 for none
    while (!lexer_.peek().is('{') && !lexer_.peek().is(';')) {
        const Token token = word();
        std::uint32_t values[3] = {1, 1, 1};
        kernel.clustered |= token.is(".explicitcluster") || token.is(".reqnctapercluster");
        if (token.is(".noreturn") || token.is(".explicitcluster") || token.is(".blocksareclusters")) continue;
        if (token.is(".pragma")) {
            skip_to(';');
            continue;
        }
        if (token.is(".attribute")) {
            skip_to(')');
            continue;
        }
        for (std::uint32_t& value : values) {
            value = static_cast<std::uint32_t>(number(1U << 30));
            if (!accept(',')) break;
        }
        std::uint64_t product = 1;
        for (const std::uint32_t value : values) product = std::min(product * value, std::uint64_t{1} << 30);
        const bool threads = token.is(".maxntid") || token.is(".reqntid");
        if (product == 0 && (threads || token.is(".maxnreg") || token.is(".minnctapersm")))
            fail(token.line, "Positive non-zero value expected for " + std::string(token.text.substr(1)));
        if (threads) {
            // As ptxas, which leaves aside what is more than an SM takes.
            bound = product <= model::threads_per_sm ? static_cast<std::uint32_t>(product) : 0;
            kernel.threads_limit = std::min(static_cast<std::uint32_t>(product), model::threads_per_block);
            if (token.is(".reqntid")) std::copy(std::begin(values), std::end(values), kernel.required);
        } else if (token.is(".reqnctapercluster")) {
            std::copy(std::begin(values), std::end(values), kernel.cluster);
        } else if (token.is(".maxnreg")) {
            register_limit = values[0];
        } else if (token.is(".minnctapersm")) {
            wished_blocks = values[0];
        } else if (!token.is(".maxnctapersm") && !token.is(".maxclusterrank") && !token.is(".abi_preserve") &&
                   !token.is(".abi_preserve_control")) {
            fail(token.line, "Directive " + quoted(token.text) + " is not supported by the simulated driver");
        }
    }
    // As ptxas, which heeds .maxnreg where both are there, even if then no block fits.
    if (register_limit == 0 && bound != 0) register_limit = registers_for(bound, wished_blocks);
    return register_limit;
}

void Parser::parse_function(bool entry) {
    auto made = std::make_unique<Function>();
    made->entry = entry;
    Draft draft;
    draft.function = made.get();
    scopes_.emplace_back();
    shared_bytes_ = draft.shared_start = module_shared_;
    register_wish_ = 0;
    Kernel kernel;
    if (!entry && lexer_.peek().is('(')) made->outputs = parse_formals(draft, false);
    const Token name = word();
    made->name = name.text;
    if (lexer_.peek().is('(')) {
        if (entry)
            parse_kernel_parameters(kernel);
        else
            made->inputs = parse_formals(draft, false);
    }
    const std::uint32_t register_limit = parse_limits(kernel);

    const std::int32_t known = program_.find(name.text);
    const auto number_of = known >= 0 ? known : static_cast<std::int32_t>(program_.functions.size());
    if (known >= 0) {
        const Function& other = *program_.functions[static_cast<std::size_t>(known)];
        if (other.entry != entry) fail(name.line, "Duplicate definition of function " + quoted(name.text));
        if (!same_formals(other.inputs, made->inputs) || !same_formals(other.outputs, made->outputs))
            fail(name.line, "Inconsistent prototypes of " + quoted(name.text));
    }
    if (accept(';')) {
        scopes_.pop_back();
        if (known < 0) {
            program_.index.emplace(made->name, number_of);
            program_.functions.push_back(std::move(made));
        }
        return;
    }
    if (known < 0) {
        program_.index.emplace(made->name, number_of);
        program_.functions.push_back(std::move(made));
    } else {
        auto& place = program_.functions[static_cast<std::size_t>(known)];
        if (place->defined) fail(name.line, "Duplicate definition of function " + quoted(name.text));
        // Whoever saw the declaration keeps its pointer.
        *place = std::move(*made);
        draft.function = place.get();
    }
    draft.function->defined = true;
    parse_body(draft);
    if (entry) {
        kernel.name = name.text;
        kernel.static_shared = shared_bytes_;
        kernel.local_bytes = draft.function->local_bytes;
        std::uint32_t estimate = std::min(registers_needed(draft), model::registers_per_thread);
        if (register_limit != 0) estimate = std::min(estimate, register_limit);
        if (most_registers_ != 0) estimate = std::min(estimate, most_registers_);
        if (register_wish_ != 0) estimate = register_wish_;
        kernel.registers_per_thread = estimate;
        kernel.body = draft.function;
        draft.kernel = static_cast<std::int32_t>(module_.kernels.size());
        module_.kernels.push_back(std::move(kernel));
    } else {
        // A function's own shared variables lie behind the module's, before any kernel's that follow.
        module_shared_ = std::max(module_shared_, shared_bytes_);
    }
    drafts_.push_back(std::move(draft));
}

void Parser::parse_body(Draft& draft) {
    expect('{');
    const std::size_t outer = scopes_.size();
    for (;;) {
        const Token token = lexer_.peek();
        if (token.kind == TokenKind::end) fail(token.line, "unexpected end of file");
        if (token.is('}')) {
            lexer_.take();
            leave_block(draft);
            if (scopes_.size() < outer) return;
        } else if (token.is('{')) {
            lexer_.take();
            scopes_.emplace_back().start = draft.instructions.size();
        } else if (token.is(';')) {
            lexer_.take();
        } else if (token.is(".reg")) {
            parse_registers(draft);
        } else if (token.is(".param")) {
            lexer_.take();
            parse_local_parameters(draft);
        } else if (token.is(".shared") || token.is(".local") || token.is(".global") || token.is(".const")) {
            lexer_.take();
            parse_variables(token.text, &draft, false);
        } else if (token.is(".pragma")) {
            lexer_.take();
            // .pragma "fikit registers 40": what a test wants the kernel to use.
            if (const auto wish = pragma_number("\"fikit registers ")) register_wish_ = *wish;
        } else if (token.is(".loc")) {
            lexer_.take();
            for (int part = 0; part < 3; ++part) number(~std::uint64_t{0});
            if (accept(',')) {  // , function_name label, inlined_at 1 2 3
                word();
                word();
                if (accept('+')) number(~std::uint64_t{0});
                expect(',');
                word();
                for (int part = 0; part < 3; ++part) number(~std::uint64_t{0});
            }
        } else if (token.is(".file")) {
            parse_directive();
        } else {
            parse_statement(draft);
        }
    }
}

// The number behind a text of ours, of registers; nothing for any other pragma.
std::optional<std::uint32_t> Parser::pragma_number(std::string_view text) {
    const Token token = lexer_.take();
    if (token.kind != TokenKind::string) fail_near(token);
    std::optional<std::uint32_t> found;
    if (token.text.substr(0, text.size()) == text) {
        Lexer count(token.text.substr(text.size()));
        found = static_cast<std::uint32_t>(
            std::clamp<std::uint64_t>(count.peek().value, 1, model::registers_per_thread));
    }
    skip_to(';');
    return found;
}

// .b32   or   .v4 .f32
Parser::RegisterType Parser::register_type() {
    Token token = word();
    const unsigned width = token.is(".v2") ? 2 : token.is(".v4") ? 4 : 1;
    if (width != 1) token = word();
    const auto element = type_named(token.text);
    if (!element)
        fail(token.line, "Type " + quoted(token.text) + " is not supported by the simulated driver");
    if (width != 1 && *element == Type::pred)
        fail(token.line, "Predicate type can only be used to define scalar register variables");
    if (width * bytes_of(*element) > 16) fail(token.line, "Vector type too large, exceeds 128 bit limit");
    return {*element, width};
}

Operand Parser::made_register(Draft& draft, RegisterType type) {
    Operand reg;
    reg.kind = OperandKind::reg;
    reg.type = type.element;
    if (type.width == 1) {
        reg.place = draft.allocate(type.element);
        return reg;
    }
    Operand vector;
    vector.kind = OperandKind::vector;
    for (unsigned part = 0; part < type.width; ++part) {
        reg.place = draft.allocate(type.element);
        vector.parts.push_back(reg);
    }
    return vector;
}

// .reg .b64 %rd<6>;   or   .reg .pred p, q;   or   .reg .v4 .f32 v;
void Parser::parse_registers(Draft& draft) {
    lexer_.take();
    const RegisterType type = register_type();
    do {
        const Token name = word();
        if (accept('<')) {
            const RegisterRange range{number(1U << 20), type};
            expect('>');
            if (!scopes_.back().ranges.emplace(name.text, range).second) {
                fail(name.line, "Duplicate definition of variable " + quoted(name.text));
            }
        } else {
            declare(name, name.text, made_register(draft, type));
        }
    } while (accept(','));
    expect(';');
}

// .param .align 8 .b8 param0[16];   an argument of a call to come
void Parser::parse_local_parameters(Draft& draft) {
    const Token at = lexer_.peek();
    const auto place = [&](const Declarator& declared) {
        std::uint32_t& used = draft.function->parameter_bytes;
        const std::uint32_t offset = align_up(used, declared.alignment);
        if (offset + declared.bytes() > argument_limit) fail(at.line, "too many parameters");
        Operand operand;
        operand.kind = OperandKind::variable;
        operand.space = Space::frame_parameter;
        operand.text = declared.name;
        operand.value = offset;
        operand.bytes = static_cast<std::uint32_t>(declared.bytes());
        used = offset + operand.bytes;
        declare(at, declared.name, operand);
    };
    const Declarator first = declarator();
    for (const Declarator& declared : numbered(first)) place(declared);
    while (accept(',')) {
        for (const Declarator& declared : numbered(another(first))) place(declared);
    }
    expect(';');
}

// What a kernel calls may use shared variables that are declared after it: its own go behind those.
void Parser::make_room_for_shared(Draft& draft) {
    const bool calls = std::any_of(draft.instructions.begin(), draft.instructions.end(),
                                   [](const Instruction& one) { return one.name.starts_with("call"); });
    if (draft.kernel < 0 || !calls || module_shared_ <= draft.shared_start) return;
    Kernel& kernel = module_.kernels[static_cast<std::size_t>(draft.kernel)];
    const std::uint64_t more =
        (std::uint64_t{module_shared_} - draft.shared_start + draft.shared_alignment - 1) /
        draft.shared_alignment * draft.shared_alignment;
    if (kernel.static_shared + more > model::shared_per_block)
        fail(1, "Entry function uses too much shared data");
    kernel.static_shared += static_cast<std::uint32_t>(more);
    const auto move = [&](auto& self, Operand& operand) -> void {
        if (operand.kind == OperandKind::variable && operand.space == Space::shared && operand.bytes != 0 &&
            operand.value >= draft.shared_start) {
            operand.value += more;
        }
        for (Operand& part : operand.parts) self(self, part);
    };
    for (Instruction& instruction : draft.instructions) {
        for (Operand& operand : instruction.operands) move(move, operand);
    }
}

// .alias a, b;   a, which was declared, is another name of the function b. Who names a, before or after, is
// lowered later, and so finds b.
void Parser::parse_alias(unsigned line) {
    const std::string name(word().text);
    expect(',');
    const std::string target(word().text);
    expect(';');
    if (module_.version < 63) fail(line, "Feature '.alias' requires PTX ISA .version 6.3 or later");
    const std::int32_t alias = program_.find(name), number_of = program_.find(target);
    if (alias < 0) fail(line, "Unknown symbol " + quoted(name));
    if (number_of < 0) fail(line, "Unknown symbol " + quoted(target));
    const Function& declared = *program_.functions[static_cast<std::size_t>(alias)];
    const Function& function = *program_.functions[static_cast<std::size_t>(number_of)];
    if (declared.name != name)
        fail(line,
             quoted(name) + " is already aliased to " + quoted(declared.name) + " and cannot be redefined");
    if (declared.defined || declared.entry || alias == number_of)
        fail(line, "Illegal redefinition of function " + quoted(name) + " as alias");
    if (function.entry || !same_formals(declared.inputs, function.inputs) ||
        !same_formals(declared.outputs, function.outputs))
        fail(line, "Mismatch in prototype of alias " + quoted(name) + " and aliasee " + quoted(target));
    program_.index[name] = number_of;
}

}  // namespace fikit::sim::ptx
