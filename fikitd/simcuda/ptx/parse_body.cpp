// The parser of statements: labels, instructions and their operands.
#include <bit>
#include <cctype>

#include "ptx/parser.hpp"

namespace fikit::sim::ptx {

const Operand* Parser::find(std::string_view name, Draft& draft) {
    std::size_t digits = name.size();
    while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1])) != 0) --digits;
    const std::string_view prefix = name.substr(0, digits);
    const std::string_view number = name.substr(digits);
    const bool numbered = !number.empty() && number.size() <= 7 && (number.size() == 1 || number[0] != '0');
    std::uint64_t index = 0;
    for (const char digit : number.substr(0, 7)) index = index * 10 + static_cast<unsigned>(digit - '0');
    for (std::size_t depth = scopes_.size(); depth-- > 0;) {
        Scope& scope = scopes_[depth];
        const auto found = scope.names.find(name);
        if (found != scope.names.end()) return &found->second;
        if (!numbered) continue;
        const auto range = scope.ranges.find(prefix);
        if (range == scope.ranges.end() || index >= range->second.count) continue;
        return &scope.names.emplace(name, made_register(draft, range->second.type)).first->second;
    }
    return nullptr;
}

Operand Parser::named(Draft& draft, const Token& name) {
    Operand operand;
    operand.text = name.text;
    if (name.is("_")) {
        operand.kind = OperandKind::sink;
        return operand;
    }
    if (const Operand* found = find(name.text, draft); found != nullptr) return *found;
    // v.x: one element of a vector register.
    if (const std::size_t dot = name.text.rfind('.');
        dot != std::string_view::npos && dot + 2 == name.text.size()) {
        const std::size_t element = std::string_view("xyzw").find(name.text.back());
        const std::size_t colour = std::string_view("rgba").find(name.text.back());
        const std::size_t part = element != std::string_view::npos ? element : colour;
        const Operand* vector = find(name.text.substr(0, dot), draft);
        if (vector != nullptr && vector->kind == OperandKind::vector && part < vector->parts.size()) {
            return vector->parts[part];
        }
    }
    // %r.b0, %r.h10: bytes or halves of a register.
    if (const std::size_t dot = name.text.rfind('.'); dot != std::string_view::npos && dot > 0) {
        if (const Operand* found = find(name.text.substr(0, dot), draft);
            found != nullptr && found->kind == OperandKind::reg) {
            operand.kind = OperandKind::part;
            operand.text = name.text.substr(dot);
            operand.parts.push_back(*found);
            return operand;
        }
    }
    operand.kind = name.text[0] == '%' ? OperandKind::special : OperandKind::symbol;
    return operand;
}

Operand Parser::address(Draft& draft, int depth) {
    Operand result;
    result.kind = OperandKind::address;
    result.parts.push_back(operand(draft, depth + 1));
    Operand& base = result.parts.front();
    if (base.kind == OperandKind::variable || base.kind == OperandKind::integer) {
        // operand() has taken "+ number" already.
    } else if (accept('+')) {
        result.value = constant().value;
    }
    while (accept(',')) result.parts.push_back(operand(draft, depth + 1));  // coordinates
    expect(']');
    return result;
}

// array[2], array[%r], array[%r+2]: an element, whose address is worked out before (PTX ISA, Arrays as
// Operands).
Operand Parser::element(Draft& draft, const Operand& array, int depth) {
    const Token at = lexer_.peek();
    const Operand index = operand(draft, depth + 1);
    Operand place = array, result;
    result.kind = OperandKind::address;
    result.text = array.text;
    if (index.kind == OperandKind::integer) {
        place.addend += index.value * array.element;
    } else {
        if (index.kind != OperandKind::reg || index.type == Type::pred || bytes_of(index.type) < 4)
            fail_near(at);
        if (accept('+')) place.addend += constant().value * array.element;
        Operand sum, size;
        sum.kind = OperandKind::reg;
        sum.type = Type::u64;
        sum.place = draft.allocate(Type::u64);
        size.kind = OperandKind::integer;
        size.value = array.element;
        const std::string_view add = bytes_of(index.type) == 8 ? "mad.lo.u64"
                                     : index.type == Type::s32 ? "mad.wide.s32"
                                                               : "mad.wide.u32";
        draft.instructions.push_back({at.line, "mov.u64", no_place, false, {sum, place}});
        draft.instructions.push_back({at.line, add, no_place, false, {sum, index, size, sum}});
        place = sum;
    }
    expect(']');
    result.parts.push_back(std::move(place));
    return result;
}

// %r+4 in place of a register, as ptxas takes it outside of braces: the sum, which is worked out before.
Operand Parser::sum(Draft& draft, const Operand& reg) {
    const Token at = lexer_.peek();
    const unsigned bytes = bytes_of(reg.type);
    const bool whole = reg.type != Type::pred && !is_float(reg.type) && bytes >= 2 && bytes <= 8;
    if (reg.kind != OperandKind::reg || !whole) fail_near(at);
    Operand more;
    more.kind = OperandKind::integer;
    more.value = constant().value;
    const Operand result = made_register(draft, {reg.type, 1});
    const std::string_view add = bytes == 8 ? "add.u64" : bytes == 4 ? "add.u32" : "add.u16";
    draft.instructions.push_back({at.line, add, no_place, false, {result, reg, more}});
    return result;
}

