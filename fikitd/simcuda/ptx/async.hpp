// What instructions that report to a barrier in shared memory have in common.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ptx/lowering.hpp"

namespace fikit::sim::ptx {

u64 address_in(const Context& context, Place base, std::int64_t offset, bool wide, unsigned lane);
// To [op.a + op.offset], from [op.b + op.extra]; flag::negate: op.b has 32 bits.
void put_async_ends(Lowering& lowering, Op& op, const Address& to, const Address& from);
// An operation after the one that moved them: so many bytes have come, the barrier at that operand is told,
// in these blocks of the cluster or in the one that the address names.
void complete_bytes(Lowering& lowering, std::size_t barrier, Place bytes, Place blocks = no_place);

// The same place in the shared memory of that block of the cluster.
constexpr u64 in_block(u64 address, unsigned rank) {
    constexpr u64 rank_mask = u64{0xff} << window::rank_shift;
    return (address & ~rank_mask) | u64{rank + 1} << window::rank_shift;
}
// The ranks in a mask of .multicast::cluster.
template <typename Visit>
void each_block(u16 blocks, Visit visit) {
    for (unsigned rank = 0; rank < 16; ++rank) {
        if ((blocks >> rank & 1) != 0) visit(rank);
    }
}

// What follows cp.async.bulk, and cp.async.bulk.tensor.
void lower_bulk_copy(Lowering& lowering);
void lower_tensor_copy(Lowering& lowering, bool reduction);

// What `atom` does to a value in memory, with one operand.
using Reduction = void (*)(std::byte* place, const std::byte* value);
// By the modifiers .add, .min ... and the type. `shared`: where it lies.
Reduction reduction(Lowering& lowering, bool shared, unsigned& bytes);
// By the modifier, for each CUtensorMapDataType; null: not for that one.
std::array<Reduction, 13> reductions_by_tensor(Lowering& lowering);

}  // namespace fikit::sim::ptx
