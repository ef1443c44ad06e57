// Tensor cores: mma.sync, wmma, ldmatrix and stmatrix.
//
// Products are exact and summed in double precision; the hardware truncates between the steps of its sums,
// so the last bits of f32 and f16 results differ. Integers are exact.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>

#include "ptx/engine.hpp"
#include "ptx/floats.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

namespace {

struct Shape {
    unsigned m = 0, n = 0, k = 0;
};

// What an operation on matrices needs; the function's lists hold its registers, from op.extra on: d, a, b, c.
// op.offset packs the shape and the types.
struct Packed {
    Shape shape;
    Type d, a, b, c;
};

std::int64_t pack(const Packed& what) {
    const auto type = [](Type t) { return static_cast<std::int64_t>(t); };
    return static_cast<std::int64_t>(what.shape.m) | static_cast<std::int64_t>(what.shape.n) << 8 |
           static_cast<std::int64_t>(what.shape.k) << 16 | type(what.d) << 24 | type(what.a) << 32 |
           type(what.b) << 40 | type(what.c) << 48;
}
Packed unpack(std::int64_t bits) {
    const auto byte = [&](int at) { return static_cast<unsigned>(bits >> (8 * at) & 0xff); };
    return {{byte(0), byte(1), byte(2)},
            static_cast<Type>(byte(3)),
            static_cast<Type>(byte(4)),
            static_cast<Type>(byte(5)),
            static_cast<Type>(byte(6))};
}

unsigned element_bits(Type type) {
    switch (type) {
        case Type::s8:
        case Type::u8:
            return 8;
        case Type::f16:
        case Type::bf16:
            return 16;
        case Type::f64:
            return 64;
        default:
            return 32;
    }
}

double number_from(Type type, u64 bits) {
    switch (type) {
        case Type::s8:
            return static_cast<s8>(bits);
        case Type::u8:
            return static_cast<u8>(bits);
        case Type::s32:
            return static_cast<s32>(bits);
        case Type::f16:
            return from_half(static_cast<u16>(bits));
        case Type::bf16:
            return from_bfloat(static_cast<u16>(bits));
        case Type::f64:
            return std::bit_cast<double>(bits);
        case Type::tf32:
            return std::bit_cast<float>(static_cast<u32>(bits) & 0xffffe000U);
        default:
            return std::bit_cast<float>(static_cast<u32>(bits));
    }
}

u64 bits_from(Type type, double value, bool saturate) {
    switch (type) {
        case Type::s32: {
            // The sums of a product of bytes and an accumulator fit a double exactly.
            const auto whole = static_cast<s64>(value);
            if (!saturate) return static_cast<u32>(whole);
            return static_cast<u32>(
                std::clamp<s64>(whole, std::numeric_limits<s32>::min(), std::numeric_limits<s32>::max()));
        }
        case Type::f16:
            return to_half(value, Rounding::nearest);
        case Type::f64:
            return std::bit_cast<u64>(value);
        default:
            return std::bit_cast<u32>(canonical(static_cast<float>(value)));
    }
}

// The registers of one matrix, as elements: number `index` of lane `lane`.
class Fragment {
  public:
    Fragment(Context& context, const std::vector<Place>& places, Type type)
        : context_(context), places_(places), bits_(element_bits(type)), each_(std::max(1U, 32 / bits_)) {}

    unsigned elements() const { return static_cast<unsigned>(places_.size()) * each_; }
    u64 get(unsigned lane, unsigned index) const {
        const Place place = places_[index / each_];
        if (bits_ == 64) return context_.at<u64>(place)[lane];
        return context_.at<u32>(place)[lane] >> (index % each_ * bits_) & mask();
    }
    void set(unsigned lane, unsigned index, u64 value) const {
        const Place place = places_[index / each_];
        if (bits_ == 64) {
            context_.at<u64>(place)[lane] = value;
            return;
        }
        const unsigned shift = index % each_ * bits_;
        u32& word = context_.at<u32>(place)[lane];
        word = (word & ~(mask() << shift)) | (static_cast<u32>(value) & mask()) << shift;
    }
    unsigned each() const { return each_; }

