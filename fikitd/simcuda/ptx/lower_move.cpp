// mov, packing, and addresses between state spaces.
#include "ptx/engine.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

template <typename T>
void copy(Context& context, const Op& op, Mask mask) {
    run1<decltype([](T x) { return x; }), T, T>(context, op, mask);
}

void copy_predicate(Context& context, const Op& op, Mask mask) {
    Mask& d = context.predicate(op.d);
    d = (d & ~mask) | (context.predicate(op.a) & mask);
}

// Parts of op.width bytes, the lowest first (their places: the function's list op.extra), into d, or d's into
// them.
template <bool pack>
void parts(Context& context, const Op& op, Mask mask) {
    const std::vector<Place>& places = context.frame->function->lists[op.extra];
    const unsigned part = op.width;
    const auto whole = static_cast<unsigned>(places.size()) * part;
    std::byte* base = context.at<std::byte>(pack ? op.d : op.a);
    each_lane(mask, [&](unsigned lane) {
        for (unsigned number = 0; number < places.size(); ++number) {
            if (places[number] == no_place) continue;
            std::byte* one = context.at<std::byte>(places[number]) + lane * part;
            std::byte* in = base + lane * whole + number * part;
            for (unsigned byte = 0; byte < part; ++byte) (pack ? in : one)[byte] = (pack ? one : in)[byte];
        }
    });
}

Type part_type(Lowering& lowering, unsigned bytes) {
    switch (bytes) {
        case 1:
            return Type::b8;
        case 2:
            return Type::b16;
        case 4:
            return Type::b32;
        case 8:
            return Type::b64;
        default:
            lowering.refuse();
    }
}

void test(Context& context, const Op& op, Mask) {
    const u32* a = context.at<u32>(op.a);
    Mask holds = 0;
    for (unsigned lane = 0; lane < lanes; ++lane) holds |= Mask{a[lane] != 0} << lane;
    context.predicate(op.d) = holds;
}

Place special_predicate(Lowering& lowering, std::string_view name) {
    const Place value = lowering.temporary(Type::b32);
    read_special(lowering, name, value, 4);
    const Place place = lowering.temporary(Type::pred);
    Op& op = lowering.prepare(&test);
    op.d = place;
    op.a = value;
    return place;
}

Handler copy_of(unsigned bytes) {
    if (bytes == 16) return &copy<u128>;
    return by_bytes(bytes, [](auto zero) { return Handler{&copy<decltype(zero)>}; });
}

// op.width bits of what op.a holds, from bit op.offset on.
template <typename T>
void take_field(Context& context, const Op& op, Mask mask) {
    const T* a = context.at<T>(op.a);
    T* d = context.at<T>(op.d);
    each_lane(mask, [&](unsigned lane) {
        d[lane] = static_cast<T>((a[lane] >> op.offset) & ((T{1} << op.width) - 1));
    });
}

Handler field_of(Lowering& lowering, unsigned bytes) {
    if (bytes > 8) lowering.refuse();
    return by_bytes(static_cast<unsigned>(bytes),
                    [](auto zero) { return Handler{&take_field<decltype(zero)>}; });
}

// mov.v2, mov.v4: element by element, all read before one is written. Of a single source each element gets
// its part of the bits, the lowest first: so does an H200 (the PTX ISA does not tell).
void move_vector(Lowering& lowering, std::size_t width) {
    const Type type = lowering.type();
    lowering.expect_operands(2);
    const Operand& to = lowering.operand(0);
    const Operand& from = lowering.operand(1);
    const bool many = from.kind == OperandKind::vector;
    if (to.kind != OperandKind::vector || to.parts.size() != width || (many && from.parts.size() != width))
        lowering.mismatch();
    std::vector<Place> sources;
    for (std::size_t index = 0; index < width; ++index) {
        const Place read = lowering.source(many ? from.parts[index] : from, type);
        sources.push_back(lowering.temporary(type));
        const auto bytes = static_cast<unsigned>(bytes_of(type));
        Op& op = lowering.prepare(many ? copy_of(bytes) : field_of(lowering, bytes));
        op.d = sources.back();
        op.a = read;
        if (many) continue;
        op.width = static_cast<std::uint8_t>(8 * bytes / width);
        op.offset = static_cast<std::int64_t>(index * op.width);
    }
    for (std::size_t index = 0; index < width; ++index) {
        if (to.parts[index].kind == OperandKind::sink) continue;
        const Place written = lowering.target(to.parts[index], type);
        Op& op = lowering.emit(copy_of(bytes_of(type)));
        op.d = written;
        op.a = sources[index];
    }
}

