// Matrices of 8 by 8 elements of 16 bits between memory and the registers of a warp: ldmatrix, stmatrix,
// movmatrix.
#include <cstring>
#include <utility>

#include "ptx/matrix.hpp"

namespace fikit::sim::ptx {

using namespace matrix;

namespace {

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
    std::vector<Place> places = fragment(lowering, registers, Element::f16, !store);
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

// movmatrix: the matrix that the lanes hold, turned.
void turn_matrix(Context& context, const Op& op, Mask) {
    const u32* from = context.at<u32>(op.a);
    u16 matrix[8][8];
    for (unsigned lane = 0; lane < lanes; ++lane) {
        matrix[lane / 4][lane % 4 * 2] = static_cast<u16>(from[lane]);
        matrix[lane / 4][lane % 4 * 2 + 1] = static_cast<u16>(from[lane] >> 16);
    }
    u32* to = context.at<u32>(op.d);
    for (unsigned lane = 0; lane < lanes; ++lane) {
        to[lane] = matrix[lane % 4 * 2][lane / 4] | u32{matrix[lane % 4 * 2 + 1][lane / 4]} << 16;
    }
}

void lower_turn_matrix(Lowering& lowering) {
    if (!lowering.accept(".sync") || !lowering.accept(".m8n8") || !lowering.accept(".trans"))
        lowering.refuse();
    lowering.accept(".aligned");
    if (lowering.type() != Type::b16) lowering.refuse();
    Op& op = lowering.emit(Type::b32, {Type::b32}, &turn_matrix, Work::memory);
    op.kind = Kind::gather;
}

}  // namespace

void add_matrix_moves(Families& families) {
    families["ldmatrix"] = &lower_move_matrix;
    families["stmatrix"] = &lower_move_matrix;
    families["movmatrix"] = &lower_turn_matrix;
}

}  // namespace fikit::sim::ptx
