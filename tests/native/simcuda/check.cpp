// Runs every registered test, or those whose name contains the first argument.
#include "check.hpp"

#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

namespace check {

static std::vector<std::pair<const char*, void (*)()>>& tests() {
    static std::vector<std::pair<const char*, void (*)()>> all;
    return all;
}
static int failures = 0;

Test::Test(const char* name, void (*body)()) { tests().emplace_back(name, body); }

void fail(const char* file, int line, const std::string& message) {
    ++failures;
    std::fprintf(stderr, "%s:%d: %s\n", file, line, message.c_str());
}

}  // namespace check

int main(int count, char** arguments) {
    int ran = 0;
    for (const auto& [name, body] : check::tests()) {
        if (count > 1 && std::strstr(name, arguments[1]) == nullptr) continue;
        const int before = check::failures;
        body();
        ++ran;
        if (check::failures != before) std::fprintf(stderr, "FAILED %s\n", name);
    }
    std::printf("%d tests, %d failures\n", ran, check::failures);
    return check::failures == 0 && ran > 0 ? 0 : 1;
}
