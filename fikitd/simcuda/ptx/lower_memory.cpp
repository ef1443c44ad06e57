// Loads and stores of every state space, and the hints that go with them.
#include "ptx/async.hpp"
#include "ptx/engine.hpp"
#include "ptx/limits.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

// Host memory is read and written by the host meanwhile, so whole words move at once.
template <typename T>
T read(const std::byte* place) {
    return __atomic_load_n(reinterpret_cast<const T*>(place), __ATOMIC_ACQUIRE);
}
template <typename T>
void write(std::byte* place, T value) {
    __atomic_store_n(reinterpret_cast<T*>(place), value, __ATOMIC_RELEASE);
}

// What other lanes may answer: a loop of such accesses lets them run.
constexpr std::uint32_t strong = 0x100;

void grow_impatient(Context& context, const Op& op) {
    if ((op.extra & strong) == 0) return;
    context.patience -= std::min(context.patience, limits::fair_access);
}

// One element into a register as wide or wider.
template <typename Memory, typename Register>
void load(Context& context, const Op& op, Mask mask) {
    grow_impatient(context, op);
    std::byte* places[lanes];
    if (!context.block->resolve(context, op, mask, sizeof(Memory), AccessKind::read, places)) return;
    Register* d = context.at<Register>(op.d);
    every_lane(mask, [&](unsigned lane) { d[lane] = static_cast<Register>(read<Memory>(places[lane])); });
}

template <typename Memory>
void store(Context& context, const Op& op, Mask mask) {
    std::byte* places[lanes];
    if (!context.block->resolve(context, op, mask, sizeof(Memory), AccessKind::write, places)) return;
    const Memory* b = context.at<Memory>(op.b);
    every_lane(mask, [&](unsigned lane) { write<Memory>(places[lane], b[lane]); });
}

// op.width elements; their registers are the function's list number op.extra >> 16.
template <typename Memory, typename Register>
void load_vector(Context& context, const Op& op, Mask mask) {
    grow_impatient(context, op);
    std::byte* places[lanes];
    if (!context.block->resolve(context, op, mask, sizeof(Memory) * op.width, AccessKind::read, places))
        return;
    const std::vector<Place>& registers = context.frame->function->lists[op.extra >> 16];
    for (unsigned part = 0; part < op.width; ++part) {
        Register* d = context.at<Register>(registers[part]);
        every_lane(mask, [&](unsigned lane) {
            d[lane] = static_cast<Register>(read<Memory>(places[lane] + part * sizeof(Memory)));
        });
    }
}

template <typename Memory>
void store_vector(Context& context, const Op& op, Mask mask) {
    std::byte* places[lanes];
    if (!context.block->resolve(context, op, mask, sizeof(Memory) * op.width, AccessKind::write, places))
        return;
    const std::vector<Place>& registers = context.frame->function->lists[op.extra >> 16];
    for (unsigned part = 0; part < op.width; ++part) {
        const Memory* b = context.at<Memory>(registers[part]);
        every_lane(mask,
                   [&](unsigned lane) { write<Memory>(places[lane] + part * sizeof(Memory), b[lane]); });
    }
}

// 128 bits are two words.
void load_pair(Context& context, const Op& op, Mask mask) {
    std::byte* places[lanes];
    if (!context.block->resolve(context, op, mask, 16, AccessKind::read, places)) return;
    u64* d = context.at<u64>(op.d);
    every_lane(mask, [&](unsigned lane) {
        d[2 * lane] = read<u64>(places[lane]);
        d[2 * lane + 1] = read<u64>(places[lane] + 8);
    });
}
void store_pair(Context& context, const Op& op, Mask mask) {
    std::byte* places[lanes];
    if (!context.block->resolve(context, op, mask, 16, AccessKind::write, places)) return;
    const u64* b = context.at<u64>(op.b);
    every_lane(mask, [&](unsigned lane) {
        write<u64>(places[lane], b[2 * lane]);
        write<u64>(places[lane] + 8, b[2 * lane + 1]);
    });
}

template <bool vector, typename Memory>
Handler load_into(unsigned bytes) {
    return by_bytes(bytes, [](auto zero) -> Handler {
        using Register = decltype(zero);
        return vector ? &load_vector<Memory, Register> : &load<Memory, Register>;
    });
}