  private:
    u32 mask() const { return bits_ >= 32 ? ~u32{0} : (u32{1} << bits_) - 1; }
    Context& context_;
    const std::vector<Place>& places_;
    unsigned bits_, each_;
};

struct Cell {
    unsigned row, column;
};

// Where elements of mma.sync's matrices lie: PTX ISA, "Matrix Fragments for mma". a has m rows and k columns,
// b k and n, c and d m and n.
Cell cell_of_a(unsigned lane, unsigned index, unsigned each, unsigned rows) {
    const unsigned reg = index / each;
    const unsigned halves = rows / 8;
    return {lane / 4 + reg % halves * 8, lane % 4 * each + reg / halves * 4 * each + index % each};
}
Cell cell_of_b(unsigned lane, unsigned index, unsigned each) {
    return {lane % 4 * each + index / each * 4 * each + index % each, lane / 4};
}
Cell cell_of_c(unsigned lane, unsigned index) { return {lane / 4 + index / 2 * 8, lane % 4 * 2 + index % 2}; }

// Of wmma the layout is the implementation's own: row after row over the lanes, again where there is room.
Cell cell_of_tile(unsigned lane, unsigned index, unsigned elements, unsigned rows, unsigned columns) {
    const unsigned linear = (lane * elements + index) % (rows * columns);
    return {linear / columns, linear % columns};
}

using Matrix = std::array<std::array<double, 32>, 32>;

// d = a * b + c
void product(const Packed& what, const Matrix& a, const Matrix& b, Matrix& c) {
    for (unsigned row = 0; row < what.shape.m; ++row) {
        for (unsigned column = 0; column < what.shape.n; ++column) {
            double sum = c[row][column];
            for (unsigned k = 0; k < what.shape.k; ++k) sum += a[row][k] * b[k][column];
            c[row][column] = sum;
        }
    }
}

template <bool tile>
void multiply(Context& context, const Op& op, Mask) {
    const Packed what = unpack(op.offset);
    const auto& lists = context.frame->function->lists;
    const Fragment fd(context, lists[op.extra], what.d);
    const Fragment fa(context, lists[op.extra + 1], what.a);
    const Fragment fb(context, lists[op.extra + 2], what.b);
    const Fragment fc(context, lists[op.extra + 3], what.c);
    const Shape& shape = what.shape;
    Matrix a{};
    Matrix b{};
    Matrix c{};
    for (unsigned lane = 0; lane < lanes; ++lane) {
        for (unsigned index = 0; index < fa.elements(); ++index) {
            const Cell at = tile ? cell_of_tile(lane, index, fa.elements(), shape.m, shape.k)
                                 : cell_of_a(lane, index, fa.each(), shape.m);
            a[at.row % 32][at.column % 32] = number_from(what.a, fa.get(lane, index));
        }
        for (unsigned index = 0; index < fb.elements(); ++index) {
            const Cell at = tile ? cell_of_tile(lane, index, fb.elements(), shape.k, shape.n)
                                 : cell_of_b(lane, index, fb.each());
            b[at.row % 32][at.column % 32] = number_from(what.b, fb.get(lane, index));
        }
        for (unsigned index = 0; index < fc.elements(); ++index) {
            const Cell at =
                tile ? cell_of_tile(lane, index, fc.elements(), shape.m, shape.n) : cell_of_c(lane, index);
            c[at.row % 32][at.column % 32] = number_from(what.c, fc.get(lane, index));
        }
    }
    product(what, a, b, c);
    const bool saturate = (op.flags & flag::finite) != 0;
    for (unsigned lane = 0; lane < lanes; ++lane) {
        for (unsigned index = 0; index < fd.elements(); ++index) {
            const Cell at =
                tile ? cell_of_tile(lane, index, fd.elements(), shape.m, shape.n) : cell_of_c(lane, index);
            fd.set(lane, index, bits_from(what.d, c[at.row % 32][at.column % 32], saturate));
        }
    }
}

// --- reading the instruction

bool number_after(std::string_view text, std::size_t& at, char letter, unsigned& value) {
    if (at >= text.size() || text[at] != letter) return false;
    const std::size_t start = ++at;
    value = 0;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9' && at < start + 3) {
        value = value * 10 + static_cast<unsigned>(text[at++] - '0');
    }
    return at > start;
}