Operand Parser::operand(Draft& draft, int depth) {
    const Token token = lexer_.take();
    Operand result;
    if (depth > 3) fail_near(token);
    if (token.is('[')) return address(draft, depth);
    if (begins_constant(token) || (token.is('(') && !in_call_)) {
        result.kind = OperandKind::integer;
        result.value = constant_from(constant_part(token, 0), 0).value;
        return result;
    }
    if (token.is('{') || token.is('(')) {
        result.kind = token.is('{') ? OperandKind::vector : OperandKind::list;
        const char end = token.is('{') ? '}' : ')';
        if (accept(end)) return result;
        do result.parts.push_back(operand(draft, depth + 1));
        while (accept(','));
        expect(end);
        return result;
    }
    if (token.is('!')) {
        result = operand(draft, depth + 1);
        if (result.kind != OperandKind::reg || result.type != Type::pred) fail_near(token);
        result.negated = !result.negated;
        return result;
    }
    if (token.is('-') || token.kind == TokenKind::real32 || token.kind == TokenKind::real64) {
        const bool negative = token.is('-');
        const Token literal = negative ? lexer_.take() : token;
        result.value = literal.value;
        if (literal.kind == TokenKind::real32) {
            result.kind = OperandKind::real32;
            if (negative) result.value ^= std::uint64_t{1} << 31;
        } else if (literal.kind == TokenKind::real64) {
            result.kind = OperandKind::real64;
            if (negative) result.value ^= std::uint64_t{1} << 63;
        } else if (literal.kind == TokenKind::word) {
            const Operand positive = named(draft, literal);
            if (positive.kind != OperandKind::reg && positive.kind != OperandKind::part) fail_near(literal);
            result = positive;
            if (positive.kind == OperandKind::reg) {
                result = {};
                result.parts.push_back(positive);
            }
            result.kind = OperandKind::part;
            result.negated = true;
        } else {
            fail_near(literal);
        }
        return result;
    }
    if (token.kind != TokenKind::word) fail_near(token);
    result = named(draft, token);
    if (result.kind == OperandKind::variable && accept('[')) return element(draft, result, depth);
    if (result.kind == OperandKind::variable && accept('+')) result.addend = constant().value;
    return result;
}

// Returns the name under which the function knows a label: its own, or in a block one that no text has, as
// other blocks may have a label of that name, too.
std::string_view Parser::declare_label(const Token& name) {
    const bool in_block = scopes_.size() > 2;  // of the module, of the function, of blocks
    std::string_view known = name.text;
    if (in_block) known = labels_.emplace_back(std::string(known) + ' ' + std::to_string(labels_.size()));
    if (!scopes_.back().labels.emplace(name.text, known).second)
        fail(name.line, "Duplicate definition of label " + quoted(name.text));
    return known;
}

// What the block's instructions say of its labels is meant, before any label outside.
void Parser::leave_block(Draft& draft) {
    const Scope& scope = scopes_.back();
    const auto rename = [&](std::string_view& name) {
        if (const auto found = scope.labels.find(name); found != scope.labels.end()) name = found->second;
    };
    if (!scope.labels.empty() && scopes_.size() > 2) {
        for (std::size_t at = scope.start; at < draft.instructions.size(); ++at) {
            for (Operand& each : draft.instructions[at].operands) {
                if (each.kind == OperandKind::symbol) rename(each.text);
            }
        }
        for (auto& [name, table] : draft.jumps) {
            if (table.place < scope.start) continue;
            for (std::string_view& target : table.targets) rename(target);
        }
    }
    scopes_.pop_back();
}

void Parser::parse_label(Draft& draft, const Token& name) {
    const auto place = static_cast<std::uint32_t>(draft.instructions.size());
    const Token next = lexer_.peek();
    if (next.is(".branchtargets")) {
        lexer_.take();
        Draft::Jumps& table = draft.jumps[declare_label(name)];
        table.place = place;
        do table.targets.push_back(word().text);
        while (accept(','));
        expect(';');
    } else if (next.is(".callprototype") || next.is(".calltargets")) {
        skip_to(';');  // every call checks the function that it reaches
    } else {
        draft.labels.emplace(declare_label(name), place);
    }
}

void Parser::parse_statement(Draft& draft) {
    Instruction instruction;
    Token token = lexer_.take();
    if (token.is('@')) {
        instruction.guard_negated = accept('!');
        const Token name = word();
        const Operand guard = named(draft, name);
        if (guard.kind != OperandKind::reg) fail(name.line, "Unknown symbol " + quoted(name.text));
        if (guard.type != Type::pred) fail(name.line, "Arguments mismatch for " + quoted(name.text));
        instruction.guard = guard.place;
        token = word();
    }
    if (token.kind != TokenKind::word) fail_near(token);
    if (instruction.guard == no_place && accept(':')) {
        parse_label(draft, token);
        return;
    }
    instruction.line = token.line;
    instruction.name = token.text;
    in_call_ = token.is("call") || instruction.name.starts_with("call.");
    if (!lexer_.peek().is(';')) {
        do {
            Operand each = operand(draft, 0);
            // The first is what the instruction gives, or where it stores to.
            if (!instruction.operands.empty() && accept('+')) each = sum(draft, each);
            instruction.operands.push_back(std::move(each));
            if (accept('|')) {
                Operand second = operand(draft, 1);
                instruction.operands.back().parts.push_back(std::move(second));
            }
        } while (accept(','));
    }
    expect(';');
    // mov.u64 %rd, array[2]: there an element stands for its address.
    for (Operand& each : instruction.operands) {
        if (each.kind != OperandKind::address || each.text.empty() || !instruction.name.starts_with("mov."))
            continue;
        Operand place = std::move(each.parts.front());
        each = std::move(place);
    }
    draft.instructions.push_back(std::move(instruction));
}

}  // namespace fikit::sim::ptx