void lower_mov(Lowering& lowering) {
    if (lowering.accept(".v2")) return move_vector(lowering, 2);
    if (lowering.accept(".v4")) return move_vector(lowering, 4);
    const Type type = lowering.type();
    lowering.expect_operands(2);
    const Operand& to = lowering.operand(0);
    const Operand& from = lowering.operand(1);
    const bool pack = from.kind == OperandKind::vector;
    if (pack || to.kind == OperandKind::vector) {
        const Operand& vector = pack ? from : to;
        if (vector.parts.empty() || bytes_of(type) % vector.parts.size() != 0) lowering.refuse();
        const auto bytes = static_cast<unsigned>(bytes_of(type) / vector.parts.size());
        const Type part = part_type(lowering, bytes);
        std::vector<Place> places;
        for (const Operand& one : vector.parts) {
            if (one.kind == OperandKind::sink)
                places.push_back(no_place);
            else
                places.push_back(pack ? lowering.source(one, part) : lowering.target(one, part));
        }
        const Place whole = pack ? lowering.target(to, type) : lowering.source(from, type);
        Op& op = lowering.emit(pack ? &parts<true> : &parts<false>);
        op.width = static_cast<std::uint8_t>(bytes);
        op.extra = static_cast<std::uint32_t>(lowering.function().lists.size());
        (pack ? op.d : op.a) = whole;
        lowering.function().lists.push_back(std::move(places));
        return;
    }
    const Place d = lowering.target(to, type);
    if (type == Type::pred) {
        const Place a = from.kind == OperandKind::special ? special_predicate(lowering, from.text)
                                                          : lowering.predicate(from);
        Op& op = lowering.emit(&copy_predicate);
        op.d = d;
        op.a = a;
        return;
    }
    if (from.kind == OperandKind::special) {
        if (!agree(Type::u64, type)) lowering.mismatch();
        const std::size_t before = lowering.function().code.size();
        read_special(lowering, from.text, d, bytes_of(type));
        Op& op = lowering.function().code[before];
        op.guard = lowering.instruction().guard;
        op.guard_negated = lowering.instruction().guard_negated;
        return;
    }
    const Place a = lowering.source_or_address(from, type);
    Op& op = lowering.emit(copy_of(bytes_of(type)));
    op.d = d;
    op.a = a;
}

// --- addresses

std::optional<Space> space_of(Lowering& lowering) {
    if (lowering.accept(".global")) return Space::global;
    if (lowering.accept(".const")) return Space::constant;
    if (lowering.accept(".local")) return Space::local;
    if (lowering.accept_any({".shared", ".shared::cta", ".shared::cluster"})) return Space::shared;
    if (lowering.accept_any({".param", ".param::entry"})) return Space::parameter;
    return std::nullopt;
}

void lower_cvta(Lowering& lowering) {
    const bool to_space = lowering.accept(".to");
    const auto space = space_of(lowering);
    const Type type = lowering.type();
    if (!space || bytes_of(type) != 8) lowering.refuse();
    lowering.expect_operands(2);
    const Operand& from = lowering.operand(1);
    const Place a = to_space ? lowering.source(from, type) : lowering.source_or_address(from, type);
    const Place d = lowering.target(0, type);
    const std::uint64_t base = window_of(*space);
    // Null stays null on the way to the generic space only where both have the same addresses.
    Op& op = lowering.emit(base == 0  ? Handler{&copy<u64>}
                           : to_space ? map_op1<u64, u64>([](const Op&, u64 x) { return x & window::mask; })
                                      : map_op1<u64, u64>([](const Op& o, u64 x) {
                                            return x | static_cast<u64>(o.extra) << window::shift;
                                        }));
    op.extra = static_cast<std::uint32_t>(base >> window::shift);
    op.d = d;
    op.a = a;
}

void test_space(Context& context, const Op& op, Mask mask) {
    const u64* a = context.at<u64>(op.a);
    Mask value = 0;
    each_lane(mask, [&](unsigned lane) {
        const u64 high = a[lane] >> window::shift;
        bool same =
            op.extra != 0 ? high == op.extra : high == 0 || high >= (window::workspace >> window::shift);
        // Not in another block of the cluster.
        if (op.width != 0) same = same && (a[lane] & window::mask) >> window::rank_shift == 0;
        value |= static_cast<Mask>(same) << lane;
    });
    Mask& d = context.predicate(op.d);
    d = (d & ~mask) | (value & mask);
}

// Whether op.a is in the op.offset bytes at op.b, or was in one of those before (op.width).
void test_variable(Context& context, const Op& op, Mask mask) {
    const u64* a = context.at<u64>(op.a);
    const u64* b = context.at<u64>(op.b);
    Mask& d = context.predicate(op.d);
    Mask value = op.width != 0 ? d : 0;
    each_lane(mask, [&](unsigned lane) {
        value |= static_cast<Mask>(a[lane] - b[lane] < static_cast<u64>(op.offset)) << lane;
    });
    d = (d & ~mask) | (value & mask);
}

// Constants lie among other variables in global memory: they are known one by one.
void lower_is_constant(Lowering& lowering) {
    Op& none = lowering.emit(Type::pred, {Type::b64}, &test_variable);
    none.b = none.a;
    const Place a = none.a, d = none.d;
    const std::vector<Variable>& variables = lowering.module().variables;
    for (std::size_t index = 0; index < variables.size(); ++index) {
        if (!variables[index].constant) continue;
        Operand variable;
        variable.kind = OperandKind::variable;
        variable.space = Space::constant;
        variable.value = index;
        const Place b = lowering.address_of(variable, 8, false);
        Op& op = lowering.emit(&test_variable);
        op.a = a;
        op.b = b;
        op.d = d;
        op.offset = static_cast<std::int64_t>(variables[index].bytes);
        op.width = 1;
    }
}

void lower_isspacep(Lowering& lowering) {
    const bool own_block = lowering.instruction().name.find(".shared::cluster") == std::string_view::npos;
    const auto space = space_of(lowering);
    if (!space) lowering.refuse();
    if (*space == Space::constant) return lower_is_constant(lowering);
    Op& op = lowering.emit(Type::pred, {Type::b64}, &test_space);
    op.extra = static_cast<std::uint32_t>(window_of(*space) >> window::shift);
    op.width = *space == Space::shared && own_block ? 1 : 0;
}

}  // namespace

void add_move(Families& families) {
    families["mov"] = &lower_mov;
    families["cvta"] = &lower_cvta;
    families["isspacep"] = &lower_isspacep;
}

}  // namespace fikit::sim::ptx
