// How many registers a kernel needs at once: what the hardware's compiler would allocate, about.
//
// A register lives from its first to its last appearance in the code, and through every loop that it enters
// alive. As in linear scan allocation (M. Poletto and V. Sarkar, 1999), which needs one pass.
#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ptx/syntax.hpp"

namespace fikit::sim::ptx {

namespace {

struct Life {
    std::size_t first, last;
    unsigned words;
};

void note(const Operand& operand, std::size_t at, std::unordered_map<Place, Life>& lives) {
    if (operand.kind == OperandKind::reg && operand.type != Type::pred) {
        const unsigned words = (bytes_of(operand.type) + 3) / 4;
        lives.try_emplace(operand.place, Life{at, at, words}).first->second.last = at;
    }
    for (const Operand& part : operand.parts) note(part, at, lives);
}

// Where branches go back: from and to, inner loops first.
std::vector<std::pair<std::size_t, std::size_t>> loops(const Draft& draft) {
    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (std::size_t at = 0; at < draft.instructions.size(); ++at) {
        const Instruction& instruction = draft.instructions[at];
        if (instruction.name.substr(0, 3) != "bra" || instruction.operands.size() != 1) continue;
        const auto target = draft.labels.find(instruction.operands.front().text);
        if (target != draft.labels.end() && target->second <= at) found.emplace_back(target->second, at);
    }
    return found;
}

// What ptxas 13.0 has on top of them, on average over the contract tests' kernels: scratch and the stack's
// pointer. Nearly nine of ten of those so get as many blocks per SM as with ptxas.
constexpr std::uint32_t overhead = 6;
// As many have their place in the convention of calls.
constexpr std::uint32_t least_with_calls = 24;

}  // namespace

std::uint32_t registers_needed(const Draft& draft) {
    std::unordered_map<Place, Life> lives;
    for (std::size_t at = 0; at < draft.instructions.size(); ++at) {
        for (const Operand& operand : draft.instructions[at].operands) note(operand, at, lives);
    }
    // Loops that end later are tried later, so that an outer one sees what an inner one made longer.
    const auto back = loops(draft);
    std::vector<std::int64_t> change(draft.instructions.size() + 2, 0);
    for (auto& [place, life] : lives) {
        for (const auto& [begin, end] : back) {
            if (life.first < begin && life.last >= begin && life.last < end) life.last = end;
        }
        change[life.first] += life.words;
        change[life.last] -= life.words;  // what an instruction reads last makes room for what it writes
    }
    std::int64_t now = 0;
    std::int64_t most = 0;
    for (const std::int64_t step : change) most = std::max(most, now += step);
    const bool calls = std::any_of(draft.instructions.begin(), draft.instructions.end(),
                                   [](const Instruction& one) { return one.name.substr(0, 4) == "call"; });
    return std::max(static_cast<std::uint32_t>(most) + overhead, calls ? least_with_calls : 0);
}

}  // namespace fikit::sim::ptx
