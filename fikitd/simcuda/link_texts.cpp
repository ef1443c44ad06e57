// What a linker owes its objects (PTX ISA, Linking Directives), done to their texts: names without a linking
// directive are their object's own, so those that another object has, too, get a number; of a .weak or
// .common name one definition stays, a strong one if there is any. A declaration of what another text defines
// stays: PTX allows both in one module.
//
// gcc's offloading links some sixty objects so, each of which calls its first string $LC0.
#include "link_texts.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <string_view>

#include "ptx/lexer.hpp"

namespace fikit::sim {

namespace {

using ptx::Lexer;
using ptx::Token;
using ptx::TokenKind;

enum class Linkage { own, shared, replaceable, declared };

struct Item {  // a function or variable of a module
    std::string_view name;
    Linkage linkage = Linkage::own;
    std::size_t begin = 0, end = 0;  // in the text
    std::string declaration;         // of a variable
};

struct Change {  // of a text
    std::size_t begin, end;
    std::string replacement;
};

struct Text {
    std::string_view text;
    std::vector<Item> items;
    std::vector<Change> heads;  // what one module has once
    std::string_view target = "sm_90";
    double version = 0;
};

class Reader {
  public:
    explicit Reader(std::string_view text) : lexer_(text) { made_.text = text; }

    Text read() {
        while (lexer_.peek().kind != TokenKind::end) read_one();
        return std::move(made_);
    }

  private:
    std::size_t place(const Token& token) const {
        return static_cast<std::size_t>(token.text.data() - made_.text.data());
    }
    Token take() {
        const Token token = lexer_.take();
        if (token.kind != TokenKind::end) last_ = place(token) + token.text.size();
        return token;
    }

    // To the end of what stands in marks, which was begun.
    void skip_marks(char open, char close) {
        for (int depth = 1; depth > 0 && lexer_.peek().kind != TokenKind::end;) {
            const Token token = take();
            depth += token.is(open) ? 1 : token.is(close) ? -1 : 0;
        }
    }

    void read_function(Item& item) {
        Token token = take();
        if (token.is('(')) {
            skip_marks('(', ')');
            token = take();
        }
        item.name = token.text;
        while (lexer_.peek().kind != TokenKind::end) {
            token = take();
            if (token.is('{')) return skip_marks('{', '}');
            if (!token.is(';')) continue;
            item.linkage = Linkage::declared;
            return;
        }
    }

    // Names stand before dimensions, values, commas and the end.
    void read_variables(Item item, const Token& space) {
        const std::size_t directive = place(space);
        std::size_t value = 0;
        bool named = false;
        std::vector<std::string_view> names(1);
        for (Token token = take(); token.kind != TokenKind::end; token = take()) {
            if (token.is('=') && value == 0) value = place(token);
            if (token.kind == TokenKind::word && !named) names.back() = token.text;
            if (token.is('[') || token.is('=') || token.is('<')) named = true;
            if (token.is('{')) skip_marks('{', '}');
            if (token.is('(')) skip_marks('(', ')');
            if (token.is(';')) break;
            if (!token.is(',')) continue;
            names.emplace_back();
            named = false;
        }
        item.end = last_;
        const std::size_t until = value != 0 ? value : last_ - 1;
        item.declaration = ".extern " + std::string(made_.text.substr(directive, until - directive)) + ";";
        for (const std::string_view name : names) {
            item.name = name;
            made_.items.push_back(item);
        }
    }

