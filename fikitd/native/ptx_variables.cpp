#include "ptx_variables.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace fikit {

namespace {

constexpr uint64_t untold = UINT64_MAX;

uint64_t times(uint64_t one, uint64_t other) {
    uint64_t product = 0;
    return __builtin_mul_overflow(one, other, &product) ? untold : product;
}
uint64_t plus(uint64_t one, uint64_t other) {
    uint64_t sum = 0;
    return __builtin_add_overflow(one, other, &sum) ? untold : sum;
}

// A table, as a framework's code has some 10 MB of text to go through before it is loaded.
enum Class : uint8_t { blank = 1, digit = 2, in_names = 4 };
constexpr std::array<uint8_t, 256> classes = [] {
    std::array<uint8_t, 256> made{};
    for (const char each : std::string_view(" \t\n\v\f\r")) made[static_cast<uint8_t>(each)] = blank;
    for (const char each : std::string_view("_$")) made[static_cast<uint8_t>(each)] = in_names;
    for (uint8_t each = '0'; each <= '9'; ++each) made[each] = digit | in_names;
    for (uint8_t each = 'a'; each <= 'z'; ++each) made[each] = made[each - 'a' + 'A'] = in_names;
    return made;
}();
bool is(Class of, char each) { return (classes[static_cast<uint8_t>(each)] & of) != 0; }
bool in_name(char each) { return is(in_names, each); }

// What PTX is made of, as far as it takes to find declarations.
struct Token {
    enum class Kind : uint8_t { end, name, directive, number, mark };
    Kind kind = Kind::end;
    std::string_view text;
    bool joined = false;  // a directive that is part of an instruction: ".global" of "ld.global"

    bool is(std::string_view what) const { return kind != Kind::end && !joined && text == what; }
};

class Tokens {
  public:
    explicit Tokens(std::string_view text) : left_(text) {}

    Token next() {
        const bool behind = behind_name_;
        const bool skipped = skip();
        Token token{Token::Kind::end, left_.substr(0, 0), false};
        behind_name_ = false;
        if (left_.empty()) return token;
        const char first = left_[0];
        size_t size = 1;
        if (first == '"') {
            const size_t closing = left_.find('"', 1);
            size = closing == std::string_view::npos ? left_.size() : closing + 1;
            token.kind = Token::Kind::mark;
        } else if (in_name(first) || first == '%' ||
                   (first == '.' && left_.size() > 1 && in_name(left_[1]))) {
            while (size < left_.size() && in_name(left_[size])) ++size;
            token.kind = first == '.'       ? Token::Kind::directive
                         : is(digit, first) ? Token::Kind::number
                                            : Token::Kind::name;
            token.joined = first == '.' && behind && !skipped;
            behind_name_ = token.kind == Token::Kind::name || token.joined;
        } else {
            token.kind = Token::Kind::mark;
        }
        token.text = left_.substr(0, size);
        left_.remove_prefix(size);
        return token;
    }

  private:
    // Blanks and comments. Was there anything?
    bool skip() {
        const size_t before = left_.size();
        for (;;) {
            if (!left_.empty() && is(blank, left_[0])) {
                left_.remove_prefix(1);
            } else if (left_.starts_with("//")) {
                left_.remove_prefix(std::min(left_.find('\n'), left_.size()));
            } else if (left_.starts_with("/*")) {
                const size_t closing = left_.find("*/", 2);
                left_.remove_prefix(closing == std::string_view::npos ? left_.size() : closing + 2);
            } else {
                return left_.size() != before;
            }
        }
    }

    std::string_view left_;
    bool behind_name_ = false;
};

// "16", "0x10U"; octal and binary as C has them.
uint64_t number_of(std::string_view text) {
    if (text.ends_with('U')) text.remove_suffix(1);
    int base = 10;
    if (text.size() > 1 && text[0] == '0') {
        const bool hexadecimal = text[1] == 'x' || text[1] == 'X', binary = text[1] == 'b' || text[1] == 'B';
        base = hexadecimal ? 16 : binary ? 2 : 8;
        text.remove_prefix(hexadecimal || binary ? 2 : 1);
    }
    uint64_t value = 0;
    const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return wrong == std::errc() && end == text.data() + text.size() ? value : untold;
}

// ".b8" to ".b128", ".u32", ".bf16x2" and their like, in bytes; 0: no type.
uint64_t width_of(std::string_view directive) {
    const size_t digits = directive.find_first_of("0123456789");
    if (digits == std::string_view::npos) return 0;
    const std::string_view kind = directive.substr(0, digits);
    if (kind != ".b" && kind != ".s" && kind != ".u" && kind != ".f" && kind != ".bf") return 0;
    const bool pair = directive.ends_with("x2");
    const std::string_view size = directive.substr(digits, directive.size() - digits - (pair ? 2 : 0));
    const uint64_t bits = number_of(size);
    return bits % 8 == 0 && bits <= 128 ? bits / 8 * (pair ? 2 : 1) : 0;
}

// The variables of one declaration, whose state space was read.
uint64_t declared(Tokens& tokens) {
    uint64_t width = 0, lanes = 1, bytes = 0, count = 1, values = 0;
    bool open = false, assigned = false;  // open: as many as it has values
    unsigned depth = 0;                   // of braces around those
    const auto settle = [&] {
        bytes = plus(bytes, times(times(width, lanes), open ? times(count, values) : count));
        count = 1, values = 0;
        open = assigned = false;
    };
    for (Token token = tokens.next();; token = tokens.next()) {
        if (token.kind == Token::Kind::end) return untold;
        if (token.is("{")) ++depth;
        if (token.is("}") && depth > 0) --depth;
        if (assigned) {
            values += depth > 0 && (token.is(",") || values == 0);
            if (depth > 0 || !(token.is(",") || token.is(";"))) continue;
        }
        if (token.is(",") || token.is(";")) settle();
        if (token.is(";")) return bytes;
        if (token.is("=")) assigned = true;
        if (token.is("[")) {
            const Token size = tokens.next();
            if (size.is("]")) {
                open = true;
                continue;
            }
            if (size.kind != Token::Kind::number || !tokens.next().is("]")) return untold;
            count = times(count, number_of(size.text));
        }
        if (token.kind != Token::Kind::directive) continue;
        if (token.is(".v2") || token.is(".v4") || token.is(".v8"))
            lanes = static_cast<uint64_t>(token.text[2] - '0');
        else if (const uint64_t found = width_of(token.text); found != 0)
            width = found;
    }
}

}  // namespace

uint64_t ptx_variable_bytes(std::string_view text) {
    Tokens tokens(text);
    uint64_t bytes = 0;
    bool elsewhere = false;  // the statement declares what is not in this module, or no variable
    for (Token token = tokens.next(); token.kind != Token::Kind::end; token = tokens.next()) {
        if (token.is(";") || token.is("{") || token.is("}"))
            elsewhere = false;
        else if (token.is(".extern") || token.is(".param"))
            elsewhere = true;
        else if (!elsewhere && token.is(".global"))
            bytes = plus(bytes, declared(tokens));
    }
    return bytes;
}

}  // namespace fikit
