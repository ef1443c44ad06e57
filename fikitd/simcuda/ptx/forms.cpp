// Reads the table of forms (form_table.hpp), and finds an instruction in it.
#include "ptx/forms.hpp"

#include <algorithm>
#include <unordered_map>

#include "ptx/form_table.hpp"
#include "ptx/types.hpp"

namespace fikit::sim::ptx {

namespace {

// A modifier of a form, or a type: one of several words, or none.
struct Choice {
    std::vector<std::string_view> words;
    bool optional = false;
};

// Words to what `lists` says for them.
using Lists = std::unordered_map<std::string_view, std::string_view>;

struct Form {
    unsigned since = 0;  // 81 for version 8.1
    std::vector<Choice> modifiers, types;
};

using Table = std::unordered_map<std::string_view, std::vector<Form>>;

std::vector<std::string_view> split(std::string_view text, char at) {
    std::vector<std::string_view> parts;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(at), text.size());
        if (end > 0) parts.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
}

Choice choice(std::string_view text, const Lists& named) {
    Choice made;
    made.optional = text.back() == '?';
    if (made.optional) text.remove_suffix(1);
    for (const std::string_view word : split(text, '|')) {
        const auto list = named.find(word);
        if (list == named.end()) {
            made.words.push_back(word);
        } else {
            for (const std::string_view each : split(list->second, '|')) made.words.push_back(each);
        }
    }
    return made;
}

// The modifiers and types of a line, with the lists of several choices in their place.
std::vector<std::string_view> spelled(std::string_view line, const Lists& named) {
    std::vector<std::string_view> parts;
    for (const std::string_view part : split(line, ' ')) {
        const auto list = named.find(part);
        if (list == named.end() || list->second.find(' ') == std::string_view::npos) {
            parts.push_back(part);
        } else {
            for (const std::string_view each : split(list->second, ' ')) parts.push_back(each);
        }
    }
    return parts;
}

Table read_table() {
    Lists named;
    for (const std::string_view line : split(lists, '\n')) {
        const std::size_t end = line.find(' ');
        named[line.substr(0, end)] = line.substr(end + 1);
    }
    Table table;
    for (const std::string_view line : split(forms, '\n')) {
        auto parts = spelled(line, named);
        Form form;
        bool types = false;
        if (parts[0][0] >= '0' && parts[0][0] <= '9') {
            form.since = static_cast<unsigned>(10 * (parts[0][0] - '0') + parts[0][2] - '0');
            parts.erase(parts.begin());
        }
        for (std::size_t index = 1; index < parts.size(); ++index) {
            if (parts[index] == ":")
                types = true;
            else
                (types ? form.types : form.modifiers).push_back(choice(parts[index], named));
        }
        for (const std::string_view opcode : split(parts[0], '|')) table[opcode].push_back(form);
    }
    return table;
}

bool has(const Choice& choice, std::string_view word) {
    return std::find(choice.words.begin(), choice.words.end(), word) != choice.words.end();
}

bool matches(const Form& form, const std::vector<std::string_view>& modifiers) {
    std::size_t types = 0;
    std::vector<bool> used(form.modifiers.size(), false);
    for (const std::string_view modifier : modifiers) {
        const std::string_view word = modifier.substr(1);  // after its dot
        if (types < form.types.size() && has(form.types[types], word)) {
            ++types;
            continue;
        }
        std::size_t at = 0;
        while (at < used.size() && (used[at] || !has(form.modifiers[at], word))) ++at;
        if (at == used.size()) return false;
        used[at] = true;
    }
    for (std::size_t at = 0; at < used.size(); ++at) {
        if (!used[at] && !form.modifiers[at].optional) return false;
    }
    return types == form.types.size();
}

}  // namespace

std::optional<unsigned> version_of_form(std::string_view opcode,
                                        const std::vector<std::string_view>& modifiers) {
    static const Table table = read_table();
    const auto found = table.find(opcode);
    if (found == table.end()) return 0;
    std::optional<unsigned> first;
    for (const Form& form : found->second) {
        if (matches(form, modifiers)) first = std::min(first.value_or(form.since), form.since);
    }
    return first;
}

}  // namespace fikit::sim::ptx
