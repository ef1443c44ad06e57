// Managed variables in PTX text. Only what has to do with them is understood; where a name of theirs stands
// in a place that is not known, the text is left as it is.
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <charconv>

#include "managed_image.hpp"

namespace fikit::shim {
namespace {

struct Token {
    enum class Kind : uint8_t { end, name, dotted, number, text, mark };
    Kind kind = Kind::end;
    std::string_view text = {};  // of a dotted one without its dot
    size_t begin = 0, end = 0;   // with it

    bool is(char mark) const { return kind == Kind::mark && text[0] == mark; }
    bool is_dotted(std::string_view word) const { return kind == Kind::dotted && text == word; }
};

bool begins_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

class Tokens {
  public:
    explicit Tokens(std::string_view text) : text_(text) {}

    Token next() {
        skip();
        Token token = {.begin = at_, .end = at_};
        if (at_ == text_.size()) return token;
        const char c = text_[at_];
        const bool dotted = c == '.' && at_ + 1 < text_.size() && begins_name(text_[at_ + 1]);
        if (dotted || begins_name(c)) {
            take(dotted ? 1 : 0);
            token.kind = dotted ? Token::Kind::dotted : Token::Kind::name;
            token.begin += dotted ? 1 : 0;
            while (at_ < text_.size() && (begins_name(text_[at_]) || is_digit(text_[at_]))) take(1);
        } else if (is_digit(c)) {
            token.kind = Token::Kind::number;
            while (at_ < text_.size() &&
                   (begins_name(text_[at_]) || is_digit(text_[at_]) || text_[at_] == '.'))
                take(1);
        } else if (c == '"') {
            token.kind = Token::Kind::text;
            const size_t end = text_.find('"', at_ + 1);
            at_ = end == text_.npos ? text_.size() : end + 1;
        } else {
            token.kind = Token::Kind::mark;
            take(1);
        }
        token.end = at_;
        token.text = {text_.data() + token.begin, at_ - token.begin};
        token.begin -= dotted ? 1 : 0;
        return token;
    }

  private:
    void take(size_t count) { at_ += count; }
    void skip() {
        for (;;) {
            while (at_ < text_.size() && is_space(text_[at_])) take(1);
            const std::string_view two = {text_.data() + at_, std::min<size_t>(2, text_.size() - at_)};
            if (two != "//" && two != "/*") return;
            const std::string_view stop = two == "//" ? "\n" : "*/";
            const size_t end = text_.find(stop, at_ + 2);
            at_ = end == text_.npos ? text_.size() : end + stop.size();
        }
    }

    std::string_view text_;
    size_t at_ = 0;
};

bool number_of(const Token& token, uint64_t& number) {
    const char* const end = token.text.data() + token.text.size();
    return token.kind == Token::Kind::number && std::from_chars(token.text.data(), end, number).ptr == end;
}

// Of a type, as b32; 0: it is none.
uint64_t type_bytes(std::string_view type) {
    uint64_t bits = 0;
    if (type.size() < 2 || strchr("bsuf", type[0]) == nullptr) return 0;
    const auto read = std::from_chars(type.data() + 1, type.data() + type.size(), bits);
    return read.ptr == type.data() + type.size() && bits % 8 == 0 && bits <= 128 ? bits / 8 : 0;
}

// Goes through a text once. With `placed`, what it reads is written there with the addresses; without, the
// variables are collected.
class Walk {
  public:
    Walk(std::string_view text, ManagedVariables* found, const ManagedVariables& variables, Bytes* placed)
        : text_(text), tokens_(text), found_(found), variables_(variables), placed_(placed) {
        advance();
    }

    bool all() {
        while (now_.kind != Token::Kind::end)
            if (!module_statement()) return false;
        copy_to(text_.size());
        return true;
    }

  private:
    void advance() {
        third_ = second_;
        second_ = before_;
        before_ = now_;
        now_ = tokens_.next();
    }
    const ManagedVariable* variable() const {
        return now_.kind == Token::Kind::name ? variables_.find(now_.text) : nullptr;
    }