template <bool vector>
Handler load_handler(Type type, unsigned bytes) {
    switch (bytes_of(type)) {
        case 1:
            return is_signed(type) ? load_into<vector, s8>(bytes) : load_into<vector, u8>(bytes);
        case 2:
            return is_signed(type) ? load_into<vector, s16>(bytes) : load_into<vector, u16>(bytes);
        case 4:
            return is_signed(type) ? load_into<vector, s32>(bytes) : load_into<vector, u32>(bytes);
        default:
            return load_into<vector, u64>(bytes);
    }
}

struct Manner {
    Space space = Space::generic;
    bool strong = false;
    unsigned width = 1;
    bool policy = false;  // a cache policy is the last operand
    bool own = false;     // of parameters: the function's, in a function
};

Manner manner(Lowering& lowering) {
    Manner how;
    how.strong = lowering.accept_any({".volatile", ".relaxed", ".acquire", ".release", ".mmio"});
    lowering.accept_any({".weak", ".sys", ".gpu", ".cta", ".cluster", ".ca", ".cg", ".cs", ".cv", ".lu",
                         ".wb", ".wt", ".nc", ".unified"});
    how.policy = lowering.accept(".L2::cache_hint");
    while (lowering.accept_prefix(".L1::") || lowering.accept_prefix(".L2::")) {
    }
    if (lowering.accept(".global")) how.space = Space::global;
    if (lowering.accept(".const")) how.space = Space::constant;
    if (lowering.accept(".local")) how.space = Space::local;
    if (lowering.accept_any({".shared", ".shared::cta", ".shared::cluster"})) how.space = Space::shared;
    how.own = lowering.accept_any({".param", ".param::func"});
    if (how.own || lowering.accept(".param::entry")) how.space = Space::parameter;
    if (lowering.accept(".v2")) how.width = 2;
    if (lowering.accept(".v4")) how.width = 4;
    if (lowering.accept(".v8")) how.width = 8;
    return how;
}

Work cost_of(Space space) {
    switch (space) {
        case Space::shared:
            return Work::memory;
        case Space::parameter:
        case Space::frame_parameter:
            return Work::simple;
        default:
            return Work::memory;
    }
}

const std::vector<Operand>& elements(Lowering& lowering, const Operand& operand, unsigned width) {
    if (operand.kind != OperandKind::vector || operand.parts.size() != width)
        lowering.refuse("a vector of another size");
    return operand.parts;
}

// One element may stand in braces, as Triton writes it.
const Operand& element(const Operand& operand) {
    const bool braced = operand.kind == OperandKind::vector && operand.parts.size() == 1;
    return braced ? operand.parts.front() : operand;
}

Address place_of(Lowering& lowering, std::size_t index, const Manner& how) {
    Address found = lowering.address(index, how.space);
    if (how.own && found.space == Space::parameter && !lowering.function().entry) found.space = Space::local;
    return found;
}

void finish(Lowering& lowering, Op& op, const Manner& how, const Address& address,
            std::vector<Place> places) {
    op.kind = Kind::checked;
    op.width = static_cast<std::uint8_t>(how.width);
    op.extra = static_cast<std::uint32_t>(address.space) | (how.strong ? strong : 0);
    if (!places.empty()) {
        std::vector<std::vector<Place>>& lists = lowering.function().lists;
        if (lists.size() > 0xffff) lowering.refuse("too many vectors in one function");
        op.extra |= static_cast<std::uint32_t>(lists.size()) << 16;
        lists.push_back(std::move(places));
    }
    address.put(op);
}