Shape shape_of(Lowering& lowering) {
    const auto text = lowering.accept_prefix(".m");
    Shape shape;
    std::size_t at = 1;
    if (!text || !number_after(*text, at, 'm', shape.m) || !number_after(*text, at, 'n', shape.n) ||
        !number_after(*text, at, 'k', shape.k) || at != text->size() || shape.m == 0 || shape.n == 0 ||
        shape.k == 0 || shape.m > 32 || shape.n > 32 || shape.k > 32) {
        lowering.refuse();
    }
    return shape;
}

// The registers of a fragment: of 32 bits, or of 64 for f64. `whole`: how many elements it must have at
// least.
std::vector<Place> fragment(Lowering& lowering, const Operand& operand, Type type, unsigned whole,
                            bool write) {
    const Type word = type == Type::f64 ? Type::b64 : Type::b32;
    const unsigned each = std::max(1U, 32 / element_bits(type));
    std::vector<Place> places;
    const auto add = [&](const Operand& one) {
        places.push_back(write ? lowering.target(one, word) : lowering.source(one, word));
    };
    if (operand.kind == OperandKind::vector) {
        for (const Operand& one : operand.parts) add(one);
    } else {
        add(operand);
    }
    if (places.size() > 16 || places.size() * each * lanes < whole)
        lowering.refuse("fragments of another size");
    return places;
}

std::uint32_t keep(Lowering& lowering, std::vector<Place> places) {
    lowering.function().lists.push_back(std::move(places));
    return static_cast<std::uint32_t>(lowering.function().lists.size() - 1);
}

bool multiplies(Type type) {
    return type == Type::f16 || type == Type::bf16 || type == Type::tf32 || type == Type::f64 ||
           type == Type::s8 || type == Type::u8;
}
bool accumulates(Type type) {
    return type == Type::f16 || type == Type::f32 || type == Type::s32 || type == Type::f64;
}

void emit_product(Lowering& lowering, const Packed& what, Handler run, bool exact_size) {
    lowering.expect_operands(4);
    if (!multiplies(what.a) || !multiplies(what.b) || !accumulates(what.c) || !accumulates(what.d))
        lowering.refuse();
    if (element_bits(what.a) != element_bits(what.b)) lowering.refuse();
    const bool saturate = lowering.accept(".satfinite");
    const Shape& shape = what.shape;
    std::vector<Place> a = fragment(lowering, lowering.operand(1), what.a, shape.m * shape.k, false);
    std::vector<Place> b = fragment(lowering, lowering.operand(2), what.b, shape.k * shape.n, false);
    std::vector<Place> c = fragment(lowering, lowering.operand(3), what.c, shape.m * shape.n, false);
    std::vector<Place> d = fragment(lowering, lowering.operand(0), what.d, shape.m * shape.n, true);
    const auto exactly = [&](const std::vector<Place>& places, Type type, unsigned whole) {
        return places.size() * std::max(1U, 32 / element_bits(type)) * lanes == whole;
    };
    if (exact_size && (!exactly(a, what.a, shape.m * shape.k) || !exactly(b, what.b, shape.k * shape.n) ||
                       !exactly(c, what.c, shape.m * shape.n) || !exactly(d, what.d, shape.m * shape.n))) {
        lowering.refuse("fragments of another size");
    }
    const std::uint32_t first = keep(lowering, std::move(d));
    keep(lowering, std::move(a));
    keep(lowering, std::move(b));
    keep(lowering, std::move(c));
    Op& op = lowering.emit(run, Work::matrix);
    op.kind = Kind::gather;
    op.extra = first;
    op.offset = pack(what);
    op.flags = saturate ? flag::finite : 0;
}

