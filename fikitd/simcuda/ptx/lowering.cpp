// See lowering.hpp.
#include "ptx/lowering.hpp"

#include <algorithm>
#include <cstring>

#include "ptx/engine.hpp"
#include "ptx/forms.hpp"

namespace fikit::sim::ptx {

namespace {

const Families& families() {
    static const Families all = [] {
        Families made;
        for (const auto add :
             {add_integer, add_products,     add_video,   add_bits,    add_float,   add_approximate,
              add_compare, add_convert,      add_move,    add_memory,  add_atomic,  add_control,
              add_stack,   add_barrier,      add_cluster, add_texture, add_surface, add_warp,
              add_matrix,  add_matrix_moves, add_wgmma,   add_async,   add_tensor}) {
            add(made);
        }
        return made;
    }();
    return all;
}

template <typename D, typename S>
void extend(Context& context, const Op& op, Mask mask) {
    run1<decltype([](S value) { return static_cast<D>(value); }), D, S>(context, op, mask);
}

Handler extension(unsigned to, Type from) {
    const bool sign = is_signed(from);
    const auto pick = [&](auto wide) {
        using D = decltype(wide);
        switch (bytes_of(from)) {
            case 1:
                return sign ? &extend<D, s8> : &extend<D, u8>;
            case 2:
                return sign ? &extend<D, s16> : &extend<D, u16>;
            case 4:
                return sign ? &extend<D, s32> : &extend<D, u32>;
            default:
                return &extend<D, u64>;
        }
    };
    return by_bytes(to, pick);
}

void invert(Context& context, const Op& op, Mask) { context.predicate(op.d) = ~context.predicate(op.a); }

}  // namespace

Lowering::Lowering(Draft& draft, Module& module, Program& program)
    : draft_(draft), module_(module), program_(program) {}

void Lowering::refuse(std::string_view why) const {
    std::string message =
        "Instruction " + quoted(instruction_->name) + " is not supported by the simulated driver";
    if (!why.empty()) message += ": " + std::string(why);
    fail(instruction_->line, message);
}

void Lowering::mismatch() const {
    fail(instruction_->line, "Arguments mismatch for instruction " + quoted(instruction_->name));
}

const Operand& Lowering::operand(std::size_t index) const {
    if (index >= instruction_->operands.size()) mismatch();
    return instruction_->operands[index];
}

void Lowering::expect_operands(std::size_t least, std::size_t most) const {
    if (count() < least || count() > std::max(least, most)) mismatch();
}

bool Lowering::accept(std::string_view modifier) {
    const auto found = std::find(modifiers_.begin(), modifiers_.end(), modifier);
    if (found == modifiers_.end()) return false;
    modifiers_.erase(found);
    return true;
}

bool Lowering::accept_any(std::initializer_list<std::string_view> modifiers) {
    bool any = false;
    for (const std::string_view modifier : modifiers) any = accept(modifier) || any;
    return any;
}

std::optional<std::string_view> Lowering::accept_prefix(std::string_view prefix) {
    for (auto at = modifiers_.begin(); at != modifiers_.end(); ++at) {
        if (at->substr(0, prefix.size()) != prefix) continue;
        const std::string_view found = *at;
        modifiers_.erase(at);
        return found;
    }
    return std::nullopt;
}

std::optional<Type> Lowering::maybe_type() { return accept_first(&type_named); }

Type Lowering::type() {
    const auto found = maybe_type();
    if (!found) fail(instruction_->line, "Type missing in instruction " + quoted(instruction_->name));
    return *found;
}

std::optional<Type> Lowering::peek_type() const {
    for (const std::string_view modifier : modifiers_) {
        if (const auto found = type_named(modifier)) return found;
    }
    return std::nullopt;
}

bool Lowering::is_floating() const {
    const auto found = peek_type();
    return found &&
           (is_float(*found) || *found == Type::f16x2 || *found == Type::bf16x2 || *found == Type::f32x2);
}

Rounding Lowering::rounding(Rounding otherwise) {
    if (accept_any({".rn", ".rni"})) return Rounding::nearest;
    if (accept_any({".rz", ".rzi"})) return Rounding::zero;
    if (accept_any({".rm", ".rmi"})) return Rounding::down;
    if (accept_any({".rp", ".rpi"})) return Rounding::up;
    if (accept(".rna")) return Rounding::away;
    return otherwise;
}

std::uint8_t Lowering::flags() {
    return static_cast<std::uint8_t>((accept(".ftz") ? flag::flush : 0) |
                                     (accept(".sat") ? flag::saturate : 0));
}

Place Lowering::constant(std::uint64_t bits, unsigned bytes) {
    if (bytes < 8) bits &= (std::uint64_t{1} << (8 * bytes)) - 1;
    const auto found = constants_.find({bits, bytes});
    if (found != constants_.end()) return found->second;
    std::vector<std::byte>& pool = function().constants;
    const std::size_t start = pool.size();
    pool.resize(start + std::max<std::size_t>(64, std::size_t{bytes} * lanes));
    for (unsigned lane = 0; lane < lanes; ++lane)
        std::memcpy(pool.data() + start + lane * bytes, &bits, bytes);
    const Place place = constant_bit | static_cast<Place>(start);
    constants_.emplace(std::make_pair(bits, bytes), place);
    return place;
}

Place Lowering::temporary(Type type) {
    const unsigned bytes = bytes_of(type);
    std::vector<Place>& made = temporaries_[bytes];
    std::size_t& used = temporaries_used_[bytes];
    if (used == made.size()) made.push_back(draft_.allocate(type));
    return made[used++];
}

Op& Lowering::emit(Handler handler, Work cost) {
    Op op;
    op.run = handler;
    op.cost = cost;
    op.line = instruction_->line;
    op.guard = instruction_->guard;
    op.guard_negated = instruction_->guard_negated;
    function().code.push_back(op);
    return function().code.back();
}

Op& Lowering::emit(Type to, std::initializer_list<Type> from, Handler handler, Work cost) {
    expect_operands(1 + from.size());
    Op places;
    Place* const sources[] = {&places.a, &places.b, &places.c, &places.e};
    std::size_t index = 0;
    for (const Type type : from) {
        *sources[index] = source(index + 1, type);
        ++index;
    }
    places.d = target(0, to);
    Op& op = emit(handler, cost);
    op.d = places.d;
    op.e = places.e;
    op.a = places.a;
    op.b = places.b;
    op.c = places.c;
    return op;
}

Op& Lowering::prepare(Handler handler) {
    Op& op = emit(handler);
    op.guard = no_place;
    return op;
}

Place Lowering::source(const Operand& operand, Type type) {
    const unsigned bytes = bytes_of(type);
    if (type == Type::pred) return predicate(operand);
    switch (operand.kind) {
        case OperandKind::reg:
            if (bytes_of(operand.type) != bytes || operand.type == Type::pred || !agree(operand.type, type))
                break;
            return operand.place;
        case OperandKind::integer:
            if (bytes > 8 || !agree(Type::u64, type)) break;
            return constant(operand.value, bytes);
        case OperandKind::real32:
            if (type == Type::f64) {
                const double wide = std::bit_cast<float>(static_cast<std::uint32_t>(operand.value));
                return constant(std::bit_cast<std::uint64_t>(wide), 8);
            }
            if (bytes != 4 || !agree(Type::f32, type)) break;
            return constant(operand.value, 4);
        case OperandKind::real64:
            if (type == Type::f32) {
                const auto single = static_cast<float>(std::bit_cast<double>(operand.value));
                return constant(std::bit_cast<std::uint32_t>(single), 4);
            }
            if (bytes != 8 || !agree(Type::f64, type)) break;
            return constant(operand.value, 8);
        case OperandKind::special:
            misplaced_special(*this, operand.text);
        case OperandKind::symbol:
            if (program_.find(operand.text) < 0)
                fail(instruction_->line, "Unknown symbol " + quoted(operand.text));
            break;
        default:
            break;
    }
    mismatch();
}

Place Lowering::source_or_address(const Operand& operand, Type type) {
    const unsigned bytes = bytes_of(type);
    if (operand.kind == OperandKind::variable && agree(Type::u64, type) && (bytes == 4 || bytes == 8))
        return address_of(operand, bytes, false);
    if (operand.kind == OperandKind::symbol && agree(Type::u64, type) && bytes == 8) {
        if (const std::int32_t found = program_.find(operand.text); found >= 0)
            return constant(code_address(static_cast<std::uint64_t>(found)), 8);
    }
    return source(operand, type);
}

Place Lowering::predicate(const Operand& operand) {
    if (operand.kind == OperandKind::integer) return constant(operand.value != 0 ? ~std::uint64_t{0} : 0, 4);
    if (operand.kind == OperandKind::special) misplaced_special(*this, operand.text);
    if (operand.kind != OperandKind::reg || operand.type != Type::pred) mismatch();
    if (!operand.negated) return operand.place;
    const Place place = temporary(Type::pred);
    Op& op = prepare(&invert);
    op.d = place;
    op.a = operand.place;
    return place;
}

Place Lowering::narrow(const Operand& operand, Type type) {
    if (operand.kind != OperandKind::reg || bytes_of(operand.type) <= bytes_of(type))
        return source(operand, type);
    if (!agree(operand.type, type)) mismatch();
    const Place place = temporary(type);
    Op& op = prepare(by_bytes(bytes_of(type), [&](auto word) {
        using D = decltype(word);
        switch (bytes_of(operand.type)) {
            case 2:
                return &extend<D, u16>;
            case 4:
                return &extend<D, u32>;
            default:
                return &extend<D, u64>;
        }
    }));
    op.d = place;
    op.a = operand.place;
    return place;
}

Place Lowering::target(const Operand& operand, Type type, bool wider) {
    if (operand.kind == OperandKind::sink) return temporary(type);
    if (operand.kind != OperandKind::reg || (operand.type == Type::pred) != (type == Type::pred) ||
        operand.negated || (type != Type::pred && !agree(operand.type, type))) {
        mismatch();
    }
    const unsigned bytes = bytes_of(type);
    const unsigned room = bytes_of(operand.type);
    if (room == bytes) return operand.place;
    if (!wider || room < bytes || room > 8) mismatch();
    Op op;
    op.run = extension(room, type);
    op.d = operand.place;
    op.a = temporary(type);
    op.guard = instruction_->guard;
    op.guard_negated = instruction_->guard_negated;
    op.line = instruction_->line;
    after_.push_back(op);
    return op.a;
}

std::uint32_t Lowering::literal(std::size_t index) const {
    const Operand& found = operand(index);
    if (found.kind != OperandKind::integer) refuse("an operand must be a number");
    return static_cast<std::uint32_t>(found.value);
}

void Lowering::branch_to(std::string_view name) {
    fixups_.push_back({static_cast<std::uint32_t>(function().code.size() - 1), name});
}

std::uint32_t Lowering::jump_table(std::string_view name) {
    const auto found = draft_.jumps.find(name);
    if (found == draft_.jumps.end()) fail(instruction_->line, "Unknown symbol " + quoted(name));
    std::vector<std::uint32_t> targets;
    for (const std::string_view target : found->second.targets) {
        const auto place = draft_.labels.find(target);
        if (place == draft_.labels.end()) fail(instruction_->line, "Unknown symbol " + quoted(target));
        targets.push_back(place->second);  // an instruction, until resolve_branches()
    }
    function().jumps.push_back(std::move(targets));
    return static_cast<std::uint32_t>(function().jumps.size() - 1);
}

void Lowering::resolve_branches() {
    for (const Fixup& fixup : fixups_) {
        Op& op = function().code[fixup.op];
        const auto place = draft_.labels.find(fixup.label);
        if (place == draft_.labels.end()) fail(op.line, "Unknown symbol " + quoted(fixup.label));
        op.extra = draft_.starts[place->second];
    }
    for (auto& targets : function().jumps) {
        for (std::uint32_t& target : targets) target = draft_.starts[target];
    }
}

void Lowering::lower_one(const Instruction& instruction) {
    instruction_ = &instruction;
    modifiers_.clear();
    after_.clear();
    for (auto& [bytes, used] : temporaries_used_) used = 0;
    const std::string_view name = instruction.name;
    std::size_t start = 0;
    bool first = true;
    while (start < name.size()) {
        const std::size_t end = std::min(name.find('.', start + 1), name.size());
        const std::string_view part = name.substr(start, end - start);
        if (std::exchange(first, false))
            opcode = part;
        else
            modifiers_.push_back(part);
        start = end;
    }
    const auto family = families().find(opcode);
    if (family == families().end()) refuse();
    if (known_forms_.count(name) == 0) {
        const auto since = version_of_form(opcode, modifiers_);
        if (!since) fail(instruction.line, "Illegal modifiers or types in instruction " + quoted(name));
        if (*since > module_.version) {
            fail(instruction.line, "Instruction " + quoted(name) + " requires PTX ISA .version " +
                                       std::to_string(*since / 10) + "." + std::to_string(*since % 10) +
                                       " or later");
        }
        known_forms_.insert(name);
    }
    family->second(*this);
    if (!modifiers_.empty()) {
        fail(instruction.line, "Illegal modifier " + quoted(modifiers_.front()) + " for instruction " +
                                   quoted(name) + ", or not supported by the simulated driver");
    }
    for (const Op& op : after_) function().code.push_back(op);
}

void Lowering::run() {
    keep_inputs_in_local_memory();
    if (function().entry) {
        for (Place& place : function().thread_index) place = draft_.allocate(Type::u32);
    }
    for (const Instruction& instruction : draft_.instructions) {
        draft_.starts.push_back(static_cast<std::uint32_t>(function().code.size()));
        lower_one(instruction);
    }
    draft_.starts.push_back(static_cast<std::uint32_t>(function().code.size()));
    Op end;
    end.kind = Kind::leave;
    end.cost = Work::simple;
    function().code.push_back(end);
    resolve_branches();
    function().parameter_bytes = (function().parameter_bytes + 15) / 16 * 16;
    function().local_bytes = (function().local_bytes + 15) / 16 * 16;
}

void lower(Draft& draft, Module& module, Program& program) {
    Lowering(draft, module, program).run();
    analyse(draft, module);
}

}  // namespace fikit::sim::ptx
