// Words of PTX text. Names keep their dots apart: "ld.param.u64" is one word, "%rd<6>" is a word, a
// number and marks, so that the parser sees instructions whole. Never reads past the text, whatever
// it holds.
#pragma once

#include <cstdint>
#include <string_view>

namespace fikit::sim::ptx {

enum class TokenKind : std::uint8_t { end, word, number, real32, real64, string, mark, broken };

struct Token {
    TokenKind kind = TokenKind::end;
    std::string_view text;
    std::uint64_t value = 0;  // number; of a real its bits
    std::uint32_t line = 1;

    bool is(char mark) const { return kind == TokenKind::mark && text.size() == 1 && text[0] == mark; }
    bool is(std::string_view word) const { return kind == TokenKind::word && text == word; }
};

class Lexer {
  public:
    explicit Lexer(std::string_view text) : text_(text) { advance(); }

    const Token& peek() const { return next_; }
    Token take() {
        const Token token = next_;
        advance();
        return token;
    }

  private:
    void advance();
    void skip_blank();
    void read_number();

    std::string_view text_;
    std::size_t position_ = 0;
    std::uint32_t line_ = 1;
    Token next_;
};

}  // namespace fikit::sim::ptx