    // All up to there that was not yet written.
    void copy_to(size_t end) {
        if (placed_ != nullptr) placed_->add({text_.data() + written_, end - written_});
        written_ = end;
    }
    void replace(size_t begin, size_t end, std::string_view by) {
        copy_to(begin);
        if (placed_ != nullptr) placed_->add(by);
        written_ = end;
    }
    void replace_by_number(size_t begin, size_t end, const ManagedVariable& variable) {
        char number[24];
        const int length = snprintf(number, sizeof number, "%llu", ull(variable.address));
        replace(begin, end, {number, static_cast<size_t>(length)});
    }
    static unsigned long long ull(uint64_t number) { return number; }

    // A variable, a function, or a directive that goes on to the end of its line, together with what follows.
    bool module_statement() {
        bool function = false, linked = false, value = false;
        size_t space = text_.size();  // where the directive of a state space begins
        for (;; advance()) {
            if (now_.kind == Token::Kind::end) return true;
            if (now_.is(';')) break;
            if (now_.is('{') && !value) return function ? body() : section();
            value = value || now_.is('=');
            if (now_.kind == Token::Kind::dotted) {
                function = function || now_.text == "entry" || now_.text == "func";
                linked = linked || now_.text == "visible" || now_.text == "weak";
                if (now_.text == "global") space = now_.begin;
                if (now_.text == "attribute" && !attribute(space, linked)) return false;
                if (now_.text == "address_size" && !wide()) return false;
            } else if (variable() != nullptr && !(value && number_here())) {
                return false;
            }
        }
        advance();
        return true;
    }

    bool wide() {
        advance();
        return now_.text == "64";
    }
    // From `.attribute` to the name that is declared.
    bool attribute(size_t space, bool linked) {
        const size_t begin = now_.begin;
        advance();
        if (!now_.is('(')) return false;
        advance();
        const bool managed = now_.is_dotted("managed");
        while (!now_.is(')')) {
            if (managed && now_.is(',')) return false;
            if (now_.kind == Token::Kind::end) return false;
            advance();
        }
        if (!managed) return true;
        if (space == text_.size()) return false;
        const size_t end = now_.end;
        if (!linked) replace(space, space, ".visible ");  // or it would go, since nothing names it any more
        replace(begin, end, "");
        return declaration();
    }
    bool declaration() {
        uint64_t bytes = 0, count = 1;
        for (advance(); now_.kind == Token::Kind::dotted; advance()) {
            if (now_.text == "v2" || now_.text == "v4") {
                count = now_.text == "v2" ? 2 : 4;
            } else if (now_.text == "align") {
                advance();
            } else {
                bytes = type_bytes(now_.text);
            }
        }
        if (now_.kind != Token::Kind::name || bytes == 0) return false;
        if (found_ == nullptr) return variable() != nullptr;
        Tokens ahead = tokens_;
        Token token = ahead.next();
        for (; token.is('['); token = ahead.next()) {
            uint64_t extent = 0;
            if (!number_of(ahead.next(), extent) || !ahead.next().is(']')) return false;
            if (extent == 0 || count > (uint64_t{1} << 40) / extent) return false;
            count *= extent;
        }
        return (token.is(';') || token.is('=')) && found_->add(now_.text, bytes * count);
    }

    // A variable's name that is to become its address: `name` or `generic(name)`.
    bool number_here() {
        const ManagedVariable& named = *variable();
        if (placed_ == nullptr) return true;
        size_t begin = now_.begin, end = now_.end;
        if (before_.is('(')) {
            Tokens ahead = tokens_;
            const Token close = ahead.next();
            if (second_.text != "generic" || third_.is('(') || !close.is(')')) return false;
            begin = second_.begin;
            end = close.end;
        }
        replace_by_number(begin, end, named);
        return true;
    }

