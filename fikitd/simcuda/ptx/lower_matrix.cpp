// Tensor cores: mma.sync and wmma.
//
// Products are exact and summed in double precision; the hardware truncates between the steps of its sums,
// so the last bits of f32 and f16 results differ. Integers are exact.
#include <algorithm>
#include <cstring>

#include "ptx/matrix.hpp"

namespace fikit::sim::ptx {

using namespace matrix;

namespace {

// Of wmma the layout is the implementation's own: row after row over the lanes, again where there is room.
Cell cell_of_tile(unsigned lane, unsigned index, unsigned elements, unsigned rows, unsigned columns) {
    const unsigned linear = (lane * elements + index) % (rows * columns);
    return {linear / columns, linear % columns};
}
// b lies column after column, so that a register has elements that are neighbours in memory also where they
// are smaller than bytes.
Cell cell_of_turned_tile(unsigned lane, unsigned index, unsigned elements, unsigned rows, unsigned columns) {
    const Cell turned = cell_of_tile(lane, index, elements, columns, rows);
    return {turned.column, turned.row};
}

// What of a's columns the elements are that mma.sp holds of them: PTX ISA, "Sparse matrix storage". Of four
// elements two are there, of two of 32 bits one, with two or four bits of metadata each. Where those bits lie
// follows from how whole warps share them: each of the eight groups of four lanes has rows r and r + 8, in
// words of 16 bits each or, for elements of eight bits, of 32. `selector` says which lanes of a group.
class Chosen {
  public:
    Chosen(const u32* metadata, unsigned bits, unsigned columns, unsigned selector)
        : metadata_(metadata),
          wide_(bits == 32),
          unit_(bits == 8 ? 32 : 16),
          lanes_(lanes_of_group(bits, columns)),
          selector_(selector) {}

    // Lanes of each group that have metadata of one product.
    static unsigned lanes_of_group(unsigned bits, unsigned columns) {
        return 16 * (columns / 2) * (bits == 32 ? 4 : 2) / 256;
    }
    unsigned column(unsigned row, unsigned held) const {
        const unsigned bit = held * (wide_ ? 4 : 2);
        const unsigned unit = bit / unit_;
        const bool both = unit_ == 16;  // rows in a lane's word
        const unsigned lane = row % 8 * 4 + selector_ * lanes_ + (both ? unit : unit * 2 + row / 8);
        const unsigned index = metadata_[lane] >> (bit % unit_ + (both ? row / 8 * 16 : 0)) & 3;
        return wide_ ? held * 2 + index / 2 : held / 2 * 4 + index;
    }

