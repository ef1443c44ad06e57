// The parser of constant expressions (PTX ISA, "Constant Expressions"): C's operators on 64 bits, signed
// unless an operand is not.
#include <array>

#include "ptx/parser.hpp"

namespace fikit::sim::ptx {

namespace {

constexpr int deepest = 64;  // of parentheses and signs

// From the loosest, as C has them.
constexpr std::array<std::string_view, 18> operators{
    "||", "&&", "|", "^", "&", "==", "!=", "<", "<=", ">", ">=", "<<", ">>", "+", "-", "*", "/", "%"};
constexpr std::array<int, operators.size()> precedences{1, 2, 3, 4, 5, 6, 6,  7,  7,
                                                        7, 7, 8, 8, 9, 9, 10, 10, 10};

int precedence(std::string_view sign) {
    for (std::size_t index = 0; index < operators.size(); ++index) {
        if (operators[index] == sign) return precedences[index];
    }
    return 0;
}

bool is_sign(const Token& token) { return token.is('-') || token.is('~') || token.is('!') || token.is('+'); }

// Nothing: a division by zero. As ptxas has it, remainders are of .u64 always, and shifts by their amount's
// low six bits.
std::optional<Constant> joined(const Constant& a, std::string_view sign, const Constant& b) {
    const bool plain = a.plain || b.plain;
    const auto truth = [](bool value) { return Constant{value ? std::uint64_t{1} : 0, false}; };
    const auto left = static_cast<std::int64_t>(a.value), right = static_cast<std::int64_t>(b.value);
    const bool less = plain ? a.value < b.value : left < right;
    if (sign == "||") return truth(a.value != 0 || b.value != 0);
    if (sign == "&&") return truth(a.value != 0 && b.value != 0);
    if (sign == "==") return truth(a.value == b.value);
    if (sign == "!=") return truth(a.value != b.value);
    if (sign == "<") return truth(less);
    if (sign == ">=") return truth(!less);
    if (sign == "<=") return truth(less || a.value == b.value);
    if (sign == ">") return truth(!less && a.value != b.value);
    if (sign == "|") return Constant{a.value | b.value, plain};
    if (sign == "^") return Constant{a.value ^ b.value, plain};
    if (sign == "&") return Constant{a.value & b.value, plain};
    if (sign == "+") return Constant{a.value + b.value, plain};
    if (sign == "-") return Constant{a.value - b.value, plain};
    if (sign == "*") return Constant{a.value * b.value, plain};
    if (sign == "<<") return Constant{a.value << (b.value & 63), a.plain};
    if (sign == ">>") {
        const std::uint64_t amount = b.value & 63;
        return Constant{a.plain ? a.value >> amount : static_cast<std::uint64_t>(left >> amount), a.plain};
    }
    if (b.value == 0) return std::nullopt;
    if (sign == "%") return Constant{a.value % b.value, true};
    if (plain) return Constant{a.value / b.value, true};
    return Constant{right == -1 ? ~a.value + 1 : static_cast<std::uint64_t>(left / right), false};
}

}  // namespace

// The operator that comes next; empty: none.
std::string_view Parser::constant_operator() {
    for (const std::string_view sign : operators) {
        if (lexer_.peek().text != sign.substr(0, 1)) continue;
        lexer_.take();
        const Token second = lexer_.peek();
        for (const std::string_view longer : operators) {
            if (longer.size() == 2 && longer[0] == sign[0] && second.is(longer[1])) {
                lexer_.take();
                return longer;
            }
        }
        if (sign.size() == 2 && precedence(sign.substr(0, 1)) == 0) fail_near(second);
        return sign.substr(0, 1);
    }
    return {};
}

// Whether a constant expression may begin with what `token` and the next one are.
bool Parser::begins_constant(const Token& token) {
    if (token.kind == TokenKind::number || token.is("WARP_SZ")) return true;
    const Token& next = lexer_.peek();
    return is_sign(token) && (next.kind == TokenKind::number || next.is('(') || is_sign(next));
}

// A number, or what is in parentheses, with the signs before it.
Constant Parser::constant_part(const Token& first, int depth) {
    if (depth > deepest) fail_near(first);
    if (first.kind == TokenKind::number) {
        return {first.value, first.text.back() == 'U' || first.value >> 63 != 0};
    }
    if (first.is("WARP_SZ")) return {lanes, false};
    if (first.is('(')) {
        if (lexer_.peek().is(".s64") || lexer_.peek().is(".u64")) {
            const bool plain = lexer_.take().is(".u64");
            expect(')');
            return {constant_part(lexer_.take(), depth + 1).value, plain};
        }
        const Constant inner = constant_from(constant_part(lexer_.take(), depth + 1), depth + 1);
        expect(')');
        return inner;
    }
    if (!is_sign(first)) fail_near(first);
    const Constant part = constant_part(lexer_.take(), depth + 1);
    if (first.is('-')) return {~part.value + 1, part.plain};
    if (first.is('~')) return {~part.value, true};
    if (first.is('!')) return {part.value == 0 ? std::uint64_t{1} : 0, false};
    return part;
}

// The rest of an expression that begins with `first`.
Constant Parser::constant_from(const Constant& first, int depth) {
    std::vector<Constant> values{first};
    std::vector<std::string_view> waiting;
    for (;;) {
        const Token at = lexer_.peek();
        const std::string_view sign = constant_operator();
        while (!waiting.empty() && precedence(waiting.back()) >= precedence(sign)) {
            const Constant right = values.back();
            values.pop_back();
            const auto result = joined(values.back(), waiting.back(), right);
            if (!result) fail(at.line, "Division by zero in a constant expression");
            values.back() = *result;
            waiting.pop_back();
        }
        if (sign.empty()) break;
        waiting.push_back(sign);
        values.push_back(constant_part(lexer_.take(), depth));
    }
    if (!accept('?')) return values.back();
    if (depth > deepest) fail_near(lexer_.peek());
    const Constant one = constant(depth + 1);
    expect(':');
    const Constant other = constant(depth + 1);
    return values.back().value != 0 ? one : other;
}

Constant Parser::constant(int depth) { return constant_from(constant_part(lexer_.take(), depth), depth); }

}  // namespace fikit::sim::ptx
