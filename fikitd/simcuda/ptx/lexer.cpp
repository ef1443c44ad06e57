// See lexer.hpp.
#include "ptx/lexer.hpp"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <limits>
#include <string_view>
#include <system_error>

namespace fikit::sim::ptx {

namespace {

bool starts_word(char letter) {
    return std::isalpha(static_cast<unsigned char>(letter)) != 0 || letter == '_' || letter == '$' ||
           letter == '%' || letter == '.';
}

bool continues_word(char letter) {
    // "::" belongs to modifiers such as .L1::no_allocate; a single ':' ends a label.
    return starts_word(letter) || std::isdigit(static_cast<unsigned char>(letter)) != 0;
}

int digit_value(char letter) {
    if (letter >= '0' && letter <= '9') return letter - '0';
    const char lower = static_cast<char>(letter | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

// Whatever separates decimals in the program's locale.
double real_number(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool too_large = error == std::errc::result_out_of_range && text.find('-') == text.npos;
    return too_large ? std::numeric_limits<double>::infinity() : value;
}

}  // namespace

void Lexer::skip_blank() {
    while (position_ < text_.size()) {
        const char letter = text_[position_];
        if (letter == '\n') {
            ++line_;
            ++position_;
        } else if (std::isspace(static_cast<unsigned char>(letter)) != 0) {
            ++position_;
        } else if (text_.substr(position_, 2) == "//") {
            position_ = std::min(text_.find('\n', position_), text_.size());
        } else if (text_.substr(position_, 2) == "/*") {
            const std::size_t end = text_.find("*/", position_ + 2);
            if (end == std::string_view::npos) return;  // advance() takes it for what is broken
            line_ += static_cast<std::uint32_t>(
                std::count(text_.begin() + static_cast<std::ptrdiff_t>(position_),
                           text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
            position_ = end + 2;
        } else {
            return;
        }
    }
}

void Lexer::read_number() {
    const std::size_t start = position_;
    unsigned base = 10;
    const char second = position_ + 1 < text_.size() ? static_cast<char>(text_[position_ + 1] | 0x20) : '\0';
    if (text_[position_] == '0' && (second == 'x' || second == 'f' || second == 'd')) {
        base = 16;  // 0f and 0d are the bits of a float and of a double
        position_ += 2;
    } else if (text_[position_] == '0' && second == 'b') {
        base = 2;
        position_ += 2;
    } else if (text_[position_] == '0') {
        base = 8;
    }
    std::uint64_t value = 0;
    std::size_t digits = 0;
    if (base == 8 || base == 10) {
        // A decimal fraction or power; ".version 9.0" is one as well.
        std::size_t end = position_;
        const auto digit = [&] {
            return end < text_.size() && std::isdigit(static_cast<unsigned char>(text_[end])) != 0;
        };
        while (digit()) ++end;
        bool real = end < text_.size() && text_[end] == '.';
        if (real) {
            ++end;
            while (digit()) ++end;
        }
        if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
            real = true;
            ++end;
            if (end < text_.size() && (text_[end] == '+' || text_[end] == '-')) ++end;
            while (digit()) ++end;
        }
        if (real) {
            next_.text = text_.substr(start, end - start);
            const bool joined = end < text_.size() && continues_word(text_[end]);
            next_.kind = joined || next_.text.size() > 64 ? TokenKind::broken : TokenKind::real64;
            next_.value = std::bit_cast<std::uint64_t>(real_number(next_.text));
            position_ = end;
            return;
        }
    }
    while (position_ < text_.size() && digit_value(text_[position_]) < static_cast<int>(base)) {
        value = value * base + static_cast<unsigned>(digit_value(text_[position_]));
        ++position_;
        ++digits;
    }
    if (position_ < text_.size() && text_[position_] == 'U') ++position_;
    const bool joined = position_ < text_.size() && continues_word(text_[position_]);
    next_.kind = digits == 0 || joined ? TokenKind::broken : TokenKind::number;
    if (next_.kind == TokenKind::number && (second == 'f' || second == 'd') && text_[start] == '0') {
        next_.kind = second == 'f' ? TokenKind::real32 : TokenKind::real64;
        if (digits != (second == 'f' ? 8U : 16U)) next_.kind = TokenKind::broken;
    }
    next_.value = value;
    next_.text = text_.substr(start, position_ - start);
}

void Lexer::advance() {
    skip_blank();
    next_ = {};
    next_.line = line_;
    if (position_ >= text_.size() || text_[position_] == '\0') return;
    const std::size_t start = position_;
    const char letter = text_[position_];
    if (std::isdigit(static_cast<unsigned char>(letter)) != 0) {
        read_number();
        return;
    }
    if (starts_word(letter)) {
        while (position_ < text_.size()) {
            // Directives may stand together: .reg.b16.
            if (letter == '.' && text_[position_] == '.' && position_ > start) break;
            if (continues_word(text_[position_])) {
                ++position_;
            } else if (text_.substr(position_, 2) == "::") {
                position_ += 2;
            } else {
                break;
            }
        }
        next_.kind = TokenKind::word;
    } else if (letter == '"') {
        const std::size_t end = text_.find('"', position_ + 1);
        next_.kind = end == std::string_view::npos ? TokenKind::broken : TokenKind::string;
        position_ = end == std::string_view::npos ? text_.size() : end + 1;
    } else if (text_.substr(position_, 2) == "/*") {
        position_ = text_.size();
        next_.kind = TokenKind::broken;
    } else {
        ++position_;
        next_.kind = TokenKind::mark;
    }
    next_.text = text_.substr(start, position_ - start);
}

}  // namespace fikit::sim::ptx