  private:
    const u32* metadata_;
    bool wide_;
    unsigned unit_, lanes_, selector_;
};

// The function's lists hold the registers, from op.extra on: d, a, b, c. op.offset: Packed. op.width: bits
// that differ are counted, not products. op.a: a sparse matrix' metadata; op.d: its selector.
template <bool tile>
void multiply(Context& context, const Op& op, Mask) {
    const Packed what = unpack(op.offset);
    const auto& lists = context.frame->function->lists;
    const Fragment fd(context, lists[op.extra], what.d);
    const Fragment fa(context, lists[op.extra + 1], what.a);
    const Fragment fb(context, lists[op.extra + 2], what.b);
    const Fragment fc(context, lists[op.extra + 3], what.c);
    const auto& [m, n, k] = what.shape;
    const auto sum_at = [&, columns = n, rows = m](unsigned lane, unsigned index, unsigned elements) {
        const Cell at = tile ? cell_of_tile(lane, index, elements, rows, columns) : cell_of_c(lane, index);
        return at.row * columns + at.column;
    };
    Workspace& space = Workspace::get();
    const bool sparse = op.a != no_place;
    const Chosen chosen(sparse ? context.at<u32>(op.a) : nullptr, bits_of(what.a), k, op.d);
    if (sparse) std::fill_n(space.a, m * k, 0.0);
    for (unsigned lane = 0; lane < lanes; ++lane) {
        for (unsigned index = 0; index < fa.elements(); ++index) {
            Cell at =
                tile ? cell_of_tile(lane, index, fa.elements(), m, k) : cell_of_a(lane, index, fa.each(), m);
            if (sparse) at.column = chosen.column(at.row, at.column);
            space.a[at.row * k + at.column] = number_from(what.a, fa.get(lane, index));
        }
        for (unsigned index = 0; index < fb.elements(); ++index) {
            const Cell at = tile ? cell_of_turned_tile(lane, index, fb.elements(), k, n)
                                 : cell_of_b(lane, index, fb.each());
            space.b[at.row * n + at.column] = number_from(what.b, fb.get(lane, index));
        }
        for (unsigned index = 0; index < fc.elements(); ++index) {
            space.c[sum_at(lane, index, fc.elements())] = number_from(what.c, fc.get(lane, index));
        }
    }
    space.multiply(what.shape, op.width != 0);
    const bool saturate = (op.flags & flag::finite) != 0;
    for (unsigned lane = 0; lane < lanes; ++lane) {
        for (unsigned index = 0; index < fd.elements(); ++index) {
            fd.set(lane, index, bits_from(what.d, space.c[sum_at(lane, index, fd.elements())], saturate));
        }
    }
}

// `several`: how often a matrix may lie in its registers.
std::vector<Place> whole_fragment(Lowering& lowering, std::size_t index, Element element, unsigned elements,
                                  bool write, bool several) {
    std::vector<Place> places = fragment(lowering, lowering.operand(index), element, write);
    const std::size_t held = places.size() * std::max(1U, 32 / bits_of(element)) * lanes;
    if (several ? held < elements || held % elements != 0 || places.size() > 16 : held != elements)
        lowering.refuse("fragments of another size");
    return places;
}

void emit_product(Lowering& lowering, const Packed& what, Handler run, bool several, bool sparse = false) {
    lowering.expect_operands(sparse ? 6 : 4);
    if (!multiplies(what.a) || !multiplies(what.b) || !accumulates(what.c) || !accumulates(what.d))
        lowering.refuse();
    if (bits_of(what.a) != bits_of(what.b) || (what.a == Element::b1) != lowering.accept(".popc"))
        lowering.refuse();
    const bool exclusive = what.a == Element::b1 && lowering.accept(".xor");
    if (what.a == Element::b1 && !exclusive && !lowering.accept(".and")) lowering.refuse();
    const bool saturate = lowering.accept(".satfinite");
    // Products of f64 round to nearest; the other ways are not made.
    if (what.d == Element::f64) lowering.accept(".rn");
    const auto& [m, n, k] = what.shape;
    if (std::max({m * k, k * n, m * n}) > Workspace::room) lowering.refuse();
    std::vector<Place> a = whole_fragment(lowering, 1, what.a, sparse ? m * k / 2 : m * k, false, several);
    std::vector<Place> b = whole_fragment(lowering, 2, what.b, k * n, false, several);
    std::vector<Place> c = whole_fragment(lowering, 3, what.c, m * n, false, several);
    std::vector<Place> d = whole_fragment(lowering, 0, what.d, m * n, true, several);
    const Place metadata = sparse ? lowering.source(4, Type::u32) : no_place;
    const std::uint32_t selector = sparse ? lowering.literal(5) : 0;
    if (sparse && (selector + 1) * Chosen::lanes_of_group(bits_of(what.a), k) > 4)
        lowering.refuse("a selector out of range");
    const std::uint32_t first = keep(lowering, std::move(d));
    keep(lowering, std::move(a));
    keep(lowering, std::move(b));
    keep(lowering, std::move(c));
    Op& op = lowering.emit(run, Work::matrix);
    op.kind = Kind::gather;
    op.extra = first;
    op.offset = pack(what);
    op.flags = saturate ? flag::finite : 0;
    op.width = exclusive ? 1 : 0;
    op.a = metadata;
    op.d = selector;
}

void lower_mma(Lowering& lowering) {
    const bool sparse = lowering.accept_any({".sp", ".sp::ordered_metadata"});
    if (!lowering.accept(".sync")) lowering.refuse();
    lowering.accept_any({".aligned"});
    Packed what{};
    what.shape = shape_of(lowering);
    if (!lowering.accept(".row") || !lowering.accept(".col")) lowering.refuse();
    what.d = element(lowering);
    what.a = element(lowering);
    what.b = element(lowering);
    what.c = element(lowering);
    if (what.shape.n != 8 || (what.shape.m != 16 && what.shape.m != 8)) lowering.refuse();
    if (sparse && bits_of(what.a) < 8) lowering.refuse();
    emit_product(lowering, what, &multiply<false>, false, sparse);
}

// wmma.load and wmma.store. op.e and op.d: what pack() made; op.extra: the list, above the state space;
// op.width: bit 0: by columns, bit 1: a store, bit 2: matrix b.
void move_tile(Context& context, const Op& op, Mask) {
    const Packed what = unpack(static_cast<std::int64_t>(u64{op.e} << 32 | op.d));
    const unsigned rows = what.shape.m;
    const unsigned columns = what.shape.n;
    const Fragment tile(context, context.frame->function->lists[op.extra >> 8], what.d);
    const bool by_columns = (op.width & 1) != 0;
    const bool store = (op.width & 2) != 0;
    const bool turned = (op.width & 4) != 0;
    // Elements smaller than bytes move as whole registers.
    const unsigned bits = bits_of(what.d);
    const unsigned together = bits < 8 ? tile.each() : 1;
    const unsigned bytes = bits * together / 8;
    for (unsigned lane = 0; lane < lanes; ++lane) {
        const u64 base =
            ((op.flags & flag::wide) != 0 ? context.at<u64>(op.a)[lane] : context.at<u32>(op.a)[lane]) +
            static_cast<u64>(op.offset);
        const u64 stride = context.at<u32>(op.b)[lane];
        for (unsigned index = 0; index < tile.elements(); index += together) {
            const Cell at = turned ? cell_of_turned_tile(lane, index, tile.elements(), rows, columns)
                                   : cell_of_tile(lane, index, tile.elements(), rows, columns);
            const u64 before = by_columns ? at.column * stride + at.row : at.row * stride + at.column;
            const u64 place = base + before * bits / 8;
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
                continue;
            }
            std::memcpy(&value, host, bytes);
            for (unsigned one = 0; one < together; ++one) tile.set(lane, index + one, value >> (bits * one));
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
        what.d = element(lowering);
        const Element second = element(lowering);
        const auto third = lowering.accept_first(&element_named);
        what.a = third ? second : Element::f16;
        what.b = third ? *third : Element::f16;
        what.c = third ? element(lowering) : second;
        emit_product(lowering, what, &multiply<true>, true);
        return;
    }
    Space space = Space::generic;
    if (lowering.accept(".global")) space = Space::global;
    if (lowering.accept_any({".shared", ".shared::cta"})) space = Space::shared;
    const Shape whole = what.shape;
    what.shape = a ? Shape{whole.m, whole.k, 1} : b ? Shape{whole.k, whole.n, 1} : Shape{whole.m, whole.n, 1};
    what.d = element(lowering);
    if (!multiplies(what.d) && !accumulates(what.d)) lowering.refuse();
    if (bits_of(what.d) < 8 && by_columns != b) lowering.refuse("a row of small elements must lie together");
    lowering.expect_operands(2, 3);
    const std::size_t at = load ? 1 : 0;
    std::vector<Place> places =
        whole_fragment(lowering, load ? 0 : 1, what.d, what.shape.m * what.shape.n, load, true);
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
    op.width = static_cast<std::uint8_t>((by_columns ? 1 : 0) | (store ? 2 : 0) | (b ? 4 : 0));
}

}  // namespace

void add_matrix(Families& families) {
    families["mma"] = &lower_mma;
    families["wmma"] = &lower_wmma;
}

}  // namespace fikit::sim::ptx
