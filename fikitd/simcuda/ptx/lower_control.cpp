// Branches, calls, ends of threads, and what a kernel can ignore.
#include "ptx/engine.hpp"
#include "ptx/lowering.hpp"
#include "ptx/system.hpp"

namespace fikit::sim::ptx {

namespace {

Op& control(Lowering& lowering, Kind kind, Handler run = nullptr) {
    Op& op = lowering.emit(run, Work::simple);
    op.kind = kind;
    return op;
}

void lower_branch(Lowering& lowering) {
    lowering.accept(".uni");
    lowering.expect_operands(1);
    if (lowering.operand(0).kind != OperandKind::symbol) lowering.refuse("a branch goes to a label");
    control(lowering, Kind::branch);
    lowering.branch_to(lowering.operand(0).text);
}

void lower_indexed_branch(Lowering& lowering) {
    if (!lowering.accept(".idx")) lowering.refuse();
    lowering.accept(".uni");
    lowering.expect_operands(2);
    const Place a = lowering.source(0, Type::u32);
    const std::uint32_t table = lowering.jump_table(lowering.operand(1).text);
    Op& op = control(lowering, Kind::branch_indexed);
    op.a = a;
    op.extra = table;
}

// Arguments and results: parameters of the frame, or registers.
std::vector<Formal> passed(Lowering& lowering, const Operand& list) {
    std::vector<Formal> result;
    for (const Operand& one : list.parts) {
        const std::vector<Formal> elements = in_registers(one);
        result.insert(result.end(), elements.begin(), elements.end());
        if (one.kind == OperandKind::variable && one.space == Space::frame_parameter)
            result.push_back({static_cast<std::uint32_t>(one.value), one.bytes, no_place});
        else if (elements.empty())
            lowering.refuse("an argument must be a parameter or a register");
    }
    return result;
}

// call (result), function, (arguments), prototype;
void lower_call(Lowering& lowering) {
    lowering.accept(".uni");
    Call what;
    std::size_t at = 0;
    if (lowering.operand(0).kind == OperandKind::list)
        what.results = passed(lowering, lowering.operand(at++));
    const Operand& target = lowering.operand(at++);
    if (at < lowering.count() && lowering.operand(at).kind == OperandKind::list) {
        what.arguments = passed(lowering, lowering.operand(at++));
    }
    Place a = no_place;
    Handler system = nullptr;
    if (target.kind == OperandKind::symbol) {
        what.function = lowering.program().find(target.text);
        if (what.function < 0) fail(lowering.instruction().line, "Unknown symbol " + quoted(target.text));
        const Function& function = *lowering.program().functions[static_cast<std::size_t>(what.function)];
        if (!function.defined) {
            system = system_function(target.text);
            if (system == nullptr) {
                fail(lowering.instruction().line, "Unresolved extern function " + quoted(target.text));
            }
        }
    } else {
        a = lowering.source(target, Type::b64);
    }
    Op& op = control(lowering, system != nullptr ? Kind::checked : Kind::call, system);
    op.a = a;
    op.extra = static_cast<std::uint32_t>(lowering.function().calls.size());
    lowering.function().calls.push_back(std::move(what));
}

template <Kind kind>
void lower_end(Lowering& lowering) {
    lowering.accept(".uni");
    lowering.expect_operands(0);
    control(lowering, kind);
}

void lower_sleep(Lowering& lowering) {
    if (bytes_of(lowering.type()) != 4) lowering.refuse();
    lowering.expect_operands(1);
    const Place a = lowering.source(0, Type::u32);
    control(lowering, Kind::sleep).a = a;
}

void accept_all(Lowering& lowering) {
    while (lowering.accept_prefix(".")) {
    }
}

// There is one order of accesses, and nothing to prepare.
void lower_nothing(Lowering& lowering) {
    const bool of_a_map = lowering.accept(".tensormap::generic") && lowering.accept(".acquire");
    accept_all(lowering);
    lowering.expect_operands(of_a_map ? 2 : 0);
}

void lower_event(Lowering& lowering) {
    const std::uint32_t most = lowering.accept(".mask") ? 0xffff : 15;
    lowering.expect_operands(1);
    if (lowering.literal(0) > most) lowering.mismatch();
}

// How many registers a kernel has changes nothing here.
void lower_register_count(Lowering& lowering) {
    accept_all(lowering);
    lowering.expect_operands(1);
    const std::uint32_t count = lowering.literal(0);
    if (count < 24 || count > 256 || count % 8 != 0) lowering.mismatch();
}

}  // namespace

void add_control(Families& families) {
    families["bra"] = &lower_branch;
    families["brx"] = &lower_indexed_branch;
    families["call"] = &lower_call;
    families["ret"] = &lower_end<Kind::leave>;
    families["exit"] = &lower_end<Kind::exit>;
    families["trap"] = &lower_end<Kind::trap>;
    families["brkpt"] = &lower_end<Kind::breakpoint>;
    families["nanosleep"] = &lower_sleep;
    families["pmevent"] = &lower_event;
    families["setmaxnreg"] = &lower_register_count;
    for (const std::string_view name : {"membar", "fence", "griddepcontrol"}) families[name] = &lower_nothing;
}

}  // namespace fikit::sim::ptx
