// Assertions that say what they saw. A failed one ends the test program.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            std::fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
            std::abort();                                                                      \
        }                                                                                      \
    } while (false)

#define CHECK_EQUAL(left, right) ::fikit::test::check_equal(left, right, #left, #right, __FILE__, __LINE__)
#define CHECK_STARTS(text, start) ::fikit::test::check_starts(text, start, #text, __FILE__, __LINE__)

namespace fikit::test {

template <class Left, class Right>
void check_equal(const Left& left, const Right& right, const char* left_text, const char* right_text,
                 const char* file, int line) {
    if (left == static_cast<Left>(right)) return;
    std::cerr << file << ':' << line << ": " << left_text << " is " << left << ", not " << right_text << " ("
              << right << ")\n";
    std::abort();
}

inline void check_starts(std::string_view text, std::string_view start, const char* name, const char* file,
                         int line) {
    if (text.starts_with(start)) return;
    std::cerr << file << ':' << line << ": " << name << " is \"" << text << "\", not \"" << start
              << "...\"\n";
    std::abort();
}

struct Case {
    const char* name;
    void (*run)();
};

// Runs the cases whose names contain the first argument (all without one).
template <size_t Count>
int run_cases(const Case (&cases)[Count], int count, char** arguments) {
    const std::string_view wanted = count > 1 ? arguments[1] : "";
    for (const Case& each : cases) {
        if (std::string_view(each.name).find(wanted) == std::string_view::npos) continue;
        std::printf("%s\n", each.name);
        std::fflush(stdout);
        each.run();
    }
    return 0;
}

}  // namespace fikit::test

#define CASE(function) {#function, function}
