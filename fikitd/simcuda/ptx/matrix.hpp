// What tensor cores work on: types of elements, shapes, and the registers of a warp as one matrix.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ptx/engine.hpp"
#include "ptx/lowering.hpp"

namespace fikit::sim::ptx::matrix {

// Some have no registers or memory of their own in PTX, and so are no Type.
enum class Element : std::uint8_t { b1, u4, s4, u8, s8, e4m3, e5m2, f16, bf16, tf32, f32, s32, f64 };

std::optional<Element> element_named(std::string_view modifier);
Element element(Lowering& lowering);  // the first one among the modifiers
unsigned bits_of(Element element);
bool multiplies(Element element);
bool accumulates(Element element);
double number_from(Element element, u64 bits);
u64 bits_from(Element element, double value, bool saturate);

struct Shape {
    unsigned m = 0, n = 0, k = 0;
};
Shape shape_of(Lowering& lowering);  // .m16n8k16

// What an operation on matrices needs, in op.offset.
struct Packed {
    Shape shape;
    Element d, a, b, c;
};
std::int64_t pack(const Packed& what);
Packed unpack(std::int64_t bits);

// The registers of one matrix, as elements: number `index` of lane `lane`.
class Fragment {
  public:
    Fragment(Context& context, const std::vector<Place>& places, Element element)
        : context_(context), places_(places), bits_(bits_of(element)), each_(std::max(1U, 32 / bits_)) {}

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
inline Cell cell_of_a(unsigned lane, unsigned index, unsigned each, unsigned rows) {
    const unsigned reg = index / each;
    const unsigned halves = rows / 8;
    return {lane / 4 + reg % halves * 8, lane % 4 * each + reg / halves * 4 * each + index % each};
}
inline Cell cell_of_b(unsigned lane, unsigned index, unsigned each) {
    return {lane % 4 * each + index / each * 4 * each + index % each, lane / 4};
}
inline Cell cell_of_c(unsigned lane, unsigned index) {
    return {lane / 4 + index / 2 % 2 * 8, index / 4 * 8 + lane % 4 * 2 + index % 2};
}

// The matrices of one product while it is made, row by row. They are large, so a thread keeps them.
struct Workspace {
    static constexpr unsigned room = 8192;  // 256 columns of b with 32 rows
    double a[room], b[room], c[room];
    static Workspace& get();
    // c += a * b; `exclusive`: of bits that differ rather than of products
    void multiply(const Shape& shape, bool exclusive);
};

// The registers of a fragment: of 32 bits, or of 64 for f64.
std::vector<Place> fragment(Lowering& lowering, const Operand& operand, Element element, bool write);
// As a list of the function.
std::uint32_t keep(Lowering& lowering, std::vector<Place> places);

}  // namespace fikit::sim::ptx::matrix