void lower_load(Lowering& lowering) {
    const Manner how = manner(lowering);
    const Type type = lowering.type();
    lowering.expect_operands(2, how.policy ? 3 : 2);
    const unsigned bytes = bytes_of(type);
    if (bytes == 0 || bytes * how.width > 32 || (bytes == 16 && how.width > 1)) lowering.refuse();
    const Address address = place_of(lowering, 1, how);
    if (how.width == 1) {
        const Operand& to = element(lowering.operand(0));
        const bool known = to.kind == OperandKind::reg && to.type != Type::pred &&
                           bytes_of(to.type) >= bytes && agree(to.type, type);
        const Type into = known ? to.type : type;
        const Place d = lowering.target(to, into);
        Op& op = lowering.emit(bytes == 16 ? &load_pair : load_handler<false>(type, bytes_of(into)),
                               cost_of(how.space));
        op.d = d;
        finish(lowering, op, how, address, {});
        return;
    }
    std::vector<Place> places;
    unsigned room = 0;
    for (const Operand& one : elements(lowering, lowering.operand(0), how.width)) {
        if (one.kind != OperandKind::reg) continue;
        if (!agree(one.type, type)) lowering.mismatch();
        room = std::max(room, bytes_of(one.type));
    }
    if (room < bytes) room = bytes;
    const Type into = room == 2 ? Type::b16 : room == 4 ? Type::b32 : room == 8 ? Type::b64 : Type::b8;
    for (const Operand& one : lowering.operand(0).parts) places.push_back(lowering.target(one, into));
    Op& op = lowering.emit(load_handler<true>(type, room), cost_of(how.space));
    finish(lowering, op, how, address, std::move(places));
}

// Returns how many bytes each thread stores.
unsigned emit_store(Lowering& lowering, const Manner& how) {
    const Type type = lowering.type();
    const unsigned bytes = bytes_of(type);
    if (bytes == 0 || bytes * how.width > 32 || (bytes == 16 && how.width > 1)) lowering.refuse();
    if (how.space == Space::constant) lowering.refuse("constants are not written");
    const Address address = place_of(lowering, 0, how);
    if (address.space == Space::parameter) lowering.refuse("a kernel's parameters are not written");
    if (how.width == 1) {
        const Place b = lowering.narrow(element(lowering.operand(1)), type);
        Op& op = lowering.emit(
            bytes == 16 ? &store_pair
                        : by_bytes(bytes, [](auto zero) { return Handler{&store<decltype(zero)>}; }),
            cost_of(how.space));
        op.b = b;
        finish(lowering, op, how, address, {});
        return bytes;
    }
    std::vector<Place> places;
    for (const Operand& one : elements(lowering, lowering.operand(1), how.width)) {
        places.push_back(lowering.narrow(one, type));
    }
    Op& op = lowering.emit(by_bytes(bytes, [](auto zero) { return Handler{&store_vector<decltype(zero)>}; }),
                           cost_of(how.space));
    finish(lowering, op, how, address, std::move(places));
    return bytes * how.width;
}

void lower_store(Lowering& lowering) {
    const bool reports = lowering.accept(".async");
    if (reports && !lowering.accept(".mbarrier::complete_tx::bytes")) lowering.refuse();
    const Manner how = manner(lowering);
    if (!reports) {
        lowering.expect_operands(2, how.policy ? 3 : 2);
        emit_store(lowering, how);
        return;
    }
    lowering.expect_operands(3);
    if (how.space != Space::shared) lowering.refuse();
    const unsigned bytes = emit_store(lowering, how);
    complete_bytes(lowering, 2, lowering.constant(bytes, 4));
}

// prefetch and its like change nothing that a program can see.
void lower_hint(Lowering& lowering) {
    const Manner how = manner(lowering);
    lowering.accept_any({".L1", ".L2", ".tensormap"});
    const bool counted = lowering.opcode == "discard" || lowering.opcode == "applypriority";
    lowering.expect_operands(counted ? 2 : 1);
    lowering.address(0, how.space);
    if (counted && lowering.literal(1) != 128) lowering.mismatch();
}

void lower_policy(Lowering& lowering) {
    manner(lowering);
    while (lowering.accept_prefix(".")) {
    }
    if (lowering.count() == 0) lowering.refuse();
    const Place d = lowering.target(0, Type::b64);
    Op& op = lowering.emit(map1<u64, u64>([](u64 x) { return x; }));
    op.d = d;
    op.a = lowering.constant(0, 8);
}

}  // namespace

void add_memory(Families& families) {
    families["ld"] = &lower_load;
    families["ldu"] = &lower_load;
    families["st"] = &lower_store;
    families["prefetch"] = &lower_hint;
    families["prefetchu"] = &lower_hint;
    families["discard"] = &lower_hint;
    families["applypriority"] = &lower_hint;
    families["createpolicy"] = &lower_policy;
}

}  // namespace fikit::sim::ptx
