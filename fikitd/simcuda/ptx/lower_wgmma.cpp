// wgmma: products of a warpgroup whose matrices lie in shared memory.
//
// Each of the four warps makes 16 of the 64 rows from what it reads itself, when the product is issued, which
// the rules of waiting (wgmma.fence, commit_group, wait_group) allow. But the product is the warpgroup's: who
// has waited may say on behalf of all four that shared memory is free, as one thread of CUTLASS's consumers
// does. So they meet at wait_group, which all of them execute (.aligned).
#include <algorithm>
#include <cstring>

#include "ptx/matrix.hpp"

namespace fikit::sim::ptx {

using namespace matrix;

namespace {

namespace bit {
constexpr std::uint8_t turn_a = 1, turn_b = 2, negate_a = 4, negate_b = 8, in_registers = 16;
}

// A matrix in shared memory: PTX ISA, "Matrix Descriptor Format". Rows here are those of a, columns of b.
class Stored {
  public:
    // `turned`: neighbours in memory are neighbours along m or n, not along k.
    Stored(u64 descriptor, Element element, bool turned)
        : start_((descriptor & 0x3fff) << 4),
          leading_((descriptor >> 16 & 0x3fff) << 4),
          stride_((descriptor >> 32 & 0x3fff) << 4),
          bytes_(bits_of(element) / 8),
          turned_(turned),
          known_((descriptor >> 49 & 7) == 0) {
        const auto mode = static_cast<unsigned>(descriptor >> 62);
        span_ = mode == 0 ? 16 : 256 >> mode;
        phases_ = mode == 0 ? 0 : span_ / 16 - 1;
    }
    // Patterns that begin elsewhere than at their own multiple (the base offset) are not known.
    bool known() const { return known_; }
    u64 place(unsigned row, unsigned k) const {
        const unsigned inner = (turned_ ? row : k) * bytes_;
        const unsigned outer = turned_ ? k : row;
        // Without a pattern, and along k, the strides change places.
        const bool plain = phases_ == 0;
        const u64 next_inner = plain && turned_ ? stride_ : leading_;
        const u64 next_outer = plain && turned_ ? leading_ : stride_;
        const u64 within = !turned_ && !plain ? inner : inner / span_ * next_inner + inner % span_;
        const u64 address = start_ + within + outer / 8 * next_outer + outer % 8 * u64{span_};
        return address ^ (address >> 7 & phases_) << 4;
    }