void lower_mma(Lowering& lowering) {
    if (!lowering.accept(".sync")) lowering.refuse();
    lowering.accept_any({".aligned"});
    Packed what{};
    what.shape = shape_of(lowering);
    if (!lowering.accept(".row") || !lowering.accept(".col")) lowering.refuse();
    what.d = lowering.type();
    what.a = lowering.type();
    what.b = lowering.type();
    what.c = lowering.type();
    if (what.shape.n != 8 || (what.shape.m != 16 && what.shape.m != 8)) lowering.refuse();
    emit_product(lowering, what, &multiply<false>, true);
}

// wmma.load and wmma.store. op.e and op.d: what pack() made; op.extra: the list, above the state space;
// op.width: bit 0: by columns, bit 1: a store.
void move_tile(Context& context, const Op& op, Mask) {
    const Packed what = unpack(static_cast<std::int64_t>(u64{op.e} << 32 | op.d));
    const unsigned rows = what.shape.m;
    const unsigned columns = what.shape.n;
    const std::vector<Place>& places = context.frame->function->lists[op.extra >> 8];
    const Fragment tile(context, places, what.d);
    const bool by_columns = (op.width & 1) != 0;
    const bool store = (op.width & 2) != 0;
    const unsigned bytes = element_bits(what.d) / 8;
    for (unsigned lane = 0; lane < lanes; ++lane) {
        const u64 base =
            ((op.flags & flag::wide) != 0 ? context.at<u64>(op.a)[lane] : context.at<u32>(op.a)[lane]) +
            static_cast<u64>(op.offset);
        const u64 stride = context.at<u32>(op.b)[lane];
        for (unsigned index = 0; index < tile.elements(); ++index) {
            const Cell at = cell_of_tile(lane, index, tile.elements(), rows, columns);
            const u64 place =
                base + bytes * (by_columns ? at.column * stride + at.row : at.row * stride + at.column);
            if (place % bytes != 0) {
                context.fault = CUDA_ERROR_MISALIGNED_ADDRESS;
                return;
            }
            std::byte* host =
                context.block->resolve_one(static_cast<Space>(op.extra & 0xff), place, bytes,
                                           store ? AccessKind::write : AccessKind::read, context, lane);
            if (host == nullptr) return;
            u64 value = store ? tile.get(lane, index) : 0;
            if (store) {
                std::memcpy(host, &value, bytes);
            } else {
                std::memcpy(&value, host, bytes);
                tile.set(lane, index, value);
            }
        }
    }
}

void lower_wmma(Lowering& lowering) {
    const bool load = lowering.accept(".load");
    const bool store = !load && lowering.accept(".store");
    const bool a = load && lowering.accept(".a");
    const bool b = load && !a && lowering.accept(".b");
    if (!load && !store && !lowering.accept(".mma")) lowering.refuse();
    if (load || store) lowering.accept_any({".c", ".d"});
    if (!lowering.accept(".sync")) lowering.refuse();
    lowering.accept(".aligned");
    Packed what{};
    what.shape = shape_of(lowering);
    const bool by_columns = lowering.accept(".col");
    lowering.accept_any({".row", ".col"});
    if (!load && !store) {
        lowering.accept_any({".row", ".col"});
        what.d = lowering.type();
        const Type second = lowering.type();
        const auto third = lowering.maybe_type();
        what.a = third ? second : Type::f16;
        what.b = third ? *third : Type::f16;
        what.c = third ? lowering.type() : second;
        emit_product(lowering, what, &multiply<true>, false);
        return;
    }
    Space space = Space::generic;
    if (lowering.accept(".global")) space = Space::global;
    if (lowering.accept_any({".shared", ".shared::cta"})) space = Space::shared;
    const Shape whole = what.shape;
    what.shape = a ? Shape{whole.m, whole.k, 1} : b ? Shape{whole.k, whole.n, 1} : Shape{whole.m, whole.n, 1};
    what.d = lowering.type();
    if (!multiplies(what.d) && !accumulates(what.d)) lowering.refuse();
    lowering.expect_operands(2, 3);
    const std::size_t at = load ? 1 : 0;
    std::vector<Place> places =
        fragment(lowering, lowering.operand(load ? 0 : 1), what.d, what.shape.m * what.shape.n, load);
    const Address address = lowering.address(at, space);
    if (address.space == Space::frame_parameter) lowering.refuse();
    const unsigned dense = by_columns ? what.shape.m : what.shape.n;
    const Place stride = lowering.count() == 3 ? lowering.source(2, Type::u32) : lowering.constant(dense, 4);
    const auto packed = static_cast<std::uint64_t>(pack(what));
    const std::uint32_t list = keep(lowering, std::move(places));
    if (list >= 1U << 24) lowering.refuse();
    Op& op = lowering.emit(&move_tile, Work::memory);
    op.kind = Kind::gather;
    op.extra = list << 8 | static_cast<std::uint32_t>(address.space);
    op.d = static_cast<std::uint32_t>(packed);
    op.e = static_cast<std::uint32_t>(packed >> 32);
    address.put(op);
    op.b = stride;
    op.width = static_cast<std::uint8_t>((by_columns ? 1 : 0) | (store ? 2 : 0));
}