    // From '{' to behind '}', with nothing within but tokens.
    bool section() {
        unsigned depth = 0;
        do {
            depth += now_.is('{') ? 1 : 0;
            depth -= now_.is('}') ? 1 : 0;
            if (now_.kind == Token::Kind::end) return false;
            advance();
        } while (depth != 0);
        return true;
    }

    bool body() {
        unsigned depth = 1;
        advance();
        while (depth != 0) {
            if (now_.kind == Token::Kind::end) return false;
            if (now_.is('{') || now_.is('}')) {
                depth += now_.is('{') ? 1 : 0;
                depth -= now_.is('}') ? 1 : 0;
                advance();
            } else if (!statement()) {
                return false;
            }
        }
        return true;
    }

    // An instruction, a label or a directive within a body.
    bool statement() {
        copy_to(now_.begin);
        const uint64_t begin = placed_ != nullptr ? placed_->size() : 0;
        const bool directive = now_.kind == Token::Kind::dotted;
        if (now_.is('@')) {
            for (; !now_.is('%') && now_.kind != Token::Kind::name; advance())
                if (now_.kind == Token::Kind::end) return false;
            advance();
        }
        const Token first = now_;
        holds_ = false;
        for (bool opcode = !directive;; advance()) {
            if (now_.kind == Token::Kind::end) return false;
            if (now_.is(';') || (now_.is(':') && before_.begin == first.begin)) break;
            if (now_.is('{') && directive) return false;
            if (line_directive(first)) return true;
            if (!opcode && variable() != nullptr && (directive || !operand())) return false;
            opcode = false;
        }
        if (now_.is(':') && variables_.find(first.text) != nullptr) return false;
        advance();
        if (holds_) hold_address(begin);
        return true;
    }
    // `.loc` and `.file` end with their line, and name nothing; what follows is another statement.
    bool line_directive(const Token& first) {
        if (!first.is_dotted("loc") && !first.is_dotted("file")) return false;
        const size_t end = text_.find('\n', first.begin);
        while (now_.kind != Token::Kind::end && now_.begin < end) advance();
        return true;
    }

    // A variable's name in an instruction.
    bool operand() {
        const ManagedVariable& named = *variable();
        if (placed_ == nullptr) return true;
        Tokens ahead = tokens_;
        const Token next = ahead.next();
        if (!before_.is('[')) {
            replace_by_number(now_.begin, now_.end, named);
            return before_.is(',') && (next.is(';') || next.is('+') || next.is('-') || next.is(','));
        }
        if (holds_ || !(next.is(']') || next.is('+') || next.is('-'))) return false;
        replace(now_.begin, now_.end, holder);
        address_ = named.address;
        holds_ = true;
        return true;
    }
    // PTX has addresses in brackets as numbers of 32 bits only: the instruction gets a register.
    void hold_address(uint64_t begin) {
        copy_to(before_.end);
        char head[96];
        const int length = snprintf(head, sizeof head, "{ .reg .b64 %s; mov.b64 %s, %llu; ", holder.data(),
                                    holder.data(), ull(address_));
        placed_->insert(begin, {head, static_cast<size_t>(length)});
        placed_->add(" }");
    }
    static constexpr std::string_view holder = "%fikit_managed";

    std::string_view text_;
    Tokens tokens_;
    ManagedVariables* found_;
    const ManagedVariables& variables_;
    Bytes* placed_;
    Token third_ = {}, second_ = {}, before_ = {}, now_ = {};  // the latest and those before it
    size_t written_ = 0;
    bool holds_ = false;  // the instruction needs a register
    uint64_t address_ = 0;
};

}  // namespace

bool find_in_ptx(std::string_view text, ManagedVariables& variables) {
    constexpr std::string_view sign = ".managed";
    if (memmem(text.data(), text.size(), sign.data(), sign.size()) == nullptr) return true;
    return Walk(text, &variables, variables, nullptr).all();
}

bool place_in_ptx(std::string_view text, const ManagedVariables& variables, Bytes& placed) {
    return Walk(text, nullptr, variables, &placed).all() && !placed.failed();
}

}  // namespace fikit::shim
