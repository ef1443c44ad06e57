// What is found out about a kernel before it runs: whether one thread's execution stands for all, and
// which of its loops only wait for a clock.
#include <set>
#include <unordered_set>

#include "ptx/engine.hpp"
#include "ptx/syntax.hpp"

namespace fikit::sim::ptx {

namespace {

std::string_view opcode(const Instruction& instruction) {
    return instruction.name.substr(0, std::min(instruction.name.find('.'), instruction.name.size()));
}

bool has(const Instruction& instruction, std::string_view modifier) {
    for (std::size_t at = instruction.name.find(modifier); at != std::string_view::npos;
         at = instruction.name.find(modifier, at + 1)) {
        const std::size_t end = at + modifier.size();
        if (end == instruction.name.size() || instruction.name[end] == '.') return true;
    }
    return false;
}

// Special registers that read the same in every thread.
bool same_everywhere(std::string_view special) {
    static const std::unordered_set<std::string_view> known = {
        "%globaltimer", "%globaltimer_lo", "%globaltimer_hi", "%clock",  "%clock64",
        "%clock_hi",    "%ntid.x",         "%ntid.y",         "%ntid.z", "%nctaid.x",
        "%nctaid.y",    "%nctaid.z",       "%gridid"};
    return known.contains(special);
}

template <typename Visit>
void each_operand(const Operand& operand, Visit visit) {
    visit(operand);
    for (const Operand& part : operand.parts) each_operand(part, visit);
}

bool operands_are_uniform(const Instruction& instruction) {
    bool uniform = true;
    for (const Operand& operand : instruction.operands) {
        each_operand(operand, [&](const Operand& one) {
            if (one.kind == OperandKind::special && !same_everywhere(one.text)) uniform = false;
            if (one.kind == OperandKind::variable && one.space != Space::global &&
                one.space != Space::constant && one.space != Space::parameter) {
                uniform = false;
            }
        });
    }
    return uniform;
}

// An instruction whose effect by one thread is its effect by all.
bool is_uniform(const Instruction& instruction) {
    static const std::unordered_set<std::string_view> plain = {
        "mov", "add", "sub",  "mul",  "mad",  "div",  "rem",  "and", "or",   "xor",    "not",   "shl",
        "shr", "neg", "abs",  "min",  "max",  "setp", "selp", "cvt", "bra",  "ret",    "exit",  "trap",
        "fma", "shf", "lop3", "prmt", "popc", "clz",  "bfe",  "bfi", "cvta", "membar", "fence", "nanosleep"};
    static const std::unordered_set<std::string_view> barriers = {"bar", "barrier"};
    const std::string_view name = opcode(instruction);
    if (!operands_are_uniform(instruction)) return false;
    if (plain.contains(name)) return true;
    if (name == "ld" || name == "st") {
        return !has(instruction, ".shared") && !has(instruction, ".local") &&
               !has(instruction, ".shared::cta") && !has(instruction, ".shared::cluster");
    }
    if (barriers.contains(name)) {
        return has(instruction, ".sync") && !has(instruction, ".warp") && instruction.operands.size() == 1;
    }
    // One operation stands for as many as there are threads, where nobody looks at the old value.
    if (name == "red" || name == "atom") {
        const bool counted =
            (has(instruction, ".add") || has(instruction, ".min") || has(instruction, ".max") ||
             has(instruction, ".and") || has(instruction, ".or") || has(instruction, ".xor")) &&
            !has(instruction, ".shared") && instruction.name.find("f") == std::string_view::npos;
        if (!counted) return false;
        return name == "red" || instruction.operands.front().kind == OperandKind::sink;
    }
    return false;
}

using Places = std::set<Place>;

void collect(const Operand& operand, Places& places) {
    each_operand(operand, [&](const Operand& one) {
        if (one.kind == OperandKind::reg) places.insert(one.place);
    });
}

// A loop of pure arithmetic whose only changing input is a clock: everything it reads is either a
// clock, unchanged by the loop, or computed earlier in the same turn. Its end is then a function of
// time and need not be iterated.
bool waits_for_clock(const Draft& draft, std::size_t first, std::size_t last) {
    static const std::unordered_set<std::string_view> pure = {"mov", "add", "sub", "mul",  "mad", "and",
                                                              "or",  "xor", "not", "shl",  "shr", "neg",
                                                              "min", "max", "cvt", "setp", "selp"};
    const std::vector<Instruction>& code = draft.instructions;
    Places written;
    for (std::size_t at = first; at <= last; ++at) {
        if (opcode(code[at]) == "bra") continue;
        if (!pure.contains(opcode(code[at])) || code[at].operands.empty()) return false;
        if (has(code[at], ".cc")) return false;
        collect(code[at].operands.front(), written);
    }
    Places ready;
    bool clock = false;
    bool leaves = code[last].guard != no_place;
    for (std::size_t at = first; at <= last; ++at) {
        const Instruction& instruction = code[at];
        const auto known = [&](Place place) { return !written.contains(place) || ready.contains(place); };
        if (instruction.guard != no_place && !known(instruction.guard)) return false;
        if (opcode(instruction) == "bra") {
            if (at == last) break;
            const auto target = draft.labels.find(instruction.operands.front().text);
            if (target == draft.labels.end() || instruction.guard == no_place) return false;
            if (target->second >= first && target->second <= last) return false;
            leaves = true;
            continue;
        }
        if (instruction.guard != no_place) return false;
        Places read;
        for (std::size_t number = 1; number < instruction.operands.size(); ++number) {
            collect(instruction.operands[number], read);
            each_operand(instruction.operands[number], [&](const Operand& one) {
                if (one.kind == OperandKind::special) {
                    clock = clock || one.text.substr(0, 6) == "%clock" ||
                            one.text.substr(0, 12) == "%globaltimer";
                }
            });
        }
        for (const Place place : read) {
            if (!known(place)) return false;
        }
        collect(instruction.operands.front(), ready);
    }
    return clock && leaves;
}

}  // namespace

void analyse(Draft& draft, Module& module) {
    bool uniform = draft.kernel >= 0;
    for (const Instruction& instruction : draft.instructions) uniform = uniform && is_uniform(instruction);
    if (draft.kernel >= 0) module.kernels[static_cast<std::size_t>(draft.kernel)].uniform = uniform;

    // A loop that waits is short: so many instructions at most.
    constexpr std::size_t longest = 64;
    for (std::size_t at = 0; at < draft.instructions.size(); ++at) {
        const Instruction& instruction = draft.instructions[at];
        if (opcode(instruction) != "bra" || instruction.operands.size() != 1) continue;
        const auto target = draft.labels.find(instruction.operands.front().text);
        if (target == draft.labels.end() || target->second > at || at - target->second > longest) continue;
        if (!waits_for_clock(draft, target->second, at)) continue;
        draft.function->code[draft.starts[at + 1] - 1].clock_loop = true;
    }
}

}  // namespace fikit::sim::ptx
