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

struct Test {
    Test(const char* name, void (*run)());
};

}  // namespace fikit::test

// A test is a function that registers itself: check.cpp runs all of the program, or those named.
#define TEST(name)                                                 \
    static void name();                                            \
    static const fikit::test::Test name##_registered(#name, name); \
    static void name()
