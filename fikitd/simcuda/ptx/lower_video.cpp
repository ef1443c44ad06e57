// Video instructions: one operation on bytes or halves of words (vadd, vset ...), or on all of a word's at
// once (vadd2, vadd4 ...). Results are worked out in more bits than 32, then clamped, and last joined with a
// third operand: PTX ISA, "Video Instructions", whose names the comments use.
//
// What an H200 makes of them (driver 580.159.04) is followed, also where the ISA says otherwise: vshl has 34
// bits before it is clamped, a result for .h1 is its upper half, and .sat is what saturated() and packed()
// tell.
#include <algorithm>
#include <bit>

#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

enum class Action : u8 { none, add, sub, difference, min, max, average, shl, shr, eq, ne, lt, le, gt, ge };

struct Field {
    u8 shift, bits;
};
constexpr Field fields[] = {{0, 32}, {0, 8}, {8, 8}, {16, 8}, {24, 8}, {0, 16}, {16, 16}};
constexpr std::string_view field_names[] = {"", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1"};

constexpr u8 upper_half = 6;

constexpr u8 a_signed = 1;
constexpr u8 b_signed = 2;
constexpr u8 to_signed = 4;
constexpr u8 saturate = 8;
constexpr u8 wrap = 16;            // vshl, vshr
constexpr u8 negate_product = 32;  // vmad
constexpr u8 negate_c = 64;
constexpr u8 plus_one = 128;

// What an operation of one field keeps in Op::offset; a, b and to are places in `fields`.
struct Single {
    Action action = Action::none, then = Action::none;
    u8 a = 0, b = 0, to = 0;
    u8 flags = 0;
    u8 scale = 0;
    u8 spare = 0;
};
// And one of all fields: a nibble for each, which of the two words' fields it is; `to` has a bit for each.
struct Packed {
    Action action = Action::none;
    u8 flags = 0;
    u16 a = 0, b = 0;
    u8 to = 0;
    bool add = false;
};
static_assert(sizeof(Single) == sizeof(Op::offset) && sizeof(Packed) == sizeof(Op::offset));

s64 field_of(u32 word, Field field, bool sign) {
    const u32 top = word << (32 - field.shift - field.bits);
    return sign ? s64{static_cast<s32>(top) >> (32 - field.bits)} : s64{top >> (32 - field.bits)};
}

s64 clamped(s64 value, unsigned bits, bool sign) {
    const s64 most = (s64{1} << (sign ? bits - 1 : bits)) - 1;
    return std::clamp(value, sign ? -most - 1 : 0, most);
}

s64 done(Action action, s64 a, s64 b) {
    switch (action) {
        case Action::add:
            return a + b;
        case Action::sub:
            return a - b;
        case Action::difference:
            return a < b ? b - a : a - b;
        case Action::min:
            return std::min(a, b);
        case Action::max:
            return std::max(a, b);
        case Action::average:
            return (a + b + (a + b >= 0 ? 1 : 0)) >> 1;
        case Action::shl:
            return static_cast<s64>(static_cast<u64>(a) << b << 30) >> 30;
        case Action::shr:
            return a >> b;
        case Action::eq:
            return a == b;
        case Action::ne:
            return a != b;
        case Action::lt:
            return a < b;
        case Action::le:
            return a <= b;
        case Action::gt:
            return a > b;
        case Action::ge:
            return a >= b;
        case Action::none:
            break;
    }
    return a;
}

// optSecondaryOp: what is compared is signed only if the result is.
s64 joined(const Single& how, s64 value, u32 c) {
    if (how.then == Action::none) return value;
    const bool sign = (how.flags & to_signed) != 0;
    const s64 third = field_of(c, fields[0], sign);
    if (how.then == Action::add || sign || value >= 0) return done(how.then, value, third);
    return how.then == Action::max ? value : third;
}

// Shifts are clamped as words, whatever part is written; of other words without a sign a carry is lost; what
// a part cannot hold becomes the most it can.
s64 saturated(const Single& how, s64 value) {
    const bool sign = (how.flags & to_signed) != 0;
    const unsigned bits = fields[how.to].bits;
    if (how.action == Action::shl || how.action == Action::shr || (bits == 32 && sign))
        return clamped(value, 32, sign);
    if (bits == 32) return std::max<s64>(value, 0);
    const s64 most = (s64{1} << (sign ? bits - 1 : bits)) - 1;
    return value < 0 ? most : std::min(value, most);
}

u32 single(const Op& op, u32 a, u32 b, u32 c) {
    const auto how = std::bit_cast<Single>(op.offset);
    const Field to = fields[how.to];
    const s64 x = field_of(a, fields[how.a], (how.flags & a_signed) != 0);
    s64 y = field_of(b, fields[how.b], (how.flags & b_signed) != 0);
    if (how.action == Action::shl || how.action == Action::shr)
        y = (how.flags & wrap) != 0 ? y & 31 : std::min<s64>(y, 32);
    s64 value = done(how.action, x, y);
    if ((how.flags & saturate) != 0) value = saturated(how, value);
    auto result = static_cast<u32>(joined(how, value, c));
    if (to.bits == 32) return result;
    if (how.to == upper_half && how.action < Action::eq) result >>= 16;
    const u32 ones = ((u32{1} << to.bits) - 1) << to.shift;
    return (c & ~ones) | (result << to.shift & ones);
}

u32 multiplied(const Op& op, u32 a, u32 b, u32 c) {
    const auto how = std::bit_cast<Single>(op.offset);
    const bool sign = (how.flags & to_signed) != 0;
    s128 value = s128{field_of(a, fields[how.a], (how.flags & a_signed) != 0)} *
                 field_of(b, fields[how.b], (how.flags & b_signed) != 0);
    if ((how.flags & negate_product) != 0) value = -value - 1;
    if ((how.flags & negate_c) != 0) c = ~c;
    value += field_of(c, fields[0], sign);
    if ((how.flags & (negate_product | negate_c | plus_one)) != 0) value += 1;
    const auto result = static_cast<s64>(value >> how.scale);
    if ((how.flags & saturate) == 0) return static_cast<u32>(result);
    if (!sign && result < 0) return ~u32{0};  // of 64 bits without a sign
    return static_cast<u32>(clamped(result, 32, sign));
}

template <unsigned bits>
u32 packed(const Op& op, u32 a, u32 b, u32 c) {
    const auto how = std::bit_cast<Packed>(op.offset);
    u32 merged = c;
    u32 sum = c;
    for (unsigned at = 0; at < 32 / bits; ++at) {
        if ((how.to >> at & 1) == 0) continue;
        const auto picked = [&](unsigned number, bool sign) {
            constexpr unsigned in_word = 32 / bits;
            const Field field{static_cast<u8>(number % in_word * bits), bits};
            return field_of(number < in_word ? a : b, field, sign);
        };
        s64 value = done(how.action, picked(how.a >> (4 * at) & 15, (how.flags & a_signed) != 0),
                         picked(how.b >> (4 * at) & 15, (how.flags & b_signed) != 0));
        if ((how.flags & saturate) != 0) value = clamped(value, bits, (how.flags & to_signed) != 0);
        const u32 ones = ((u32{1} << bits) - 1) << (at * bits);
        merged = (merged & ~ones) | (static_cast<u32>(value) << (at * bits) & ones);
        sum += static_cast<u32>(value);
    }
    return how.add ? sum : merged;
}

// --- lowering

Action action_named(std::string_view opcode) {
    constexpr std::pair<std::string_view, Action> names[] = {
        {"vadd", Action::add}, {"vsub", Action::sub}, {"vabsdiff", Action::difference},
        {"vmin", Action::min}, {"vmax", Action::max}, {"vavrg", Action::average},
        {"vshl", Action::shl}, {"vshr", Action::shr}, {".add", Action::add},
        {".min", Action::min}, {".max", Action::max}, {".eq", Action::eq},
        {".ne", Action::ne},   {".lt", Action::lt},   {".le", Action::le},
        {".gt", Action::gt},   {".ge", Action::ge},
    };
    for (const auto& [name, action] : names) {
        if (name == opcode) return action;
    }
    return Action::none;
}

Action accept_action(Lowering& lowering, std::initializer_list<std::string_view> modifiers) {
    for (const std::string_view modifier : modifiers) {
        if (lowering.accept(modifier)) return action_named(modifier);
    }
    return Action::none;
}

// An operand without the part of it that is meant.
const Operand& whole(const Operand& operand) {
    return operand.kind == OperandKind::part ? operand.parts.front() : operand;
}
std::string_view part_name(const Operand& operand) {
    return operand.kind == OperandKind::part ? operand.text : std::string_view();
}

u8 field_named(Lowering& lowering, std::size_t index) {
    const std::string_view name = part_name(lowering.operand(index));
    const auto found = std::find(std::begin(field_names), std::end(field_names), name);
    if (found == std::end(field_names)) lowering.mismatch();
    return static_cast<u8>(found - std::begin(field_names));
}

bool negated(const Lowering& lowering, std::size_t index) {
    const Operand& operand = lowering.operand(index);
    return operand.kind == OperandKind::part && operand.negated;
}

void emit_video(Lowering& lowering, Handler handler, std::int64_t how, Type to, Type a_type, Type b_type) {
    const Place a = lowering.source(whole(lowering.operand(1)), a_type);
    const Place b = lowering.source(whole(lowering.operand(2)), b_type);
    const Place c =
        lowering.count() > 3 ? lowering.source(whole(lowering.operand(3)), to) : lowering.constant(0, 4);
    const Place d = lowering.target(whole(lowering.operand(0)), to);
    Op& op = lowering.emit(handler, Work::integer);
    op.offset = how;
    op.d = d;
    op.a = a;
    op.b = b;
    op.c = c;
}

// vadd, vsub, vabsdiff, vmin, vmax, vshl, vshr, vset
void lower_single(Lowering& lowering) {
    Single how;
    const bool compare = lowering.opcode == "vset";
    how.action = compare ? accept_action(lowering, {".eq", ".ne", ".lt", ".le", ".gt", ".ge"})
                         : action_named(lowering.opcode);
    how.then = accept_action(lowering, {".add", ".min", ".max"});
    if (lowering.accept(".sat")) how.flags |= saturate;
    if (lowering.accept(".wrap")) how.flags |= wrap;
    lowering.accept(".clamp");
    const Type first = lowering.type();
    const Type a_type = compare ? first : lowering.type();
    const Type b_type = lowering.type();
    const Type to = first;  // of vset: what its third operand is compared as
    how.flags |= static_cast<u8>((is_signed(a_type) ? a_signed : 0) | (is_signed(b_type) ? b_signed : 0) |
                                 (is_signed(to) ? to_signed : 0));
    lowering.expect_operands(3, 4);
    how.to = field_named(lowering, 0);
    how.a = field_named(lowering, 1);
    how.b = field_named(lowering, 2);
    const bool joins = how.then != Action::none || how.to != 0;
    if ((how.then != Action::none && how.to != 0) || (joins && lowering.count() != 4)) lowering.mismatch();
    for (std::size_t index = 0; index < lowering.count(); ++index) {
        if (negated(lowering, index) || (index == 3 && !part_name(lowering.operand(3)).empty()))
            lowering.mismatch();
    }
    emit_video(lowering, map_op3<u32, u32, u32, u32>([](const Op& op, u32 a, u32 b, u32 c) {
                   return single(op, a, b, c);
               }),
               std::bit_cast<std::int64_t>(how), to, a_type, b_type);
}

void lower_multiply(Lowering& lowering) {
    Single how;
    const bool more = lowering.accept(".po");
    if (lowering.accept(".sat")) how.flags |= saturate;
    if (lowering.accept(".shr7")) how.scale = 7;
    if (lowering.accept(".shr15")) how.scale = 15;
    const Type to = lowering.type();
    const Type a_type = lowering.type();
    const Type b_type = lowering.type();
    lowering.expect_operands(4);
    if (!part_name(lowering.operand(0)).empty() || !part_name(lowering.operand(3)).empty() ||
        negated(lowering, 0)) {
        lowering.mismatch();
    }
    how.a = field_named(lowering, 1);
    how.b = field_named(lowering, 2);
    const bool product = negated(lowering, 1) != negated(lowering, 2);
    const bool third = negated(lowering, 3);
    if ((product && third) || (more && (negated(lowering, 1) || negated(lowering, 2) || third)))
        lowering.mismatch();
    const bool sign = is_signed(a_type) || is_signed(b_type) || product || third;
    how.flags |= static_cast<u8>((is_signed(a_type) ? a_signed : 0) | (is_signed(b_type) ? b_signed : 0) |
                                 (sign ? to_signed : 0) | (more ? plus_one : 0) |
                                 (product ? negate_product : 0) | (third ? negate_c : 0));
    emit_video(lowering, map_op3<u32, u32, u32, u32>([](const Op& op, u32 a, u32 b, u32 c) {
                   return multiplied(op, a, b, c);
               }),
               std::bit_cast<std::int64_t>(how), to, a_type, b_type);
}

// .h10 or .b7604: which fields, the highest named first. A letter and so many digits below `most`.
std::vector<unsigned> fields_named(Lowering& lowering, std::string_view name, char letter, unsigned most) {
    std::vector<unsigned> found;
    if (name.size() < 3 || name[1] != letter) lowering.mismatch();
    for (const char digit : name.substr(2)) {
        const auto number = static_cast<unsigned>(digit - '0');
        if (number >= most) lowering.mismatch();
        found.push_back(number);
    }
    return found;
}

// vadd2, vsub2, vavrg2, vabsdiff2, vmin2, vmax2, vset2, and the same with 4
void lower_packed(Lowering& lowering) {
    Packed how;
    const unsigned count = lowering.opcode.back() == '2' ? 2 : 4;
    const char letter = count == 2 ? 'h' : 'b';
    const std::string_view action = lowering.opcode.substr(0, lowering.opcode.size() - 1);
    const bool compare = action == "vset";
    how.action =
        compare ? accept_action(lowering, {".eq", ".ne", ".lt", ".le", ".gt", ".ge"}) : action_named(action);
    how.add = lowering.accept(".add");
    if (lowering.accept(".sat")) how.flags |= saturate;
    const Type to = compare ? Type::u32 : lowering.type();
    const Type a_type = lowering.type();
    const Type b_type = lowering.type();
    how.flags |= static_cast<u8>((is_signed(a_type) ? a_signed : 0) | (is_signed(b_type) ? b_signed : 0) |
                                 (is_signed(to) ? to_signed : 0));
    lowering.expect_operands(4);
    for (std::size_t index = 0; index < 4; ++index) {
        if (negated(lowering, index) || whole(lowering.operand(index)).kind != OperandKind::reg)
            lowering.mismatch();
    }
    if (!part_name(lowering.operand(3)).empty()) lowering.mismatch();
    const auto chosen = [&](std::size_t index, unsigned first) {
        const std::string_view name = part_name(lowering.operand(index));
        unsigned nibbles = 0;
        if (name.empty()) {
            for (unsigned at = 0; at < count; ++at) nibbles |= (first + at) << (4 * at);
            return static_cast<u16>(nibbles);
        }
        const auto numbers = fields_named(lowering, name, letter, 2 * count);
        if (numbers.size() != count) lowering.mismatch();
        for (const unsigned number : numbers) nibbles = nibbles << 4 | number;
        return static_cast<u16>(nibbles);
    };
    how.a = chosen(1, 0);
    how.b = chosen(2, count);
    how.to = static_cast<u8>((1U << count) - 1);
    if (const std::string_view name = part_name(lowering.operand(0)); !name.empty()) {
        how.to = 0;
        unsigned above = count;  // named from the highest down, each once
        for (const unsigned number : fields_named(lowering, name, letter, count)) {
            if (number >= above) lowering.mismatch();
            above = number;
            how.to |= static_cast<u8>(1U << number);
        }
    }
    emit_video(lowering,
               count == 2 ? map_op3<u32, u32, u32, u32>(
                                [](const Op& op, u32 a, u32 b, u32 c) { return packed<16>(op, a, b, c); })
                          : map_op3<u32, u32, u32, u32>(
                                [](const Op& op, u32 a, u32 b, u32 c) { return packed<8>(op, a, b, c); }),
               std::bit_cast<std::int64_t>(how), to, a_type, b_type);
}

}  // namespace

void add_video(Families& families) {
    for (const std::string_view name : {"vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset"}) {
        families[name] = &lower_single;
    }
    families["vmad"] = &lower_multiply;
    for (const std::string_view name : {"vadd2", "vsub2", "vavrg2", "vabsdiff2", "vmin2", "vmax2", "vset2",
                                        "vadd4", "vsub4", "vavrg4", "vabsdiff4", "vmin4", "vmax4", "vset4"}) {
        families[name] = &lower_packed;
    }
}

}  // namespace fikit::sim::ptx