    void read_one() {
        Item item;
        Token token = take();
        item.begin = place(token);
        if (token.is(".visible")) item.linkage = Linkage::shared;
        if (token.is(".weak") || token.is(".common")) item.linkage = Linkage::replaceable;
        if (token.is(".extern")) item.linkage = Linkage::declared;
        if (item.linkage != Linkage::own) token = take();
        if (token.is(".version") || token.is(".target") || token.is(".address_size")) {
            const Token value = take();
            if (token.is(".version")) made_.version = std::bit_cast<double>(value.value);
            if (token.is(".target")) made_.target = value.text;
            while (lexer_.peek().is(',')) {  // sm_90, debug
                take();
                take();
            }
            made_.heads.push_back({item.begin, last_, {}});
        } else if (token.is(".func") || token.is(".entry")) {
            if (token.is(".entry") && item.linkage == Linkage::own) item.linkage = Linkage::shared;
            read_function(item);
            item.end = last_;
            made_.items.push_back(item);
        } else if (token.is(".global") || token.is(".const") || token.is(".shared")) {
            read_variables(std::move(item), token);
        } else if (token.is(".alias")) {
            item.linkage = Linkage::replaceable;
            item.name = take().text;
            while (lexer_.peek().kind != TokenKind::end && !take().is(';')) {
            }
            item.end = last_;
            made_.items.push_back(item);
        } else if (token.is('{')) {
            skip_marks('{', '}');
        }
    }

    Lexer lexer_;
    Text made_;
    std::size_t last_ = 0;
};

// Which text's definition of a name stays, of names that may be replaced.
std::map<std::string_view, std::size_t> kept_definitions(const std::vector<Text>& texts) {
    std::map<std::string_view, std::size_t> kept;
    for (std::size_t index = 0; index < texts.size(); ++index)
        for (const Item& item : texts[index].items)
            if (item.linkage == Linkage::replaceable) kept.try_emplace(item.name, index);
    for (std::size_t index = 0; index < texts.size(); ++index)
        for (const Item& item : texts[index].items)
            if (item.linkage == Linkage::shared) kept[item.name] = index;
    return kept;
}

// The text with names replaced, and with changes.
void append(std::string& to, const Text& from, const std::map<std::string_view, std::string>& renamed,
            const std::vector<Change>& changes) {
    std::size_t copied = 0;
    auto next = changes.begin();
    const auto put = [&](std::size_t begin, std::size_t end, std::string_view replacement) {
        to.append(from.text.substr(copied, begin - copied)).append(replacement);
        copied = end;
    };
    Lexer lexer(from.text);
    for (Token token = lexer.take(); token.kind != TokenKind::end; token = lexer.take()) {
        const auto place = static_cast<std::size_t>(token.text.data() - from.text.data());
        if (place < copied) continue;
        if (next != changes.end() && place >= next->begin) {
            put(next->begin, next->end, next->replacement);
            ++next;
            continue;
        }
        const auto found = token.kind == TokenKind::word ? renamed.find(token.text) : renamed.end();
        if (found != renamed.end()) put(place, place + token.text.size(), found->second);
    }
    put(from.text.size(), from.text.size(), "\n");
}

}  // namespace

std::string joined_texts(const std::vector<std::string>& sources) {
    std::vector<Text> texts;
    std::map<std::string_view, std::set<std::size_t>> owners;
    for (const std::string& source : sources) {
        texts.push_back(Reader(source).read());
        for (const Item& item : texts.back().items) owners[item.name].insert(texts.size() - 1);
    }
    const auto newest = std::max_element(texts.begin(), texts.end(),
                                         [](const Text& a, const Text& b) { return a.version < b.version; });
    if (newest == texts.end()) return {};
    const auto version = static_cast<unsigned>(10 * newest->version + 0.5);
    std::string joined = ".version " + std::to_string(version / 10) + "." + std::to_string(version % 10) +
                         "\n.target " + std::string(newest->target) + "\n.address_size 64\n";
    const std::map<std::string_view, std::size_t> kept = kept_definitions(texts);
    for (std::size_t index = 0; index < texts.size(); ++index) {
        std::map<std::string_view, std::string> renamed;
        std::vector<Change> changes = texts[index].heads;
        for (const Item& item : texts[index].items) {
            if (owners[item.name].size() < 2) continue;
            if (item.linkage == Linkage::own)
                renamed[item.name] = std::string(item.name) + "$" + std::to_string(index);
            if (item.linkage == Linkage::replaceable && kept.at(item.name) != index)
                changes.push_back({item.begin, item.end, item.declaration});
        }
        std::sort(changes.begin(), changes.end(),
                  [](const Change& a, const Change& b) { return a.begin < b.begin; });
        append(joined, texts[index], renamed, changes);
    }
    return joined;
}

}  // namespace fikit::sim
