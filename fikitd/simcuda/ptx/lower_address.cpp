// Addresses: of variables, and those that instructions access.
#include <algorithm>

#include "ptx/engine.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

// A value into a register of op.width bytes of every lane.
void put(Context& context, const Op& op, u64 value) {
    by_bytes(op.width, [&](auto word) {
        using Word = decltype(word);
        Word* d = context.at<Word>(op.d);
        for (unsigned lane = 0; lane < lanes; ++lane) d[lane] = static_cast<Word>(value);
    });
}

void local_address(Context& context, const Op& op, Mask) {
    put(context, op, static_cast<u64>(op.offset) + context.frame->local_base);
}

// The op.extra bytes of a function's inputs, from its frame.
void keep_inputs(Context& context, const Op& op, Mask mask) {
    const std::size_t stride = context.frame->function->parameter_bytes;
    const u64 address = static_cast<u64>(op.offset) + context.frame->local_base;
    each_lane(mask, [&](unsigned lane) {
        std::byte* place =
            context.block->resolve_one(Space::local, address, op.extra, AccessKind::write, context, lane);
        if (place != nullptr) std::copy_n(context.frame->parameters + lane * stride, op.extra, place);
    });
}

void shared_end_address(Context& context, const Op& op, Mask) {
    put(context, op, shared_end(context, op.extra) + static_cast<u64>(op.offset));
}

}  // namespace

// The address of a variable, in its own space or generic.
Place Lowering::address_of(const Operand& variable, unsigned bytes, bool generic) {
    const std::uint64_t value = variable.value + variable.addend;
    switch (variable.space) {
        case Space::global:
        case Space::constant: {
            if (bytes != 8) refuse("an address of 64 bits in a smaller register");
            const auto key = std::make_pair(variable.value, variable.addend);
            if (const auto found = addresses_.find(key); found != addresses_.end()) return found->second;
            std::vector<std::byte>& pool = function().constants;
            const auto start = static_cast<std::uint32_t>(pool.size());
            pool.resize(start + std::size_t{8} * lanes);
            function().patches.push_back(
                {start, static_cast<std::uint32_t>(variable.value), variable.addend});
            return addresses_.emplace(key, constant_bit | start).first->second;
        }
        case Space::shared: {
            if (variable.bytes != 0)
                return constant((generic ? window::shared : 0) + shared_start + value, bytes);
            const Place place = temporary(bytes == 4 ? Type::b32 : Type::b64);
            Op& op = prepare(&shared_end_address);
            op.d = place;
            op.width = static_cast<std::uint8_t>(bytes);
            op.extra = static_cast<std::uint32_t>(variable.value);
            op.offset = static_cast<std::int64_t>(variable.addend + (generic ? window::shared : 0));
            return place;
        }
        case Space::frame_parameter:
            if (!is_kept_input(variable)) refuse("the address of an argument");
            [[fallthrough]];
        case Space::local: {
            const std::uint64_t start = variable.space == Space::local ? 0 : *inputs_;
            const Place place = temporary(bytes == 4 ? Type::b32 : Type::b64);
            Op& op = prepare(&local_address);
            op.d = place;
            op.width = static_cast<std::uint8_t>(bytes);
            op.offset = static_cast<std::int64_t>(start + value + (generic ? window::local : 0));
            return place;
        }
        case Space::parameter:
            return constant((generic ? window::parameter : 0) + value, bytes);
        default:
            refuse();
    }
}

Address Lowering::address(std::size_t index, Space space) {
    Address op;
    op.space = space;
    const Operand& whole = operand(index);
    if (whole.kind != OperandKind::address || whole.parts.size() != 1) mismatch();
    const Operand& base = whole.parts.front();
    op.offset = static_cast<std::int64_t>(whole.value);
    if (base.kind == OperandKind::reg) {
        op.wide = bytes_of(base.type) != 4;
        if (!op.wide && (space == Space::generic || space == Space::global))
            fail(instruction_->line, "An address of 32 bits in instruction " + quoted(instruction_->name));
        op.base = source(base, op.wide ? Type::u64 : Type::u32);
        return op;
    }
    if (base.kind == OperandKind::variable) {
        const bool argument = base.space == Space::frame_parameter;
        const bool windowed =
            base.space == Space::global || base.space == Space::shared || base.space == Space::local;
        if (space == Space::generic ? !windowed : space != (argument ? Space::parameter : base.space)) {
            fail(instruction_->line, "State space mismatch between instruction and address in instruction " +
                                         quoted(instruction_->name));
        }
        if (argument && is_kept_input(base)) {
            op.space = Space::local;
        } else if (argument) {
            op.space = Space::frame_parameter;
            op.base = no_place;
            op.offset = static_cast<std::int64_t>(base.value + base.addend) + op.offset;
            return op;
        }
        op.base = address_of(base, 8, space == Space::generic);
        return op;
    }
    if (base.kind == OperandKind::integer && space != Space::local) {
        fail(instruction_->line,
             "Immediate addresses allowed only for .local state space, not in instruction " +
                 quoted(instruction_->name));
    }
    op.base = source(base, Type::u64);
    return op;
}

// The address of a function's input is one of local memory (PTX ISA, mov): where an instruction asks for one,
// all of them are copied there first, and read and written there only.
void Lowering::keep_inputs_in_local_memory() {
    const auto asks = [](const Instruction& one) {
        const auto taken = [](const Operand& operand) {
            return operand.kind == OperandKind::variable && operand.space == Space::frame_parameter;
        };
        return one.name.starts_with("mov.") && std::any_of(one.operands.begin(), one.operands.end(), taken);
    };
    if (std::none_of(draft_.instructions.begin(), draft_.instructions.end(), asks)) return;
    Op op;
    for (const Formal& input : function().inputs) {
        if (input.place == no_place) op.extra = std::max(op.extra, input.offset + input.bytes);
    }
    inputs_ = (function().local_bytes + 15) / 16 * 16;
    function().local_bytes = *inputs_ + op.extra;
    op.run = &keep_inputs;
    op.kind = Kind::checked;
    op.offset = *inputs_;
    function().code.push_back(op);
}

bool Lowering::is_kept_input(const Operand& operand) const {
    const std::vector<Formal>& inputs = draft_.function->inputs;
    return inputs_ && std::any_of(inputs.begin(), inputs.end(), [&](const Formal& input) {
               return input.place == no_place && input.offset == operand.value &&
                      operand.bytes == input.bytes;
           });
}

}  // namespace fikit::sim::ptx
