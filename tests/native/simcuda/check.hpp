// A test is a function that registers itself; CHECK notes a failure and goes on.
#pragma once

#include <string>

namespace check {

struct Test {
    Test(const char* name, void (*body)());
};
void fail(const char* file, int line, const std::string& message);

}  // namespace check

#define TEST(name)                                           \
    static void name();                                      \
    static const check::Test name##_registered(#name, name); \
    static void name()
#define CHECK(condition) \
    if (!(condition)) check::fail(__FILE__, __LINE__, #condition)
#define CHECK_BETWEEN(value, low, high)                                                   \
    if (const double found = static_cast<double>(value); found < (low) || found > (high)) \
    check::fail(__FILE__, __LINE__, #value " is " + std::to_string(found))
