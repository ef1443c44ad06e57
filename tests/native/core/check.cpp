// Runs the tests of a program whose names contain the first argument; all without one.
#include "check.hpp"

#include <vector>

namespace fikit::test {

struct Registered {
    const char* name;
    void (*run)();
};

static std::vector<Registered>& tests() {
    static std::vector<Registered> all;
    return all;
}

Test::Test(const char* name, void (*run)()) { tests().push_back({name, run}); }

}  // namespace fikit::test

int main(int count, char** arguments) {
    const std::string_view wanted = count > 1 ? arguments[1] : "";
    for (const auto& [name, run] : fikit::test::tests()) {
        if (std::string_view(name).find(wanted) == std::string_view::npos) continue;
        std::printf("%s\n", name);
        std::fflush(stdout);
        run();
    }
    return 0;
}