// ldmatrix and stmatrix: 8 by 8 matrices of 16 bits; lanes 8j to 8j + 7 hold the addresses of matrix j's
// rows.
template <bool store>
void move_matrix(Context& context, const Op& op, Mask) {
    const std::vector<Place>& places = context.frame->function->lists[op.extra >> 16];
    const bool transposed = op.width != 0;
    for (unsigned number = 0; number < places.size(); ++number) {
        u32* words = context.at<u32>(places[number]);
        u16 matrix[8][8];
        std::byte* rows[lanes];
        const Mask who = Mask{0xff} << (8 * number);
        if (!context.block->resolve(context, op, who, 16, store ? AccessKind::write : AccessKind::read, rows))
            return;
        if (!store) {
            for (unsigned row = 0; row < 8; ++row) std::memcpy(matrix[row], rows[8 * number + row], 16);
        }
        for (unsigned lane = 0; lane < lanes; ++lane) {
            const unsigned row = lane / 4;
            const unsigned column = lane % 4 * 2;
            u16& low = transposed ? matrix[column][row] : matrix[row][column];
            u16& high = transposed ? matrix[column + 1][row] : matrix[row][column + 1];
            if (store) {
                low = static_cast<u16>(words[lane]);
                high = static_cast<u16>(words[lane] >> 16);
            } else {
                words[lane] = low | u32{high} << 16;
            }
        }
        if (store) {
            for (unsigned row = 0; row < 8; ++row) std::memcpy(rows[8 * number + row], matrix[row], 16);
        }
    }
}

void lower_move_matrix(Lowering& lowering) {
    const bool store = lowering.opcode == "stmatrix";
    if (!lowering.accept(".sync") || !lowering.accept(".m8n8")) lowering.refuse();
    lowering.accept_any({".aligned", ".shared", ".shared::cta"});
    unsigned count = 0;
    for (const auto& [name, number] : {std::pair{".x1", 1U}, std::pair{".x2", 2U}, std::pair{".x4", 4U}}) {
        if (lowering.accept(name)) count = number;
    }
    const bool transposed = lowering.accept(".trans");
    if (count == 0 || lowering.type() != Type::b16) lowering.refuse();
    lowering.expect_operands(2);
    const Operand& registers = lowering.operand(store ? 1 : 0);
    if (registers.kind == OperandKind::vector && registers.parts.size() != count) lowering.refuse();
    std::vector<Place> places = fragment(lowering, registers, Type::f16, 64 * count, !store);
    if (places.size() != count) lowering.refuse();
    const Address address = lowering.address(store ? 0 : 1, Space::shared);
    if (lowering.function().lists.size() > 0xffff) lowering.refuse();
    const std::uint32_t list = keep(lowering, std::move(places));
    Op& op = lowering.emit(store ? &move_matrix<true> : &move_matrix<false>, Work::memory);
    op.kind = Kind::gather;
    op.extra = list << 16 | static_cast<std::uint32_t>(address.space);
    address.put(op);
    op.width = transposed ? 1 : 0;
}

}  // namespace

void add_matrix(Families& families) {
    families["mma"] = &lower_mma;
    families["wmma"] = &lower_wmma;
    families["ldmatrix"] = &lower_move_matrix;
    families["stmatrix"] = &lower_move_matrix;
}

}  // namespace fikit::sim::ptx