  private:
    u64 start_, leading_, stride_;
    unsigned bytes_, span_ = 0, phases_ = 0;
    bool turned_, known_;
};

// Reads element by element; false where one faults.
bool read(Context& context, const Stored& from, Element element, unsigned rows, unsigned first_row,
          unsigned depth, bool negate, bool transposed, double* into) {
    const unsigned bytes = bits_of(element) / 8;
    for (unsigned row = 0; row < rows; ++row) {
        for (unsigned k = 0; k < depth; ++k) {
            const std::byte* host = context.block->resolve_one(Space::shared, from.place(first_row + row, k),
                                                               bytes, AccessKind::read, context, 0);
            if (host == nullptr) return false;
            u64 value = 0;
            std::memcpy(&value, host, bytes);
            const double number = number_from(element, value);
            into[transposed ? k * rows + row : row * depth + k] = negate ? -number : number;
        }
    }
    return true;
}

// The function's lists hold the registers of d at op.extra, and of a after it where it lies in registers.
// op.a, op.b: descriptors; op.e: whether d is added; op.offset: Packed; op.width: bit::.
void multiply(Context& context, const Op& op, Mask) {
    Packed what = unpack(op.offset);
    what.shape.m = 16;
    const auto& [m, n, k] = what.shape;
    const auto& lists = context.frame->function->lists;
    const Fragment fd(context, lists[op.extra], what.d);
    Workspace& space = Workspace::get();
    const auto has = [&](std::uint8_t which) { return (op.width & which) != 0; };
    const Stored b(context.at<u64>(op.b)[0], what.b, has(bit::turn_b));
    bool known = b.known();
    if (has(bit::in_registers)) {
        const Fragment fa(context, lists[op.extra + 1], what.a);
        for (unsigned lane = 0; lane < lanes; ++lane) {
            for (unsigned index = 0; index < fa.elements(); ++index) {
                const Cell at = cell_of_a(lane, index, fa.each(), m);
                const double number = number_from(what.a, fa.get(lane, index));
                space.a[at.row * k + at.column] = has(bit::negate_a) ? -number : number;
            }
        }
    } else {
        const Stored a(context.at<u64>(op.a)[0], what.a, has(bit::turn_a));
        known = known && a.known();
        if (!read(context, a, what.a, m, context.warp->index % 4 * m, k, has(bit::negate_a), false, space.a))
            return;
    }
    if (!known) {
        context.fault = CUDA_ERROR_ILLEGAL_INSTRUCTION;
        return;
    }
    if (!read(context, b, what.b, n, 0, k, has(bit::negate_b), true, space.b)) return;
    const bool add = (context.predicate(op.e) & 1) != 0;
    for (unsigned lane = 0; lane < lanes; ++lane) {
        for (unsigned index = 0; index < fd.elements(); ++index) {
            const Cell at = cell_of_c(lane, index);
            space.c[at.row * n + at.column] = add ? number_from(what.d, fd.get(lane, index)) : 0;
        }
    }
    space.multiply(what.shape, false);
    const bool saturate = (op.flags & flag::finite) != 0;
    for (unsigned lane = 0; lane < lanes; ++lane) {
        for (unsigned index = 0; index < fd.elements(); ++index) {
            const Cell at = cell_of_c(lane, index);
            fd.set(lane, index, bits_from(what.d, space.c[at.row * n + at.column], saturate));
        }
    }
}

// An immediate operand that says yes or no, or +1 or -1.
bool chosen(const Lowering& lowering, std::size_t index, std::uint32_t yes, std::uint32_t no) {
    const std::uint32_t value = lowering.literal(index);
    if (value != yes && value != no) lowering.refuse("an operand out of range");
    return value == yes;
}

void lower_product(Lowering& lowering) {
    Packed what{};
    what.shape = shape_of(lowering);
    what.d = element(lowering);
    what.a = element(lowering);
    what.b = element(lowering);
    what.c = what.d;
    const bool saturate = lowering.accept(".satfinite");
    const auto& [m, n, k] = what.shape;
    const unsigned bits = bits_of(what.a);
    const bool whole = what.a == Element::s8 || what.a == Element::u8;
    if (m != 64 || n % 8 != 0 || k * bits != 256 || bits < 8 || bits != bits_of(what.b) ||
        !multiplies(what.a) || !multiplies(what.b) || !accumulates(what.d) || what.d == Element::f64 ||
        whole != (what.d == Element::s32)) {
        lowering.refuse();
    }
    const bool in_registers = lowering.operand(1).kind == OperandKind::vector;
    const std::size_t turns = whole || bits != 16 ? 0 : in_registers ? 1 : 2;
    lowering.expect_operands(whole ? 4 : 6 + turns);
    std::uint8_t how = in_registers ? bit::in_registers : 0;
    const auto set = [&](std::uint8_t which, bool value) {
        how = static_cast<std::uint8_t>(how | (value ? which : 0));
    };
    if (!whole) {
        set(bit::negate_a, chosen(lowering, 4, ~std::uint32_t{0}, 1));
        set(bit::negate_b, chosen(lowering, 5, ~std::uint32_t{0}, 1));
    }
    if (turns == 2) set(bit::turn_a, chosen(lowering, 6, 1, 0));
    if (turns > 0) set(bit::turn_b, chosen(lowering, 5 + turns, 1, 0));
    std::vector<Place> d = fragment(lowering, lowering.operand(0), what.d, true);
    if (d.size() * (32 / bits_of(what.d)) * lanes != 16 * n) lowering.refuse("fragments of another size");
    std::vector<Place> registers;
    Place a = no_place;
    if (in_registers) {
        registers = fragment(lowering, lowering.operand(1), what.a, false);
        if (registers.size() != 4) lowering.refuse("fragments of another size");
    } else {
        a = lowering.source(1, Type::b64);
    }
    const Place b = lowering.source(2, Type::b64);
    const Place e = lowering.predicate(lowering.operand(3));
    const std::uint32_t first = keep(lowering, std::move(d));
    keep(lowering, std::move(registers));
    Op& op = lowering.emit(&multiply, Work::matrix);
    op.kind = Kind::gather;
    op.extra = first;
    op.offset = pack(what);
    op.a = a;
    op.b = b;
    op.e = e;
    op.width = how;
    op.flags = saturate ? flag::finite : 0;
}

void lower_wgmma(Lowering& lowering) {
    lowering.accept(".aligned");
    const bool product = lowering.accept(".mma_async");
    const bool wait = lowering.accept(".wait_group");
    if (!product && !wait && !lowering.accept_any({".fence", ".commit_group"})) lowering.refuse();
    if (!lowering.accept(".sync")) lowering.refuse();
    if (product) return lower_product(lowering);
    lowering.expect_operands(wait ? 1 : 0);
    if (wait) lowering.emit(nullptr, Work::barrier).kind = Kind::barrier;
}

}  // namespace

void add_wgmma(Families& families) { families["wgmma"] = &lower_wgmma; }

}  // namespace fikit::sim::ptx
